"""`horolog histogram`: counts the messages in each interval of a window of time."""

import asyncio
import shutil
import sys
from datetime import timedelta
from typing import Annotated, Final

import typer

from ..client.administer.admin import Admin
from ..client.administer.counting import intervals_of
from ..client.client import ReadFrom as ReadFromValue
from ..client.cluster.servers import Servers
from ..client.results import TimeCount, TimeCounts
from ..clock import SystemClock
from ..times import TimeError, parse_length
from .consume.reading import WindowedBy
from .errors import WrongUsage, is_terminal, note
from .options import (
    DEFAULT_SERVER,
    AnyUnit,
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
from .output import emit, json_line, plural, shown_size, shown_time, table

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
            "milliseconds), or a range @A:B that sets --until too.",
        ),
    ],
    every: Annotated[
        str, typer.Option(metavar="DURATION", help="Length of an interval: 30s, 5m, 1h30m, 7d.")
    ],
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Where the last interval ends, before that time: now if not given."
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
    begin at --from; the last one ends at --until, and may be shorter. At most 100,000 intervals are
    allowed. With --json a line is {"from_ms", "until_ms", "count"}; intervals without messages
    have a line too.
    """
    now_ms = SystemClock().now_ms()
    first, last = parse_bounds(start, until, now_ms, any_unit)
    from_ms, until_ms = _time_ms("--from", first), _time_ms("--until", last)
    if from_ms is None:
        raise WrongUsage(f"--from: {start!r} has no beginning, and intervals begin there")
    found = asyncio.run(
        _ask(
            server,
            check_read_from(server, read_from),
            topic,
            partition,
            (from_ms, now_ms if until_ms is None else until_ms),
            _every(every),
            by,
        )
    )
    if as_json:
        emit(_as_json(interval) for interval in found.intervals)
        return
    emit(bars(found))
    note(_summary(found))


def _time_ms(option: str, position: Position | None) -> int | None:
    if position is None:
        return None
    if not isinstance(position, AtTime):
        raise WrongUsage(
            f"{option}: offset:{position.offset} is no time, and messages are counted by time"
        )
    return position.timestamp_ms


def _every(text: str) -> timedelta:
    try:
        length_ms = parse_length(text)
        return timedelta(milliseconds=length_ms)
    except TimeError as error:
        raise WrongUsage(f"--every: {error}") from None
    except OverflowError:
        raise WrongUsage(f"--every: {text!r} is longer than all of time: write 1h or 7d") from None


async def _ask(
    server: Servers,
    read_from: ReadFromValue,
    topic: str,
    partition: int | None,
    window: tuple[int, int],
    every: timedelta,
    by: WindowedBy,
) -> TimeCounts:
    try:
        intervals_of(*window, every, by.value, check_units=False)
    except ValueError as error:
        raise WrongUsage(f"--from, --until, --every: {error}") from None
    async with Admin(server, check_units=False, read_from=read_from) as admin:
        return await admin.count_by_time(
            topic,
            *window,
            every,
            partitions=None if partition is None else [partition],
            by=by.value,
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


def _summary(found: TimeCounts) -> str:
    parts = [f"{found.messages:,} {plural(found.messages, 'message')}"]
    if found.first_ms is not None:
        parts[0] += f" from {shown_time(found.first_ms)} to {shown_time(found.last_ms)}"
    if found.untimed:
        parts.append(f"{found.untimed:,} more without a time")
    parts.append(f"{shown_size(found.read_bytes)} of {shown_size(found.log_bytes)} read")
    return "; ".join(parts)
