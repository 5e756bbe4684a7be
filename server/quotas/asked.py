"""What requests ask about quotas, as rules; and rules as answers have them."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

from ...protocol.api.security.client_quotas import (
    DescribeClientQuotasRequest,
    QuotaAlteration,
    QuotaEntityPart,
    QuotaEntry,
    QuotaOp,
    QuotaValue,
)
from ...protocol.errors import InvalidRequest
from .rules import (
    DEFAULT,
    Entity,
    Quota,
    QuotaChange,
    Values,
    problem_of_name,
    problem_of_value,
)

USER: Final = "user"
CLIENT_ID: Final = "client-id"
_TYPES: Final = (USER, CLIENT_ID)


class Match(IntEnum):
    """What a component of a filter is compared with."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class QuotaFilter:
    """Entities that a request means."""

    def __init__(self, request: DescribeClientQuotasRequest) -> None:
        """Raises `InvalidRequest`."""
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
        """Whether an entity is one of them."""
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
    """The change that an item of a request asks for. Raises `InvalidRequest`."""
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
    """Raises `InvalidRequest`."""
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
    """An entity in the words of requests and answers."""
    return [
        QuotaEntityPart(entity_type=kind, entity_name=name or None)
        for kind, name in ((USER, entity.user), (CLIENT_ID, entity.client_id))
        if name is not None
    ]


def entry_of(entity: Entity, values: Values) -> QuotaEntry:
    """The quotas of an entity in the words of an answer."""
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
