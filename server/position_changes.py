"""Changes of positions, as records of the metadata log.

A record has all positions of a request, so a commit is stored as a whole or not at all. It is
checked and encoded in turns with other requests.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

from ..protocol.api.pieces import Pieces
from ..protocol.errors import (
    CoordinatorNotAvailable,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
)
from ..protocol.window_topics import base_of
from ..storage.directory.position_records import StoredPosition, check_entry, check_name
from ..storage.metadata.current_state import encode_checked
from ..storage.metadata.metadata_log import MetadataLog
from ..storage.metadata.records import (
    POSITIONS_IN_PIECE,
    MetadataRecord,
    PositionsCommitted,
    PositionsForgotten,
    PositionsUsed,
    SomeForgotten,
)
from .work import Turns, Work


class PositionChanges:
    """Commits positions, and drops them. A change that was answered is on stable storage, here and
    at all in-sync replicas."""

    def __init__(
        self,
        metadata: MetadataLog,
        work: Work,
        check: Callable[[], None],
        append: Callable[[bytes], asyncio.Future[None]],
        wait: Callable[[asyncio.Future[None]], Awaitable[None]],
    ) -> None:
        """`check` raises a `CodedError` if this broker may not change positions now. `append`
        appends an encoded record; the future is done once it is applied. `wait` waits for that
        future as long as a client waits for a commit."""
        self._metadata = metadata
        self._work = work
        self._check = check
        self._append = append
        self._wait = wait
        self._pending: tuple[int, int] = (0, 0)
        """The number and the bytes of new positions in commits that are not applied yet."""
        self._committing: dict[str, int] = {}
        """How many commits of each group are not applied yet."""
        self._turn = asyncio.Lock()
        """Held by the change that is being checked, encoded and appended: records have the order of
        the requests, although large ones are made in turns."""

    def commit(self, group: str, positions: Sequence[StoredPosition]) -> asyncio.Future[None]:
        """Store `positions` under `group`, all or none.

        Raises `InvalidGroupId` for a name that is empty or too long, `InvalidRequest` for an
        invalid position, `InvalidCommitOffsetSize` beyond the limit of all positions,
        `StorageError`.
        """
        return self._work.start(self._commit(group, positions))

    async def _commit(self, group: str, positions: Sequence[StoredPosition]) -> None:
        self._check()
        check_name(group)
        if not positions:
            return
        more = more_bytes = 0
        applied: asyncio.Future[None] | None = None

        def end(_: object = None) -> None:
            self._pending = (self._pending[0] - more, self._pending[1] - more_bytes)
            self._committing[group] -= 1
            if not self._committing[group]:
                del self._committing[group]

        self._committing[group] = self._committing.get(group, 0) + 1
        try:
            async with self._turn:
                turns = self._work.turns()
                record = await self._work.finish(self._commit_record(group, positions), turns)
                await turns.give_way()
                more, more_bytes = self._check_room(group, positions)
                self._pending = (self._pending[0] + more, self._pending[1] + more_bytes)
                await turns.give_way()
                applied = await self._append_in_turns(record, turns)
        finally:
            if applied is None:
                end()
            else:  # The record is applied although the client may be gone by then.
                applied.add_done_callback(end)
        await self._applied(applied)

    def _commit_record(
        self, group: str, positions: Sequence[StoredPosition]
    ) -> Pieces[PositionsCommitted]:
        """Return the record of a commit. Raises `InvalidRequest` for an invalid position."""
        topics = self._metadata.state.topics
        with_ids: list[tuple[str, StoredPosition]] = []
        for number, position in enumerate(positions, start=1):
            check_entry(position)
            base = base_of(topics, position.topic)
            if base in topics:
                with_ids.append((topics[base].topic_id, position))
            if number % POSITIONS_IN_PIECE == 0:
                yield
        return PositionsCommitted(group, with_ids)

    def _check_room(self, group: str, positions: Sequence[StoredPosition]) -> tuple[int, int]:
        """Return how many positions, and how many bytes, a commit adds."""
        count, size_bytes = self._pending
        return self._metadata.positions.check_room(
            group, positions, pending=count, pending_bytes=size_bytes
        )

    async def _append_in_turns(self, record: MetadataRecord, turns: Turns) -> asyncio.Future[None]:
        """Append a record, encoded in turns with other requests. The caller holds `_turn`."""
        data = await self._work.finish(encode_checked(record), turns)
        self._check()  # Another broker may lead now.
        with _as_coordinator():
            return self._append(data)

    async def _applied(self, applied: asyncio.Future[None]) -> None:
        with _as_coordinator():
            await self._wait(applied)

    def forget(self, group: str) -> asyncio.Future[None]:
        """Drop all positions of `group`. Raises `StorageError`."""
        return self._work.start(self._forget(group))

    async def _forget(self, group: str) -> None:
        async with self._turn:
            self._check()
            # A commit that is not applied yet may add a position.
            if not self._metadata.positions.has(group) and group not in self._committing:
                return
            applied = await self._append_in_turns(PositionsForgotten(group), self._work.turns())
        await self._applied(applied)

    def forget_some(
        self, group: str, partitions: Sequence[tuple[str, int]]
    ) -> asyncio.Future[None]:
        """Drop the positions of `group` in some partitions. Raises `StorageError`."""
        return self._work.start(self._forget_some(group, partitions))

    async def _forget_some(self, group: str, partitions: Sequence[tuple[str, int]]) -> None:
        async with self._turn:
            self._check()
            turns = self._work.turns()
            record = await self._work.finish(self._forget_record(group, partitions), turns)
            if not record.partitions:
                return
            applied = await self._append_in_turns(record, turns)
        await self._applied(applied)

    def _forget_record(
        self, group: str, partitions: Sequence[tuple[str, int]]
    ) -> Pieces[SomeForgotten]:
        """Return the record that drops those of the positions that exist."""
        topics, positions = self._metadata.state.topics, self._metadata.positions
        gone: list[tuple[str, str, int]] = []
        for number, (topic, partition) in enumerate(partitions, start=1):
            base = base_of(topics, topic)
            # A commit that is not applied yet may add a position.
            if base in topics and (
                group in self._committing or positions.get(group, topic, partition) is not None
            ):
                gone.append((topics[base].topic_id, topic, partition))
            if number % POSITIONS_IN_PIECE == 0:
                yield
        return SomeForgotten(group, gone)

    def used(self, group: str, at_ms: int) -> asyncio.Future[None]:
        """Record that `group` is used, if its positions are of a consumer group. Raises
        `StorageError`."""
        return self._work.start(self._used(group, at_ms))

    async def _used(self, group: str, at_ms: int) -> None:
        if not self._metadata.positions.is_of_group(group):
            return
        async with self._turn:
            self._check()
            applied = await self._append_in_turns(PositionsUsed(group, at_ms), self._work.turns())
        await self._applied(applied)

    def expire(self, group: str, retention_ms: int, now_ms: int) -> asyncio.Future[int]:
        """Drop the positions of `group` if they have expired and no commit of the group is on its
        way. The result is the number of dropped positions. Raises `StorageError`."""
        return self._work.start(self._expire(group, retention_ms, now_ms))

    async def _expire(self, group: str, retention_ms: int, now_ms: int) -> int:
        async with self._turn:
            self._check()
            expires_ms = self._metadata.positions.expires_ms(group, retention_ms)
            if expires_ms is None or expires_ms > now_ms or group in self._committing:
                return 0
            count = self._metadata.positions.count_of(group)
            applied = await self._append_in_turns(PositionsForgotten(group), self._work.turns())
        await self._applied(applied)
        return count


@contextmanager
def _as_coordinator() -> Iterator[None]:
    """Turn errors of replication into those of a group coordinator."""
    try:
        yield
    except NotLeader as error:
        raise NotCoordinator(error.message) from error
    except (NotEnoughReplicas, NotEnoughReplicasAfterAppend) as error:
        raise CoordinatorNotAvailable(error.message) from error
