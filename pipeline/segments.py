"""Reading closed segments from their files, without a broker.

The last segment of a partition is left out: the broker appends to it. Files are listed when the
read is planned; one that retention removes afterwards ends the read with an error.
"""

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import pyarrow as pa

from ..client.results import ColumnBatch
from ..protocol.records.columns import Columns, Content, read_columns
from ..protocol.records.kernel import walk
from ..storage.names import parse_folder_name, segment_bases
from .option_values import OptionError
from .planning import DataLoss
from .row_batches import content_of, in_window, joined, record_batch, times_of
from .segment_files import SegmentFiles, SegmentSpan, pack, read_checksums, read_log_start
from .windows import Window

TASK_BYTES: Final = 128 * 1024 * 1024
"""The default of `spark.sql.files.maxPartitionBytes`."""

_VIEW_BYTES: Final = 4 * 1024 * 1024
_MAX_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """Whole entries of a segment that takes no appends any more."""

    topic: str
    partition: int
    path: str
    """Of its log, the same on every machine that reads."""
    start: int
    """The first byte to read."""
    end: int
    """The byte behind the last one."""
    log_start_offset: int
    """Messages before it were trimmed."""


Packed = tuple[SegmentPart, ...]
"""What one task reads, in the order of the log."""


def plan(text: str, window: Window | None, min_partitions: int) -> list[Packed]:
    """The closed segments of the partition folders in `text`, separated by commas, as far as they
    may have messages of `window`, packed for tasks of about equal bytes: as many as there are
    folders with any, or `min_partitions`, or more so that none is much larger than `TASK_BYTES`.
    Raises OptionError for what is no such folder."""
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
            continue  # retention was quicker
        for start, end in files.stretches(window):
            yield SegmentSpan(place, str(files.log), start, end, log_start_offset, files.cuts)


def _not_permitted(path: object) -> OptionError:
    return OptionError(
        f"segments.path: this account may not read {path}; let the broker make its files readable "
        'for its group (data.file.mode = "0640"; chmod -R g+rX for what is there), and put this '
        "account into that group"
    )


def batches(packed: Packed, schema: pa.Schema, window: Window | None) -> Iterator[pa.RecordBatch]:
    """The messages of these parts in the columns of `schema`, those with a timestamp in
    `window`, if there is one.

    Raises DataLoss when the file is gone, CorruptMessage when it is damaged.
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
                size *= 2  # one entry is larger than all of it
                continue
            if not end:
                # What is left is no whole entry; the damage says why, if there is any.
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
