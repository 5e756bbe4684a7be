"""Quotas, as they are made of the stored ones, and which of them is a client's: Kafka's entities in
Kafka's order of precedence."""

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from ...protocol.api.security.quota_terms import Quota
from ...protocol.errors import CodedError, InvalidRequest
from ...protocol.limits import MAX_QUOTA_ENTITIES, MAX_QUOTA_NAME_BYTES
from ...storage.metadata.access_records import AccessRecord, QuotaEntity, QuotasAltered
from ...storage.metadata.access_state import IN_RECORD
from ...values import value_class

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
"""The name of the default entity: who has no quota of their own. No name is empty."""

_HIGHEST: Final = 2.0**63
_WHOLE: Final = frozenset({Quota.PRODUCER_BYTE_RATE, Quota.CONSUMER_BYTE_RATE})


@value_class
class Entity:
    """Whose quota it is: `None` for what it does not say, `DEFAULT` for the default of it."""

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
    """What is to be done with an entity's quotas: `None` takes one away."""

    entity: Entity
    values: Mapping[Quota, float | None]


class Quotas:
    """The quotas as they are now. May be read by any thread."""

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        self.table = QuotaTable()
        """Another object after each change."""
        self.use(quotas)

    def use(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Apply these quotas from now on. For any thread."""
        self.table = QuotaTable(
            {
                Entity(*entity): {Quota(name): value for name, value in values.items()}
                for entity, values in quotas.items()
            }
        )

    def planned(
        self, changes: Sequence[QuotaChange], *, validate_only: bool = False
    ) -> tuple[list[CodedError | bool], list[AccessRecord]]:
        """Says of each change, in their order, what keeps it from being made, or whether anything
        is different then; and gives the records that make them. For any thread."""
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


@value_class
class Bound:
    """A quota that holds for a client."""

    limit: float
    """Bytes or partitions a second, or percent."""
    taken_by: Entity
    """Who takes of it together: its entity, with the client's own names for the defaults."""


class QuotaTable:
    """All quotas at one time."""

    def __init__(self, quotas: Mapping[Entity, Values] = MappingProxyType({})) -> None:
        self.quotas: Mapping[Entity, Values] = MappingProxyType(
            {entity: dict(values) for entity, values in quotas.items() if values}
        )

    def __bool__(self) -> bool:
        return bool(self.quotas)

    def bound(self, quota: Quota, user: str, client_id: str) -> Bound | None:
        """The quota that holds for a client of a user: the most special one that there is."""
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
    """Why no user or client can have this name, if none can."""
    size = len(name.encode("utf-8", "replace"))
    if not 1 <= size <= MAX_QUOTA_NAME_BYTES:
        return f"the name of a {kind} has {size} bytes; allowed are 1 to {MAX_QUOTA_NAME_BYTES}"
    if not name.isprintable():
        return f"the name of a {kind} is {name[:100]!r}; it must be printable"
    return None


def problem_of_value(quota: Quota, value: float) -> str | None:
    """Why a quota cannot have this value, if it cannot."""
    if math.isnan(value) or not 0 < value < _HIGHEST:
        return f"{quota} is {value:g}; it must be above 0 and below 2^63"
    if quota in _WHOLE and value != int(value):
        return f"{quota} is {value!r}; it must be a whole number of bytes"
    return None
