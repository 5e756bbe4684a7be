"""The kernel: every loop over the bytes of messages and records, and over the fields of
requests and responses; and the messages of a producer that wait to go together.

It has two forms with the same names and the same answers: `compiled`, made of `compiled.pyx` where
a C compiler is, and `reference`, plain Python, which says what everything means. `FORM` says which
of them is here; `horolog.compiled` chooses.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from ....compiled import kernel_form

__all__ = [
    "FORM",
    "ByteRoom",
    "Collected",
    "FieldReader",
    "FieldWriter",
    "Gathered",
    "MessageReader",
    "MessageWriter",
    "PackedField",
    "PackedMessage",
    "ProduceRows",
    "RecordCursor",
    "RecordEncoder",
    "RecordsFound",
    "RequestReader",
    "SetEncoder",
    "TextLimits",
    "UnchangedSets",
    "Walk",
    "append_entries",
    "batch_problem",
    "check_records",
    "columns_for",
    "count_times",
    "crc32",
    "crc32c",
    "entry_spans",
    "find_first_time",
    "find_timestamp",
    "gather",
    "gather_records",
    "grown_buffer",
    "only_bytes",
    "only_times",
    "packed_fault",
    "packed_places",
    "plain_end",
    "producer_numbers",
    "records_to_messages",
    "rewrite",
    "rows_within",
    "scan_offset",
    "scan_timestamp",
    "split_frames",
    "stamp",
    "take_unchanged",
    "time_blocks",
    "time_map_counts",
    "time_map_extent",
    "time_map_runs",
    "time_spans",
    "varint",
    "walk",
]

if TYPE_CHECKING:
    from .reference import (
        ByteRoom,
        Collected,
        FieldReader,
        FieldWriter,
        Gathered,
        MessageReader,
        MessageWriter,
        PackedField,
        PackedMessage,
        ProduceRows,
        RecordCursor,
        RecordEncoder,
        RecordsFound,
        RequestReader,
        SetEncoder,
        TextLimits,
        UnchangedSets,
        Walk,
        append_entries,
        batch_problem,
        check_records,
        columns_for,
        count_times,
        crc32,
        crc32c,
        entry_spans,
        find_first_time,
        find_timestamp,
        gather,
        gather_records,
        grown_buffer,
        only_bytes,
        only_times,
        packed_fault,
        packed_places,
        plain_end,
        producer_numbers,
        records_to_messages,
        rewrite,
        rows_within,
        scan_offset,
        scan_timestamp,
        split_frames,
        stamp,
        take_unchanged,
        time_blocks,
        time_map_counts,
        time_map_extent,
        time_map_runs,
        time_spans,
        varint,
        walk,
    )

FORM: Final = kernel_form()
"""`compiled` or `reference`."""

if not TYPE_CHECKING:
    _form = import_module(f".{FORM}", __name__)
    globals().update({name: getattr(_form, name) for name in __all__ if name != "FORM"})
