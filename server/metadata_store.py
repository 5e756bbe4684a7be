"""Where topics and positions are changed: here at once, or by all brokers that are in sync."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from ..storage.directory.log_directory import LogDirectory
from ..storage.directory.positions import StoredPosition
from ..storage.directory.topics import TopicEntry
from ..storage.log.log import Log
from ..storage.metadata.access_records import AccessRecord
from ..storage.stepped_change import Steps
from .changes import Changes, TopicChange
from .security.documents import AccessDocuments
from .security.service import SecurityService
from .work import Work

R = TypeVar("R")

AccessPlan = Callable[[], tuple[R, Sequence[AccessRecord]]]
"""Looks at users, rules or quotas: the outcome of a request, and the records that it needs. May
raise a `CodedError` instead. Runs in a thread while no other change of them is made."""


class TopicSteps(Protocol):
    """Changes of topics in steps, for `MetadataStore.make`; they raise as `TopicChanges` does."""

    def create(
        self,
        name: str,
        partitions: int,
        overrides: Mapping[str, str],
        *,
        validate_only: bool = False,
    ) -> Steps[TopicEntry]: ...

    def raise_partitions(
        self, name: str, partitions: int, *, validate_only: bool = False
    ) -> Steps[TopicEntry]: ...

    def alter(self, name: str, overrides: Mapping[str, str]) -> Steps[TopicEntry]: ...

    def delete(self, name: str, gone: Callable[[], None]) -> Steps[TopicEntry]: ...


class MetadataStore(Protocol):
    """What handlers change topics and positions with. What is answered is on stable storage, here
    and wherever else it has to be."""

    @property
    def topics(self) -> TopicSteps: ...

    def make(
        self, asked: Iterable[tuple[str, Steps[TopicEntry]]]
    ) -> tuple[Sequence[TopicChange], asyncio.Task[None]]:
        """As `Changes.make`."""
        ...

    def check_coordinates(self) -> None:
        """Raise `NotCoordinator` where positions cannot be answered now."""
        ...

    def commit(self, group: str, positions: Sequence[StoredPosition]) -> asyncio.Future[None]:
        """As `Positions.commit`."""
        ...

    def forget(self, group: str) -> asyncio.Future[None]:
        """As `Positions.forget`."""
        ...

    def forget_some(
        self, group: str, partitions: Sequence[tuple[str, int]]
    ) -> asyncio.Future[None]:
        """As `Positions.forget_some`."""
        ...

    def used(self, group: str, at_ms: int) -> asyncio.Future[None]:
        """As `Positions.used`."""
        ...

    def expire(self, group: str, retention_ms: int, now_ms: int) -> asyncio.Future[int]:
        """As `Positions.expire`."""
        ...

    def change_access(self, plan: AccessPlan[R]) -> asyncio.Future[R]:
        """Change users, rules or quotas as `plan` says. Done when the change holds, here and
        wherever else it has to."""
        ...

    async def trimmed(self, logs: Sequence[Log]) -> Mapping[Log, Exception]:
        """Wait until others know too where `logs` begin now, which is on stable storage here; the
        logs of which they do not, and why."""
        ...


class DirectStore(Changes):
    """The store of a broker by itself."""

    def __init__(
        self,
        directory: LogDirectory,
        work: Work,
        documents: AccessDocuments,
        security: SecurityService,
    ) -> None:
        super().__init__(directory, work)
        self._documents = documents
        self._security = security
        self._access_turn = asyncio.Lock()
        self._positions = directory.positions
        self.topics: TopicSteps = directory.changes

    def check_coordinates(self) -> None:
        pass

    def commit(self, group: str, positions: Sequence[StoredPosition]) -> asyncio.Future[None]:
        return self._work.in_positions_thread(partial(self._positions.commit, group, positions))

    def forget(self, group: str) -> asyncio.Future[None]:
        return self._work.in_positions_thread(partial(self._positions.forget, group))

    def forget_some(
        self, group: str, partitions: Sequence[tuple[str, int]]
    ) -> asyncio.Future[None]:
        forget = partial(self._positions.forget_some, group, partitions)
        return self._work.in_positions_thread(forget)

    def used(self, group: str, at_ms: int) -> asyncio.Future[None]:
        return self._work.in_positions_thread(partial(self._positions.used, group, at_ms))

    def expire(self, group: str, retention_ms: int, now_ms: int) -> asyncio.Future[int]:
        expire = partial(self._positions.expire, group, retention_ms, now_ms)
        return self._work.in_positions_thread(expire)

    def change_access(self, plan: AccessPlan[R]) -> asyncio.Future[R]:
        return asyncio.shield(self._work.start(self._change_access(plan)))

    async def _change_access(self, plan: AccessPlan[R]) -> R:
        work = self._work
        async with self._access_turn:
            outcome = await work.in_storage_thread(lambda: self._documents.change(plan))
            await self._security.take(self._documents.state, work.in_storage_thread)
        return outcome

    async def trimmed(self, logs: Sequence[Log]) -> Mapping[Log, Exception]:
        return {}
