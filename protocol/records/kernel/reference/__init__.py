"""The kernel in plain Python: what the compiled one does, one obvious step at a time.

Everything that goes over the bytes of messages and records is here, in modules of the same names as
the sources of the compiled kernel. Tests hold that against this one, and where nothing was compiled
it is what runs: right, and slow. `compiled.PRICE` says how slow.
"""

from typing import Final

from .collecting import ByteRoom, Collected
from .columns import (
    Gathered,
    columns_for,
    gather,
    gather_records,
    only_bytes,
    only_times,
    rows_within,
)
from .fields import (
    FieldReader,
    FieldWriter,
    MessageReader,
    MessageWriter,
    grown_buffer,
    split_frames,
)
from .messages import SetEncoder, plain_end, rewrite, stamp
from .packed import (
    PackedField,
    PackedMessage,
    RequestReader,
    TextLimits,
    packed_fault,
    packed_places,
)
from .records import (
    RecordCursor,
    RecordEncoder,
    RecordsFound,
    check_records,
    find_timestamp,
    records_to_messages,
    varint,
)
from .rows import ProduceRows, append_entries
from .search import find_first_time
from .spans import entry_spans, time_blocks, time_spans
from .times import (
    count_times,
    time_map_counts,
    time_map_extent,
    time_map_runs,
)
from .unchanged import UnchangedSets, producer_numbers, take_unchanged
from .walk import (
    Walk,
    batch_problem,
    crc32,
    crc32c,
    scan_offset,
    scan_timestamp,
    walk,
)

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

FORM: Final = "reference"
