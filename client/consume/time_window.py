"""The messages of a window of time: each that is in it, once, and no other; as records or in
columns."""

import asyncio
from array import array
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final, Generic, Literal, Protocol, TypeVar

from ...clock import Clock
from ...protocol.api.log.fetch import FetchPartitionResult
from ...protocol.errors import OffsetOutOfRange, UnsupportedVersion
from ...protocol.records.binary import BinaryColumn
from ...protocol.records.columns import CONTENT, Content, check_content
from ...protocol.records.layout import Buffer
from ...times import later
from ...values import value_class
from ..cluster.cluster import ClusterConnections
from ..results import ColumnBatch, ConsumerRecord
from .fetches import Results, fetches_of
from .fetching import FetchOptions, next_offset
from .time_bounds import APPEND, TimeBounds
from .window_partitions import WindowPartition, WindowRequests

Run = tuple[int, int]
"""Rows from the first number up to, without, the second."""

T_co = TypeVar("T_co", covariant=True)

_BEGINNINGS_MAX: Final = 5
"""So often is a partition begun anew whose first messages are deleted at that moment."""

T = TypeVar("T")


@value_class
class Taken(Generic[T_co]):
    """What a fetch brought of a window."""

    items: "list[T_co]"
    next_offset: int | None
    """Behind the last message that was looked at; None when there was none."""
    untimed: int
    """Messages that were looked at and have no time."""


class WindowForm(Protocol[T_co]):
    """Takes the messages of a window out of a fetch."""

    def take(
        self, topic: str, result: FetchPartitionResult, offset: int, end: int | None
    ) -> Taken[T_co]:
        """Those from `offset` up to, without, `end`, if there is one."""
        ...


@value_class
class AsRecords:
    """One object for each message."""

    options: FetchOptions
    bounds: TimeBounds

    def take(
        self, topic: str, result: FetchPartitionResult, offset: int, end: int | None
    ) -> Taken[ConsumerRecord]:
        read = self.options.records(topic, result, offset)
        behind = read[-1].offset + 1 if read else None
        if end is not None and behind is not None and behind > end:
            read = [record for record in read if record.offset < end]
        if self.bounds.by == APPEND:
            times = [record.append_time_ms for record in read]
        else:
            times = [record.timestamp_ms for record in read]
        holds = self.bounds.holds
        kept = [record for record, time in zip(read, times, strict=True) if holds(time)]
        return Taken(kept, behind, times.count(None))


@value_class
class AsColumns:
    """Batches in columns; what is not in `content` comes as nulls."""

    options: FetchOptions
    bounds: TimeBounds
    content: Collection[Content]

    def take(
        self, topic: str, result: FetchPartitionResult, offset: int, end: int | None
    ) -> Taken[ColumnBatch]:
        read = self.options.columns(topic, result, offset, self.content)
        kept: list[ColumnBatch] = []
        untimed = 0
        for batch in read:
            column = batch.timestamps_ms
            if self.bounds.by == APPEND:
                assert batch.append_times_ms is not None, "they are asked for with such a window"
                column = batch.append_times_ms
            times: list[int] = column.tolist()
            if end is not None and batch.next_offset > end:
                del times[_count_below(batch.offsets.tolist(), end) :]
            untimed += times.count(-1)
            chosen = selected(batch, self.bounds.rows(times))
            if chosen is not None:
                kept.append(chosen)
        return Taken(kept, read[-1].next_offset if read else None, untimed)


def _count_below(offsets: list[int], end: int) -> int:
    return next((row for row, offset in enumerate(offsets) if offset >= end), len(offsets))


def selected(batch: ColumnBatch, rows: Sequence[int]) -> ColumnBatch | None:
    """The rows with these ascending numbers; None when there are none."""
    if not rows:
        return None
    if len(rows) == batch.count:
        return batch
    runs = _runs(rows)
    append_times = batch.append_times_ms
    return replace(
        batch,
        count=len(rows),
        offsets=_numbers(batch.offsets, runs, "q"),
        timestamps_ms=_numbers(batch.timestamps_ms, runs, "q"),
        timestamp_types=_numbers(batch.timestamp_types, runs, "b"),
        keys=_strings(batch.keys, runs),
        values=_strings(batch.values, runs),
        append_times_ms=None if append_times is None else _numbers(append_times, runs, "q"),
        headers=None if batch.headers is None else _items(batch.headers, runs),
    )


def _runs(rows: Sequence[int]) -> list[Run]:
    """The stretches without a gap."""
    found: list[Run] = []
    start = end = rows[0]
    for row in rows:
        if row != end:
            found.append((start, end))
            start = row
        end = row + 1
    found.append((start, end))
    return found


def _numbers(column: memoryview, runs: Iterable[Run], kind: Literal["q", "b"]) -> memoryview:
    data = bytearray().join(column[start:end] for start, end in runs)
    return memoryview(data).cast(kind)


def _items(column: Sequence[T], runs: Iterable[Run]) -> list[T]:
    return [item for start, end in runs for item in column[start:end]]


def _strings(column: BinaryColumn, runs: Sequence[Run]) -> BinaryColumn:
    ends = memoryview(column.offsets).cast("B").cast("i")
    data = memoryview(column.data)
    taken = bytearray().join(data[ends[start] : ends[end]] for start, end in runs)
    offsets = array("i", [0])
    for start, end in runs:
        shift = offsets[-1] - ends[start]
        offsets.extend(position + shift for position in ends[start + 1 : end + 1])
    valid, nulls = None, 0
    if column.valid is not None:
        valid, nulls = _bits(column.valid, runs, len(offsets) - 1)
    return BinaryColumn(bytearray(offsets.tobytes()), taken, valid if nulls else None, nulls)


def _bits(bits: Buffer, runs: Iterable[Run], count: int) -> tuple[bytearray, int]:
    """The bits of these rows, and how many of them are 0."""
    taken, number = bytearray((count + 7) // 8), 0
    nulls = 0
    for start, end in runs:
        for row in range(start, end):
            if bits[row >> 3] >> (row & 7) & 1:
                taken[number >> 3] |= 1 << (number & 7)
            else:
                nulls += 1
            number += 1
    return taken, nulls


class TimeWindow:
    """The messages of a topic whose time is in a window; `Consumer.window` makes it.

    Iterate over it for records, or over `columns()`: one of the two, and once. Messages come by
    partition, in the order of their offsets; of what comes while it follows, as it comes. What the
    broker reports (OffsetOutOfRange where messages were deleted that had not been read yet,
    CorruptMessage, ...) is raised; the next call goes on behind the last messages that were
    returned.
    """

    def __init__(
        self,
        cluster: ClusterConnections,
        topic: str,
        bounds: TimeBounds,
        partitions: Sequence[int] | None,
        options: FetchOptions,
        *,
        max_wait_ms: int,
        retry_timeout_ms: int,
        metadata_max_age_ms: int = 30_000,
        follow: timedelta | None,
        clock: Clock,
        closed: "Callable[[TimeWindow], None]",
    ) -> None:
        if cluster.kafka and bounds.by == APPEND:
            raise UnsupportedVersion(
                "Kafka's protocol does not tell when a message was appended, so there is no window "
                "by append time; on a topic with message.timestamp.type=LogAppendTime the "
                "messages' own times are append times"
            )
        # A broker answers in order, so a fetch must not stand behind one of others that waits.
        self._cluster = cluster.beside()
        self._owns_cluster = self._cluster is not cluster
        self._closed = closed
        self._topic = topic
        self._bounds = bounds
        self._options = options = replace(
            options,
            append_times=options.append_times or bounds.by == APPEND,
            window=None if cluster.kafka else bounds,
        )
        self._partitions = None if partitions is None else partition_numbers(partitions)
        self._max_wait_ms = max_wait_ms
        self._retry_timeout_ms = retry_timeout_ms
        self._metadata_max_age_s = metadata_max_age_ms / 1000
        self._metadata_asked = 0.0
        """When the partitions were last asked for, on the monotonic clock."""
        self._follow_ms = None if follow is None else _length_ms(follow)
        self._clock = clock
        self._requests = WindowRequests(self._cluster, retry_timeout_ms)
        self._fetches = fetches_of(self._cluster, options, _ignore)
        self._places: list[WindowPartition] | None = None
        self._deadline_ms: int | None = None
        """Until when, by the client's clock, it follows; None when it does not any more."""
        self._filling = asyncio.Lock()
        self._ready: deque[ConsumerRecord] = deque()
        self._form: type[AsRecords] | type[AsColumns] | None = None
        self._messages = self._read_bytes = self._skipped_bytes = self._untimed = 0
        self._stored_bytes: int | None = None
        """What the partitions take at a Kafka cluster."""
        self._turn = 0
        self._ended = False

    @property
    def messages(self) -> int:
        """How many messages of the window were given out so far."""
        return self._messages

    @property
    def read_bytes(self) -> int:
        """Bytes of the log that were read for it so far."""
        return self._read_bytes

    @property
    def skipped_bytes(self) -> int:
        """Bytes of the log that were passed over so far, because nothing of the window is there.

        At a Kafka cluster those before the first message as late as `start`, and behind the end.
        """
        if self._stored_bytes is None:
            return self._skipped_bytes
        return max(self._stored_bytes - self._read_bytes, 0)

    @property
    def log_bytes(self) -> int:
        """Bytes of the log that it is about: those read and those passed over."""
        return self.read_bytes + self.skipped_bytes

    @property
    def untimed(self) -> int:
        """Messages without a time among those that were read; they are in no window."""
        return self._untimed

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next message of the window."""
        while (record := self.take()) is None:
            if not await self.fill():
                raise StopAsyncIteration
        return record

    def take(self) -> ConsumerRecord | None:
        """The next message, if one has been fetched already. Never waits."""
        if not self._ready:
            return None
        self._messages += 1
        return self._ready.popleft()

    async def fill(self, *, max_wait_ms: int | None = None) -> bool:
        """Fetch the next messages for `take`, unless there are some; none may come in time. False:
        the window has been read."""
        self._choose(AsRecords)
        async with self._filling:
            if self._ready:
                return True
            found = await self._next(AsRecords(self._options, self._bounds), max_wait_ms)
            self._ready.extend(found or ())
            return found is not None

    async def columns(self, columns: Collection[Content] = CONTENT) -> AsyncIterator[ColumnBatch]:
        """The messages of the window in columns, as those of `Consumer.fetch_columns`. Keys, values
        and headers that are not among `columns` come as nulls, uncopied."""
        check_content(columns)
        while (batches := await self.next_columns(columns)) is not None:
            for batch in batches:
                yield batch

    async def next_columns(
        self, columns: Collection[Content] = CONTENT
    ) -> list[ColumnBatch] | None:
        """The batches of the next fetch; there may be none. None: the window has been read."""
        check_content(columns)
        self._choose(AsColumns)
        async with self._filling:
            found = await self._next(AsColumns(self._options, self._bounds, columns), None)
            self._messages += sum(batch.count for batch in found or ())
            return found

    async def close(self) -> None:
        """Read no further. Needed only for one that is not read to its end."""
        self._ended = True
        self._fetches.stop()
        if self._owns_cluster:
            await self._cluster.close()
        self._closed(self)

    def _choose(self, form: type[AsRecords] | type[AsColumns]) -> None:
        if self._form not in (None, form):
            raise ValueError("a window is read as records or in columns: this one is not both")
        self._form = form

    async def _next(self, form: WindowForm[T], max_wait_ms: int | None) -> list[T] | None:
        """What one fetch brings; None when everything was read."""
        wait_ms = self._max_wait_ms if max_wait_ms is None else max_wait_ms
        if self._ended:
            return None
        if self._places is None:
            await self._begin()
        assert self._places is not None
        for place in self._places:
            if not place.is_done:
                return await self._read_on(place, form, wait_ms)
        if self._deadline_ms is None:
            await self.close()
            return None
        left_ms = self._deadline_ms - self._clock.now_ms()
        if await self._find_added(max_age_s=self._metadata_max_age_s if left_ms > 0 else 0):
            return []
        if left_ms > 0:
            # The broker fills a response in order: each time another partition is the first.
            self._turn = (self._turn + 1) % len(self._places)
            places = self._places[self._turn :] + self._places[: self._turn]
            return await self._fetch(places, form, min(left_ms, wait_ms))
        await self._requests.find_ends(self._places)
        self._deadline_ms = None
        return []

    async def _begin(self) -> None:
        self._metadata_asked = self._clock.monotonic()
        places = await self._requests.places(self._topic, self._partitions)
        if self._bounds.is_empty:
            places = []
        else:
            await self._count_stored(places)
        if self._follow_ms is not None and places:
            until_ms = self._bounds.until_ms
            base_ms = self._clock.now_ms() if until_ms is None else until_ms
            self._deadline_ms = later(base_ms, self._follow_ms)
        self._places = places

    async def _find_added(self, *, max_age_s: float) -> bool:
        """Whether partitions were added to the topic, which are read from now on too."""
        assert self._places is not None
        now = self._clock.monotonic()
        if self._partitions is not None or now - self._metadata_asked < max_age_s:
            return False
        added = await self._requests.places(self._topic, None, first=len(self._places))
        self._metadata_asked = now
        if added:
            self._cluster.forget(self._topic)  # also who leads which partition
            await self._count_stored(added)
            self._places += added
        return bool(added)

    async def _count_stored(self, places: Sequence[WindowPartition]) -> None:
        if self._cluster.kafka:
            sizes = [await self._requests.log_bytes(place) for place in places]
            self._stored_bytes = (self._stored_bytes or 0) + sum(sizes)

    async def _read_on(self, place: WindowPartition, form: WindowForm[T], wait_ms: int) -> list[T]:
        """The next messages of a partition that was not read to its end."""
        attempts_left = _BEGINNINGS_MAX
        while True:
            if place.position is None:
                await self._requests.find_beginning(place, self._searched_ms)
            if place.is_done:
                self._end(place)
                return []
            attempts_left -= 1
            try:
                found = await self._fetch([place], form, wait_ms if place.waits else 0)
            except OffsetOutOfRange:
                if place.was_read or not attempts_left:
                    raise
                place.position = None  # the first messages were deleted since it was asked
                continue
            if place.is_done:
                self._end(place)
            else:
                self._fetches.ahead({place.key: place.position or 0})
            return found

    def _end(self, place: WindowPartition) -> None:
        """It was read up to its end. What is behind that is for later, when it follows."""
        if self._deadline_ms is not None:
            if place.was_read:
                place.position = place.end
            place.end = None

    @property
    def _searched_ms(self) -> int | None:
        """The time of the first message to read, where the request does not name the window."""
        if self._options.window is not None or self._bounds.by == APPEND:
            return None
        return self._bounds.from_ms

    async def _fetch(
        self, places: Sequence[WindowPartition], form: WindowForm[T], wait_ms: int
    ) -> list[T]:
        read = partial(self._fetch_once, places, form, wait_ms)
        return await self._options.checked(read, several=self._cluster.several)

    async def _fetch_once(
        self, places: Sequence[WindowPartition], form: WindowForm[T], wait_ms: int
    ) -> list[T]:
        asked = {place.key: place.position or 0 for place in places}
        results = await self._requests.ask(partial(self._fetches.fetch, asked, wait_ms))
        # What cannot be read is raised before anything is taken: so the others' messages come
        # again.
        taken = []
        for place in places:
            if place.key in results:
                result = results[place.key]
                part = form.take(self._topic, result, asked[place.key], place.end)
                taken.append((place, result, part))
        found: list[T] = []
        for place, result, part in taken:
            self._count(result, part)
            self._move(place, result, part)
            found += part.items
        return found

    def _count(self, result: FetchPartitionResult, part: "Taken[object]") -> None:
        self._read_bytes += len(result.records or b"")
        self._skipped_bytes += result.skipped_bytes
        self._untimed += part.untimed

    def _move(
        self, place: WindowPartition, result: FetchPartitionResult, part: "Taken[object]"
    ) -> None:
        """Go on behind what came, and behind what the broker passed over."""
        assert place.position is not None
        behind = next_offset(result, place.position)
        if part.next_offset is not None and part.next_offset != behind:
            # A part that cannot be read, or control batches, are looked at next.
            behind = part.next_offset
        else:
            behind = max(behind, result.next_offset)
        place.waits = behind == place.position
        place.position, place.was_read = behind, True
        self._check_end(place, result.high_watermark)

    def _check_end(self, place: WindowPartition, high_watermark: int) -> None:
        """Raise what it means that a partition stays shorter than it was. In a cluster it is for a
        moment, when another broker leads it."""
        if not place.waits or place.end is None or high_watermark >= place.end:
            place.stalled_since = None
            return
        now = asyncio.get_running_loop().time()
        if place.stalled_since is None:
            place.stalled_since = now
        if now - place.stalled_since >= self._retry_timeout_ms / 1000:
            raise OffsetOutOfRange(
                f"{place.topic}-{place.partition} ended at offset {place.end} when the window was "
                f"asked for, and ends at {high_watermark} now: messages at its end were lost"
            )


def partition_numbers(partitions: Sequence[int]) -> list[int]:
    """The partitions that a program names, in order and each once. Raises TypeError, ValueError."""
    if isinstance(partitions, str | bytes) or not all(type(one) is int for one in partitions):
        raise TypeError(f"partitions is a sequence of numbers, not {partitions!r}")
    if any(one < 0 for one in partitions):
        raise ValueError(f"partitions have numbers from 0 on, not {min(partitions)}")
    return sorted(set(partitions))


def _length_ms(follow: timedelta) -> int:
    if not isinstance(follow, timedelta):
        raise TypeError(f"follow is a timedelta, not {type(follow).__name__}")
    if follow < timedelta(0):
        raise ValueError(f"follow is a length of time from 0 on, not {follow}")
    return follow // timedelta(milliseconds=1)


def _ignore(results: Results) -> None:
    """When it came is not asked for."""
