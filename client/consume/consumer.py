"""The consumer: reads messages of assigned partitions, by itself or as a member of a group."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Final, Literal, Self, TypeVar

from ...clock import Clock, SystemClock
from ...protocol.api.log.list_offsets import EARLIEST, LATEST
from ...protocol.lag import Lag
from ...protocol.records.columns import CONTENT, Content, check_content
from ..administer.positions import Position, commit, committed
from ..administer.searching import By
from ..arguments import check_int, epoch_ms
from ..client import DEFAULT_ADDRESS, Client, ReadFrom
from ..cluster.servers import Servers
from ..errors import ClientClosed
from ..results import AfterEnd, ColumnBatch, CommittedPosition, ConsumerRecord, FindResult, Found
from ..security.security import Security
from .assignment import Assigned, Assignment, AssignmentFetches, AssignmentRequests
from .fetching import FetchOptions, TopicPartition, next_offset
from .groups.assignors import RANGE
from .groups.group import ConsumerGroup
from .groups.membership import GroupTimes
from .groups.subscription import (
    GroupSubscription,
    PartitionsCallback,
    Topics,
    checked_subscription,
)
from .time_bounds import CREATE, WindowBy, time_bounds
from .time_window import TimeWindow

T = TypeVar("T")

_MIB: Final = 1024 * 1024


class Consumer(Client):
    """Reads partitions, which it assigns itself or a consumer group assigns, from positions that
    can be moved by offset or by time.

    A restart of the broker does not interrupt reading: a request that fails because of the
    connection is repeated for `retry_timeout_ms`. While more messages are stored, the next fetch is
    sent before the messages of this one are read.
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
        message is returned all the same. A compressed message may hold `max_decompressed_bytes`.

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
        self._name, self._clock = name, clock or SystemClock()
        self._max_wait_ms, self._retry_timeout_ms = max_wait_ms, retry_timeout_ms
        self._metadata_max_age_ms = metadata_max_age_ms
        self._assigned = Assignment()
        self._requests = AssignmentRequests(
            self._cluster, self._assigned, self._clock, retry_timeout_ms=retry_timeout_ms
        )
        self._options = FetchOptions(
            *(min_bytes, partition_max_bytes, max_bytes, max_decompressed_bytes),
            *(append_times, read_committed),
        )
        self._fetches = AssignmentFetches(
            self._options, self._assigned, self._requests, metadata_max_age_ms=metadata_max_age_ms
        )
        self._windows: set[TimeWindow] = set()  # those that were not read to their ends yet
        self._ready: deque[ConsumerRecord] = deque()
        self._filling, self._closed = asyncio.Lock(), False
        self._group: ConsumerGroup | None = None
        self._unfinished: Sequence[ConsumerRecord | ColumnBatch] = ()
        """What the last call returned: the application may be working on it."""

    async def __aenter__(self) -> Self:
        await self._cluster.open(self._fetches.lane)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close. After an error, a member of a group does not commit the messages that were
        returned last, because the work on them may be unfinished."""
        try:
            await self._leave_group(all_finished=exc is None)
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connections. A member of a group commits, unless `auto_commit` is False, and
        leaves the group."""
        self._closed = True
        try:
            await self.unsubscribe()
        finally:
            self._fetches.stop()
            try:
                for window in list(self._windows):
                    await window.close()
            finally:
                await super().close()

    def assign(
        self, topic: str, partition: int | None = None, *, offset: int | None = None
    ) -> None:
        """Read a topic, or only one partition of it, from `offset` or from the first message
        stored.

        Without a partition, all partitions of the topic are read; partitions added later are read
        from their first message. `offset` then holds for each partition.
        """
        self._check_not_subscribed("assign")
        if offset is not None:
            _check_offset(offset)
        self._assigned.add(topic, partition, offset)
        self._fetches.look_again()

    def unassign(self, topic: str, partition: int | None = None) -> None:
        """Stop reading a partition, or a whole topic."""
        self._check_not_subscribed("unassign")
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

    def subscribe(
        self,
        topics: Topics,
        *,
        group: str,
        start: Literal["earliest", "latest"] | timedelta | datetime = "earliest",
        assignor: str | Sequence[str] = RANGE,
        group_instance_id: str | None = None,
        on_assigned: PartitionsCallback | None = None,
        on_revoked: PartitionsCallback | None = None,
        auto_commit: bool = True,
        commit_interval_ms: int = 5_000,
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 3_000,
        max_poll_interval_ms: int = 300_000,
    ) -> None:
        """Read topics as a member of a consumer group, which divides the partitions among its
        members. The first fetch joins the group.

        `topics` is a name or several, or a pattern: a `re.Pattern`, or a text that begins with `^`.
        A pattern matches from the beginning of a name. `start` is where to begin in a partition
        without a committed position, and where to go on when the messages at the position do not
        exist: a timedelta means so long before now.

        `assignor` is `range`, `cooperative-sticky`, or several in the order of preference; all
        members need a common one. `on_assigned` is called with partitions before the first message
        of them is returned, and `on_revoked` before they are given back; both may be coroutine
        functions. With `auto_commit` positions are committed during a fetch every
        `commit_interval_ms`, before partitions are given back, and when the consumer closes.

        A member that does not ask for messages for `max_poll_interval_ms`, or whose heartbeats do
        not arrive for `session_timeout_ms`, loses its partitions. A consumer with a
        `group_instance_id` may restart within its session without a rebalance. Raises TypeError,
        ValueError.
        """
        if self._assigned:
            raise ValueError(
                "partitions are assigned already: a consumer either is a member of a "
                "group or assigns partitions itself"
            )
        subscription = checked_subscription(
            topics,
            group=group,
            start=start,
            check_units=self._check_units,
            assignor=assignor,
            instance_id=group_instance_id,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            auto_commit=auto_commit,
            commit_interval_ms=commit_interval_ms,
            times=GroupTimes(session_timeout_ms, heartbeat_interval_ms, max_poll_interval_ms),
        )
        self._enter(subscription)

    def _enter(self, subscription: GroupSubscription) -> None:
        self._group = ConsumerGroup(
            subscription,
            self._requests,
            self._assigned,
            self._clock,
            metadata_max_age_ms=self._metadata_max_age_ms,
            drop=self._drop,
            changed=self._fetches.look_again,
        )
        self._assigned.is_of_group = True
        self._fetches.reset = self._group.reset

    async def unsubscribe(self) -> None:
        """Commit, unless `auto_commit` is False, and leave the group; without a subscription do
        nothing."""
        await self._leave_group(all_finished=True)

    async def _leave_group(self, *, all_finished: bool) -> None:
        """Leave the group, if the consumer is in one. Unless `all_finished`, the messages that the
        last call returned are not committed."""
        group = self._group
        if group is None:
            return
        capped: dict[TopicPartition, int] = {}
        for part in () if all_finished else reversed(self._unfinished):
            offset = part.offset if isinstance(part, ConsumerRecord) else int(part.offsets[0])
            capped[part.topic, part.partition] = offset
        try:
            await group.close(capped)
        finally:
            if self._group is group:
                self._group = self._fetches.reset = None
                self._assigned.is_of_group = False

    async def commit(
        self, record: ConsumerRecord | str | None = None, *, name: str | None = None
    ) -> None:
        """Commit the positions of all partitions, or with `record` the position behind this one.
        They are durable on return.

        A member of a group commits for the group. Without a group the positions are stored under
        `name` (which may stand in place of `record`), or under the consumer's name. Raises
        IllegalGeneration, UnknownMemberId or RebalanceInProgress if the group went on without this
        member: then nothing was committed.
        """
        if isinstance(record, str):
            record, name = None, record
        if self._group is not None and name is None:
            positions = self._group.positions({})
            if record is not None:
                positions = [_behind(record)]
            if positions:
                await self._group.commit(positions)
            return
        if record is not None:
            ask = partial(commit, self._requests.cluster, self._named(name), [_behind(record)])
            await self._requests.ask(ask)
            return
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

    async def fetch(
        self, *, max_wait_ms: int | None = None, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """Return the next messages of any partition, at most `max_records`; empty if none arrived
        in time.

        Raises the errors that the broker reports for a partition (OffsetOutOfRange, ...),
        CorruptMessage for a damaged message, MessageTooLarge. The positions then stay.
        """
        if max_records is not None:
            check_int(max_records, "max_records")
            if max_records < 1:
                raise ValueError(f"max_records is a number from 1 on, not {max_records}")
        self._check_open()
        if not self._ready or self._group is not None:
            await self.fill(max_wait_ms=max_wait_ms)
            self._check_open()
        if max_records is None or max_records >= len(self._ready):
            batch = list(self._ready)
            self._ready.clear()
        else:
            batch = [self._ready.popleft() for _ in range(max_records)]
        for record in batch:
            self._given_out(record)
        if self._group is not None:
            self._unfinished = tuple(batch)
        return batch

    async def fetch_columns(
        self, *, max_wait_ms: int | None = None, columns: Collection[Content] = CONTENT
    ) -> list[ColumnBatch]:
        """Return the next messages in columns instead of one object each, to read millions per
        second or to fill a table. A record batch or a compressed set is a batch of its own. Keys,
        values and headers that are not among `columns` are nulls and are not copied."""
        check_content(columns)
        wait_ms = self._max_wait_ms if max_wait_ms is None else max_wait_ms
        async with self._filling:
            self._ready.clear()  # they are fetched again, as columns
            if not await self._take_part(wait_ms):
                return []
            batches = await self._checked(partial(self._read_columns, wait_ms, columns))
            if self._group is not None:
                self._unfinished = batches
            return batches

    async def _read_columns(self, wait_ms: int, columns: Collection[Content]) -> list[ColumnBatch]:
        # Positions move when every partition has been read: an error must not pass messages.
        found = [
            (fetched, self._options.columns(fetched[0].topic, result, offset, columns, entries))
            for fetched in await self._fetches.fetch(wait_ms)
            for _, offset, result, entries in (fetched,)
        ]
        batches: list[ColumnBatch] = []
        for (assigned, offset, result, entries), read in found:
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
        if self._closed:
            raise self._closed_error()
        group = self._group
        if not self._ready or (group is not None and group.needs_poll):
            return None
        record = self._ready.popleft()
        self._given_out(record)
        if group is not None:
            group.membership.polled = True
            self._unfinished = (record,)
        return record

    async def fill(self, *, max_wait_ms: int | None = None) -> None:
        """Fetch the next messages for `take`, unless some are ready. There may be none in time.

        Only one fetch runs at a time: a second caller shares the messages of the first one's fetch.
        """
        wait_ms = self._max_wait_ms if max_wait_ms is None else max_wait_ms
        async with self._filling:
            if not await self._take_part(0 if self._ready else wait_ms) or self._ready:
                return
            self._ready.extend(await self._checked(partial(self._read_records, wait_ms)))

    async def _read_records(self, wait_ms: int) -> list[ConsumerRecord]:
        ready: list[ConsumerRecord] = []
        for assigned, offset, result, entries in await self._fetches.fetch(wait_ms):
            read = self._options.records(assigned.topic, result, offset, entries)
            if not read and result.records:
                assigned.position = next_offset(result, offset, entries)
            ready += read
        return ready

    async def _take_part(self, wait_ms: int) -> bool:
        """Take part in the group's rebalances, if the consumer is a member. Returns False if it
        still waits for partitions."""
        self._check_open()
        group = self._group
        if group is None:
            return True
        self._unfinished = ()
        has_partitions = await group.poll(wait_ms)
        self._check_open()
        return has_partitions and self._group is group

    def _check_open(self) -> None:
        if self._closed:
            raise self._closed_error()

    def _closed_error(self) -> ClientClosed:
        return ClientClosed(f"the client of {self._cluster.address} is closed")

    def _named(self, name: str | None) -> str:
        chosen = self._name if name is None else name
        if chosen is None and self._group is not None:
            chosen = self._group.subscription.group
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

    def _check_not_subscribed(self, call: str) -> None:
        if self._group is not None:
            raise ValueError(
                f"{call}() is not for a member of a group, which gets its partitions from group "
                f"{self._group.subscription.group}; call unsubscribe() first"
            )

    def _drop(self, keys: Sequence[TopicPartition]) -> None:
        """Stop reading partitions that the group has given to another member."""
        for topic, partition in keys:
            self._assigned.remove(topic, partition)
        self._drop_ready(keys)

    def _drop_ready(self, keys: Collection[TopicPartition]) -> None:
        kept = [record for record in self._ready if (record.topic, record.partition) not in keys]
        self._ready = deque(kept)

    async def _seek_to(self, sentinel: int) -> None:
        for key, offset in (await self._requests.offsets(sentinel)).items():
            self._move_to(key, offset)


def _behind(record: ConsumerRecord) -> Position:
    if not isinstance(record, ConsumerRecord):
        raise TypeError(f"commit takes a record or a name, not {type(record).__name__}")
    return Position(record.topic, record.partition, record.offset + 1, record.timestamp_ms)


def _check_offset(offset: int) -> None:
    if not isinstance(offset, int) or offset < 0:
        raise ValueError(f"an offset is an integer from 0 on, not {offset!r}")
