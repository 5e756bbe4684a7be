"""Reading closed segments from their files, without a broker.

The last segment of a partition is left out: the broker appends to it. Files are listed when the
read is planned; one that retention removes afterwards ends the read with an error.
"""

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final
from zlib import crc32

import pyarrow as pa

from ..client.results import ColumnBatch
from ..protocol.records.columns import Columns, Content, read_columns
from ..protocol.records.kernel import walk
from ..storage.index.index_checksums import FILE_NAME, SegmentChecksums, parse_checksums
from ..storage.index.index_reader import TIME_ENTRY
from ..storage.names import parse_folder_name, parse_segment_file
from .option_values import OptionError
from .planning import DataLoss
from .row_batches import content_of, in_window, joined, record_batch, times_of
from .windows import Window

_VIEW_BYTES: Final = 4 * 1024 * 1024
_MAX_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024
_FURTHEST_OFFSET: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ClosedSegment:
    """A segment that takes no appends any more."""

    topic: str
    partition: int
    path: str
    """Of its log, the same on every machine that reads."""


def plan(text: str, start_ms: int | None) -> list[ClosedSegment]:
    """The closed segments of the partition folders in `text`, separated by commas, that may have
    messages from `start_ms` on. Raises OptionError for what is no such folder."""
    found: list[ClosedSegment] = []
    for name in text.split(","):
        folder = Path(name.strip()).absolute()
        try:
            found += _plan_folder(folder, start_ms)
        except PermissionError as error:
            raise _not_permitted(error.filename or folder) from None
    return found


def _plan_folder(folder: Path, start_ms: int | None) -> Iterator[ClosedSegment]:
    place = parse_folder_name(folder.name)
    if place is None or not folder.is_dir():
        raise OptionError(
            f"segments.path names {folder}, which is no folder of a partition, for example "
            "data/clicks-0"
        )
    names = [parse_segment_file(name) for name in sorted(os.listdir(folder))]
    bases = [name.base_offset for name in names if name and name.kind == "log" and not name.suffix]
    checksums = {} if start_ms is None else _checksums(folder)
    for base_offset in bases[:-1]:
        path = folder / f"{base_offset:020d}.log"
        if start_ms is None or _may_reach(path, checksums.get(base_offset), start_ms):
            yield ClosedSegment(*place, str(path))


def _not_permitted(path: object) -> OptionError:
    return OptionError(
        f"segments.path: this account may not read {path}; let the broker make its files readable "
        'for its group (data.file.mode = "0640"; chmod -R g+rX for what is there), and put this '
        "account into that group"
    )


def batches(
    segment: ClosedSegment, schema: pa.Schema, window: Window | None
) -> Iterator[pa.RecordBatch]:
    """The messages of a segment in the columns of `schema`, those with a timestamp in
    `window`, if there is one.

    Raises DataLoss when the file is gone, CorruptMessage when it is damaged.
    """
    return joined(_batches(segment, schema, window))


def _batches(
    segment: ClosedSegment, schema: pa.Schema, window: Window | None
) -> Iterator[pa.RecordBatch]:
    try:
        file = Path(segment.path).open("rb")  # noqa: SIM115  closed below
    except FileNotFoundError:
        raise DataLoss(
            f"{segment.path} was there when the read was planned, and is not now: retention "
            "removes segments, and other machines need the folder under the same path"
        ) from None
    except PermissionError:
        raise _not_permitted(segment.path) from None
    with file:
        if not file.seek(0, 2):
            return
        with (
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as log,
        ):
            for columns in _columns(log, content_of(schema)):
                batch = _column_batch(segment, columns)
                rows = record_batch(batch, schema, end=_FURTHEST_OFFSET)
                yield rows if window is None else in_window(rows, times_of(batch), window)


def _columns(log: memoryview, content: frozenset[Content]) -> Iterator[Columns]:
    reading = partial(read_columns, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES, content=content)
    position, size = 0, _VIEW_BYTES
    while position < len(log):
        with log[position : position + size] as view:
            end = walk(view, 0, len(view), check_crc=False).end
            if not end and position + len(view) < len(log):
                size *= 2  # one entry is larger than all of it
                continue
            if not end:
                # What is left is no whole entry; the damage says why, if there is any.
                yield from reading(view)
                return
            with view[:end] as whole:
                yield from reading(whole)
        position, size = position + end, _VIEW_BYTES


def _column_batch(segment: ClosedSegment, columns: Columns) -> ColumnBatch:
    return ColumnBatch(
        segment.topic,
        segment.partition,
        columns.count,
        memoryview(columns.offsets).cast("q"),
        memoryview(columns.timestamps).cast("q"),
        memoryview(columns.timestamp_types).cast("b"),
        columns.keys,
        columns.values,
        None,
        columns.headers,
    )


def _may_reach(log: Path, checksums: SegmentChecksums | None, start_ms: int) -> bool:
    """Whether the segment may have a message from `start_ms` on, by its time index: the last
    entry has its largest timestamp. An index that does not fit the segment's line in
    `index-checksums` tells nothing."""
    try:
        data = log.with_suffix(".timeindex").read_bytes()
        known = (log.stat().st_size, (len(data), crc32(data)))
    except FileNotFoundError:
        return True
    if checksums is None or known != (checksums.log_bytes, checksums.time_index):
        return True
    entries = data.rstrip(b"\0")
    last = TIME_ENTRY.size * (-(-len(entries) // TIME_ENTRY.size) - 1)
    return last < 0 or TIME_ENTRY.unpack_from(data, last)[0] >= start_ms


def _checksums(folder: Path) -> dict[int, SegmentChecksums]:
    try:
        return parse_checksums((folder / FILE_NAME).read_bytes())
    except FileNotFoundError:
        return {}
