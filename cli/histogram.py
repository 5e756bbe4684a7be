"""`horolog histogram`: counts the messages in each interval of a window of time."""

import asyncio
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, timedelta, tzinfo
from typing import Annotated, Final

import typer

from ..client.administer.admin import Admin
from ..client.administer.counting import intervals_of
from ..client.client import ReadFrom as ReadFromValue
from ..client.cluster.servers import Servers
from ..client.consume.time_bounds import TimeBounds
from ..client.results import TimeCount, TimeCounts
from ..clock import Clock, SystemClock
from ..times import EPOCH, INT64_MAX
from ..values import value_class
from .consume.reading import WindowedBy
from .consume.timing import broker_clock, note_future
from .errors import CommandFailed, WrongUsage, is_terminal, note
from .gone import incompleteness
from .options import (
    DEFAULT_SERVER,
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
    parse_every,
)
from .output import emit, json_line, plural, shown_size, shown_time, table
from .time_zone import time_zone

_BAR_WIDTH: Final = 40
"""Characters of the longest bar if the output is not a terminal."""

_EIGHTHS: Final = " ▏▎▍▌▋▊▉"


def histogram(
    topic: TopicName,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Where the first interval begins: a time (2016-11-14T17:24:32Z, now, @-1h, epoch "
            "milliseconds), earliest, or a range @A:B that sets --until too.",
        ),
    ],
    every: Annotated[
        str, typer.Option(metavar="DURATION", help="Length of an interval: 30s, 5m, 1h30m, 7d.")
    ],
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Where the last interval ends, before that time; latest ends it after the last "
            "message. Now if not given.",
        ),
    ] = None,
    by: Annotated[
        WindowedBy,
        typer.Option(help="Count by the messages' own times, or by when the broker appended them."),
    ] = WindowedBy.CREATE,
    partition: Partition = None,
    read_from: ReadFrom = "leader",
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
    any_unit: AnyUnit = False,
) -> None:
    """Count messages by time.

    Prints a line for each interval, with the exact number of messages whose time is in it, even if
    messages are out of order. Without --partition all partitions are counted together. Intervals
    begin at whole units of --every: with 1h at full hours, with 1d at midnight, with 7d on Mondays,
    by the clock of --tz (UTC if not given). The first one begins at --from and the last one ends at
    --until, so both may be shorter. At most 100,000 intervals are allowed. With --json a line is
    {"from_ms", "until_ms", "count"}; intervals without messages have a line too.
    """
    first, end = _ends(start, until, any_unit)
    counting = _Counting(
        *(server, check_read_from(server, read_from), topic),
        None if partition is None else [partition],
        by,
    )
    counts = asyncio.run(counting.count(first, end, parse_every(every)))
    found = joined(counts)
    if as_json:
        emit(_as_json(interval) for interval in found.intervals)
    else:
        emit(bars(found))
    from_ms = found.intervals[0].from_ms if found.intervals else None
    for part in incompleteness(server, topic, from_ms, found.complete_from_ms, found.removed):
        part.tell()
    if not as_json:
        note(_summary(found, len(counts)))


def _ends(start: str, until: str | None, any_unit: bool) -> tuple[Position, Position]:
    """Parse `--from` and `--until`. Raises WrongUsage."""
    now_ms = SystemClock().now_ms()
    first, last = parse_bounds(start, until, now_ms, any_unit)
    if first is None:
        raise WrongUsage(
            f"--from: {start!r} has no beginning, and intervals begin there: write a time, or "
            "earliest"
        )
    for option, position in (("--from", first), ("--until", last)):
        _check_time(option, position)
    return first, AtTime(now_ms) if last is None else last


def _check_time(option: str, position: Position | None) -> None:
    """Raise WrongUsage for a position that is not a time, nor the end on that side."""
    if isinstance(position, AtOffset):
        raise WrongUsage(
            f"{option}: offset:{position.offset} is no time, and messages are counted by time"
        )
    if position is AtEnd.LATEST and option == "--from":
        raise WrongUsage("--from: no message is later than latest: write earliest, or a time")
    if position is AtEnd.EARLIEST and option == "--until":
        raise WrongUsage("--until: no message is before earliest: write latest, or a time")


@value_class
class _Counting:
    """Counts messages of a topic by time."""

    server: Servers
    read_from: ReadFromValue
    topic: str
    partitions: list[int] | None
    by: WindowedBy

    async def count(self, first: Position, last: Position, every: timedelta) -> list[TimeCounts]:
        """Count in intervals that begin at whole units of `every`. If the first interval is
        shorter, it has a count of its own. Raises WrongUsage."""
        if isinstance(first, AtTime) and isinstance(last, AtTime):
            self._check(first.timestamp_ms, last.timestamp_ms, every)
        async with Admin(self.server, check_units=False, read_from=self.read_from) as admin:
            from_ms, until_ms = await self._times(admin, first, last)
            self._check(from_ms, until_ms, every)
            clock: Clock = SystemClock()
            if from_ms > clock.now_ms():
                clock = await broker_clock(admin, clock)
                note_future([TimeBounds(from_ms, until_ms, self.by.value)], clock.now_ms())
            begin_ms = min(next_whole(from_ms, every, time_zone()), until_ms)
            if begin_ms == from_ms:
                return [await self._count(admin, from_ms, until_ms, every)]
            head = await self._count(admin, from_ms, begin_ms, None)
            if begin_ms == until_ms:
                return [head]
            return [head, await self._count(admin, begin_ms, until_ms, every)]

    async def _times(self, admin: Admin, first: Position, last: Position) -> tuple[int, int]:
        """Return the window's times. The first and the last message are found by a count."""
        if isinstance(first, AtTime) and isinstance(last, AtTime):
            return first.timestamp_ms, last.timestamp_ms
        there = await self._count(admin, 0, INT64_MAX, None)
        if there.first_ms is None or there.last_ms is None:
            raise CommandFailed(
                f"{self.topic} has no message with a time: give --from and --until a time"
            )
        return (
            first.timestamp_ms if isinstance(first, AtTime) else there.first_ms,
            last.timestamp_ms if isinstance(last, AtTime) else there.last_ms + 1,
        )

    def _check(self, from_ms: int, until_ms: int, every: timedelta) -> None:
        try:
            intervals_of(from_ms, until_ms, every, self.by.value, check_units=False)
        except ValueError as error:
            raise WrongUsage(f"--from, --until, --every: {error}") from None

    async def _count(
        self, admin: Admin, from_ms: int, until_ms: int, every: timedelta | None
    ) -> TimeCounts:
        return await admin.count_by_time(
            self.topic, from_ms, until_ms, every, partitions=self.partitions, by=self.by.value
        )


_MONDAY: Final = EPOCH + timedelta(days=4)
"""A Monday at midnight: weeks begin there, and so do the units that divide a week."""


def next_whole(from_ms: int, every: timedelta, zone: tzinfo | None) -> int:
    """Return the first time from `from_ms` on that is a whole number of units of `every` after a
    Monday's midnight, by the clock that the zone has at `from_ms`; of UTC for None."""
    every_ms = every // timedelta(milliseconds=1)
    offset_ms = _offset_ms(from_ms, zone) - (_MONDAY - EPOCH) // timedelta(milliseconds=1)
    return from_ms + -(from_ms + offset_ms) % every_ms


def _offset_ms(at_ms: int, zone: tzinfo | None) -> int:
    """Return how far the zone's clock is ahead of UTC at a time."""
    try:
        there = (EPOCH + timedelta(milliseconds=at_ms)).astimezone(zone or UTC)
    except OverflowError:
        return 0  # beyond the calendar
    return (there.utcoffset() or timedelta()) // timedelta(milliseconds=1)


def joined(counts: Sequence[TimeCounts]) -> TimeCounts:
    """Return the counts of windows that follow one another. Each count goes through the whole log,
    and may read the same bytes as another one."""
    firsts = [each.first_ms for each in counts if each.first_ms is not None]
    lasts = [each.last_ms for each in counts if each.last_ms is not None]
    return replace(
        counts[-1],
        intervals=tuple(interval for each in counts for interval in each.intervals),
        first_ms=min(firsts, default=None),
        last_ms=max(lasts, default=None),
        read_bytes=sum(each.read_bytes for each in counts),
        removed=counts[0].removed,
    )


def _as_json(interval: TimeCount) -> str:
    return json_line(from_ms=interval.from_ms, until_ms=interval.until_ms, count=interval.count)


def bars(found: TimeCounts, width: int | None = None) -> list[str]:
    """Return the intervals as lines of a table, each with a bar in proportion to its count.

    The longest bar has `width` characters; by default it fills the terminal.
    """
    largest = max((interval.count for interval in found.intervals), default=0)
    numbers = [f"{interval.count:,}" for interval in found.intervals]
    times = [shown_time(interval.from_ms) for interval in found.intervals]
    if width is None and is_terminal(sys.stdout):
        taken = max(map(len, times), default=0) + max(map(len, ("messages", *numbers))) + 6
        width = max(shutil.get_terminal_size().columns - taken, 10)
    rows = [
        (time, number, _bar(interval.count, largest, width or _BAR_WIDTH))
        for time, number, interval in zip(times, numbers, found.intervals, strict=True)
    ]
    return table(("from", "messages", ""), rows, right=("messages",), whole=("from", "messages"))


def _bar(count: int, largest: int, width: int) -> str:
    """Draw a bar in eighths of a character; a count above 0 always gets at least one eighth."""
    if not count:
        return ""
    eighths = max(count * width * 8 // largest, 1)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def _summary(found: TimeCounts, counts: int) -> str:
    parts = [f"{found.messages:,} {plural(found.messages, 'message')}"]
    if found.first_ms is not None:
        parts[0] += f" from {shown_time(found.first_ms)} to {shown_time(found.last_ms)}"
    if found.untimed:
        parts.append(f"{found.untimed:,} more without a time")
    read, log = shown_size(found.read_bytes), shown_size(found.log_bytes)
    parts.append(
        f"{read} of {log} read" if counts == 1 else f"{read} read in {counts} counts of {log}"
    )
    return "; ".join(parts)
