"""The messages of a window of time: each that is in it, once, and no other; as records or in
columns."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Final, TypeVar

from ...clock import Clock
from ...protocol.api.log.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ...protocol.api.log.describe_removals import DescribedRemoval
from ...protocol.api.log.fetch import FetchPartitionResult
from ...protocol.api.log.list_offsets import BY_APPEND, BY_TIMESTAMP, EARLIEST, LATEST
from ...protocol.errors import (
    CodedError,
    HorologError,
    OffsetOutOfRange,
    UnsupportedForMessageFormat,
    UnsupportedVersion,
)
from ...protocol.records.columns import CONTENT, Content, check_content
from ...times import later
from ...values import value_class
from ..administer.count_answers import count_untimed
from ..administer.gone import complete_from, removed_since
from ..administer.searching import By, offsets_at
from ..cluster.retry import Backoff, retry
from ..cluster.route import Route
from ..cluster.targets import PartitionLeader
from ..errors import ClientClosed
from ..results import ColumnBatch, ConsumerRecord, OffsetAt
from .fetches import Fetches, Results
from .fetching import FetchOptions, TopicPartition, next_offset
from .time_bounds import APPEND, TimeBounds, length_ms
from .window_forms import AsColumns, AsRecords, Taken, WindowForm

_BEGINNINGS_MAX: Final = 5
"""How often reading begins again because first messages were just deleted, and how often the broker
is asked what they were."""

T = TypeVar("T")


@dataclass(slots=True)
class WindowPartition:
    """State of one partition of a window."""

    topic: str
    partition: int
    end: int | None = None
    """Offset to stop at; None while the window follows the partition without an end."""
    position: int = 0
    """Next offset to read."""
    was_read: bool = False
    waits: bool = False
    """The last fetch brought nothing, so the next one waits at the broker."""
    stalled_since: float | None = None
    """Time on the event loop's clock at which the partition was found to end before `end`; None if
    it does not, or messages came since."""
    complete_from_ms: int | None = None
    """Time from which on no message has left the partition; None where unknown."""

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def is_done(self) -> bool:
        """Whether the partition is read to its end."""
        return self.end is None or self.position >= self.end


@value_class
class WindowRequests:
    """Requests about the partitions of a window, repeated while the cluster is unavailable."""

    cluster: Route
    retry_timeout_ms: int
    by: By

    async def places(
        self,
        topic: str,
        partitions: Sequence[int] | None,
        *,
        from_ms: int | None,
        first: int = 0,
    ) -> list[WindowPartition]:
        """Return the given partitions of a topic, or all from `first` on, from their first message
        stored to the last readable one. With `from_ms` they begin at the first message of that time
        or later; no earlier message can be in the window."""
        if partitions is None:
            counts = await self.ask(partial(self.cluster.partition_counts, [topic]))
            partitions = range(first, counts[topic])
        places = [WindowPartition(topic, number) for number in partitions]
        await asyncio.gather(*(self._find_extent(place, from_ms) for place in places))
        return places

    async def find_ends(self, places: Sequence[WindowPartition]) -> None:
        """Set the end of each partition to its current end of readable messages."""
        ends = await asyncio.gather(*(self._offsets(place, LATEST) for place in places))
        for place, (end,) in zip(places, ends, strict=True):
            place.end = end.offset

    async def _find_extent(self, place: WindowPartition, from_ms: int | None) -> None:
        try:
            if from_ms is None:
                await self.find_start(place)
                return
            # A message that is appended after the search is behind the end.
            end, start = await self._offsets(place, LATEST, from_ms)
        except UnsupportedForMessageFormat:
            # New messages of this topic get no timestamps, but messages stored before may have
            # some.
            await self.find_start(place)
            return
        place.end, place.complete_from_ms = end.offset, end.complete_from_ms
        place.position = (end.offset or 0) if start.offset is None else start.offset

    async def find_start(self, place: WindowPartition) -> None:
        """Set the position to the first message stored, and the end; find from when on the
        partition is complete."""
        # What left the partition before its start was found is in the second answer.
        start, end = await self._offsets(place, EARLIEST, LATEST)
        place.position = start.offset or 0
        place.end, place.complete_from_ms = end.offset, end.complete_from_ms

    async def removed(
        self, places: Sequence[WindowPartition], from_ms: int
    ) -> tuple[DescribedRemoval, ...]:
        """Return what left the partitions of a topic and may have been in a window."""
        ask = partial(
            removed_since,
            *(self.cluster, places[0].topic),
            {place.partition: place.complete_from_ms for place in places},
            from_ms,
            by_append=self.by == BY_APPEND,
        )
        return await self.ask(ask)

    async def log_bytes(self, place: WindowPartition) -> int:
        """Return the size of the partition on its leader's disk in bytes; 0 if the broker does not
        tell."""
        asked = DescribableLogDirTopic(name=place.topic, partitions=[place.partition])
        ask = partial(
            self.cluster.request,
            DESCRIBE_LOG_DIRS,
            DescribeLogDirsRequest(topics=[asked]),
            to=PartitionLeader(*place.key),
        )
        try:
            response: DescribeLogDirsResponse = await self.ask(ask)
        except CodedError:  # the request needs a right of its own
            return 0
        return sum(
            one.size_bytes
            for result in response.results
            for topic in result.topics
            for one in topic.partitions
            if (topic.name, one.partition) == place.key
        )

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Return the answer to a request, which is repeated for up to `retry_timeout_ms`."""
        return await retry(question, timeout_ms=self.retry_timeout_ms, setting="retry_timeout_ms")

    async def _offsets(self, place: WindowPartition, *targets: int) -> list[OffsetAt]:
        return await self.ask(partial(offsets_at, self.cluster, *place.key, targets, by=self.by))


class TimeWindow:
    """Messages of a topic whose time is in a window; made by `Consumer.window`.

    Iterate once, over records or over `columns()`. Messages come by partition, in the order of
    their offsets; while the window follows, they come as they arrive. Errors that the broker
    reports (OffsetOutOfRange if messages were deleted before they were read, CorruptMessage, ...)
    are raised; the next call continues after the last messages that were returned, and a call that
    is cancelled loses none. After `close`, a window that was not read to its end raises
    ClientClosed.
    """

    def __init__(
        self,
        cluster: Route,
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
        self._cluster = cluster
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
        """Time of the last metadata request, on the monotonic clock."""
        self._follow_ms = None if follow is None else length_ms(follow)
        self._clock = clock
        self._requests = WindowRequests(
            self._cluster, retry_timeout_ms, BY_APPEND if bounds.by == APPEND else BY_TIMESTAMP
        )
        self._fetches = Fetches(cluster, options, _ignore)
        self._places: list[WindowPartition] | None = None
        self._deadline_ms: int | None = None
        """End of following, in milliseconds on the client's clock; None when the window does not
        follow, or no longer does."""
        self._filling = asyncio.Lock()
        self._ready: deque[ConsumerRecord] = deque()
        self._ready_columns: deque[ColumnBatch] = deque()
        self._content: frozenset[Content] = frozenset()
        """Columns of the batches in `_ready_columns`."""
        self._form: type[AsRecords] | type[AsColumns] | None = None
        self._messages = self._read_bytes = self._skipped_bytes = self._untimed = 0
        self._stored_bytes: int | None = None
        """Size of the partitions at a Kafka cluster in bytes."""
        self._complete_from_ms: int | None = None
        self._removed: tuple[DescribedRemoval, ...] = ()
        self._turn = 0
        self._beginnings_left = _BEGINNINGS_MAX
        self._ended = self._is_closed = False

    @property
    def messages(self) -> int:
        """Number of messages returned so far."""
        return self._messages

    @property
    def read_bytes(self) -> int:
        """Bytes of the log read so far."""
        return self._read_bytes

    @property
    def skipped_bytes(self) -> int:
        """Bytes of the log skipped so far, because they hold nothing of the window.

        At a Kafka cluster these are the bytes before the first message at or after `start`, and
        after the end.
        """
        if self._stored_bytes is None:
            return self._skipped_bytes
        return max(self._stored_bytes - self._read_bytes, 0)

    @property
    def log_bytes(self) -> int:
        """Bytes of the log that the window covers so far: read and skipped ones."""
        return self.read_bytes + self.skipped_bytes

    @property
    def untimed(self) -> int:
        """Number of messages read that have no time; they are in no window. The broker leaves out
        others, which `count_untimed` counts."""
        return self._untimed

    @property
    def complete_from_ms(self) -> int | None:
        """Time from which on no message has left the partitions of the window; 0 if none has left
        them, None before the first message is fetched and where unknown, as at a Kafka cluster."""
        return self._complete_from_ms

    @property
    def removed(self) -> tuple[DescribedRemoval, ...]:
        """What had left the partitions when reading began, and may have been in the window. Empty
        unless `complete_from_ms` is later than its start."""
        return self._removed

    @property
    def is_following(self) -> bool:
        """Whether every partition is read up to its end when reading began, or when the partition
        was added, and later messages are waited for."""
        return self._places is not None and all(place.end is None for place in self._places)

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next message of the window."""
        while (record := self.take()) is None:
            if not await self.fill():
                raise StopAsyncIteration
        return record

    def take(self) -> ConsumerRecord | None:
        """Return the next message if it is already fetched, else None. Never waits."""
        if self._is_closed:
            raise self._closed_error()
        if not self._ready:
            return None
        self._messages += 1
        return self._ready.popleft()

    async def fill(self, *, max_wait_ms: int | None = None) -> bool:
        """Fetch the next messages for `take`, unless some are ready. There may be none in time.
        Returns False when the window is read to its end."""
        self._choose(AsRecords)
        async with self._filling:
            if self._ready:
                return True
            found = await self._next(AsRecords(self._options, self._bounds), max_wait_ms)
            self._ready.extend(found or ())
            return found is not None

    def columns(self, columns: Collection[Content] = CONTENT) -> AsyncIterator[ColumnBatch]:
        """Iterate over the messages in columns, as `Consumer.fetch_columns` returns them. Keys,
        values and headers that are not among `columns` are nulls and are not copied."""
        check_content(columns)
        return _WindowColumns(self, columns)

    def take_columns(self, columns: Collection[Content] = CONTENT) -> ColumnBatch | None:
        """Return the next batch if it is already fetched, else None. Never waits."""
        if self._is_closed:
            raise self._closed_error()
        if not self._ready_columns:
            return None
        if self._content != frozenset(columns):
            raise ValueError(
                f"the next messages were fetched with the columns {sorted(self._content)}: read "
                "on with the same ones"
            )
        batch = self._ready_columns.popleft()
        self._messages += batch.count
        return batch

    async def fill_columns(self, columns: Collection[Content] = CONTENT) -> bool:
        """Fetch the next messages for `take_columns`, as `fill` does for `take`."""
        check_content(columns)
        self._choose(AsColumns)
        async with self._filling:
            if self._ready_columns:
                return True
            found = await self._next(AsColumns(self._options, self._bounds, columns), None)
            self._ready_columns.extend(found or ())
            self._content = frozenset(columns)
            return found is not None

    async def next_taken(
        self, form: Callable[[FetchOptions, TimeBounds], WindowForm[T]]
    ) -> list[T] | None:
        """Return what `form` selects from the next fetch, possibly nothing; None when the window is
        read to its end. The caller counts the messages."""
        async with self._filling:
            return await self._next(form(self._options, self._bounds), None)

    async def begin(self) -> None:
        """Find where the partitions begin and end, which the first fetch does otherwise. Messages
        that are deleted from now on are missed."""
        async with self._filling:
            self._check_open()
            if self._places is None and not self._ended:
                await self._begin()
                self._beginnings_left = 0

    async def count_untimed(self) -> int | None:
        """Return how many messages of the partitions have no time, and so are in no window; None
        where unknown, as at a Kafka cluster, and before reading begins."""
        if self._cluster.kafka or self._places is None:
            return None
        partitions = [place.partition for place in self._places]
        return await count_untimed(self._cluster, self._topic, partitions, self._requests.by)

    async def close(self) -> None:
        """Stop reading. Needed only for a window that is not read to its end."""
        self._is_closed = not self._ended
        self._ready.clear()
        self._ready_columns.clear()
        await self._release()

    async def _release(self) -> None:
        await self._fetches.close()
        self._closed(self)

    def _check_open(self) -> None:
        if self._is_closed:
            raise self._closed_error()

    def _closed_error(self) -> ClientClosed:
        return ClientClosed(f"the window of {self._topic} was closed before its end was reached")

    def _choose(self, form: type[AsRecords] | type[AsColumns]) -> None:
        if self._form not in (None, form):
            raise ValueError("a window is read as records or in columns: this one is not both")
        self._form = form

    async def _next(self, form: WindowForm[T], max_wait_ms: int | None) -> list[T] | None:
        """Return the messages of one fetch; None when everything was read. Raises ClientClosed if
        the window is closed, also meanwhile."""
        self._check_open()
        try:
            found = await self._find_next(form, max_wait_ms)
        except HorologError:
            self._check_open()
            raise
        self._check_open()
        return found

    async def _find_next(self, form: WindowForm[T], max_wait_ms: int | None) -> list[T] | None:
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
            self._ended = True
            await self._release()
            return None
        left_ms = self._deadline_ms - self._clock.now_ms()
        if await self._find_added(max_age_s=self._metadata_max_age_s if left_ms > 0 else 0):
            return []
        if left_ms > 0:
            # The broker fills a response in order, so each fetch puts another partition first.
            self._turn = (self._turn + 1) % len(self._places)
            places = self._places[self._turn :] + self._places[: self._turn]
            return await self._fetch(places, form, min(left_ms, wait_ms))
        await self._requests.find_ends(self._places)
        self._deadline_ms = None
        return []

    async def _begin(self) -> None:
        self._metadata_asked = self._clock.monotonic()
        places = await self._requests.places(
            self._topic, self._partitions, from_ms=self._searched_ms
        )
        complete_from_ms = complete_from(place.complete_from_ms for place in places)
        removed: tuple[DescribedRemoval, ...] = ()
        if self._bounds.is_empty:
            places = []
        if places:
            await self._count_stored(places)
            from_ms = self._bounds.from_ms or 0
            removed = await self._requests.removed(places, from_ms)
        if self._follow_ms is not None and places:
            until_ms = self._bounds.until_ms
            base_ms = self._clock.now_ms() if until_ms is None else until_ms
            self._deadline_ms = later(base_ms, self._follow_ms)
            self._end_read(places)
        self._complete_from_ms, self._removed = complete_from_ms, removed
        self._places = places

    async def _find_added(self, *, max_age_s: float) -> bool:
        """Add new partitions of the topic to the window. Returns whether there were any."""
        assert self._places is not None
        now = self._clock.monotonic()
        if self._partitions is not None or now - self._metadata_asked < max_age_s:
            return False
        added = await self._requests.places(
            self._topic, None, from_ms=self._searched_ms, first=len(self._places)
        )
        self._metadata_asked = now
        if added:
            self._cluster.forget(self._topic)  # drops the cached partition leaders too
            await self._count_stored(added)
            self._end_read(added)
            self._places += added
        return bool(added)

    async def _count_stored(self, places: Sequence[WindowPartition]) -> None:
        if self._cluster.kafka:
            sizes = [await self._requests.log_bytes(place) for place in places]
            self._stored_bytes = (self._stored_bytes or 0) + sum(sizes)

    async def _read_on(self, place: WindowPartition, form: WindowForm[T], wait_ms: int) -> list[T]:
        """Return the next messages of a partition that is not read to its end."""
        try:
            found = await self._fetch([place], form, wait_ms if place.waits else 0)
        except OffsetOutOfRange as error:
            await self._pass_deleted(place, error)
            found = []
        if place.is_done:
            self._end_read([place])
        elif place.was_read:
            self._fetches.ahead({place.key: place.position})
        return found

    async def _pass_deleted(self, place: WindowPartition, error: OffsetOutOfRange) -> None:
        """Move the position behind messages that were deleted since reading began. Raises the error
        if one of them may have been in the window, unless nothing was read yet: then reading begins
        again."""
        assert self._places is not None
        if self._beginnings_left and not any(each.was_read for each in self._places):
            self._beginnings_left -= 1
            self._places = None
            return
        from_ms, backoff = self._bounds.from_ms or 0, Backoff()
        for _ in range(_BEGINNINGS_MAX):
            now = WindowPartition(*place.key)
            await self._requests.find_start(now)
            if now.position <= place.position:
                raise error
            if now.complete_from_ms is not None or self._cluster.kafka:
                break
            # The broker moves a log start before it has stored what it deleted.
            await asyncio.sleep(backoff.next_s())
        if now.complete_from_ms is None or now.complete_from_ms > from_ms:
            raise OffsetOutOfRange(
                f"messages of {place.topic}-{place.partition} were deleted after reading began and "
                f"before they were reached, and may have been in the window: reading is at offset "
                f"{place.position}, and the log begins at {now.position}; read the window anew to "
                "get what is left"
            ) from error
        place.position = now.position

    def _end_read(self, places: Sequence[WindowPartition]) -> None:
        """Finish the partitions that are read to their ends. If the window follows, their later
        messages are read while following."""
        for place in places:
            if place.is_done and self._deadline_ms is not None:
                if place.was_read and place.end is not None:
                    place.position = place.end
                place.end = None

    @property
    def _searched_ms(self) -> int | None:
        """Time to search for where a partition is read from; None where the fetch request names the
        window."""
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
        asked = {place.key: place.position for place in places}
        results = await self._requests.ask(partial(self._fetches.fetch, asked, wait_ms))
        # Errors are raised before any position moves, so the messages of the other partitions are
        # fetched again.
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
        """Move the position behind the received messages and the messages that the broker
        skipped."""
        behind = next_offset(result, place.position)
        if part.next_offset is not None and part.next_offset != behind:
            # The next fetch starts at a damaged part, or at control batches.
            behind = part.next_offset
        else:
            behind = max(behind, result.next_offset)
        place.waits = behind == place.position
        place.position, place.was_read = behind, True
        self._check_end(place, result.high_watermark)

    def _check_end(self, place: WindowPartition, high_watermark: int) -> None:
        """Raise OffsetOutOfRange if the partition stays shorter than it was for `retry_timeout_ms`.
        In a cluster it is shorter for a moment when the leader changes."""
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


class _WindowColumns:
    """The messages of a window in columns."""

    def __init__(self, window: TimeWindow, columns: Collection[Content]) -> None:
        self._window = window
        self._columns = columns

    def __aiter__(self) -> AsyncIterator[ColumnBatch]:
        return self

    async def __anext__(self) -> ColumnBatch:
        while (batch := self._window.take_columns(self._columns)) is None:
            if not await self._window.fill_columns(self._columns):
                raise StopAsyncIteration
        return batch


def partition_numbers(partitions: Sequence[int]) -> list[int]:
    """Return the partitions that a program names, sorted and without duplicates. Raises TypeError,
    ValueError."""
    if isinstance(partitions, str | bytes) or not all(type(one) is int for one in partitions):
        raise TypeError(f"partitions is a sequence of numbers, not {partitions!r}")
    if any(one < 0 for one in partitions):
        raise ValueError(f"partitions have numbers from 0 on, not {min(partitions)}")
    return sorted(set(partitions))


def _ignore(results: Results) -> None:
    """Do nothing when results arrive."""
