"""Users, access rules and quotas according to the records of the metadata log."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from .access_records import (
    AccessRecord,
    CredentialsAltered,
    DecoyKeySet,
    QuotaEntity,
    QuotasAltered,
    RulesAdded,
    RulesRemoved,
    StoredCredential,
    StoredRule,
)

IN_RECORD: Final = 1000
"""Maximum number of changes in one record of a state, and of a request for many changes."""

T = TypeVar("T")

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
