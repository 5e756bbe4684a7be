"""What `consume` reads: windows of time and ranges of offsets, of one topic or several."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from fnmatch import translate
from typing import Final, Protocol

from ...client.administer.admin import Admin
from ...client.client import ReadFrom
from ...client.cluster.servers import Servers
from ...client.consume.consumer import Consumer
from ...client.consume.time_bounds import APPEND, CREATE, TimeBounds
from ...client.consume.time_window import TimeWindow
from ...client.results import AfterEnd, ConsumerRecord, FindResult, Found
from ...clock import Clock, SystemClock
from ...printable import printable
from ...protocol.api.log.list_offsets import EARLIEST, LATEST
from ...protocol.window_topics import parse_window_name
from ...times import format_time
from ...values import value_class
from ..broker_requests import FOLLOW_WAIT_MS, PARTITIONS_AGE_MS, Connected, partitions_of
from ..errors import CommandFailed, WrongUsage, is_terminal, note
from ..gone import Incompleteness, incompleteness
from ..options import AtEnd, AtOffset, AtTime, Position
from ..output import Advance, progress
from .selection import time_of
from .timing import FOR_EVER

TopicPartition = tuple[str, int]

_GLOB: Final = frozenset("*?[")
"""Characters of patterns, which no topic name has."""


class WindowedBy(StrEnum):
    """The times that a window compares: the messages' own, or append times."""

    CREATE = "create"
    APPEND = "append"


@value_class
class RecordReading:
    """From where `consume` reads, and how."""

    server: Servers
    read_from: ReadFrom
    partition: int | None
    """None for all partitions."""
    follow: bool
    append_times: bool
    """Whether append times are requested."""
    read_committed: bool

    def admin(self) -> Admin:
        return Admin(self.server, check_units=False, read_from=self.read_from)

    def consumer(self, clock: Clock | None = None) -> Consumer:
        """Return a consumer that raises errors at once, because `Connected` does the retries.
        Following ends by `clock`, or by that of this machine."""
        return Consumer(
            self.server,
            max_wait_ms=FOLLOW_WAIT_MS,
            append_times=self.append_times,
            read_committed=self.read_committed,
            retry_timeout_ms=0,
            metadata_max_age_ms=PARTITIONS_AGE_MS,
            check_units=False,
            read_from=self.read_from,
            clock=clock,
        )


class TopicNames:
    """The topics that a command line names: by name, by a pattern (`clicks-*`), or by a regular
    expression (`^clicks-.*`)."""

    def __init__(self, names: Sequence[str]) -> None:
        """Raises WrongUsage for a regular expression that is none."""
        self._names = list(dict.fromkeys(names))
        self._patterns = {name: _pattern(name) for name in self._names if _is_pattern(name)}

    @property
    def has_patterns(self) -> bool:
        return bool(self._patterns)

    @property
    def are_several(self) -> bool:
        """Whether messages may be of more than one topic."""
        return self.has_patterns or len(self._names) > 1

    @property
    def may_be_windows(self) -> bool:
        """Whether a name has the form of a window's."""
        return any(parse_window_name(name) is not None for name in self._names)

    async def resolve(self, admin: Admin) -> list[str]:
        """Return the topics in the order of the command line; those of a pattern in order of name.
        Raises CommandFailed for a pattern that no topic matches."""
        if not self._patterns:
            return self._names
        existing = await admin.list_topics()
        found: dict[str, None] = {}
        for name in self._names:
            matching = self._matching(name, existing)
            if not matching:
                raise CommandFailed(
                    f"no topic matches {printable(name)}: `horolog topic list` shows what there is"
                )
            found |= dict.fromkeys(matching)
        return list(found)

    def matching(self, existing: Iterable[str]) -> list[str]:
        """Return the existing topics that match a pattern."""
        return [
            name
            for name in existing
            if any(pattern.fullmatch(name) for pattern in self._patterns.values())
        ]

    def _matching(self, name: str, existing: Iterable[str]) -> list[str]:
        pattern = self._patterns.get(name)
        if pattern is None:
            return [name]
        return sorted(one for one in existing if pattern.fullmatch(one))


def _is_pattern(name: str) -> bool:
    return name.startswith("^") or not _GLOB.isdisjoint(name)


def _pattern(name: str) -> re.Pattern[str]:
    if not name.startswith("^"):
        return re.compile(translate(name))
    try:
        return re.compile(name)
    except re.error as error:
        raise WrongUsage(f"{printable(name)} is no regular expression: {error}") from None


class MessageSource(Protocol):
    """Messages that are read, in the order in which the broker sends them."""

    @property
    def is_live(self) -> bool:
        """Whether everything is read that was stored when reading began."""
        ...

    def batches(self) -> AsyncIterator[list[ConsumerRecord]]:
        """Yield the messages of each fetch, possibly none."""
        ...


def window_of(bounds: tuple[Position | None, Position | None], by: str) -> TimeBounds | None:
    """Return the window of `--from` and `--until`; None if they give no time, or an offset. The
    first message as the start, and the next one as the end, are open sides.

    Raises WrongUsage for a window that ends before it begins.
    """
    start, until = bounds
    start = None if start is AtEnd.EARLIEST else start
    until = None if until is AtEnd.LATEST else until
    times = [bound for bound in (start, until) if bound is not None]
    if not times or not all(isinstance(bound, AtTime) for bound in times):
        return None
    from_ms, until_ms = (
        bound.timestamp_ms if isinstance(bound, AtTime) else None for bound in (start, until)
    )
    if from_ms is not None and until_ms is not None and until_ms < from_ms:
        raise WrongUsage(
            f"--until: {format_time(until_ms)} is before {format_time(from_ms)}, the time of --from"
        )
    return TimeBounds(from_ms, until_ms, APPEND if by == APPEND else CREATE)


def exact_window(bounds: tuple[Position | None, Position | None], by: str) -> TimeBounds | None:
    """As `window_of`, for commands that read nothing but windows. None is the open window. Raises
    WrongUsage for a bound that is no time."""
    for option, bound, is_open in zip(
        ("--from", "--until"), bounds, (AtEnd.EARLIEST, AtEnd.LATEST), strict=True
    ):
        if bound is None or bound is is_open or isinstance(bound, AtTime):
            continue
        given = f"offset:{bound.offset}" if isinstance(bound, AtOffset) else bound.value
        raise WrongUsage(
            f"{option} {given} is no time, and this command reads a window of time: give a time, "
            f"such as 2016-11-14T17:24:32Z, now or @-1h, or {is_open.value}"
        )
    return window_of(bounds, by)


class WindowSource:
    """The messages of a window of time of one topic."""

    def __init__(
        self,
        reading: RecordReading,
        consumer: Consumer,
        topic: str,
        bounds: TimeBounds,
        follow: timedelta = FOR_EVER,
    ) -> None:
        """`follow` is how long the window is followed after its end."""
        self.topic = topic
        self.bounds = bounds
        self._follow = follow
        self._reading = reading
        self._consumer = consumer
        self._connected = Connected()
        self.window: TimeWindow | None = None
        """None until reading begins."""
        self.untimed = 0
        """Number of messages that have no time and so are in no window; known at its end."""

    @property
    def topics(self) -> list[str]:
        return [self.topic]

    @property
    def missing(self) -> list[Incompleteness]:
        """What the window may miss, as far as it is read."""
        window = self.window
        if window is None:
            return []
        return incompleteness(
            self._reading.server,
            *(self.topic, self.bounds.from_ms, window.complete_from_ms, window.removed),
        )

    @property
    def is_live(self) -> bool:
        return self.window is not None and self.window.is_following

    async def begin(self) -> None:
        """Find where the partitions begin and end. Messages that are deleted from now on are
        missed."""
        window = self._opened()
        await self._connected.ask(lambda lost: window.begin())

    async def batches(self) -> AsyncIterator[list[ConsumerRecord]]:
        window = self.window or self._opened()

        def fill(lost: bool) -> Awaitable[bool]:
            return window.fill(max_wait_ms=0 if lost else None)

        while await self._connected.ask(fill):
            yield list(iter(window.take, None))
        self.untimed = await window.count_untimed() or window.untimed

    def _opened(self) -> TimeWindow:
        reading, bounds = self._reading, self.bounds
        self.window = self._consumer.window(
            self.topic,
            bounds.from_ms,
            bounds.until_ms,
            partitions=None if reading.partition is None else [reading.partition],
            by=bounds.by,
            follow=self._follow if reading.follow else None,
        )
        return self.window


@value_class
class ConsumedRange:
    """Range of offsets to read from one partition: from `start` to `end` (exclusive)."""

    topic: str
    partition: int
    start: int
    end: int | None
    """None while the end is not known."""
    until_ms: int | None = None
    """If `end` is None, reading ends at the first message of this time or later; None for no end.
    """
    stored_end: int = 0
    """Offset after the last message that was stored when reading began."""

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition


def _no_window(topic: str) -> TimeBounds | None:
    return None


def _for_ever() -> int | None:
    return None


class RangeSource:
    """The messages of ranges of offsets: one after the other or, when they are followed, together.

    Without a start, what is followed begins with the messages that arrive from now on.
    """

    def __init__(
        self,
        reading: RecordReading,
        admin: Admin,
        consumer: Consumer,
        topics: Sequence[str],
        bounds: tuple[Position | None, Position | None] = (None, None),
        *,
        names: TopicNames | None = None,
        within: Callable[[str], TimeBounds | None] = _no_window,
        left_ms: Callable[[], int | None] = _for_ever,
    ) -> None:
        """With `names`, topics that match their patterns later are followed too. `within` returns
        the window of a topic of which only a window is read. `left_ms` returns for how long ranges
        are followed from now on; None for ever."""
        self._reading = reading
        self._admin = admin
        self._consumer = consumer
        self.topics = list(topics)
        self._start, self._until = bounds
        self._names = names
        self._within = within
        self._left_ms = left_ms
        self._advance: Advance = lambda amount: None
        self.missing: list[Incompleteness] = []
        """What the searches for the start, if that is a time, may have missed."""
        self._connected = Connected()
        self.ranges: list[ConsumedRange] = []
        """The ranges to read; found by `begin`."""
        self._not_live: dict[TopicPartition, int] | None = None
        """Where the stored messages of partitions end that are not read up to there; None before
        reading begins."""

    @property
    def is_live(self) -> bool:
        if self._not_live is None:
            return False
        for key, end in list(self._not_live.items()):
            if (self._consumer.position(*key) or 0) >= end:
                del self._not_live[key]
        return not self._not_live

    async def begin(self) -> None:
        """Find the ranges, unless they are known. Raises CommandFailed for an offset that is not
        there."""
        if self.ranges:
            return
        for topic in self.topics:
            partitions = await partitions_of(self._admin, topic, self._reading.partition)
            self.ranges += [await self._range(topic, n, self._start) for n in partitions]

    async def batches(self) -> AsyncIterator[list[ConsumerRecord]]:
        await self.begin()
        if self._reading.follow:
            self._not_live = {
                one.key: one.stored_end for one in self.ranges if one.start < one.stored_end
            }
            if not self._not_live:
                yield []  # nothing that is stored is to be read
            async for batch in self.read(self.ranges, watched=self._reading.partition is None):
                yield batch
            return
        total = sum(max((one.end or 0) - one.start, 0) for one in self.ranges)
        # On a terminal the printed messages show the progress.
        with progress("reading", 0 if is_terminal(sys.stdout) else total) as self._advance:
            for one in self.ranges:
                async for batch in self.read([one]):
                    yield batch

    async def read(
        self, ranges: Sequence[ConsumedRange], *, watched: bool = False
    ) -> AsyncIterator[list[ConsumerRecord]]:
        """Yield the messages of the ranges until each has ended; with `watched`, also those of
        partitions and topics that are added."""
        left: dict[TopicPartition, ConsumedRange] = {}
        self._assign(ranges, left)
        looked = SystemClock.monotonic()
        try:
            while left:
                left_ms = self._left_ms()
                if left_ms is not None and left_ms <= 0:
                    break
                if watched and SystemClock.monotonic() - looked >= PARTITIONS_AGE_MS / 1000:
                    self._assign(await self._connected.ask(self._added), left)
                    looked = SystemClock.monotonic()
                waits_ms = (PARTITIONS_AGE_MS if watched else FOLLOW_WAIT_MS, left_ms)
                yield await self._read_on(left, min(wait for wait in waits_ms if wait is not None))
            if left:  # following is over: what is stored by now is read
                if watched:
                    self._assign(await self._connected.ask(self._added), left)
                await self._connected.ask(lambda lost: self._find_ends(left))
            while left:
                yield await self._read_on(left, FOLLOW_WAIT_MS)
        finally:
            for key in list(left):
                self._finish(key, left)

    async def _read_on(
        self, left: dict[TopicPartition, ConsumedRange], max_wait_ms: int
    ) -> list[ConsumerRecord]:
        """Return the messages of the next fetch. Ranges that are read to their ends are left."""
        batch = await self._fetch(max_wait_ms)
        self._advance(len(batch))
        found = [record for record in batch if self._is_in_range(record, left)]
        self._finish_read(left)
        return found

    def _finish_read(self, left: dict[TopicPartition, ConsumedRange]) -> None:
        """Leave the ranges that are read to their ends."""
        for key, one in list(left.items()):
            position = self._consumer.position(*key)
            if one.end is not None and position is not None and position >= one.end:
                self._finish(key, left)

    async def _find_ends(self, left: dict[TopicPartition, ConsumedRange]) -> None:
        """End each range at the last message that is stored now."""
        for key, one in list(left.items()):
            (latest,) = await self._admin.list_offsets(*key, [LATEST])
            end = latest.offset or 0
            left[key] = replace(one, end=end if one.end is None else min(one.end, end))
        self._finish_read(left)

    async def _range(
        self, topic: str, partition: int, start: Position | None, *, added: bool = False
    ) -> ConsumedRange:
        """Turn the positions into offsets of a partition, before reading. Raises CommandFailed."""
        follow, until = self._reading.follow, self._until
        first, last = await self._admin.list_offsets(topic, partition, [EARLIEST, LATEST])
        low, high = first.offset or 0, last.offset or 0
        if start is None:
            begin: int | None = high if follow and not added else low
        else:
            begin = await self._offset(topic, partition, start, is_start=True)
        if begin is None:
            begin = high
        if isinstance(start, AtOffset) and not low <= start.offset <= high:
            raise CommandFailed(
                f"OFFSET_OUT_OF_RANGE: --from offset:{start.offset}: partition {partition} of "
                f"{topic} has the offsets from {low}, and the next one is {high}"
            )
        end = None if until is None else await self._offset(topic, partition, until)
        if end is not None and end < begin:
            by_time = isinstance(start, AtTime) or isinstance(until, AtTime)
            why = ": a time stands for the first message of that time or later" if by_time else ""
            note(
                f"partition {partition}: nothing to read, --from is offset {begin} and --until "
                f"offset {end}{why}"
            )
        if not follow:
            end = high if end is None else min(end, high)
        unknown = end is None and isinstance(until, AtTime)
        until_ms = until.timestamp_ms if unknown and isinstance(until, AtTime) else None
        return ConsumedRange(topic, partition, begin, end, until_ms, high)

    async def _offset(
        self, topic: str, partition: int, position: Position, *, is_start: bool = False
    ) -> int | None:
        """Return the offset of a position; None for a time later than all messages, or if no
        message has a time."""
        if isinstance(position, AtOffset):
            return position.offset
        if isinstance(position, AtEnd):
            sentinel = EARLIEST if position is AtEnd.EARLIEST else LATEST
            (at_end,) = await self._admin.list_offsets(topic, partition, [sentinel])
            return at_end.offset or 0
        at_ms = position.timestamp_ms
        found = await self._admin.find_offset(topic, partition, timestamp_ms=at_ms)
        if is_start:
            self._note_missing(topic, at_ms, found)
        match found:
            case Found(offset=offset):
                return offset
            case AfterEnd():
                return None
        note(f"partition {partition} has no message with a time")
        return None

    async def find_missing(self) -> None:
        """Find what had left the logs: a reading from their ends has reached their starts."""
        for one in self.ranges:
            found = await self._admin.find_offset(one.topic, one.partition, timestamp_ms=0)
            self._note_missing(one.topic, 0, found)

    def _note_missing(self, topic: str, at_ms: int, found: FindResult) -> None:
        server, complete_from_ms = self._reading.server, found.complete_from_ms
        self.missing += incompleteness(server, topic, at_ms, complete_from_ms, found.removed)

    async def _added(self, lost: bool) -> list[ConsumedRange]:
        """Return the ranges of added partitions; they are read from their log start."""
        counts = await self._partition_counts()
        if self._names is not None:
            new = [one for one in self._names.matching(counts) if one not in self.topics]
            self.topics += new
        known = {one.key for one in self.ranges}
        start = self._start if isinstance(self._start, AtTime) else None
        added = [
            await self._range(topic, number, start, added=True)
            for topic in self.topics
            for number in range(counts.get(topic, 0))
            if (topic, number) not in known
        ]
        self.ranges += added
        return added

    async def _partition_counts(self) -> Mapping[str, int]:
        if len(self.topics) > 1 or (self._names is not None and self._names.has_patterns):
            return await self._admin.list_topics()
        (topic,) = self.topics
        return {topic: await self._admin.partition_count(topic)}

    def _assign(
        self, ranges: Sequence[ConsumedRange], left: dict[TopicPartition, ConsumedRange]
    ) -> None:
        for one in ranges:
            if one.end is None or one.start < one.end:
                left[one.key] = one
                self._consumer.assign(one.topic, one.partition, offset=one.start)

    async def _fetch(self, max_wait_ms: int) -> list[ConsumerRecord]:
        """Return the next messages. Waits for a broker that is down, and reports that."""
        # After a failure the first fetch does not wait for messages: its answer shows that the
        # broker is back.
        return await self._connected.ask(
            lambda lost: self._consumer.fetch(max_wait_ms=0 if lost else max_wait_ms)
        )

    def _is_in_range(
        self, record: ConsumerRecord, left: dict[TopicPartition, ConsumedRange]
    ) -> bool:
        """Whether a message is in its range and window. The first one behind a range ends it."""
        key = record.topic, record.partition
        found = left.get(key)
        if found is None:
            return False
        if _is_behind(record, found):
            self._finish(key, left)
            return False
        bounds = self._within(record.topic)
        return bounds is None or bounds.holds(time_of(record, bounds.by))

    def _finish(self, key: TopicPartition, left: dict[TopicPartition, ConsumedRange]) -> None:
        del left[key]
        if self._not_live is not None:
            self._not_live.pop(key, None)
        self._consumer.unassign(*key)


def _is_behind(record: ConsumerRecord, span: ConsumedRange) -> bool:
    if span.end is not None:
        return record.offset >= span.end
    if span.until_ms is None or record.timestamp_ms is None:
        return False
    return record.timestamp_ms >= span.until_ms


class SourceChain:
    """Several sources: one after the other or, when they are followed, together."""

    def __init__(self, sources: Sequence[MessageSource], *, follow: bool) -> None:
        self._sources = sources
        self._arrived = FetchQueue(sources) if follow and len(sources) > 1 else None

    @property
    def is_live(self) -> bool:
        if self._arrived is not None:
            return self._arrived.is_live
        return all(source.is_live for source in self._sources)

    async def batches(self) -> AsyncIterator[list[ConsumerRecord]]:
        if self._arrived is None:
            for source in self._sources:
                async for batch in source.batches():
                    yield batch
            return
        self._arrived.start()
        try:
            while (found := await self._arrived.next()) is not None:
                yield found
        finally:
            await self._arrived.stop()


_AHEAD: Final = 4
"""Fetches that are read ahead of where the messages go."""


@value_class
class _Queued:
    """What a source yielded."""

    source: int
    content: list[ConsumerRecord] | Exception | None
    """Messages of a fetch, the error of the source, or None for its end."""
    is_live: bool
    """Whether the source was live when it had yielded this."""


class FetchQueue:
    """Fetches of sources as they come. A source waits while the fetches before its own are not
    taken."""

    def __init__(self, sources: Sequence[MessageSource]) -> None:
        self._sources = sources
        self._queued: asyncio.Queue[_Queued] = asyncio.Queue(_AHEAD)
        self._left = len(sources)
        self._not_live = set(range(len(sources)))
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_live(self) -> bool:
        """Whether everything that was stored when reading began was returned by `next`. The sources
        themselves are ahead of that."""
        return not self._not_live

    def start(self) -> None:
        """Begin to read."""
        self._tasks = [
            asyncio.create_task(self._pump(number, source))
            for number, source in enumerate(self._sources)
        ]

    async def next(self) -> list[ConsumerRecord] | None:
        """Return the next fetch; None when all sources have ended. Raises the error of a source.
        A cancelled call loses nothing."""
        while self._left:
            found = await self._queued.get()
            if found.is_live:
                self._not_live.discard(found.source)
            if isinstance(found.content, Exception):
                raise found.content
            if found.content is not None:
                return found.content
            self._left -= 1
        return None

    async def stop(self) -> None:
        """Stop reading."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _pump(self, number: int, source: MessageSource) -> None:
        content: Exception | None = None
        try:
            async for batch in source.batches():
                await self._queued.put(_Queued(number, batch, source.is_live))
        except Exception as error:
            content = error
        await self._queued.put(_Queued(number, content, True))
