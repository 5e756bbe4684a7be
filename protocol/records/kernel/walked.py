"""What a walk over a message set finds.

It is compiled like the walk itself, so that its fields are C integers.
"""

from typing import Final

from ..latency import LatencyCounts
from .marks import Marks
from .walk_terms import Problem

try:
    import cython
except ImportError:
    from . import uncompiled as cython

FORM: Final = "compiled" if cython.compiled else "interpreted"
"""How this module runs."""


class Walk:
    """What a walk found: everything here is about the good entries before `end`.

    end: position after the last good entry.
    count: how many messages there are; a wrapper counts as one, a batch as its records.
    batches: how many of the entries are batches.
    first_offset, last_offset: as stored, or as assigned; -1 when there is no entry. For a batch
        the first is that of its first record, the last that of its last.
    magics: bit `1 << magic` for each magic met.
    codecs: bit `1 << codec` for each codec met.
    last_codec: codec of the last compressed entry, else 0.
    literal: the offsets as sent were 0, 1, ..., count - 1.
    min_timestamp_ms, max_timestamp_ms: over the timestamps that are not -1 (a broken sender's can
        be below it); -1 without any.
    max_position, max_offset: the first entry that has the largest timestamp; -1 without any. The
        timestamp of a batch is the largest of its records', its offset here that of the last one.
    first_timestamp_ms: of the first entry, -1 for none.
    last_append_time_ms: timestamp of the last entry if a broker stamped it (bit 3), else -1.
    append_time_bits: how many v1 and v2 entries have bit 3.
    untimed: how many messages have no timestamp, those of v0 included; of a batch all or none.
    largest_entry_bytes: of the largest entry, the 12 bytes in front of it included.
    problem: why the walk stopped.
    problem_position: where the entry begins that stopped it; `end` without a problem.
    marks: index marks, as far as an index entry can hold them.
    since_bytes: bytes since the last mark.
    largest_ms: the larger of `max_timestamp_ms` and the `largest_ms` passed in.
    magic_changes: position and magic of each entry whose magic is not that of the entry before.
    latency: latencies against `now_ms`, if they were asked for. A set with a timestamp below -1,
        which cannot be one, has none: all its messages are `untimed`. `None` also when there are
        batches: only their records know (`record_check`).
    """

    __slots__ = (
        "append_time_bits",
        "batches",
        "codecs",
        "count",
        "end",
        "first_offset",
        "first_timestamp_ms",
        "largest_entry_bytes",
        "largest_ms",
        "last_append_time_ms",
        "last_codec",
        "last_offset",
        "latency",
        "literal",
        "magic_changes",
        "magics",
        "marks",
        "max_offset",
        "max_position",
        "max_timestamp_ms",
        "min_timestamp_ms",
        "problem",
        "problem_position",
        "since_bytes",
        "untimed",
    )

    end: int
    count: int
    batches: int
    first_offset: int
    last_offset: int
    magics: int
    codecs: int
    last_codec: int
    literal: bool
    min_timestamp_ms: int
    max_timestamp_ms: int
    max_position: int
    max_offset: int
    first_timestamp_ms: int
    last_append_time_ms: int
    append_time_bits: int
    untimed: int
    largest_entry_bytes: int
    problem: Problem
    problem_position: int
    marks: Marks
    since_bytes: int
    largest_ms: int
    magic_changes: list[tuple[int, int]]
    latency: LatencyCounts | None
