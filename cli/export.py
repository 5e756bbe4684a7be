"""`horolog export`: writes the messages of a window of time to Parquet files."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Self

import typer
from msgspec import json

from ..client.administer.admin import Admin
from ..client.administer.counting import intervals_of
from ..client.background import BackgroundLoop
from ..client.cluster.servers import Servers
from ..client.consume.tables import COMPLETE_FROM_KEY, REMOVED_KEY, UNTIMED_KEY, read_window
from ..client.consume.time_bounds import APPEND, CREATE, TimeBounds, WindowBy
from ..clock import SystemClock
from ..protocol.api.log.describe_removals import DescribedRemoval
from ..protocol.api.log.list_offsets import EARLIEST, LATEST
from ..protocol.errors import UnsupportedForMessageFormat
from ..protocol.window_topics import WindowName, parse_window_name
from ..times import format_time
from ..values import value_class
from .broker_requests import ask, partitions_of
from .consume.reading import WindowedBy, exact_window
from .consume.selection import note_untimed
from .consume.timing import broker_clock, note_future
from .errors import CommandFailed, WrongUsage, note
from .gone import Incompleteness, incompleteness, joined_by_topic
from .options import (
    DEFAULT_SERVER,
    AnyUnit,
    Json,
    Partition,
    ReadFrom,
    Server,
    TopicName,
    check_read_from,
    parse_bounds,
    parse_every,
    takes,
)
from .output import emit, json_line, plural, shown_size

if TYPE_CHECKING:
    import pyarrow as pa

_SUFFIX: Final = ".parquet"
_GROUP_BYTES: Final = 64 * 1024 * 1024
"""Bytes of rows in memory after which a row group is written."""

_GROUP_ROWS: Final = 1_000_000


@value_class
class ExportedFile:
    """A file to write, and the window of time of its messages."""

    path: Path
    window: TimeBounds


@value_class
class ExportArguments:
    """The arguments and options of `export`."""

    topic: TopicName
    to: Annotated[
        Path, typer.Option("--to", metavar="FILE", help="File to write; it ends in .parquet.")
    ]
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="First time: a time (2016-11-14T17:24:32Z, now, @-1h, epoch milliseconds), or a "
            "range @A:B that sets --until too. The first message when not given.",
        ),
    ] = None
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="End, before that time; all messages stored when not given."
        ),
    ] = None
    every: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Write a file for each interval of this length (30s, 5m, 1h, 7d), beginning at "
            "--from. The name of each file has the time at which its interval begins.",
        ),
    ] = None
    by: Annotated[
        WindowedBy,
        typer.Option(
            help="A window goes by the messages' own times, or by when the broker appended them."
        ),
    ] = WindowedBy.CREATE
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")] = (
        False
    )
    read_committed: Annotated[
        bool,
        typer.Option("--read-committed", help="Leave out messages of aborted transactions."),
    ] = False
    partition: Partition = None
    read_from: ReadFrom = "leader"
    server: Server = DEFAULT_SERVER
    as_json: Json = False
    any_unit: AnyUnit = False


@takes(ExportArguments)
def export(given: ExportArguments) -> None:
    """Write a window of time to Parquet files.

    The file gets exactly the messages whose time is at or after --from and before --until, in the
    order of their offsets, one partition after the other. Its columns are partition, offset,
    timestamp (milliseconds, UTC), key, value and headers. Messages without a time are in no window.
    A file appears under its name when it is complete.

    With --every 1h, `--to clicks.parquet` writes clicks-2016-11-14T17-00-00Z.parquet and so on; an
    interval without messages gets no file. --until is then now unless given. Each file is named on
    standard output; with --json as {"file", "messages", "bytes", "from_ms", "until_ms"}.

    Needs pyarrow: pip install 'horolog[arrow]'.
    """
    now_ms = SystemClock().now_ms()
    check_read_from(given.server, given.read_from)
    topic, window = _window(given, now_ms)
    every = given.every
    files = (
        [ExportedFile(given.to, window)]
        if every is None
        else _split(given.to, window, every, now_ms)
    )
    _check_target(given.to, [] if given.overwrite else files)
    if window.from_ms is not None and window.from_ms > now_ms:
        clock = ask(Admin, given.server, lambda admin: broker_clock(admin, SystemClock()))
        note_future([window], clock.now_ms())
    read = partial(
        read_window,
        given.server,
        topic,
        partitions=None if given.partition is None else [given.partition],
        read_committed=given.read_committed,
        read_from=given.read_from,
        check_units=False,
    )
    written = messages = untimed = 0
    missing: list[Incompleteness] = []
    with _Passed(given.server, topic, given.partition) as passed:
        for number, file in enumerate(files):
            reader = _opened(file, read)
            if given.server.kafka and every is not None:
                following = next(iter(files[number + 1 :]), None)
                passed.look(file.window, None if following is None else following.window)
            metadata = reader.schema.metadata or {}
            missing += _missing(given.server, topic, file.window, metadata)
            untimed = max(untimed, int(metadata.get(UNTIMED_KEY, 0)))
            count = _export(file, reader, skip_empty=every is not None)
            if count is not None:
                emit([_line(file, count, given.as_json)])
                written, messages = written + 1, messages + count
    for part in joined_by_topic(missing):
        part.tell()
    passed.tell()
    note_untimed(untimed)
    if every is not None:
        note(f"{messages:,} {plural(messages, 'message')} in {written:,} {plural(written, 'file')}")


def _window(given: ExportArguments, now_ms: int) -> tuple[str, TimeBounds]:
    """Return the topic and the window to export. Raises WrongUsage."""
    bounds = parse_bounds(given.start, given.until, now_ms, given.any_unit)
    window = exact_window(bounds, given.by.value) or TimeBounds(None, None, given.by.value)
    return _named(given.server, given.topic, window, bounds)


def _named(
    server: Servers, topic: str, window: TimeBounds, bounds: tuple[object, object]
) -> tuple[str, TimeBounds]:
    """Return the topic and window to read: those that the topic's name means, if it means a
    window."""

    async def ask() -> WindowName | None:
        async with Admin(server) as admin:
            return await admin.find_window(topic)

    named = None if parse_window_name(topic) is None else asyncio.run(ask())
    if named is None:
        return topic, window
    if bounds != (None, None) or window.by != CREATE:
        raise WrongUsage(
            f"{topic} names a window of {named.base} already: leave out --from, --until and --by, "
            f"or export {named.base}"
        )
    by: WindowBy = APPEND if named.by_append else CREATE
    return named.base, TimeBounds(named.from_ms, named.until_ms, by)


def _split(to: Path, window: TimeBounds, every: str, now_ms: int) -> list[ExportedFile]:
    """Return a file for each interval. Raises WrongUsage."""
    if window.from_ms is None:
        raise WrongUsage("--every needs --from, where the first interval begins")
    until_ms = now_ms if window.until_ms is None else window.until_ms
    try:
        length = parse_every(every)
        intervals = intervals_of(window.from_ms, until_ms, length, window.by, check_units=False)
    except ValueError as error:
        raise WrongUsage(f"--from, --until, --every: {error}") from None
    starts = range(intervals.from_ms, intervals.until_ms, intervals.every_ms)
    return [
        ExportedFile(
            to.with_name(f"{to.stem}-{_name_of(start_ms)}{to.suffix}"),
            TimeBounds(start_ms, min(start_ms + intervals.every_ms, intervals.until_ms), window.by),
        )
        for start_ms in starts
    ]


def _name_of(time_ms: int) -> str:
    """Return a time for the name of a file, without colons, which Windows and HDFS refuse."""
    return format_time(time_ms).replace(":", "-").replace(".000Z", "Z")


def _check_target(to: Path, new: list[ExportedFile]) -> None:
    """Raise WrongUsage unless files can be written here, and those in `new` do not exist."""
    if to.suffix != _SUFFIX or not to.stem:
        raise WrongUsage(f"--to: {to} has to be a file whose name ends in {_SUFFIX}")
    if not to.parent.is_dir():
        raise WrongUsage(f"--to: {to.parent} is no folder: make it first")
    present = {entry.name for entry in os.scandir(to.parent)} if new else set()
    for file in new:
        if file.path.name in present:
            raise WrongUsage(f"--to: {file.path} exists; --overwrite replaces it")


def _opened(file: ExportedFile, read: "partial[pa.RecordBatchReader]") -> "pa.RecordBatchReader":
    """Begin to read the messages of a file. Raises CommandFailed without pyarrow."""
    window = file.window
    try:
        return read(window.from_ms, window.until_ms, by=window.by)
    except ImportError as error:
        raise CommandFailed(
            "export needs pyarrow, which the extra `arrow` installs: pip install 'horolog[arrow]' "
            f"({error.__cause__})"
        ) from None


def _export(file: ExportedFile, reader: "pa.RecordBatchReader", *, skip_empty: bool) -> int | None:
    """Write a file; return the number of messages, or None if there are none and no file."""
    from pyarrow.parquet import ParquetWriter

    part = file.path.with_name(f".{file.path.name}.part")
    count = 0
    groups = _row_groups(reader)
    group = next(groups, None)
    if group is None and skip_empty:
        return None
    try:
        with _writing(file.path):
            writer = ParquetWriter(part, reader.schema)
        while group is not None:
            with _writing(file.path):
                writer.write_table(group, row_group_size=group.num_rows)
            count += group.num_rows
            group = next(groups, None)
        with _writing(file.path):
            writer.close()
            part.replace(file.path)
    finally:
        part.unlink(missing_ok=True)
    return count


def _missing(
    server: Servers, topic: str, window: TimeBounds, metadata: Mapping[bytes, bytes]
) -> list[Incompleteness]:
    """Return what a window may miss, by the metadata of its schema."""
    complete_from_ms = metadata.get(COMPLETE_FROM_KEY)
    removed = json.decode(metadata.get(REMOVED_KEY, b"[]"), type=tuple[DescribedRemoval, ...])
    return incompleteness(
        server,
        *(topic, window.from_ms),
        None if complete_from_ms is None else int(complete_from_ms),
        removed,
    )


class _Passed:
    """Finds what a Kafka cluster deleted between two files: it tells only where its logs begin.

    All looks share one client, in a loop of its own. Use it in `with`.
    """

    def __init__(self, server: Servers, topic: str, partition: int | None) -> None:
        self._admin = Admin(server, check_units=False)
        self._loop = BackgroundLoop("horolog-export")
        self._topic = topic
        self._partition = partition
        self._later: dict[int, int] = {}
        """By partition the first offset that can have a message of the next file, or of one after
        it."""
        self._lost: dict[int, tuple[int, int, int]] = {}
        """By partition what was deleted before it was reached: the first offset, the offset after
        the last one, and the first time that it may have had."""

    def __enter__(self) -> Self:
        self._loop.enter()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._loop.run(self._admin.close())
        finally:
            self._loop.leave()

    def look(self, window: TimeBounds, following: TimeBounds | None) -> None:
        """Look what was deleted before the file of `window`, of which reading has begun, and where
        the messages of the `following` one begin."""
        self._loop.run(self._look(window, following))

    async def _look(self, window: TimeBounds, following: TimeBounds | None) -> None:
        from_ms = window.from_ms or 0
        next_ms = from_ms if following is None else following.from_ms or 0
        for partition in await partitions_of(self._admin, self._topic, self._partition):
            # In this order: what is deleted in between is found now or at the next file.
            targets = (LATEST, next_ms, EARLIEST)
            try:
                found = await self._admin.list_offsets(self._topic, partition, targets)
            except UnsupportedForMessageFormat:
                continue  # Its new messages have no times, and so are in no window.
            end, later, start = found
            begin, first = start.offset or 0, self._later.get(partition)
            if first is not None and begin > first:
                known = self._lost.get(partition, (first, begin, from_ms))
                self._lost[partition] = known[0], begin, known[2]
            self._later[partition] = (end.offset or 0) if later.offset is None else later.offset

    def tell(self) -> None:
        """Say it on standard error."""
        for partition, (first, end, from_ms) in sorted(self._lost.items()):
            note(
                f"{self._topic}-{partition}: offsets {first} to {end - 1} were deleted before they "
                f"were reached; from {format_time(from_ms)} on, messages may be missing"
            )


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Name the file in errors of the file system."""
    try:
        yield
    except OSError as error:
        raise CommandFailed(f"--to: {path} cannot be written: {error.strerror or error}") from error


def _row_groups(reader: "pa.RecordBatchReader") -> "Iterator[pa.Table]":
    """Yield the rows in tables large enough for a row group."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in reader:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _line(file: ExportedFile, count: int, as_json: bool) -> str:
    size = file.path.stat().st_size
    if as_json:
        return json_line(
            file=str(file.path),
            messages=count,
            bytes=size,
            from_ms=file.window.from_ms,
            until_ms=file.window.until_ms,
        )
    return f"{file.path}  {count:,} {plural(count, 'message')}, {shown_size(size)}"
