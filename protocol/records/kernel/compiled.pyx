# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, binding=False, auto_pickle=False
"""The kernel, compiled: every loop over the bytes of messages and records.

`reference` has the same names with the same meaning, and documents them. Numbers here are C
integers, and bytes are read in place; each function checks all lengths before it reads.
"""

import cython

from ..latency import LatencyCounts
from ..marks import NO_MARKS, Marks
from .terms import KeptRows, Problem, Rewritten, Unreadable

include "bytes.pxi"
include "latencies.pxi"
include "records.pxi"
include "walk.pxi"
include "search.pxi"
include "unchanged.pxi"
include "messages.pxi"
include "columns.pxi"
include "collecting.pxi"
include "fields.pxi"
include "rows.pxi"
include "packed.pxi"
include "spans.pxi"
include "times.pxi"
include "keeping.pxi"

# The compiler's copies of numbers in `layout` and `terms`; a test compares them.
LAYOUT = {
    "HEAD_BYTES": HEAD_BYTES, "SIZE": SIZE, "CRC": CRC, "MAGIC": MAGIC, "BITS": BITS, "TIME": TIME,
    "TIME_BYTES": TIME_BYTES, "LENGTH_BYTES": LENGTH_BYTES, "CRC_BYTES": CRC_BYTES,
    "V0_OVERHEAD": V0_OVERHEAD, "V1_OVERHEAD": V1_OVERHEAD, "SMALLEST_ENTRY": SMALLEST_ENTRY,
    "V0_KEY": V0_KEY, "V1_KEY": V1_KEY, "BATCH_OVERHEAD": BATCH_OVERHEAD,
    "LEADER_EPOCH": LEADER_EPOCH, "BATCH_CRC": BATCH_CRC, "BATCH_BITS": BATCH_BITS,
    "LAST_DELTA": LAST_DELTA, "BASE_TIME": BASE_TIME, "MAX_TIME": MAX_TIME,
    "PRODUCER_ID": PRODUCER_ID, "PRODUCER_EPOCH": PRODUCER_EPOCH, "SEQUENCE": SEQUENCE,
    "RECORD_COUNT": RECORD_COUNT, "CODEC_MASK": CODEC_MASK, "APPEND_TIME": APPEND_TIME, "CONTROL": CONTROL,
    "RESERVED": RESERVED, "HIGHEST_MESSAGE_CODEC": HIGHEST_MESSAGE_CODEC,
    "HIGHEST_CODEC": HIGHEST_CODEC, "NO_TIME": NO_TIME, "NO_NUMBER": NO_NUMBER, "BUCKETS": BUCKETS,
}
TERMS = {
    "ANY": ANY, "ASSIGN": ASSIGN, "CONTIGUOUS": CONTIGUOUS, "RISING": RISING, "NONE": NONE,
    "PARTIAL": PARTIAL, "BAD_ENTRY_SIZE": BAD_ENTRY_SIZE, "BAD_CRC": BAD_CRC,
    "BAD_LENGTHS": BAD_LENGTHS, "BAD_MAGIC": BAD_MAGIC, "BAD_CODEC": BAD_CODEC,
    "BAD_OFFSET": BAD_OFFSET, "BAD_COUNT": BAD_COUNT, "BAD_KEY": BAD_KEY, "NOT_FOUND_HERE": NOT_FOUND_HERE,
    "SCAN_BAD_SIZE": SCAN_BAD_SIZE, "SCAN_BAD_OFFSET": SCAN_BAD_OFFSET, "RECORD_HERE": RECORD_HERE,
    "AT_END": AT_END, "LENGTH_WRONG": LENGTH_WRONG, "FIELD_WRONG": FIELD_WRONG,
    "END_WRONG": END_WRONG, "OFFSET_WRONG": OFFSET_WRONG, "TIME_WRONG": TIME_WRONG, "KEY_MISSING": KEY_MISSING,
    "SMALLEST": SMALLEST, "MOST_RECORD_OVERHEAD": MOST_RECORD_OVERHEAD,
    "MOST_FIELDS": MOST_FIELDS, "NULL_LENGTH": NULL_LENGTH, "INT8": INT8, "INT16": INT16,
    "INT32": INT32, "INT64": INT64, "FLOAT64": FLOAT64, "BOOLEAN": BOOLEAN, "TEXT": TEXT,
    "BYTES": BYTES, "VIEW": VIEW, "MESSAGE": MESSAGE, "ARRAY": ARRAY, "MOST_SPANS": MOST_SPANS, "WIDTHS": WIDTHS,
    "LONGEST_MAP_NUMBER": LONGEST_MAP_NUMBER, "LONGEST_BLOCK": LONGEST_BLOCK,
    "APPEND_BYTES": APPEND_BYTES, "APPEND_NUMBERS": APPEND_NUMBERS,
    "APPEND_ENTRY_BYTES": APPEND_ENTRY_BYTES, "RELATIVE_BYTES": RELATIVE_BYTES,
}

FORM = "compiled"
SOURCES = horolog_sources.decode()
