"""`horolog consume`: read the messages of a window of time, or of a range of offsets."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from ..client.administer.admin import Admin
from ..client.consume.consumer import Consumer
from ..client.results import AfterEnd, ConsumerRecord, Found
from ..clock import SystemClock
from ..protocol.api.log.list_offsets import EARLIEST, LATEST
from ..protocol.window_topics import parse_window_name
from ..values import value_class
from .broker_requests import PARTITIONS_AGE_MS, Connected, partitions_of
from .errors import CommandFailed, WrongUsage, is_terminal, note
from .options import (
    DEFAULT_SERVER,
    POSITION_HELP,
    AnyUnit,
    AtEnd,
    AtOffset,
    AtTime,
    Json,
    Partition,
    Position,
    ReadFrom,
    Server,
    TopicName,
    check_read_from,
    parse_bounds,
)
from .output import Advance, emit, progress
from .replay import RecordReading, Replay, ReplayWindow, WindowedBy, window_of

Start = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="POS",
        help=f"Where to begin: {POSITION_HELP}; or a range of times @A:B that sets --until "
        "too, such as @-2h:1h. The first message stored when not given.",
    ),
]
Until = Annotated[
    str | None,
    typer.Option(metavar="POS", help="Where to stop, before that time or offset: a POS too."),
]
OffsetsBetween = Annotated[
    bool,
    typer.Option(
        "--offsets-between",
        help="Read a range of offsets: a time stands for the first message of that time or later.",
    ),
]
By = Annotated[
    WindowedBy,
    typer.Option(
        help="A window goes by the messages' own times, or by when the broker appended them."
    ),
]
AppendTime = Annotated[
    bool,
    typer.Option(
        "--append-time",
        help="Say when the broker appended each message too; with --json as append_time_ms.",
    ),
]
ReadCommitted = Annotated[
    bool,
    typer.Option(
        "--read-committed",
        help="Leave out messages of transactions that were aborted, and wait for those that "
        "are not decided. Only in a Kafka cluster, and in directories that Kafka wrote, there "
        "are any.",
    ),
]
Stats = Annotated[
    bool,
    typer.Option(
        "--stats",
        help="Say what a window took as a JSON object, the last line of standard error.",
    ),
]


@value_class
class ConsumedRange:
    """Range of offsets to read from one partition: from `start` to `end` (exclusive)."""

    partition: int
    start: int
    end: int | None
    """None while the end is not known."""
    until_ms: int | None = None
    """If `end` is None, reading ends at the first message of this time or later; None for no end.
    """


def consume(
    topic: TopicName,
    start: Start = None,
    until: Until = None,
    offsets_between: OffsetsBetween = False,
    by: By = WindowedBy.CREATE,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for new messages, until Ctrl-C.")
    ] = False,
    partition: Partition = None,
    append_time: AppendTime = False,
    read_committed: ReadCommitted = False,
    stats: Stats = False,
    read_from: ReadFrom = "leader",
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
    any_unit: AnyUnit = False,
) -> None:
    """Read the messages of a window of time, or of a range of offsets.

    With one or two times, a window is read: exactly the messages whose time is at or after --from
    and before --until, in whatever order they are in the log. Messages without a time are in no
    window. The last line on standard error says how many messages there were, and how much of the
    log was read and skipped. With --follow, new messages that are in the window are printed too,
    until Ctrl-C.

    With offset:N on either side, or with --offsets-between, a range of offsets is read. A time then
    stands for the offset of the first message with that time or a later one. If messages are out
    of order, older and newer messages may lie between the two offsets, and messages of the wanted
    times outside of them. If --until gives a lower offset than --from, nothing is read, and a note
    on standard error says so. With --follow, reading ends at --until.

    Messages are printed in the order of their offsets, one partition after the other. --follow
    reads all partitions together, also those that are added later. Without --follow, reading stops
    at the log end as it was at the start. With --json a message with headers has a field
    "headers", a list of {"name", "value"}.
    """
    check_read_from(server, read_from)
    bounds = parse_bounds(start, until, SystemClock().now_ms(), any_unit)
    window = None if offsets_between else window_of(bounds, by)
    only_named = bounds == (None, None) and not offsets_between and by is WindowedBy.CREATE
    reading = RecordReading(
        *(server, read_from, topic, partition, as_json, follow, append_time, read_committed)
    )
    if parse_window_name(topic) is not None:
        run = _read_named(reading, window, bounds, stats, only_named=only_named, by=by)
    elif window is None:
        _check_no_window(by, stats)
        run = _RangeReading(reading).run(*bounds)
    else:
        run = Replay(reading, window, stats).run()
    try:
        asyncio.run(run)
    except KeyboardInterrupt:
        if not follow:
            raise


async def _read_named(
    reading: RecordReading,
    window: ReplayWindow | None,
    bounds: tuple[Position | None, Position | None],
    stats: bool,
    *,
    only_named: bool,
    by: WindowedBy,
) -> None:
    """Read a topic whose name reads as a window: that window, unless there is such a topic."""
    async with Admin(reading.server, read_from=reading.read_from) as admin:
        named = await admin.find_window(reading.topic)
    if named is None and window is None:
        _check_no_window(by, stats)
        await _RangeReading(reading).run(*bounds)
        return
    if named is not None:
        if not only_named:
            raise WrongUsage(
                f"{reading.topic} names a window of {named.base} already: leave out --from, "
                f"--until, --by and --offsets-between, or read {named.base}"
            )
        if reading.server.kafka:
            note(
                f"{reading.topic} is a window of {named.base}: this client finds its messages "
                "itself"
            )
        by = WindowedBy.APPEND if named.by_append else WindowedBy.CREATE
        window = ReplayWindow(named.from_ms, named.until_ms, by)
        reading = replace(reading, topic=named.base)
    assert window is not None
    await Replay(reading, window, stats).run()


def _check_no_window(by: WindowedBy, stats: bool) -> None:
    """Raise WrongUsage for an option that only windows have."""
    asked = "--stats" if stats else "--by append" if by is WindowedBy.APPEND else None
    if asked is not None:
        raise WrongUsage(
            f"{asked} is about a window of time: give --from or --until a time, neither of them "
            "an offset, and no --offsets-between"
        )


class _RangeReading:
    """Prints the messages of ranges of offsets."""

    def __init__(self, reading: RecordReading) -> None:
        self._reading = reading
        self._topic = reading.topic
        self._advance: Advance = lambda amount: None
        self._connected = Connected()

    async def run(self, start: Position | None, until: Position | None) -> None:
        reading = self._reading
        async with (
            Admin(reading.server, check_units=False, read_from=reading.read_from) as admin,
            reading.consumer() as consumer,
        ):
            partitions = await partitions_of(admin, self._topic, reading.partition)
            ranges = [await self._range(admin, number, start, until) for number in partitions]
            if reading.follow:

                async def added(known: int, lost: bool) -> list[ConsumedRange]:
                    """Return the ranges of added partitions; they are read from their log start."""
                    count = await admin.partition_count(self._topic)
                    begin = start if isinstance(start, AtTime) else None
                    return [
                        await self._range(admin, number, begin, until)
                        for number in range(known, count)
                    ]

                await self._read(consumer, ranges, added if reading.partition is None else None)
                return
            total = sum(max((span.end or 0) - span.start, 0) for span in ranges)
            # On a terminal the printed messages show the progress.
            with progress("reading", 0 if is_terminal(sys.stdout) else total) as self._advance:
                for span in ranges:
                    await self._read(consumer, [span])

    async def _range(
        self, admin: Admin, partition: int, start: Position | None, until: Position | None
    ) -> ConsumedRange:
        """Turn the positions into offsets of a partition, before reading. Raises CommandFailed."""
        first, last = await admin.list_offsets(self._topic, partition, [EARLIEST, LATEST])
        low, high = first.offset or 0, last.offset or 0
        begin = low if start is None else await self._offset(admin, partition, start)
        if begin is None:
            begin = high
        if isinstance(start, AtOffset) and not low <= start.offset <= high:
            raise CommandFailed(
                f"OFFSET_OUT_OF_RANGE: --from offset:{start.offset}: partition {partition} of "
                f"{self._topic} has the offsets from {low}, and the next one is {high}"
            )
        end = None if until is None else await self._offset(admin, partition, until)
        if end is not None and end < begin:
            by_time = isinstance(start, AtTime) or isinstance(until, AtTime)
            why = ": a time stands for the first message of that time or later" if by_time else ""
            note(
                f"partition {partition}: nothing to read, --from is offset {begin} and --until "
                f"offset {end}{why}"
            )
        if not self._reading.follow:
            end = high if end is None else min(end, high)
        unknown = end is None and isinstance(until, AtTime)
        until_ms = until.timestamp_ms if unknown and isinstance(until, AtTime) else None
        return ConsumedRange(partition, begin, end, until_ms)

    async def _offset(self, admin: Admin, partition: int, position: Position) -> int | None:
        """Return the offset of a position; None for a time later than all messages, or if no
        message has a time."""
        if isinstance(position, AtOffset):
            return position.offset
        if isinstance(position, AtEnd):
            sentinel = EARLIEST if position is AtEnd.EARLIEST else LATEST
            (at_end,) = await admin.list_offsets(self._topic, partition, [sentinel])
            return at_end.offset or 0
        found = await admin.find_offset(self._topic, partition, timestamp_ms=position.timestamp_ms)
        match found:
            case Found(offset=offset):
                return offset
            case AfterEnd():
                return None
        note(f"partition {partition} has no message with a time")
        return None

    async def _read(
        self,
        consumer: Consumer,
        ranges: Sequence[ConsumedRange],
        added: Callable[[int, bool], Awaitable[list[ConsumedRange]]] | None = None,
    ) -> None:
        """Print the messages of the ranges until each range has ended. `added` returns the ranges
        of partitions that were added to the topic."""
        left: dict[int, ConsumedRange] = {}
        self._assign(consumer, ranges, left)
        known, asked = len(ranges), SystemClock.monotonic()
        while left:
            if added is not None and SystemClock.monotonic() - asked >= PARTITIONS_AGE_MS / 1000:
                more = await self._connected.ask(partial(added, known))
                known, asked = known + len(more), SystemClock.monotonic()
                self._assign(consumer, more, left)
            batch = await self._fetch(consumer)
            self._advance(len(batch))
            emit(self._inside(batch, left, consumer))
            for partition, span in list(left.items()):
                position = consumer.position(self._topic, partition)
                if span.end is not None and position is not None and position >= span.end:
                    self._finish(partition, left, consumer)

    def _assign(
        self, consumer: Consumer, ranges: Sequence[ConsumedRange], left: dict[int, ConsumedRange]
    ) -> None:
        for span in ranges:
            if span.end is None or span.start < span.end:
                left[span.partition] = span
                consumer.assign(self._topic, span.partition, offset=span.start)

    async def _fetch(self, consumer: Consumer) -> list[ConsumerRecord]:
        """Return the next messages. Waits for a broker that is down, and reports that."""
        # After a failure the first fetch does not wait for messages: its answer shows that the
        # broker is back.
        return await self._connected.ask(
            lambda lost: consumer.fetch(max_wait_ms=0 if lost else None)
        )

    def _inside(
        self, batch: Iterable[ConsumerRecord], left: dict[int, ConsumedRange], consumer: Consumer
    ) -> Iterable[str]:
        """Yield the lines of the messages that are in their ranges."""
        for record in batch:
            span = left.get(record.partition)
            if span is None:
                continue
            if _is_behind(record, span):
                self._finish(record.partition, left, consumer)
            else:
                yield self._reading.line(record)

    def _finish(self, partition: int, left: dict[int, ConsumedRange], consumer: Consumer) -> None:
        del left[partition]
        consumer.unassign(self._topic, partition)


def _is_behind(record: ConsumerRecord, span: ConsumedRange) -> bool:
    if span.end is not None:
        return record.offset >= span.end
    if span.until_ms is None or record.timestamp_ms is None:
        return False
    return record.timestamp_ms >= span.until_ms
