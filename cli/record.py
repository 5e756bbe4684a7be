"""`horolog record`: write the messages of a window of time to a file, for tests to load."""

import asyncio
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Annotated, Final

import typer

from ..client.consume.time_bounds import APPEND, CREATE, TimeBounds, WindowBy
from ..client.recordings import RecordingHead
from ..clock import SystemClock
from ..protocol.window_topics import parse_window_name
from .consume.formats import JsonFormat
from .consume.reading import RecordReading, WindowedBy, WindowSource, exact_window
from .consume.selection import note_untimed
from .consume.timing import broker_clock, note_future
from .errors import CommandFailed, WrongUsage, note
from .options import (
    DEFAULT_SERVER,
    AnyUnit,
    Partition,
    ReadFrom,
    Server,
    TopicName,
    check_read_from,
    parse_bounds,
)
from .output import emit, plural, shown_size

STANDARD_OUTPUT: Final = "-"

Emit = Callable[[Iterable[str]], None]
"""Writes lines."""


def record(
    topic: TopicName,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="FILE", help="Where to write; - is standard output. An old file goes."
        ),
    ],
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Where the window begins: a time (2016-11-14T17:24:32Z, now, @-1h, epoch "
            "milliseconds), or a range @A:B that sets --until too, such as @-2h:1h.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Where the window ends, before that time."),
    ] = None,
    by: Annotated[
        WindowedBy,
        typer.Option(
            help="A window goes by the messages' own times, or by when the broker appended them."
        ),
    ] = WindowedBy.CREATE,
    partition: Partition = None,
    read_from: ReadFrom = "leader",
    server: Server = DEFAULT_SERVER,
    any_unit: AnyUnit = False,
) -> None:
    """Write the messages of a window of time to a file, for tests to load.

    The file has the messages whose time is at or after --from and before --until, with keys,
    headers, times and partitions; without --from and --until it has all that have a time. Messages
    without a time are left out. A test loads it with `horolog_broker.load(FILE)`, at other times
    with `shift_to`; `tail -n +2 FILE | horolog produce TOPIC --json` sends it to any broker. The
    first line is a JSON object that says what was recorded; each further line is a message as
    `horolog consume --json` prints it. FILE is there only when it is complete.
    """
    check_read_from(server, read_from)
    bounds = parse_bounds(start, until, SystemClock().now_ms(), any_unit)
    window = exact_window(bounds, by)
    reading = RecordReading(
        server,
        read_from,
        partition,
        follow=False,
        append_times=False,
        read_committed=True,
    )
    with _opened(to) as write:
        asyncio.run(_record(reading, topic, window, by.value, write))


async def _record(
    reading: RecordReading, topic: str, window: TimeBounds | None, by: WindowBy, write: Emit
) -> None:
    lines = JsonFormat(needs_append_time=False, with_topic=False)
    async with reading.admin() as admin, reading.consumer() as consumer:
        if parse_window_name(topic) is not None:
            named = await admin.find_window(topic)
            if named is not None:
                if window is not None:
                    raise WrongUsage(
                        f"{topic} names a window of {named.base} already: leave out --from and "
                        f"--until, or record {named.base}"
                    )
                topic, by = named.base, APPEND if named.by_append else CREATE
                window = TimeBounds(named.from_ms, named.until_ms, by)
        partitions = await admin.partition_count(topic)
        bounds = window or TimeBounds(None, None, by)
        if bounds.from_ms is not None:
            note_future([bounds], (await broker_clock(admin, SystemClock())).now_ms())
        write([RecordingHead(topic, partitions, bounds.from_ms, bounds.until_ms).line()])
        source = WindowSource(reading, consumer, topic, bounds)
        async for batch in source.batches():
            write(map(lines.line, batch))
    found = source.window
    assert found is not None
    for part in source.missing:
        part.tell()
    note_untimed(source.untimed)
    note(
        f"{found.messages:,} {plural(found.messages, 'message')} in the window; "
        f"{shown_size(found.read_bytes)} of the log read, "
        f"{shown_size(found.skipped_bytes)} passed over"
    )


@contextmanager
def _opened(to: str) -> Iterator[Emit]:
    """Yield what writes lines to the file; at the end of the block the file is there, unless the
    block failed. Raises `WrongUsage`, `CommandFailed`."""
    if to == STANDARD_OUTPUT:
        yield emit
        return
    path = Path(to)
    if path.is_dir():
        raise WrongUsage(f"--to: {to} is a directory; name a file in it")
    # A device or a pipe is written to, and stays what it is; behind a link, its file is replaced.
    replaces = path.is_file() or not path.exists()
    path = path.resolve() if replaces else path
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part") if replaces else path
    try:
        file = part.open("x" if replaces else "w", encoding="ascii")
    except OSError as error:
        raise WrongUsage(f"--to: {to} cannot be written: {error.strerror}") from None
    try:
        yield _writing(file, to)
        with _failing(to):
            file.close()
            if replaces:
                os.replace(part, path)
    finally:
        with suppress(OSError):
            file.close()
        if replaces:
            part.unlink(missing_ok=True)
    note(f"written to {to}")


@contextmanager
def _failing(to: str) -> Iterator[None]:
    """Raise `CommandFailed` instead of the errors of a write."""
    try:
        yield
    except OSError as error:
        raise CommandFailed(f"{to} cannot be written: {error.strerror}") from None


def _writing(file: IO[str], to: str) -> Emit:
    def write(lines: Iterable[str]) -> None:
        with _failing(to):
            file.writelines(f"{line}\n" for line in lines)

    return write
