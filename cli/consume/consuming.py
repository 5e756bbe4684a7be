"""The run of a `horolog consume`: sources are read, messages selected, put in order, and handed to
a sink."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from typing import Final

from ...client.administer.admin import Admin
from ...client.administer.gone import complete_from
from ...client.consume.consumer import Consumer
from ...client.consume.time_bounds import APPEND, CREATE, TimeBounds, WindowBy
from ...client.results import ConsumerRecord
from ...clock import Clock
from ...protocol.window_topics import parse_window_name
from ...times import format_time
from ...values import value_class
from ..errors import WrongUsage, note, print_error
from ..gone import Incompleteness, joined_by_topic, removal_as_object
from ..options import AtTime, Position
from ..output import json_line, plural, shown_size
from .formats import LineFormat
from .last import find_last
from .ordering import SettledMessages, SortedMessages
from .reading import (
    FetchQueue,
    MessageSource,
    RangeSource,
    RecordReading,
    SourceChain,
    TopicNames,
    WindowSource,
)
from .selection import Selection, time_of, untimed_clause
from .sinks import CopyTarget, MessagePrinter, MessageSink, ReplayPace, TopicCopier
from .timing import broker_clock, follow_length, note_ended, note_future

WINDOWS_MAX: Final = 100
"""Windows that are followed together; each has a connection of its own."""

_REMOVALS_MAX: Final = 100
"""Most removals in the object of `--stats`, the last ones."""


@value_class
class ConsumeOptions:
    """What a `consume` is to read, and what becomes of the messages."""

    names: TopicNames
    bounds: tuple[Position | None, Position | None]
    window: TimeBounds | None
    """None for ranges of offsets."""
    only_named: bool
    """Whether nothing was said about times or offsets, so that topics may name windows."""
    by: str
    selection: Selection
    first: int | None
    """End after this many messages; None for no limit."""
    last: int | None
    """Only this many messages, the last ones; None for all."""
    in_time_order: bool
    settle_s: float
    speed: float | None
    target: CopyTarget | None
    line_format: LineFormat
    stats: bool

    @property
    def has_times(self) -> bool:
        """Whether the command line gives a time, or topics that may name windows."""
        return self.names.may_be_windows or any(isinstance(one, AtTime) for one in self.bounds)


class Consumption:
    """Reads, selects, orders and hands out the messages of one command."""

    def __init__(self, reading: RecordReading, options: ConsumeOptions, clock: Clock) -> None:
        self._reading = reading
        self._options = options
        self._clock = clock
        self._left = options.first
        self._pace = None if options.speed is None else ReplayPace(options.speed, clock)
        self._by = options.by
        self._windows: list[WindowSource] = []
        self._sources: Sequence[WindowSource | RangeSource] = ()
        self._given_out = 0
        self._settled: SettledMessages | None = None
        self._broker_clock = clock

    async def run(self) -> None:
        """Read to the end, until there are enough messages, or until Ctrl-C; then say how much of
        the log was read."""
        async with AsyncExitStack() as stack:
            admin = await stack.enter_async_context(self._reading.admin())
            if self._options.has_times:
                self._broker_clock = await broker_clock(admin, self._clock)
            consumer = await stack.enter_async_context(self._reading.consumer(self._broker_clock))
            topics = await self._options.names.resolve(admin)
            sources = self._sources = await self._found_sources(admin, consumer, topics)
            self._note_times()
            sink = await self._sink(admin, topics)
            if self._reading.follow:
                # Ctrl-C, which cancels this task, may end it. The sink is closed before.
                stack.callback(self._print_costs)
            await stack.enter_async_context(sink)
            await self._hand_out(sources, admin, consumer, sink)
        if not self._reading.follow:
            self._print_costs()

    async def _found_sources(
        self, admin: Admin, consumer: Consumer, topics: Sequence[str]
    ) -> list[WindowSource | RangeSource]:
        """Return what is read, in the order of the topics. Topics that are followed by offsets are
        one source."""
        sources: list[WindowSource | RangeSource] = []
        ranged: list[str] = []
        for topic in topics:
            window = await self._window(admin, topic)
            if window is not None:
                follow = follow_length(window[1].until_ms, self._broker_clock.now_ms())
                sources.append(WindowSource(self._reading, consumer, *window, follow))
                continue
            ranged.append(topic)
            if not self._reading.follow:
                sources.append(self._ranges(admin, consumer, [topic]))
        if ranged and self._reading.follow:
            sources.append(self._ranges(admin, consumer, ranged))
        self._windows = [one for one in sources if isinstance(one, WindowSource)]
        self._check_windows()
        return sources

    def _ranges(self, admin: Admin, consumer: Consumer, topics: Sequence[str]) -> RangeSource:
        options = self._options
        # A window is read by ranges only when it is followed from now on.
        bounds = options.bounds if options.window is None else (None, None)
        return RangeSource(
            *(self._reading, admin, consumer, topics, bounds),
            names=options.names,
            within=lambda topic: options.window,
            left_ms=self._left_ms(),
        )

    def _left_ms(self) -> Callable[[], int | None]:
        """Return what says how long ranges are followed: with a time as `--until`, up to that time.

        Where `--from` is given and the time has passed, they are followed up to the first message
        of that time or later.
        """
        start, until = self._options.bounds
        clock = self._broker_clock
        if not isinstance(until, AtTime) or not self._reading.follow:
            return lambda: None
        until_ms = until.timestamp_ms
        if start is not None and until_ms <= clock.now_ms():
            return lambda: None
        return lambda: until_ms - clock.now_ms()

    def _note_times(self) -> None:
        """Say that the times asked for are in the future or, when they are followed, in the
        past."""
        options, follow, now_ms = self._options, self._reading.follow, self._broker_clock.now_ms()
        start, until = options.bounds
        windows = [one.bounds for one in self._windows]
        note_future(windows, now_ms, follow=follow)
        if not windows and isinstance(start, AtTime):
            range_ = TimeBounds(start.timestamp_ms, None)
            note_future([range_], now_ms, follow=follow, what="the range of offsets")
        if not follow:
            return
        if not options.stats:
            note_ended(windows, now_ms)
        if start is None and isinstance(until, AtTime) and until.timestamp_ms <= now_ms:
            note(
                f"--until {format_time(until.timestamp_ms)} has passed, so nothing is followed: "
                "give --from too to wait for late messages"
            )

    async def _window(self, admin: Admin, topic: str) -> tuple[str, TimeBounds] | None:
        """Return the window to read of a topic, with the name of the topic that has it; None for a
        range of offsets. Raises WrongUsage for a window in a window."""
        options = self._options
        named = None if parse_window_name(topic) is None else await admin.find_window(topic)
        if named is None:
            from_now = options.bounds[0] is None and self._reading.follow
            return None if options.window is None or from_now else (topic, options.window)
        if not options.only_named:
            raise WrongUsage(
                f"{topic} names a window of {named.base} already: leave out --from, --until, --by "
                f"and --offsets-between, or read {named.base}"
            )
        if self._reading.server.kafka:
            note(f"{topic} is a window of {named.base}: this client finds its messages itself")
        by: WindowBy = APPEND if named.by_append else CREATE
        self._by = by
        return named.base, TimeBounds(named.from_ms, named.until_ms, by)

    def _check_windows(self) -> None:
        windows, options = self._windows, self._options
        if options.stats and not windows:
            raise WrongUsage(
                "--stats is about a window of time: give --from or --until a time, neither of them "
                "an offset, and no --offsets-between"
            )
        if self._reading.follow and len(windows) > WINDOWS_MAX:
            raise WrongUsage(
                f"--follow: {len(windows)} windows, and {WINDOWS_MAX} is the most that are "
                "followed together: name fewer topics, or leave out --from"
            )
        if len({one.bounds.by for one in windows}) > 1 and options.in_time_order:
            raise WrongUsage("--order time: windows by create time and by append time do not mix")
        if options.last is not None and len({one.topic for one in windows}) < len(windows):
            raise WrongUsage("--last: two windows of one topic: name one of them")

    async def _sink(self, admin: Admin, topics: Sequence[str]) -> MessageSink:
        target = self._options.target
        if target is None:
            return MessagePrinter(self._options.line_format)
        read = {one.topic for one in self._windows} | set(topics)
        later = self._options.names.matching([target.topic]) if self._reading.follow else []
        if target.topic in {*read, *later} and await self._is_at(target, admin):
            raise WrongUsage(f"--to {target.topic}: that is a topic that is read: name another one")
        counts = {}
        for topic in read:
            if parse_window_name(topic) is None:
                counts[topic] = await admin.partition_count(topic)
        return TopicCopier(target, counts)

    async def _is_at(self, target: CopyTarget, admin: Admin) -> bool:
        """Whether the target is in the cluster that is read, maybe by another address."""
        if target.server == self._reading.server:
            return True
        async with Admin(target.server) as other:
            there = (await other.describe_cluster([target.topic])).cluster_id
        here = (await admin.describe_cluster([target.topic])).cluster_id
        return bool(here) and here == there

    async def _hand_out(
        self,
        sources: Sequence[WindowSource | RangeSource],
        admin: Admin,
        consumer: Consumer,
        sink: MessageSink,
    ) -> None:
        options, reading = self._options, self._reading
        if not reading.follow and len(sources) > 1:
            # What is deleted while topics are read is then an error of the ones behind them too.
            for each in sources:
                await each.begin()
        if options.last is not None and not options.in_time_order:
            tails = await find_last(sources, options.last, options.selection)
            topics = list(dict.fromkeys(t for one in sources for t in one.topics))
            within = {one.topic: one.bounds for one in self._windows}
            source = RangeSource(reading, admin, consumer, topics, within=within.get)
            source.ranges = tails.ranges(topics)
            sources = [source] if source.ranges else []
        chain = SourceChain(sources, follow=reading.follow)
        if options.in_time_order:
            await self._in_time_order(chain, sink)
            return
        async for batch in chain.batches():
            if await self._deliver(options.selection.of(batch), sink):
                return

    async def _in_time_order(self, chain: MessageSource, sink: MessageSink) -> None:
        """Hand out what is stored in the order of the times, and then what comes."""
        options = self._options
        batches = chain.batches()
        with ExitStack() as stack:
            stored = SortedMessages(self._by, last=options.last)
            stack.callback(stored.close)
            async for batch in batches:
                # In threads, because the connections must not wait for this much work.
                if await asyncio.to_thread(stored.add, options.selection.of(batch)):
                    await asyncio.to_thread(stored.spill)
                if self._reading.follow and chain.is_live:
                    break
            settled = SettledMessages(options.settle_s, self._by, self._clock.monotonic)
            in_order = stored.batches()
            while (sorted_batch := await asyncio.to_thread(next, in_order, None)) is not None:
                if await self._deliver(sorted_batch, sink):
                    return
                for record in sorted_batch[-1:]:
                    settled.passed(record)
        if self._reading.follow:
            self._settled = settled
            await self._settle(settled, FetchQueue([_RemainingBatches(batches)]), sink)

    async def _settle(
        self, settled: SettledMessages, arrivals: FetchQueue, sink: MessageSink
    ) -> None:
        """Hand out messages as they come, each after it was held; on Ctrl-C those that are held."""
        arrivals.start()
        arriving = asyncio.ensure_future(arrivals.next())
        try:
            while True:
                await asyncio.wait({arriving}, timeout=settled.wait_s)
                if arriving.done():
                    batch = arriving.result()
                    if batch is None:
                        break
                    arriving = asyncio.ensure_future(arrivals.next())
                    at_once = settled.add(self._options.selection.of(batch))
                    if await self._deliver(at_once, sink):
                        return
                if await self._deliver(settled.take_due(), sink):
                    return
        except asyncio.CancelledError:
            self._pace = None  # Ctrl-C waits for nothing
            await self._deliver(settled.take_all(), sink)
            raise
        finally:
            arriving.cancel()
            await arrivals.stop()
        await self._deliver(settled.take_all(), sink)

    async def _deliver(self, records: Sequence[ConsumerRecord], sink: MessageSink) -> bool:
        """Hand messages to the sink, at the pace that is asked for. Returns whether they are
        enough."""
        if self._left is not None:
            records = records[: self._left]
            self._left -= len(records)
        ready: list[ConsumerRecord] = []
        for record in records:
            wait_s = 0.0 if self._pace is None else self._pace.wait_s(time_of(record, self._by))
            if wait_s > 0:
                await self._write(ready, sink)
                ready = []
                await asyncio.sleep(wait_s)
            ready.append(record)
        await self._write(ready, sink)
        return self._left == 0

    async def _write(self, records: Sequence[ConsumerRecord], sink: MessageSink) -> None:
        await sink.write(records)
        self._given_out += len(records)

    def _print_costs(self) -> None:
        windows = [one.window for one in self._windows if one.window is not None]
        messages = sum(one.messages for one in windows)
        read_bytes = sum(one.read_bytes for one in windows)
        skipped_bytes = sum(one.skipped_bytes for one in windows)
        untimed = sum(one.untimed for one in self._windows)
        late = None if self._settled is None else self._settled.late
        missing = joined_by_topic(part for source in self._sources for part in source.missing)
        if self._options.stats:
            fields = {
                "messages": messages,
                "read_bytes": read_bytes,
                "skipped_bytes": skipped_bytes,
                "log_bytes": read_bytes + skipped_bytes,
            }
            if late is not None:
                fields["late"] = late
            print_error(json_line({**fields, **_as_fields(missing)}))
            return
        for part in missing:
            part.tell()
        told = []
        if self._windows:
            told.append(
                f"{self._counted(messages)} in the window{plural(len(self._windows), '')}; "
                f"{shown_size(read_bytes)} of the log read, {shown_size(skipped_bytes)} passed over"
            )
        if untimed:
            told.append(untimed_clause(untimed))
        if late is not None:
            told.append(
                f"{late:,} {plural(late, 'message')} came later than --settle allows, and "
                f"{'stands' if late == 1 else 'stand'} out of order"
            )
        if told:
            note("; ".join(told))

    def _counted(self, messages: int) -> str:
        """Return how many messages were in the windows and, if these are others, handed out."""
        found = f"{messages:,} {plural(messages, 'message')}"
        if len(self._windows) < len(self._sources):
            # Messages of topics beside the windows were handed out, too.
            given_out = f"{self._given_out:,} {plural(self._given_out, 'message')} in all"
            if self._left == 0:
                return f"{given_out}, as many as -n asks for; at least {found}"
            return f"{given_out}; {found}"
        if self._left == 0:
            return f"{self._given_out:,}, as many as -n asks for, of at least {found}"
        if self._given_out != messages:
            return f"{self._given_out:,} of {found}"
        return found


def _as_fields(missing: Sequence[Incompleteness]) -> dict[str, object]:
    """Return what windows may miss as fields for JSON; none if nothing."""
    if not missing:
        return {}
    removed = [(part.topic, each) for part in missing for each in part.removed]
    return {
        "complete_from_ms": complete_from(part.complete_from_ms for part in missing),
        "removed": [removal_as_object(topic, each) for topic, each in removed[-_REMOVALS_MAX:]],
    }


class _RemainingBatches:
    """What is left of a source that is being read."""

    is_live = True

    def __init__(self, left: AsyncIterator[list[ConsumerRecord]]) -> None:
        self._left = left

    def batches(self) -> AsyncIterator[list[ConsumerRecord]]:
        return self._left
