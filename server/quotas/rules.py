"""The quotas in use, and the quota that applies to a client: Kafka's entities, in Kafka's order of
precedence."""

import math
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from ...protocol.api.security.client_quotas import (
    DescribeClientQuotasRequest,
    Quota,
    QuotaAlteration,
    QuotaEntityPart,
    QuotaEntry,
    QuotaOp,
    QuotaValue,
)
from ...protocol.errors import CodedError, InvalidRequest
from ...protocol.limits import MAX_QUOTA_ENTITIES, MAX_QUOTA_NAME_BYTES
from ...storage.metadata.access_records import IN_RECORD, AccessRecord, QuotaEntity, QuotasAltered
from ...values import value_class

USER: Final = "user"
CLIENT_ID: Final = "client-id"
_TYPES: Final = (USER, CLIENT_ID)

__all__ = [
    "DEFAULT",
    "Bound",
    "Entity",
    "Quota",
    "QuotaTable",
    "Values",
    "problem_of_name",
    "problem_of_value",
]


DEFAULT: Final = ""
"""Name of the default entity, for users or clients without a quota of their own. No real name is
empty."""

_HIGHEST: Final = 2.0**63
_WHOLE: Final = frozenset({Quota.PRODUCER_BYTE_RATE, Quota.CONSUMER_BYTE_RATE})


@value_class
class Entity:
    """Owner of a quota: a user, a client id or both. None means any; `DEFAULT` is the default
    entity."""

    user: str | None = None
    client_id: str | None = None

    def __str__(self) -> str:
        named = (("user", self.user), ("client-id", self.client_id))
        parts = [
            f"{kind} {'the default' if name == DEFAULT else name}"
            for kind, name in named
            if name is not None
        ]
        return ", ".join(parts)


@value_class
class QuotaChange:
    """Change of an entity's quotas; None removes a quota."""

    entity: Entity
    values: Mapping[Quota, float | None]


class Quotas:
    """The quotas in force. Any thread may read them."""

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        self.table = QuotaTable()
        """Replaced by a new object at each change."""
        self.use(quotas)

    def use(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Apply these quotas. May be called in any thread."""
        self.table = QuotaTable(
            {
                Entity(*entity): {Quota(name): value for name, value in values.items()}
                for entity, values in quotas.items()
            }
        )

    def planned(
        self, changes: Sequence[QuotaChange], *, validate_only: bool = False
    ) -> tuple[list[CodedError | bool], list[AccessRecord]]:
        """Return for each change, in order, its error or whether it changes anything, and the
        records that carry the changes out. May be called in any thread."""
        before = self.table.quotas
        wanted = {entity: dict(values) for entity, values in before.items()}
        outcomes = [_change(wanted, change) for change in changes]
        if validate_only:
            return outcomes, []
        changed = [
            ((entity.user, entity.client_id), _stored(wanted.get(entity, {})))
            for entity in dict.fromkeys(change.entity for change in changes)
            if wanted.get(entity, {}) != before.get(entity, {})
        ]
        return outcomes, [
            QuotasAltered(changed[start : start + IN_RECORD])
            for start in range(0, len(changed), IN_RECORD)
        ]


def _stored(values: Mapping[Quota, float]) -> dict[str, float]:
    return {quota.value: float(value) for quota, value in values.items()}


def _change(quotas: dict[Entity, dict[Quota, float]], change: QuotaChange) -> CodedError | bool:
    before = dict(quotas.get(change.entity, {}))
    of_entity = quotas.get(change.entity)
    if of_entity is None:
        if not any(value is not None for value in change.values.values()):
            return False
        if len(quotas) >= MAX_QUOTA_ENTITIES:
            return InvalidRequest(
                f"there are quotas of {len(quotas)} users, clients and pairs of them; allowed are "
                f"{MAX_QUOTA_ENTITIES}. Defaults take fewer"
            )
        of_entity = quotas[change.entity] = {}
    for quota, value in change.values.items():
        if value is None:
            of_entity.pop(quota, None)
        else:
            of_entity[quota] = value
    if not of_entity:
        del quotas[change.entity]
    return of_entity != before


Values = Mapping[Quota, float]


class Match(IntEnum):
    """How a filter component matches an entity name."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class QuotaFilter:
    """Filter of a describe-client-quotas request."""

    def __init__(self, request: DescribeClientQuotasRequest) -> None:
        """Parse the components of the request. Raises `InvalidRequest`."""
        self._strict = request.strict
        self._wanted: dict[str, tuple[Match, str]] = {}
        for component in request.components:
            _check_type(component.entity_type, self._wanted)
            match component.match_type:
                case Match.EXACT if component.match is not None:
                    wanted = Match.EXACT, component.match
                case Match.DEFAULT | Match.ANY if component.match is None:
                    wanted = Match(component.match_type), ""
                case _:
                    raise InvalidRequest(
                        f"match_type of {component.entity_type} is {component.match_type}, with "
                        f"{'no name' if component.match is None else 'a name'}; it must be 0 (this "
                        "name) with a name, or 1 (the default) or 2 (any) without"
                    )
            self._wanted[component.entity_type] = wanted

    def means(self, entity: Entity) -> bool:
        """Whether an entity matches the filter."""
        for kind, name in ((USER, entity.user), (CLIENT_ID, entity.client_id)):
            if kind not in self._wanted:
                if self._strict and name is not None:
                    return False
                continue
            wanted, wanted_name = self._wanted[kind]
            if name is None or (wanted is Match.DEFAULT and name != DEFAULT):
                return False
            if wanted is Match.EXACT and (name != wanted_name or name == DEFAULT):
                return False
        return True


def asked_change(asked: QuotaAlteration) -> QuotaChange:
    """Return the change that an entry of a request asks for. Raises `InvalidRequest`."""
    entity = asked_entity(asked.entity)
    values: dict[Quota, float | None] = {}
    for op in asked.ops:
        quota = _asked_quota(op, values)
        problem = None if op.remove else problem_of_value(quota, op.value)
        if problem is not None:
            raise InvalidRequest(problem)
        values[quota] = None if op.remove else op.value
    return QuotaChange(entity, values)


def asked_entity(parts: Sequence[QuotaEntityPart]) -> Entity:
    """Return the entity that a request names. Raises `InvalidRequest`."""
    names: dict[str, str] = {}
    for part in parts:
        _check_type(part.entity_type, names)
        name = part.entity_name
        problem = None if name is None else problem_of_name(part.entity_type, name)
        if problem is not None:
            raise InvalidRequest(problem)
        names[part.entity_type] = DEFAULT if name is None else name
    if not names:
        raise InvalidRequest(f"it is not said whose quota it is: {' or '.join(_TYPES)}, or both")
    return Entity(names.get(USER), names.get(CLIENT_ID))


def entity_parts(entity: Entity) -> list[QuotaEntityPart]:
    """Return an entity in the form of requests and responses."""
    return [
        QuotaEntityPart(entity_type=kind, entity_name=name or None)
        for kind, name in ((USER, entity.user), (CLIENT_ID, entity.client_id))
        if name is not None
    ]


def entry_of(entity: Entity, values: Values) -> QuotaEntry:
    """Return the quotas of an entity in the form of a response."""
    return QuotaEntry(
        entity=entity_parts(entity),
        values=[QuotaValue(key=quota.value, value=value) for quota, value in values.items()],
    )


def _check_type(kind: str, known: Mapping[str, object]) -> None:
    if kind not in _TYPES:
        raise InvalidRequest(
            f"there are no quotas of {kind[:100]!r}; there are those of {' and of '.join(_TYPES)}"
        )
    if kind in known:
        raise InvalidRequest(f"{kind} is named twice")


def _asked_quota(op: QuotaOp, known: Mapping[Quota, object]) -> Quota:
    try:
        quota = Quota(op.key)
    except ValueError:
        names = ", ".join(each.value for each in Quota)
        raise InvalidRequest(f"there is no quota {op.key[:100]!r}; there are {names}") from None
    if quota in known:
        raise InvalidRequest(f"{quota} is named twice")
    return quota


@value_class
class Bound:
    """A quota that applies to a client."""

    limit: float
    """Bytes or partitions per second, or percent."""
    taken_by: Entity
    """Entity that shares the usage: the quota's entity, with the client's own names in place of
    defaults."""


class QuotaTable:
    """Immutable set of all quotas."""

    def __init__(self, quotas: Mapping[Entity, Values] = MappingProxyType({})) -> None:
        self.quotas: Mapping[Entity, Values] = MappingProxyType(
            {entity: dict(values) for entity, values in quotas.items() if values}
        )

    def __bool__(self) -> bool:
        return bool(self.quotas)

    def bound(self, quota: Quota, user: str, client_id: str) -> Bound | None:
        """Return the most specific quota for a client of a user; None if there is none."""
        for entity in _by_precedence(user, client_id):
            limit = self.quotas.get(entity, {}).get(quota)
            if limit is not None:
                return Bound(
                    limit,
                    Entity(
                        None if entity.user is None else user,
                        None if entity.client_id is None else client_id,
                    ),
                )
        return None


def _by_precedence(user: str, client_id: str) -> Iterator[Entity]:
    yield Entity(user, client_id)
    yield Entity(user, DEFAULT)
    yield Entity(user)
    yield Entity(DEFAULT, client_id)
    yield Entity(DEFAULT, DEFAULT)
    yield Entity(DEFAULT)
    yield Entity(None, client_id)
    yield Entity(None, DEFAULT)


def problem_of_name(kind: str, name: str) -> str | None:
    """Return why this is no valid name of a user or client; None if it is valid."""
    size = len(name.encode("utf-8", "replace"))
    if not 1 <= size <= MAX_QUOTA_NAME_BYTES:
        return f"the name of a {kind} has {size} bytes; allowed are 1 to {MAX_QUOTA_NAME_BYTES}"
    if not name.isprintable():
        return f"the name of a {kind} is {name[:100]!r}; it must be printable"
    return None


def problem_of_value(quota: Quota, value: float) -> str | None:
    """Return why this is no valid value of a quota; None if it is valid."""
    if math.isnan(value) or not 0 < value < _HIGHEST:
        return f"{quota} is {value:g}; it must be above 0 and below 2^63"
    if quota in _WHOLE and value != int(value):
        return f"{quota} is {value!r}; it must be a whole number of bytes"
    return None
