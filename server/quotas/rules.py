"""Quotas, and which of them is a client's: Kafka's entities in Kafka's order of precedence."""

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from ...protocol.api.security.quota_terms import Quota
from ...protocol.limits import MAX_QUOTA_NAME_BYTES
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
