"""Users, access rules and quotas: their records in the metadata log, and what they are according to
these records.

    kind           what follows                                       meaning
    "decoy key"    key                                                see `DecoyKeySet`
    "credentials"  [[user, mechanism, salt, iterations, stored key,   credentials were set
                     server key], [user, mechanism], ...]             or removed
    "rules"        [[principal, host, operation, permission,          access rules were added
                     resource type, pattern type, resource name], ...]
    "rules gone"   the same                                           access rules were removed
    "quotas"       [[user, client id, {quota: value}], ...]           all quotas of these entities

Salts and keys are bytes. The parts of a rule are texts. A name in a quota's entity may be nil. All
these records have version 3.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import isfinite
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from ...protocol.api.security.acl_terms import Operation, PatternType, Permission, ResourceType
from ...protocol.api.security.client_quotas import Quota
from ...protocol.limits import (
    MAX_ACL_TEXT_BYTES,
    MAX_QUOTA_NAME_BYTES,
    MAX_SALT_BYTES,
    MAX_SCRAM_ITERATIONS,
    MIN_SCRAM_ITERATIONS,
)
from ...protocol.sasl.mechanisms import SCRAM_MECHANISMS

IN_RECORD: Final = 1000
"""Maximum number of changes in one record of a state, and of a request for many changes."""

T = TypeVar("T")

ACCESS_VERSION: Final = 3

DECOY_KEY: Final = "decoy key"
CREDENTIALS: Final = "credentials"
RULES: Final = "rules"
RULES_GONE: Final = "rules gone"
QUOTAS: Final = "quotas"

MAX_USER_NAME_BYTES: Final = 255
DECOY_KEY_BYTES: Final = 32


class MalformedRecord(ValueError):
    """A record breaks the format, or is of a later version; the text says how."""


class NewerRecord(MalformedRecord):
    """A record was written by a later version of Horolog."""


class StoredCredential(NamedTuple):
    """The stored form of a SCRAM password. It cannot be used to log in."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"StoredCredential(iterations={self.iterations})"


class DecoyKeySet(NamedTuple):
    """The key from which credentials for unknown user names are derived. The first one set stays in
    use: the salt shown to a client for such a name is the same on every broker, as it is for a
    user."""

    key: bytes

    def __repr__(self) -> str:
        return "DecoyKeySet()"


class CredentialsAltered(NamedTuple):
    """Credentials of users were set or removed."""

    changes: Sequence[tuple[str, str, StoredCredential | None]]
    """User, mechanism, and the credential; `None` removes it."""


class StoredRule(NamedTuple):
    """An access rule as texts. Kafka's terms are stored as the names of the enumerations."""

    principal: str
    host: str
    operation: str
    permission: str
    resource_type: str
    pattern_type: str
    resource_name: str


class RulesAdded(NamedTuple):
    """Access rules were added."""

    rules: Sequence[StoredRule]


class RulesRemoved(NamedTuple):
    """Access rules were removed."""

    rules: Sequence[StoredRule]


QuotaEntity = tuple[str | None, str | None]
"""User and client id: `None` if it does not matter, empty for the default."""


class QuotasAltered(NamedTuple):
    """The complete quotas of some entities were set."""

    changes: Sequence[tuple[QuotaEntity, Mapping[str, float]]]


AccessRecord = DecoyKeySet | CredentialsAltered | RulesAdded | RulesRemoved | QuotasAltered

_NOTHING: Final[Mapping[str, StoredCredential]] = MappingProxyType({})


class AccessState(NamedTuple):
    """Users, rules and quotas at one time. A change returns a new state that shares the unchanged
    parts. So any thread may read a state, and a part that is the same object has not changed."""

    users: Mapping[str, Mapping[str, StoredCredential]] = MappingProxyType({})
    """The credentials of each user by mechanism. A user without credentials does not exist."""
    rules: Mapping[StoredRule, None] = MappingProxyType({})
    """The access rules, in the order in which they were added."""
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = MappingProxyType({})
    decoy_key: bytes = b""
    """Empty before the first user is added."""

    def __repr__(self) -> str:
        return f"AccessState({len(self.users)} users, {len(self.rules)} rules)"

    def __bool__(self) -> bool:
        return bool(self.users or self.rules or self.quotas)

    def after(self, record: AccessRecord) -> "AccessState":
        """Return the state after a record."""
        match record:
            case DecoyKeySet(key):
                return self if self.decoy_key else self._replace(decoy_key=key)
            case CredentialsAltered(changes):
                return self._replace(users=_users_after(self.users, changes))
            case RulesAdded(rules):
                return self._replace(rules={**self.rules, **dict.fromkeys(rules)})
            case RulesRemoved(rules):
                gone = set(rules)
                return self._replace(rules={each: None for each in self.rules if each not in gone})
            case QuotasAltered(changes):
                quotas = {**self.quotas, **dict(changes)}
                return self._replace(quotas={each: own for each, own in quotas.items() if own})

    def records(self) -> Iterator[AccessRecord]:
        """Yield records that create this state from an empty one."""
        if self.decoy_key:
            yield DecoyKeySet(self.decoy_key)
        credentials = (
            (user, name, found) for user, held in self.users.items() for name, found in held.items()
        )
        for changes in _parts(credentials):
            yield CredentialsAltered(changes)
        for rules in _parts(self.rules):
            yield RulesAdded(rules)
        for quotas in _parts(self.quotas.items()):
            yield QuotasAltered(quotas)


def _users_after(
    users: Mapping[str, Mapping[str, StoredCredential]],
    changes: Iterable[tuple[str, str, StoredCredential | None]],
) -> Mapping[str, Mapping[str, StoredCredential]]:
    after = dict(users)
    for user, mechanism, credential in changes:
        held = dict(after.get(user, _NOTHING))
        if credential is None:
            held.pop(mechanism, None)
        else:
            held[mechanism] = credential
        if held:
            after[user] = held
        else:
            after.pop(user, None)
    return after


def _parts(found: Iterable[T]) -> Iterator[tuple[T, ...]]:
    several = iter(found)
    while part := tuple(islice(several, IN_RECORD)):
        yield part


HIDDEN: Final = b"(salts and keys of users, which are not shown)"
"""Text that `horolog dump` shows in place of such a record."""

_SECRETS: Final = tuple(
    bytes([len(kind) | 0xA0]) + kind.encode() for kind in (CREDENTIALS, DECOY_KEY)
)
"""The kinds of records with secrets, as msgpack encodes them."""


def shown_value(value: bytes | None) -> bytes | None:
    """Return the value of a message as it may be shown, without salts and keys, even if it is
    damaged."""
    hidden = value is not None and any(each in value[:1024] for each in _SECRETS)
    return HIDDEN if hidden else value


def access_fields(record: AccessRecord) -> list[Any]:
    """Return kind and content of a record."""
    match record:
        case DecoyKeySet(key):
            return [DECOY_KEY, key]
        case CredentialsAltered(changes):
            return [CREDENTIALS, [[user, name, *(found or ())] for user, name, found in changes]]
        case RulesAdded(rules):
            return [RULES, [list(rule) for rule in rules]]
        case RulesRemoved(rules):
            return [RULES_GONE, [list(rule) for rule in rules]]
        case QuotasAltered(changes):
            return [QUOTAS, [[*entity, dict(sorted(values.items()))] for entity, values in changes]]


def _decoy_key(key: Any) -> DecoyKeySet:
    return DecoyKeySet(_bytes(key, DECOY_KEY_BYTES, DECOY_KEY_BYTES))


def _credentials(changes: Any) -> CredentialsAltered:
    return CredentialsAltered(tuple(map(_credential, _list(changes, "credentials"))))


def _credential(fields: Any) -> tuple[str, str, StoredCredential | None]:
    user, name, *found = _list(fields, "a credential", 2, 6)
    mechanism = SCRAM_MECHANISMS.get(_text(name, "a mechanism", MAX_USER_NAME_BYTES))
    if mechanism is None:
        raise MalformedRecord(f"the mechanism {name[:40]!r} is unknown")
    user = _text(user, "a user", MAX_USER_NAME_BYTES)
    if not found:
        return user, mechanism.name, None
    salt, iterations, stored_key, server_key = found
    if type(iterations) is not int or not (
        MIN_SCRAM_ITERATIONS <= iterations <= MAX_SCRAM_ITERATIONS
    ):
        raise MalformedRecord(
            f"a credential has {str(iterations)[:40]} iterations; allowed are "
            f"{MIN_SCRAM_ITERATIONS} to {MAX_SCRAM_ITERATIONS}"
        )
    size = mechanism.hash_bytes
    keys = _bytes(stored_key, size, size), _bytes(server_key, size, size)
    return (
        user,
        mechanism.name,
        StoredCredential(_bytes(salt, 1, MAX_SALT_BYTES), iterations, *keys),
    )


def _rules_added(rules: Any) -> RulesAdded:
    return RulesAdded(tuple(map(_rule, _list(rules, "rules"))))


def _rules_removed(rules: Any) -> RulesRemoved:
    return RulesRemoved(tuple(map(_rule, _list(rules, "rules"))))


_TERMS: Final = (
    (2, Operation, "operation"),
    (3, Permission, "permission"),
    (4, ResourceType, "resource type"),
    (5, PatternType, "pattern type"),
)
"""The parts of a rule that are Kafka's terms."""


def _rule(fields: Any) -> StoredRule:
    parts = _list(fields, "a rule", len(StoredRule._fields))
    rule = StoredRule(*(_text(part, "a part of a rule", MAX_ACL_TEXT_BYTES) for part in parts))
    for number, terms, what in _TERMS:
        if rule[number] not in terms.__members__:
            raise MalformedRecord(f"the {what} of a rule is {rule[number][:40]!r}")
    return rule


def _quotas(changes: Any) -> QuotasAltered:
    return QuotasAltered(tuple(map(_quota, _list(changes, "quotas"))))


def _quota(fields: Any) -> tuple[QuotaEntity, dict[str, float]]:
    user, client_id, values = _list(fields, "a quota", 3)
    entity = _entity_name(user), _entity_name(client_id)
    if entity == (None, None):
        raise MalformedRecord("a quota is of no user and of no client")
    if not isinstance(values, dict):
        raise MalformedRecord("the values of a quota are not numbers by name")
    for name, value in values.items():
        if name not in _QUOTAS or type(value) is not float or not isfinite(value) or value <= 0:
            raise MalformedRecord(f"the quota {str(name)[:40]!r} is {str(value)[:40]}")
    return entity, values


_QUOTAS: Final = frozenset(each.value for each in Quota)


def _entity_name(name: Any) -> str | None:
    return None if name is None else _text(name, "an entity", MAX_QUOTA_NAME_BYTES, least=0)


def _list(found: Any, what: str, *sizes: int) -> list[Any]:
    if not isinstance(found, list) or (sizes and len(found) not in sizes):
        expected = f" of {' or '.join(map(str, sizes))}" if sizes else ""
        raise MalformedRecord(f"{what}: not a list{expected}")
    return found


def _text(found: Any, what: str, most: int, *, least: int = 1) -> str:
    if not isinstance(found, str) or not least <= len(found.encode("utf-8", "replace")) <= most:
        raise MalformedRecord(f"{what} is not a text of {least} to {most} bytes")
    return found


def _bytes(found: Any, least: int, most: int) -> bytes:
    if not isinstance(found, bytes) or not least <= len(found) <= most:
        raise MalformedRecord(f"a salt or a key is not {least} to {most} bytes")
    return found


ACCESS_DECODERS: Final[Mapping[str, Callable[..., AccessRecord]]] = {
    DECOY_KEY: _decoy_key,
    CREDENTIALS: _credentials,
    RULES: _rules_added,
    RULES_GONE: _rules_removed,
    QUOTAS: _quotas,
}
