"""The quotas in a file: `quotas.json` in the data directory.

    {"format": 1,
     "quotas": [{"user": "alice", "client_id": null, "values": {"producer_byte_rate": 1048576.0}}]}

A name that is null is not looked at; an empty one is the default. The file is replaced as a whole
and readable by the broker's account alone.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from ...protocol.errors import CodedError, InvalidRequest
from ...protocol.limits import MAX_QUOTA_ENTITIES
from ...storage.directory.known_files import QUOTAS_FILE
from ...storage.files import Files
from ...values import value_class
from ..security.documents import Document
from .rules import DEFAULT, Entity, Quota, QuotaTable, problem_of_name, problem_of_value


@value_class
class QuotaChange:
    """What is to be done with an entity's quotas: `None` takes one away."""

    entity: Entity
    values: Mapping[Quota, float | None]


class Quotas:
    """The quotas as they are now. They may be read while another thread changes them."""

    def __init__(self, files: Files, data_dir: Path) -> None:
        """Raises `StorageError` for a file that cannot be understood, and `OSError`."""
        self._document = Document(files, data_dir / QUOTAS_FILE, "set the quotas")
        self._changing = Lock()
        self.table = QuotaTable(self._document.read(_entries) or {})
        """Another object after each change."""

    def change(
        self, changes: Sequence[QuotaChange], *, validate_only: bool = False
    ) -> list[CodedError | bool]:
        """Make changes, in their order and in one write, and say of each what kept it from being
        made, or whether anything is different now. Raises `OSError`; then nothing has changed. For
        a thread."""
        with self._changing:
            wanted = {entity: dict(values) for entity, values in self.table.quotas.items()}
            outcomes = [_change(wanted, change) for change in changes]
            if not validate_only:
                self._replace(QuotaTable(wanted))
            return outcomes

    def _replace(self, table: QuotaTable) -> None:
        if table.quotas == self.table.quotas:
            return
        quotas = [
            {"user": entity.user, "client_id": entity.client_id, "values": values}
            for entity, values in table.quotas.items()
        ]
        self._document.write(quotas=quotas)
        self.table = table


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


def _entries(document: Mapping[str, Any]) -> dict[Entity, Mapping[Quota, float]]:
    return dict(map(_entry, document["quotas"]))


def _entry(found: Mapping[str, Any]) -> tuple[Entity, Mapping[Quota, float]]:
    entity = Entity(found["user"], found["client_id"])
    if entity == Entity():
        raise ValueError("a quota is of no user and of no client")
    for kind, name in (("user", entity.user), ("client", entity.client_id)):
        if name is not None and not isinstance(name, str):
            raise TypeError(f"the name of a {kind} is {name!r}")
        problem = None if name in (None, DEFAULT) else problem_of_name(kind, name)
        if problem is not None:
            raise ValueError(problem)
    values = {Quota(key): float(value) for key, value in found["values"].items()}
    for quota, value in values.items():
        problem = problem_of_value(quota, value)
        if problem is not None:
            raise ValueError(problem)
    return entity, values
