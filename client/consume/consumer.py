"""The consumer: reads messages of assigned partitions."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeVar

from ...clock import Clock, SystemClock
from ...protocol.api.log.fetch import FetchPartitionResult
from ...protocol.api.log.list_offsets import EARLIEST, LATEST
from ...protocol.lag import Lag
from ...protocol.records.columns import CONTENT, Content, check_content
from ...protocol.records.kernel import Walk
from ..administer.positions import Position, commit, committed
from ..administer.searching import By
from ..arguments import epoch_ms
from ..client import DEFAULT_ADDRESS, Client, ReadFrom
from ..cluster.cluster import ClusterConnections
from ..cluster.servers import Servers
from ..results import AfterEnd, ColumnBatch, CommittedPosition, ConsumerRecord, FindResult, Found
from ..security.security import Security
from .assignment import Assigned, Assignment, AssignmentRequests
from .fetches import Results, fetches_of
from .fetching import FetchOptions, TopicPartition, entries_of, next_offset
from .time_bounds import CREATE, WindowBy, time_bounds
from .time_window import TimeWindow

Fetched = tuple[Assigned, int, FetchPartitionResult, Walk]
"""Answer of a fetch for one partition: the assignment, the requested offset, the result, its
entries."""

T = TypeVar("T")

_MIB: Final = 1024 * 1024


class AssignmentFetches:
    """Fetches each partition from its position, and in advance where more messages are stored."""

    def __init__(
        self,
        cluster: ClusterConnections,
        options: FetchOptions,
        assigned: Assignment,
        requests: AssignmentRequests,
        clock: Clock,
        *,
        metadata_max_age_ms: int,
    ) -> None:
        """Partitions added to whole topics are found within `metadata_max_age_ms`. Raises
        UnsupportedVersion for options that Kafka does not support."""
        self._assigned = assigned
        self._requests = requests
        self._clock = clock
        self._metadata_max_age_s = metadata_max_age_ms / 1000
        self._fetches = fetches_of(cluster, options, self._note_ends)
        self._changed = asyncio.Event()

    def stop(self) -> None:
        """Cancel fetches in flight that would otherwise be waited for."""
        self._fetches.stop()

    def look_again(self) -> None:
        """End a wait for something to read: the assignment has changed."""
        self._changed.set()

    async def fetch(self, max_wait_ms: int) -> list[Fetched]:
        """Fetch once. Returns the results for partitions that were not moved, paused or removed
        meanwhile."""
        await self._requests.find_partitions(max_age_s=self._metadata_max_age_s)
        await self._requests.find_beginnings()
        self._changed.clear()
        asked = self._assigned.wanted()
        if not asked:
            await self._wait_for_a_change(max_wait_ms)
            return []
        results = await self._requests.ask(partial(self._fetches.fetch, asked, max_wait_ms))
        found = []
        for key, result in results.items():
            offset, assigned = asked[key], self._assigned.get(key)
            # A partition that was moved meanwhile is read again from its new position.
            if assigned is not None and assigned.position == offset and not assigned.paused:
                found.append((assigned, offset, result, entries_of(result)))
        self._assigned.take_turns()
        self._fetch_ahead(found)
        return found

    def _fetch_ahead(self, found: list[Fetched]) -> None:
        """Start to fetch the messages after these results, if there are any."""
        nexts, more = self._assigned.wanted(), False
        for assigned, offset, result, entries in found:
            behind = nexts[assigned.key] = next_offset(result, offset, entries)
            more = more or offset < behind < result.high_watermark
        if more:
            self._fetches.ahead(nexts)

    def _note_ends(self, results: Results) -> None:
        now = self._clock.monotonic()
        for key, result in results.items():
            assigned = self._assigned.get(key)
            if assigned is not None:
                assigned.note_end(now, result.high_watermark)

    async def _wait_for_a_change(self, max_wait_ms: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max_wait_ms / 1000):
                await self._changed.wait()


class Consumer(Client):
    """Reads its assigned partitions from positions that can be moved by offset or by time.

    A restart of the broker does not interrupt reading: a request that fails because of the
    connection is repeated for `retry_timeout_ms`.
    """

    def __init__(
        self,
        address: str | Servers = DEFAULT_ADDRESS,
        *,
        name: str | None = None,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        partition_max_bytes: int = _MIB,
        max_bytes: int = 16 * _MIB,
        max_decompressed_bytes: int = 64 * _MIB,
        client_id: str | None = "horolog",
        request_timeout_ms: int = 30_000,
        retry_timeout_ms: int = 120_000,
        metadata_max_age_ms: int = 30_000,
        check_units: bool = True,
        security: Security | None = None,
        append_times: bool = False,
        read_committed: bool = False,
        clock: Clock | None = None,
        read_from: ReadFrom = "leader",
    ) -> None:
        """A fetch waits up to `max_wait_ms` at the broker until there are `min_bytes`. It returns
        at most `partition_max_bytes` of a partition and `max_bytes` in total; a single larger
        message is returned all the same. While more messages are stored, the next fetch is sent
        before the messages of this one are read. A compressed message may hold
        `max_decompressed_bytes`.

        `append_times` requests the append time of each message. `read_committed` leaves out
        messages of aborted transactions, and waits for undecided ones. `name` is the name under
        which `commit` stores positions. Partitions added to a topic that is read as a whole are
        found within `metadata_max_age_ms`. With `read_from="any"` messages come from any replica,
        up to its high watermark, and none twice when the replica changes.
        """
        super().__init__(
            address,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            check_units=check_units,
            security=security,
            read_from=read_from,
        )
        self._name = name
        self._max_wait_ms = max_wait_ms
        self._retry_timeout_ms = retry_timeout_ms
        self._metadata_max_age_ms = metadata_max_age_ms
        self._clock = clock or SystemClock()
        self._assigned = Assignment()
        self._requests = AssignmentRequests(
            self._cluster, self._assigned, self._clock, retry_timeout_ms=retry_timeout_ms
        )
        self._options = FetchOptions(
            min_bytes,
            partition_max_bytes,
            max_bytes,
            max_decompressed_bytes,
            append_times,
            read_committed,
        )
        self._fetches = AssignmentFetches(
            self._cluster,
            self._options,
            self._assigned,
            self._requests,
            self._clock,
            metadata_max_age_ms=metadata_max_age_ms,
        )
        self._windows: set[TimeWindow] = set()
        """Windows that were not read to their ends yet."""
        self._ready: deque[ConsumerRecord] = deque()
        self._filling = asyncio.Lock()

    async def close(self) -> None:
        """Close the connections."""
        self._fetches.stop()
        for window in list(self._windows):
            await window.close()
        await self._requests.close()
        await super().close()

    def assign(
        self, topic: str, partition: int | None = None, *, offset: int | None = None
    ) -> None:
        """Read a topic, or only one partition of it, from `offset` or from the first message
        stored.

        Without a partition, all partitions of the topic are read; partitions added later are read
        from their first message. `offset` then holds for each partition.
        """
        if offset is not None:
            _check_offset(offset)
        self._assigned.add(topic, partition, offset)
        self._fetches.look_again()

    def unassign(self, topic: str, partition: int | None = None) -> None:
        """Stop reading a partition, or a whole topic."""
        self._drop_ready(self._assigned.remove(topic, partition))

    @property
    def assignment(self) -> list[TopicPartition]:
        """The assigned partitions. Those of a whole topic are listed once a call has asked the
        broker."""
        return self._assigned.keys

    def pause(self, topic: str, partition: int | None = None) -> None:
        """Return no messages of a partition, or of a topic, until `resume`. Positions stay."""
        self._drop_ready(self._assigned.pause(topic, partition, paused=True))

    def resume(self, topic: str, partition: int | None = None) -> None:
        """Read a paused partition, or a paused topic, again."""
        self._assigned.pause(topic, partition, paused=False)
        self._fetches.look_again()

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue a partition at `offset`."""
        _check_offset(offset)
        self._move(self._assigned.find(topic, partition), offset)

    async def seek_to_beginning(self) -> None:
        """Move every partition to its first message stored."""
        await self._seek_to(EARLIEST)

    async def seek_to_end(self) -> None:
        """Move every partition behind its last message."""
        await self._seek_to(LATEST)

    async def seek_to_time(
        self,
        when: datetime | None = None,
        *,
        timestamp_ms: int | None = None,
        margin_ms: int = 0,
        by: By = "timestamp",
    ) -> dict[TopicPartition, FindResult]:
        """Move every partition to its first message at or after a time, and return what was found.

        The search starts `margin_ms` earlier. On another broker, a margin of the largest latency of
        the messages there (`horolog_max_latency_seconds`) makes sure that no message is missed. A
        partition whose messages are all older (`AfterEnd`) moves to its end. A partition without
        timestamps (`NoTimestamps`) stays. `by="append"` searches by append time.
        """
        target_ms = epoch_ms(when, timestamp_ms, check_units=self._check_units, is_bound=True)
        if target_ms is None:
            raise TypeError("seek_to_time needs a datetime or timestamp_ms")
        if not isinstance(margin_ms, int) or margin_ms < 0:
            raise ValueError(f"margin_ms is an integer from 0 on, not {margin_ms!r}")
        target_ms = max(target_ms - margin_ms, 0)
        results = await self._requests.search(target_ms, by)
        for key, found in results.items():
            match found:
                case Found(offset=offset) | AfterEnd(end_offset=offset):
                    self._move_to(key, offset)
        return results

    async def commit(self, name: str | None = None) -> None:
        """Commit the positions of all partitions under `name`, or under the consumer's name. They
        are durable on return."""
        if not self._assigned.complete:
            await self._requests.find_partitions()
        positions = [
            Position(*assigned.key, assigned.position, assigned.timestamp_ms)
            for assigned in self._assigned.all()
            if assigned.position is not None
        ]
        if positions:
            ask = partial(commit, self._requests.cluster, self._named(name), positions)
            await self._requests.ask(ask)

    async def seek_to_committed(
        self, name: str | None = None
    ) -> dict[TopicPartition, CommittedPosition | None]:
        """Move to the positions committed under `name`, and return them. A partition without one
        stays."""
        await self._requests.find_partitions()
        keys = [assigned.key for assigned in self._assigned.all()]
        ask = partial(committed, self._requests.cluster, self._named(name), keys)
        found = await self._requests.ask(ask)
        for key, position in found.items():
            if position is not None:
                self._move_to(key, position.offset)
        return found

    def position(self, topic: str, partition: int | None = None) -> int | None:
        """Return the offset of the next message to be returned; None until reading has begun. The
        partition may be left out if only one partition of the topic is read."""
        return self._assigned.position(topic, partition)

    async def lag(self) -> dict[TopicPartition, Lag]:
        """Return how far each position is behind the end of its partition, in messages and seconds.

        `seconds` is the time since the broker appended the next message to be returned, by the
        broker's clock. If the broker does not know the append time, the message's own time is used
        and the lag is marked as `estimated`. Raises the errors that the broker reports for a
        partition.
        """
        return await self._requests.lags()

    async def catch_up_s(self) -> float | None:
        """Estimate the seconds until all partitions are read to their ends, at the pace of the last
        minute. None while the lag does not shrink, or while the pace is unknown."""
        times = [lag.catch_up_seconds for lag in (await self.lag()).values()]
        known = [time_s for time_s in times if time_s is not None]
        return max(known, default=0.0) if len(known) == len(times) else None

    def window(
        self,
        topic: str,
        start: datetime | int | None,
        end: datetime | int | None,
        *,
        partitions: Sequence[int] | None = None,
        by: WindowBy = CREATE,
        follow: timedelta | None = None,
    ) -> TimeWindow:
        """Return the messages of a topic whose time is `start` or later and before `end`, each
        once.

        Times are datetimes or epoch milliseconds; None is no bound. Messages without a time are in
        no window. Each partition is read up to its end at the moment when reading begins. `follow`
        continues for that long after `end`, by the client's clock, to read late messages; without
        `end`, for that long after reading begins. While following, partitions that are added are
        read too. `by="append"` compares append times. The consumer's assignment and positions do
        not change.
        """
        window = TimeWindow(
            self._cluster,
            topic,
            time_bounds(start, end, by, check_units=self._check_units),
            partitions,
            self._options,
            max_wait_ms=self._max_wait_ms,
            retry_timeout_ms=self._retry_timeout_ms,
            metadata_max_age_ms=self._metadata_max_age_ms,
            follow=follow,
            clock=self._clock,
            closed=self._windows.discard,
        )
        self._windows.add(window)
        return window

    async def fetch(self, *, max_wait_ms: int | None = None) -> list[ConsumerRecord]:
        """Return the next messages of any partition; empty if none arrived in time.

        Raises the errors that the broker reports for a partition (OffsetOutOfRange, ...),
        CorruptMessage for a damaged message, MessageTooLarge. The positions then stay.
        """
        if not self._ready:
            await self.fill(max_wait_ms=max_wait_ms)
        batch = list(self._ready)
        self._ready.clear()
        for record in batch:
            self._given_out(record)
        return batch

    async def fetch_columns(
        self, *, max_wait_ms: int | None = None, columns: Collection[Content] = CONTENT
    ) -> list[ColumnBatch]:
        """Return the next messages in columns instead of one object each, to read millions per
        second or to fill a table. A compressed set is a batch of its own. Keys, values and headers
        that are not among `columns` are nulls and are not copied."""
        check_content(columns)
        wait_ms = self._max_wait_ms if max_wait_ms is None else max_wait_ms
        async with self._filling:
            self._ready.clear()  # they are fetched again, as columns
            return await self._checked(partial(self._read_columns, wait_ms, columns))

    async def _read_columns(self, wait_ms: int, columns: Collection[Content]) -> list[ColumnBatch]:
        batches: list[ColumnBatch] = []
        for assigned, offset, result, entries in await self._fetches.fetch(wait_ms):
            read = self._options.columns(assigned.topic, result, offset, columns, entries)
            if not read and result.records:
                assigned.position = next_offset(result, offset, entries)
            elif read:
                last_ms = int(read[-1].timestamps_ms[-1])
                assigned.position = read[-1].next_offset
                assigned.timestamp_ms = None if last_ms < 0 else last_ms
                batches += read
        return batches

    async def _checked(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await self._options.checked(attempt, several=self._cluster.several)

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next message; wait for it without limit."""
        while (record := self.take()) is None:
            await self.fill()
        return record

    def take(self) -> ConsumerRecord | None:
        """Return the next message if it is already fetched, else None. Never waits."""
        if not self._ready:
            return None
        record = self._ready.popleft()
        self._given_out(record)
        return record

    async def fill(self, *, max_wait_ms: int | None = None) -> None:
        """Fetch the next messages for `take`, unless some are ready. There may be none in time.

        Only one fetch runs at a time: a second caller shares the messages of the first one's fetch.
        """
        async with self._filling:
            if self._ready:
                return
            wait_ms = self._max_wait_ms if max_wait_ms is None else max_wait_ms
            self._ready.extend(await self._checked(partial(self._read_records, wait_ms)))

    async def _read_records(self, wait_ms: int) -> list[ConsumerRecord]:
        ready: list[ConsumerRecord] = []
        for assigned, offset, result, entries in await self._fetches.fetch(wait_ms):
            read = self._options.records(assigned.topic, result, offset, entries)
            if not read and result.records:
                assigned.position = next_offset(result, offset, entries)
            ready += read
        return ready

    def _named(self, name: str | None) -> str:
        chosen = self._name if name is None else name
        if chosen is None:
            raise ValueError("positions are stored under a name: give one, or Consumer(name=...)")
        return chosen

    def _given_out(self, record: ConsumerRecord) -> None:
        assigned = self._assigned.get((record.topic, record.partition))
        if assigned is not None:
            assigned.given_out(record)

    def _move_to(self, key: TopicPartition, offset: int) -> None:
        """Move a partition if it is still assigned."""
        assigned = self._assigned.get(key)
        if assigned is not None:
            self._move(assigned, offset)

    def _move(self, assigned: Assigned, offset: int) -> None:
        assigned.move(offset)
        self._drop_ready([assigned.key])

    def _drop_ready(self, keys: Collection[TopicPartition]) -> None:
        kept = [record for record in self._ready if (record.topic, record.partition) not in keys]
        self._ready = deque(kept)

    async def _seek_to(self, sentinel: int) -> None:
        for key, offset in (await self._requests.offsets(sentinel)).items():
            self._move_to(key, offset)


def _check_offset(offset: int) -> None:
    if not isinstance(offset, int) or offset < 0:
        raise ValueError(f"an offset is an integer from 0 on, not {offset!r}")
