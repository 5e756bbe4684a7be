"""The content of a segment's files, for people: the lines of `horolog dump FILE`.

Works offline on a single file and only reads. Invalid bytes become a `DumpNote` at their position,
never an error. An entry that contradicts the entries before it is shown, followed by a `DumpNote`.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from struct import Struct
from typing import Final

from ...protocol.errors import HorologError
from ...protocol.records.batch import BatchHeader
from ...protocol.records.kernel.reference.times import time_map_blocks
from ...protocol.records.layout import BATCH_OVERHEAD, TimestampType
from ...protocol.records.messages.sets import Entry, Record, records
from ...values import value_class
from ..entries.entry_rules import MAX_DECOMPRESSED_BYTES
from ..entries.log_reader import Stop, StoredEntry, read_log_file
from ..files import File, Files
from ..index.append_times import ENTRY as APPEND_TIME_ENTRY
from ..index.index_file import OFFSET_ENTRY, TIME_ENTRY, entries_end, index_entries
from ..metadata.access_records import shown_value
from ..names import parse_segment_file
from ..producers.log_producers import ABORT, COMMIT, control_mark
from .verify_indexes import (
    NAMES_OF_OFFSETS,
    NAMES_OF_TIMES,
    append_time_rule,
    block_rule,
    rise_rule,
)


@value_class
class DumpedMessage:
    """One message as a consumer sees it, and where it is stored."""

    position: int
    """Byte position of its entry. The messages of one compressed entry share it."""
    offset: int
    timestamp_ms: int
    """Timestamp in ms since the epoch; -1 if the message has none."""
    timestamp_type: TimestampType | None
    magic: int
    codec: str
    size_bytes: int
    """Size of its entry, header included."""
    crc_ok: bool
    key: bytes | None
    value: bytes | None
    """Still compressed if `codec` is not `none` and `crc_ok` is false. For a batch with a wrong
    CRC, its whole content."""
    headers: tuple[tuple[str, bytes | None], ...] = ()


@value_class
class DumpedOffsetEntry:
    """One entry of an offset index: `offset` is at or behind byte `log_position` of the log."""

    position: int
    offset: int
    log_position: int


@value_class
class DumpedTimeEntry:
    """One entry of a time index: timestamps above `timestamp_ms` are at or behind `offset`."""

    position: int
    timestamp_ms: int
    offset: int


@value_class
class DumpedAppendTime:
    """One entry of an append time file: the append time of the messages from `offset` on."""

    position: int
    offset: int
    append_time_ms: int
    """Append time in ms, -1 if not known."""


@value_class
class DumpedTimeBlock:
    """The entry of a time map for one block of the log."""

    position: int
    log_position: int
    size_bytes: int
    """Size of the block in the log."""
    offset: int
    """First offset of the block."""
    next_offset: int
    untimed: int
    """Number of messages without a timestamp."""
    spans: tuple[tuple[int, int, int], ...]
    """Spans: smallest timestamp, largest timestamp, number of messages."""


@value_class
class DumpNote:
    """A note about bytes that are not shown as an entry, or about the entry before it."""

    position: int
    text: str
    error: bool
    """Whether something is wrong; false for information."""


Dumped = (
    DumpedMessage
    | DumpedOffsetEntry
    | DumpedTimeEntry
    | DumpedAppendTime
    | DumpedTimeBlock
    | DumpNote
)

_INDEXES: Final = {
    "index": (OFFSET_ENTRY, NAMES_OF_OFFSETS),
    "timeindex": (TIME_ENTRY, NAMES_OF_TIMES),
}


def dump(
    files: Files, path: Path, *, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[Dumped]:
    """Yield the content of a `.log`, `.index`, `.timeindex`, `.timemap` or `.appendtime` file,
    including deleted files and those set aside.

    Raises `ValueError` for another kind of file, `OSError` if it cannot be read.
    """
    name = parse_segment_file(path)
    kind = name.kind if name is not None else path.suffix.removeprefix(".")
    base_offset = name.base_offset if name is not None else 0
    if kind not in ("log", "timemap", "appendtime", *_INDEXES):
        raise ValueError(f"{path} is none of .log, .index, .timeindex, .timemap and .appendtime")
    return _dump(files, path, kind, base_offset, name is not None, max_decompressed_bytes)


def _dump(
    files: Files, path: Path, kind: str, base_offset: int, named: bool, max_decompressed_bytes: int
) -> Iterator[Dumped]:
    if not named and kind != "log":
        yield DumpNote(0, "the file's name has no base offset: offsets count from 0", False)
    with closing(files.open(path, read_only=True)) as file:
        if kind == "log":
            yield from _dump_log(file, max_decompressed_bytes)
        elif kind == "timemap":
            yield from _dump_time_map(file.pread(file.size(), 0), base_offset)
        elif kind == "appendtime":
            yield from _dump_append_times(file, base_offset)
        else:
            yield from _dump_index(file, kind, base_offset)


def _dump_log(file: File, max_decompressed_bytes: int) -> Iterator[Dumped]:
    size_bytes = file.size()
    for item in read_log_file(file, size_bytes):
        if isinstance(item, Stop):
            left = size_bytes - item.position
            yield DumpNote(item.position, f"{item.rule}; {left} bytes are not shown", True)
        elif item.crc_ok:
            remark = None if isinstance(item.entry, Entry) else _no_message(item.data, item.entry)
            if remark is not None:
                yield DumpNote(item.position, remark, False)
                continue
            try:
                for record in records(item.data, max_decompressed_bytes=max_decompressed_bytes):
                    yield _message(item, record)
            except HorologError as error:
                yield DumpNote(item.position, error.message, True)
        else:
            yield _as_stored(item)


def _dump_index(file: File, kind: str, base_offset: int) -> Iterator[Dumped]:
    entry, names = _INDEXES[kind]
    size_bytes = file.size()
    end = entries_end(file, entry, size_bytes)
    before = (-1, -1)
    for position, first, second in index_entries(file, entry, end):
        if kind == "index":
            yield DumpedOffsetEntry(position, base_offset + first, second)
        else:
            yield DumpedTimeEntry(position, first, base_offset + second)
        rule = rise_rule(names, before, (first, second))
        if rule is not None:
            yield DumpNote(position, rule, True)
        else:
            before = (first, second)
    if slots := (size_bytes - end) // entry.size:
        yield DumpNote(end, f"{slots} slots of zeros, made ahead and never used", False)
    yield from _torn(size_bytes, entry)


def _dump_append_times(file: File, base_offset: int) -> Iterator[Dumped]:
    size_bytes, last_relative = file.size(), -1
    end = size_bytes - size_bytes % APPEND_TIME_ENTRY.size  # This file is never preallocated.
    for position, relative, append_time_ms in index_entries(file, APPEND_TIME_ENTRY, end):
        yield DumpedAppendTime(position, base_offset + relative, append_time_ms)
        rule = append_time_rule(relative, append_time_ms, last_relative, base_offset)
        if rule is not None:
            yield DumpNote(position, rule, True)
        else:
            last_relative = relative
    yield from _torn(size_bytes, APPEND_TIME_ENTRY)


def _torn(size_bytes: int, entry: Struct) -> Iterator[DumpNote]:
    if torn := size_bytes % entry.size:
        yield DumpNote(size_bytes - torn, f"{torn} bytes of an entry of {entry.size}: torn", True)


def _dump_time_map(time_map: bytes, base_offset: int) -> Iterator[Dumped]:
    end = 0
    try:
        for block in time_map_blocks(time_map, base_offset):
            end = block.map_end
            yield DumpedTimeBlock(
                block.map_position,
                block.position,
                block.end - block.position,
                block.offset,
                block.next_offset,
                block.untimed,
                tuple((span.low, span.high, span.messages) for span in block.spans),
            )
            rule = block_rule(block)
            if rule is not None:
                yield DumpNote(block.map_position, rule, True)
    except ValueError as error:
        yield DumpNote(end, f"{error}; {len(time_map) - end} bytes are not shown", True)


def _message(item: StoredEntry, record: Record) -> DumpedMessage:
    return DumpedMessage(
        item.position,
        record.offset,
        record.timestamp_ms,
        record.timestamp_type,
        item.magic,
        item.codec.label,
        len(item.data),
        item.crc_ok,
        record.key,
        shown_value(record.value),
        record.headers,
    )


def _no_message(data: bytes, header: BatchHeader) -> str | None:
    """Return why a batch holds no message, in words; `None` if it holds any."""
    if not header.record_count:
        return (
            f"offsets {header.base_offset} to {header.last_offset} have no message: a batch "
            "without records"
        )
    return _control_text(data, header) if header.is_control else None


def _control_text(data: bytes, header: BatchHeader) -> str:
    mark = control_mark(data, header)
    done = "aborted" if mark == ABORT else "committed" if mark == COMMIT else "marked"
    return (
        f"offset {header.base_offset} is no message but the end of a transaction, which producer "
        f"{header.producer_id} {done}"
    )


def _as_stored(item: StoredEntry) -> DumpedMessage:
    """Return an entry with a wrong CRC, not opened: its content cannot be trusted."""
    entry = item.entry
    kind = TimestampType.LOG_APPEND_TIME if item.is_append_time else TimestampType.CREATE_TIME
    key: bytes | None = None
    value: bytes | None = item.data[BATCH_OVERHEAD:]
    if isinstance(entry, Entry):
        key, value = entry.key, entry.value
    return DumpedMessage(
        item.position,
        item.last_offset,
        item.timestamp_ms,
        kind if item.magic else None,
        item.magic,
        item.codec.label,
        len(item.data),
        item.crc_ok,
        key,
        shown_value(value),
    )
