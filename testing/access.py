"""Users, rules and quotas for tests: of a running broker, changed at once, and of none."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..server.broker import Broker
from ..storage.events import ignore_events
from ..storage.files import SystemFiles
from ..storage.metadata.access_records import AccessRecord
from ..storage.metadata.access_state import AccessState
from ..storage.metadata.offline_metadata import offline_metadata

R = TypeVar("R")
Plan = Callable[[], tuple[R, Sequence[AccessRecord]]]


def change_access(broker: Broker, plan: Plan[R]) -> R:
    """Change users, rules or quotas of a running broker; they hold when this returns."""
    store: Any = broker.services.metadata
    metadata = broker.directory.metadata
    outcome, records = plan()
    for record in records:
        metadata.append(record)
    metadata.log.flusher.flush()
    metadata.apply()
    access = store._access = metadata.state.access
    taking = broker.security.take(access, _never)
    try:
        taking.send(None)
    except StopIteration:
        return outcome
    raise AssertionError("so many are for a thread")


async def _never(_: object) -> None:
    raise AssertionError


class StoredAccess:
    """What is stored in the data directory of a broker that does not run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.state = AccessState()
        self.change(lambda: (None, ()))

    def change(self, plan: Plan[R]) -> R:
        """Make a change, as `horolog user add --data-dir` does."""
        self._path.mkdir(exist_ok=True)
        with offline_metadata(
            SystemFiles(), self._path, ignore_events, advice="stop it"
        ) as metadata:
            outcome = metadata.change_access(plan)
            self.state = metadata.state.access
        return outcome


class AccessInMemory:
    """What is stored, without a broker. `use` is called after each change."""

    def __init__(self, use: Callable[[AccessState], None] = lambda _: None) -> None:
        self.state = AccessState()
        self._use = use

    def change(self, plan: Plan[R]) -> R:
        """Make a change, as a store does."""
        outcome, records = plan()
        for record in records:
            self.state = self.state.after(record)
        self._use(self.state)
        return outcome
