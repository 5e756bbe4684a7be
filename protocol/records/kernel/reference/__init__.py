"""The kernel in plain Python: the same work as the compiled form, one obvious step at a time.

Its modules are named like the sources of the compiled form. Tests compare the two forms; this one
runs where nothing was compiled, and `compiled.PRICE` says how slow it is. The imports here are the
kernel's names, and the only list of them.
"""

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
from .keeping import keep_messages, keep_records, rows_between
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

FORM = "reference"
