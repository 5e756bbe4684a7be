"""Reads closed segments from their files, without a broker.

The active segment of a partition is left out: the broker appends to it. Files are listed when the
read is planned; if retention removes one afterwards, the read fails with an error.

The indexes of a segment tell where it can have messages of a window. An index is used only if it
has the length and checksum that `index-checksums` records; without a usable index nothing of the
segment is left out.
"""

import mmap
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final
from zlib import crc32

import pyarrow as pa

from ..client.results import ColumnBatch
from ..protocol.records.columns import Columns, Content, read_columns
from ..protocol.records.kernel import time_map_runs, walk
from ..storage.directory.checkpoints import (
    LOG_START_OFFSETS,
    MalformedCheckpoint,
    decode_checkpoint,
)
from ..storage.index.index_checksums import FILE_NAME, SegmentChecksums, parse_checksums
from ..storage.index.index_file import OFFSET_ENTRY, TIME_ENTRY
from ..storage.names import parse_folder_name, segment_bases
from ..times import INT64_MAX
from .option_values import OptionError
from .planning import DataLoss, Window
from .row_batches import content_of, in_window, joined, record_batch, times_of

Stretch = tuple[int, int]
"""Range of bytes of a log file: first position, end position (exclusive)."""

TASK_BYTES: Final = 128 * 1024 * 1024
"""Target size of a task: the default of `spark.sql.files.maxPartitionBytes`."""

_VIEW_BYTES: Final = 4 * 1024 * 1024
_MAX_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SegmentSpan:
    """A range of bytes of a segment's log, before it is cut for tasks."""

    place: tuple[str, int]
    """Topic and partition."""
    path: str
    """Path of the log file."""
    start: int
    end: int
    log_start_offset: int
    """Log start of the partition; messages below it were trimmed."""
    cuts: Callable[[], Sequence[int]]
    """Returns the positions of the log file where it can be cut, ascending: entries begin there."""

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.end - self.start

    def nearest_cut(self, position: int) -> int:
        """Return the position nearest to `position` where the span can be cut; its start and end
        count too."""
        cuts = self.cuts()
        inside = cuts[bisect_right(cuts, self.start) : bisect_left(cuts, self.end)]
        at = bisect_left(inside, position)
        places = (self.start, *inside[max(at - 1, 0) : at + 1], self.end)
        return min(places, key=lambda place: abs(place - position))


def pack(parts: Iterable[SegmentSpan], tasks: int) -> list[list[SegmentSpan]]:
    """Divide the parts, in their order, among up to `tasks` tasks of about equal size in bytes."""
    found = list(parts)
    total = sum(part.size for part in found)
    ends = [total * number // tasks for number in range(1, tasks)]
    packed: list[list[SegmentSpan]] = [[]]
    before = 0
    for part in found:
        behind = before + part.size
        wanted = ends[bisect_left(ends, before) : bisect_left(ends, behind)]
        cuts = sorted({part.nearest_cut(part.start + end - before) for end in wanted})
        start = part.start
        for cut in cuts:
            if cut > start:
                packed[-1].append(replace(part, start=start, end=cut))
                start = cut
            packed.append([])
        if start < part.end:
            packed[-1].append(replace(part, start=start))
        before = behind
    return [task for task in packed if task]


class SegmentFiles:
    """The files of one closed segment."""

    def __init__(self, folder: Path, base_offset: int, checksums: SegmentChecksums | None) -> None:
        """`checksums` is the segment's line in `index-checksums`, if there is one."""
        self._base_offset = base_offset
        self.log = folder / f"{base_offset:020d}.log"
        self._size = self.log.stat().st_size
        fits = checksums is not None and checksums.log_bytes == self._size
        self._known = checksums if fits else None
        self._cuts: Sequence[int] | None = None

    def stretches(self, window: Window | None) -> list[Stretch]:
        """Return the ranges of the log that can hold messages of the window, in order; without a
        window the whole log."""
        whole = [(0, self._size)] if self._size else []
        if window is None or self._known is None or not whole:
            return whole
        last_ms = INT64_MAX if window.until_ms is None else window.until_ms - 1
        mapped = self._known.time_map
        if mapped is not None:
            if mapped.first_ms > last_ms or mapped.last_ms < window.from_ms:
                return []
            time_map = self._read(".timemap", (mapped.size_bytes, mapped.crc))
            if time_map:
                runs = time_map_runs(
                    time_map, base_offset=self._base_offset, from_ms=window.from_ms, last_ms=last_ms
                )
                return [(position, end) for position, end, _, _ in runs]
        return whole if self._may_reach(window.from_ms) else []

    def cuts(self) -> Sequence[int]:
        """Return positions where entries of the log begin, from the offset index; empty if the
        index is missing, empty or not to be trusted."""
        if self._cuts is None:
            self._cuts = self._read_cuts()
        return self._cuts

    def _read_cuts(self) -> Sequence[int]:
        data = None if self._known is None else self._read(".index", self._known.offset_index)
        if not data:
            return ()
        entries = data[: len(data) - len(data) % OFFSET_ENTRY.size]
        return sorted({position for _, position in OFFSET_ENTRY.iter_unpack(entries)})

    def _may_reach(self, start_ms: int) -> bool:
        """Whether the segment can have a message from `start_ms` on. The last entry of the time
        index has the largest timestamp."""
        assert self._known is not None
        data = self._read(".timeindex", self._known.time_index)
        if data is None:
            return True
        entries = data.rstrip(b"\0")
        last = TIME_ENTRY.size * (-(-len(entries) // TIME_ENTRY.size) - 1)
        latest_ms: int = TIME_ENTRY.unpack_from(data, last)[0] if last >= 0 else start_ms
        return latest_ms >= start_ms

    def _read(self, suffix: str, known: tuple[int, int]) -> bytes | None:
        """Read the file beside the log with this suffix; None if it is missing, or its length and
        CRC-32 differ from `known`."""
        try:
            data = self.log.with_suffix(suffix).read_bytes()
        except FileNotFoundError:
            return None
        return data if (len(data), crc32(data)) == known else None


def read_log_start(folder: Path, place: tuple[str, int]) -> int:
    """Return the log start of the partition in a folder; trimmed messages can still be in the file
    of its first segment.

    The log start is read from the checkpoint in the data directory; 0 if the folder is in none.
    Raises OptionError.
    """
    checkpoint = folder.parent / LOG_START_OFFSETS
    try:
        return decode_checkpoint(checkpoint.read_bytes()).get(place, 0)
    except FileNotFoundError:
        return 0
    except MalformedCheckpoint as error:
        raise OptionError(
            f"segments.path: {checkpoint} tells which messages of {folder} were trimmed, and "
            f"cannot be read ({error}); start the broker on that data directory, which makes the "
            "file anew"
        ) from None


def read_checksums(folder: Path) -> Mapping[int, SegmentChecksums]:
    """Read a folder's `index-checksums`, by base offset; empty without such a file."""
    try:
        return parse_checksums((folder / FILE_NAME).read_bytes())
    except FileNotFoundError:
        return {}


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """Range of complete entries of a closed segment, as a task gets it."""

    topic: str
    partition: int
    path: str
    """Path of the log file; it must be the same on every machine that reads."""
    start: int
    """Position of the first byte to read."""
    end: int
    """Position behind the last byte to read."""
    log_start_offset: int
    """Log start of the partition; messages below it were trimmed."""


Packed = tuple[SegmentPart, ...]
"""The parts that one task reads, in the order of the log."""


def plan(text: str, window: Window | None, min_partitions: int) -> list[Packed]:
    """Plan tasks of about equal size for closed segments. `text` names partition folders, separated
    by commas; parts that cannot have messages of `window` are left out. There are at least as many
    tasks as folders with data and at least `min_partitions`, and enough that none is much larger
    than `TASK_BYTES`. Raises OptionError for a folder that is not of a partition or cannot be
    read."""
    try:
        folders = [
            list(_plan_folder(Path(name.strip()).absolute(), window)) for name in text.split(",")
        ]
        parts = [part for folder in folders for part in folder]
        total = sum(part.size for part in parts)
        tasks = max(sum(map(bool, folders)), min_partitions, -(-total // TASK_BYTES))
        packed = pack(parts, tasks)
    except PermissionError as error:
        raise _not_permitted(error.filename or text) from None
    return [tuple(_segment_part(part) for part in task) for task in packed]


def _segment_part(part: SegmentSpan) -> SegmentPart:
    topic, partition = part.place
    return SegmentPart(topic, partition, part.path, part.start, part.end, part.log_start_offset)


def _plan_folder(folder: Path, window: Window | None) -> Iterator[SegmentSpan]:
    place = parse_folder_name(folder.name)
    if place is None or not folder.is_dir():
        raise OptionError(
            f"segments.path names {folder}, which is no folder of a partition, for example "
            "data/clicks-0"
        )
    bases = segment_bases(sorted(os.listdir(folder)))
    checksums = read_checksums(folder)
    log_start_offset = read_log_start(folder, place)
    for base_offset, following in pairwise(bases):
        if following <= log_start_offset:
            continue
        try:
            files = SegmentFiles(folder, base_offset, checksums.get(base_offset))
        except FileNotFoundError:
            continue  # retention has removed the segment meanwhile
        for start, end in files.stretches(window):
            yield SegmentSpan(place, str(files.log), start, end, log_start_offset, files.cuts)


def _not_permitted(path: object) -> OptionError:
    return OptionError(
        f"segments.path: this account may not read {path}; let the broker make its files readable "
        'for its group (data.file.mode = "0640"; chmod -R g+rX for what is there), and put this '
        "account into that group"
    )


def batches(packed: Packed, schema: pa.Schema, window: Window | None) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a task's parts in the columns of `schema`; with `window` only messages
    with a timestamp in the window.

    Raises DataLoss if a file is gone, CorruptMessage if it is damaged.
    """
    return joined(batch for part in packed for batch in _batches(part, schema, window))


def _batches(
    part: SegmentPart, schema: pa.Schema, window: Window | None
) -> Iterator[pa.RecordBatch]:
    try:
        file = Path(part.path).open("rb")  # noqa: SIM115  closed below
    except FileNotFoundError:
        raise DataLoss(
            f"{part.path} was there when the read was planned, and is not now: retention "
            "removes segments, and other machines need the folder under the same path"
        ) from None
    except PermissionError:
        raise _not_permitted(part.path) from None
    with file:
        if not file.seek(0, 2):
            return
        with (
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped)[part.start : part.end] as log,
        ):
            for columns in _columns(log, content_of(schema)):
                batch = _column_batch(part, columns)
                rows = record_batch(batch, schema, start=part.log_start_offset)
                if window is not None:
                    times = times_of(batch).slice(batch.count - rows.num_rows)
                    rows = in_window(rows, times, window)
                yield rows


def _columns(log: memoryview, content: frozenset[Content]) -> Iterator[Columns]:
    reading = partial(read_columns, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES, content=content)
    position, size = 0, _VIEW_BYTES
    while position < len(log):
        with log[position : position + size] as view:
            end = walk(view, 0, len(view), check_crc=False).end
            if not end and position + len(view) < len(log):
                size *= 2  # the view is smaller than its first entry
                continue
            if not end:
                # The rest is not a complete entry. If it is damaged, this raises CorruptMessage.
                yield from reading(view)
                return
            with view[:end] as whole:
                yield from reading(whole)
        position, size = position + end, _VIEW_BYTES


def _column_batch(part: SegmentPart, columns: Columns) -> ColumnBatch:
    return ColumnBatch(
        part.topic,
        part.partition,
        columns.count,
        memoryview(columns.offsets).cast("q"),
        memoryview(columns.timestamps).cast("q"),
        memoryview(columns.timestamp_types).cast("b"),
        columns.keys,
        columns.values,
        None,
        columns.headers,
    )
