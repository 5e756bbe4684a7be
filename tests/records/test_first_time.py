"""The search for a time in what lies behind an index entry."""

import pytest

from horolog.protocol.records.batch import build_batch, finish_batch
from horolog.protocol.records.kernel import RecordEncoder, crc32c, find_first_time, walk
from horolog.protocol.records.kernel.terms import Offsets, Problem
from horolog.protocol.records.layout import (
    BATCH_ATTRIBUTES_AT,
    BATCH_CRC_AT,
    CONTROL_BIT,
    NO_TIMESTAMP,
    Codec,
)
from horolog.protocol.records.messages.sets import NewRecord, build_set

PLAIN = build_set([NewRecord(b"v", timestamp_ms=ms) for ms in (30, 10, 50)], base_offset=7)
"""Offsets 7 to 9, of 35 bytes each."""
ENTRY_BYTES = len(PLAIN) // 3


def batch(*times_ms: int, base_offset: int, codec: Codec = Codec.NONE) -> bytearray:
    records = [NewRecord(b"v", timestamp_ms=ms) for ms in times_ms]
    return build_batch(records, codec=codec, base_offset=base_offset)


def control(data: bytearray) -> bytearray:
    data[BATCH_ATTRIBUTES_AT + 1] |= CONTROL_BIT
    crc = crc32c(data, BATCH_ATTRIBUTES_AT, len(data))
    data[BATCH_CRC_AT : BATCH_CRC_AT + 4] = crc.to_bytes(4, "big")
    return data


@pytest.mark.parametrize(
    ("target_ms", "number", "time_ms"), [(0, 0, 30), (30, 0, 30), (31, 2, 50), (50, 2, 50)]
)
def test_plain_messages(target_ms: int, number: int, time_ms: int) -> None:
    for behind_start in (False, True):
        found = find_first_time(PLAIN, 7, behind_start, target_ms)
        assert found == (number * ENTRY_BYTES, 7 + number, time_ms)


@pytest.mark.parametrize("target_ms", [51, 2**63 - 1])
def test_there_may_be_none(target_ms: int) -> None:
    assert find_first_time(PLAIN, 7, True, target_ms) is None
    assert find_first_time(batch(30, 50, base_offset=7), 8, True, target_ms) is None
    assert find_first_time(b"", 7, True, 0) is None


def test_records_of_batches() -> None:
    """An index has the last offset of a batch, and nothing of a segment's first entry."""
    two = batch(30, 10, 50, base_offset=7) + batch(20, 70, 60, base_offset=10)
    second = len(batch(30, 10, 50, base_offset=7))
    for first, behind_start in ((7, False), (9, True)):
        assert find_first_time(two, first, behind_start, 30) == (0, 7, 30)
        assert find_first_time(two, first, behind_start, 31) == (0, 9, 50)
        assert find_first_time(two, first, behind_start, 55) == (second, 11, 70)
    for first, behind_start in ((7, True), (9, False), (8, True), (8, False)):
        assert find_first_time(two, first, behind_start, 30) is None


def test_a_batch_with_an_append_time_has_it_for_its_first_record() -> None:
    encoder = RecordEncoder()
    for ms in (30, 10):
        encoder.add(b"v", None, ms)
    stamped = finish_batch(encoder, base_offset=7, append_time_ms=99)
    assert find_first_time(stamped, 8, True, 60) == (0, 7, 99)


def test_what_is_compressed_has_to_be_opened() -> None:
    packed = batch(30, 50, base_offset=7, codec=Codec.GZIP)
    assert find_first_time(packed, 8, True, 40) == (0, -1, NO_TIMESTAMP)
    wrapper = build_set([NewRecord(b"v", timestamp_ms=50)] * 2, codec=Codec.GZIP, base_offset=7)
    assert find_first_time(wrapper, 8, True, 40) is None


def test_a_mark_in_the_log_is_no_message() -> None:
    assert find_first_time(control(batch(30, base_offset=7)), 7, True, 30) is None
    behind = batch(20, base_offset=7) + control(batch(30, base_offset=8))
    assert find_first_time(behind, 7, True, 30) is None


@pytest.mark.parametrize("magic", [1, 2])
def test_entries_in_front_of_it_have_to_be_good(magic: int) -> None:
    entries = [
        build_set([NewRecord(b"v", timestamp_ms=ms)], magic=magic, base_offset=offset)
        for offset, ms in ((7, 10), (8, 20), (9, 30))
    ]
    good = bytearray().join(entries)
    size = len(entries[0])
    assert find_first_time(good, 7, True, 30) == (2 * size, 9, 30)
    spoilt = bytearray(good)
    spoilt[2 * size - 1] ^= 1  # of the second one's value
    assert find_first_time(spoilt, 7, True, 20) is None
    assert find_first_time(spoilt, 7, True, 30) is None
    assert find_first_time(spoilt, 7, True, 10) == (0, 7, 10)
    gap = entries[0] + entries[2]
    assert find_first_time(gap, 7, True, 30) is None
    assert find_first_time(good, 6, True, 30) is None
    assert find_first_time(good[:-1], 7, True, 30) is None


@pytest.mark.parametrize("offsets", [Offsets.RISING, Offsets.CONTIGUOUS])
def test_before_the_smallest_number_is_no_offset(offsets: Offsets) -> None:
    """Only harm makes one: no offset of a log is below 0."""
    first, last = (message(offset) for offset in (-(2**63), 2**63 - 1))
    assert find_first_time(first, -(2**63), False, 30) == (0, -(2**63), 30)
    for data, passed in ((first, Problem.NONE), (last + first, Problem.OFFSET)):
        base_offset = int.from_bytes(data[:8], "big", signed=True)
        found = walk(data, 0, len(data), offsets=offsets, base_offset=base_offset)
        assert (found.problem, found.count) == (passed, 1)


def message(offset: int) -> bytes:
    entry = bytearray(build_set([NewRecord(b"v", timestamp_ms=30)]))
    entry[:8] = offset.to_bytes(8, "big", signed=True)
    return bytes(entry)
