"""The compiled kernel has its numbers from its own sources: they are those of the package."""

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from horolog.protocol.records import layout
from horolog.protocol.records.kernel import terms
from horolog.protocol.records.kernel.reference.spans import JOINED_MS, MOST_SPANS, ROW_NUMBERS
from horolog.protocol.records.kernel.terms import Offsets, Problem
from horolog.protocol.records.latency import LATENCY_BUCKETS_MS
from horolog.storage.index.append_times import ENTRY

pytestmark = pytest.mark.parametrize("form", ["compiled"], indirect=True)

KERNEL: Final = "horolog.protocol.records.kernel"
LAYOUT: Final = {
    "HEAD_BYTES": layout.ENTRY_OVERHEAD,
    "SIZE": layout.SIZE_AT,
    "CRC": layout.CRC_AT,
    "MAGIC": layout.MAGIC_AT,
    "BITS": layout.ATTRIBUTES_AT,
    "TIME": layout.TIMESTAMP_AT,
    "TIME_BYTES": layout.MESSAGE_OVERHEAD[1] - layout.MESSAGE_OVERHEAD[0],
    "LENGTH_BYTES": 4,
    "CRC_BYTES": layout.MAGIC_AT - layout.CRC_AT,
    "V0_OVERHEAD": layout.MESSAGE_OVERHEAD[0],
    "V1_OVERHEAD": layout.MESSAGE_OVERHEAD[1],
    "SMALLEST_ENTRY": layout.ENTRY_OVERHEAD + layout.MESSAGE_OVERHEAD[0],
    "V0_KEY": layout.TIMESTAMP_AT,
    "V1_KEY": layout.TIMESTAMP_AT + 8,
    "BATCH_OVERHEAD": layout.BATCH_OVERHEAD,
    "LEADER_EPOCH": layout.LEADER_EPOCH_AT,
    "BATCH_CRC": layout.BATCH_CRC_AT,
    "BATCH_BITS": layout.BATCH_ATTRIBUTES_AT,
    "LAST_DELTA": layout.LAST_DELTA_AT,
    "BASE_TIME": layout.BASE_TIMESTAMP_AT,
    "MAX_TIME": layout.MAX_TIMESTAMP_AT,
    "PRODUCER_ID": layout.PRODUCER_ID_AT,
    "PRODUCER_EPOCH": layout.PRODUCER_EPOCH_AT,
    "SEQUENCE": layout.BASE_SEQUENCE_AT,
    "RECORD_COUNT": layout.RECORD_COUNT_AT,
    "CODEC_MASK": layout.CODEC_MASK,
    "APPEND_TIME": layout.LOG_APPEND_TIME_BIT,
    "CONTROL": layout.CONTROL_BIT,
    "RESERVED": layout.RESERVED_MASK,
    "HIGHEST_MESSAGE_CODEC": max(layout.MESSAGE_CODECS),
    "HIGHEST_CODEC": max(layout.Codec),
    "NO_TIME": layout.NO_TIMESTAMP,
    "NO_NUMBER": layout.NO_PRODUCER_ID,
    "BUCKETS": len(LATENCY_BUCKETS_MS) + 1,
}
TERMS: Final = {
    **{rule.name: int(rule) for rule in Offsets},
    "NONE": Problem.NONE,
    "PARTIAL": Problem.PARTIAL,
    "BAD_ENTRY_SIZE": Problem.SIZE,
    **{f"BAD_{problem.name}": int(problem) for problem in Problem if problem > Problem.SIZE},
    "NOT_FOUND_HERE": terms.NOT_FOUND,
    "SCAN_BAD_SIZE": terms.BAD_SIZE,
    "SCAN_BAD_OFFSET": terms.BAD_OFFSET,
    "RECORD_HERE": terms.RECORD,
    "AT_END": terms.NO_MORE,
    "LENGTH_WRONG": terms.BAD_LENGTH,
    "FIELD_WRONG": terms.BAD_FIELD,
    "END_WRONG": terms.BAD_END,
    "OFFSET_WRONG": terms.BAD_RECORD_OFFSET,
    "TIME_WRONG": terms.BAD_TIME,
    "KEY_MISSING": terms.NO_KEY,
    "SMALLEST": terms.SMALLEST_RECORD,
    "MOST_RECORD_OVERHEAD": terms.MOST_OVERHEAD,
    "MOST_FIELDS": terms.MOST_FIELDS,
    "NULL_LENGTH": terms.NULL_LENGTH,
    **{kind.name: ord(kind) for kind in terms.FieldKind},
    "MOST_SPANS": MOST_SPANS,
    "WIDTHS": len(JOINED_MS),
    "LONGEST_MAP_NUMBER": -(-63 // 7),
    "LONGEST_BLOCK": (4 + 3 * MOST_SPANS) * -(-63 // 7),
    "APPEND_BYTES": ROW_NUMBERS * 8,
    "APPEND_NUMBERS": ROW_NUMBERS,
    "APPEND_ENTRY_BYTES": ENTRY.size,
    "RELATIVE_BYTES": ENTRY.size - 8,
}
ITS_OWN: Final = {
    *("UNUSUAL", "FIRST_BYTES", "INT32_WIDTH", "INT64_WIDTH", "INT32_TOP", "INT64_TOP"),
    *("MOST_PIECES", "MOST_TIMES", "SOME_TIMES", "PLACES", "KEPT_TEXT_BYTES"),
    *("TRANSACTION", "ACKS", "TOPICS", "NAME", "PARTITIONS", "PARTITION", "RECORDS"),
    *("BASE_OFFSET", "LOG_START", "MOST_DEPTH"),
    *("SHAPE_FITS", "SHAPE_CUT", "SHAPE_LONG", "SHAPE_FOREIGN", "SHAPE_CUT_ITEMS"),
    *("SHAPE_MANY", "SHAPE_DEEP"),
}
"""Numbers that nothing else has a name for."""


@pytest.fixture
def compiled(form: str) -> ModuleType:
    return import_module(f"{KERNEL}.{form}")


def test_they_are_those_of_the_package(compiled: ModuleType) -> None:
    assert compiled.LAYOUT == LAYOUT
    assert compiled.TERMS == TERMS
    assert compiled.BOUNDS_MS == LATENCY_BUCKETS_MS


def test_none_of_anything_is_one_number() -> None:
    assert {layout.NO_PRODUCER_ID, layout.NO_LEADER_EPOCH, terms.OWN} == {LAYOUT["NO_NUMBER"]}


def test_every_number_of_the_sources_is_compared() -> None:
    folder = Path(terms.__file__).parent
    enums = [
        block
        for path in sorted(folder.glob("*.p[xy][ix]"))
        for block in re.findall(r"^cdef enum:\n((?:    .*\n|\n)+)", path.read_text(), re.MULTILINE)
    ]
    names = {name for block in enums for name in re.findall(r"^    (\w+) = ", block, re.MULTILINE)}
    assert names == set(LAYOUT) | set(TERMS) | ITS_OWN
