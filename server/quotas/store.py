"""The quotas, as they are applied: made of the quotas that are stored."""

from collections.abc import Mapping, Sequence

from ...protocol.errors import CodedError, InvalidRequest
from ...protocol.limits import MAX_QUOTA_ENTITIES
from ...storage.metadata.access_records import AccessRecord, QuotaEntity, QuotasAltered
from ...storage.metadata.access_state import IN_RECORD
from ...values import value_class
from .rules import Entity, Quota, QuotaTable


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
