"""The two scans that look at heads alone."""

from struct import pack_into

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.records.kernel import scan_offset, scan_timestamp
from horolog.protocol.records.kernel.terms import BAD_OFFSET, BAD_SIZE, NOT_FOUND
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import NewRecord, build_set, entries, set_offset
from horolog.tests.properties.examples import examples

ENTRY_BYTES = 35
"""A v1 message with a value of one byte."""


def stored(*offsets_and_times: tuple[int, int]) -> bytearray:
    data = build_set([NewRecord(b"v", None, time) for _, time in offsets_and_times])
    for place, (offset, _) in enumerate(offsets_and_times):
        set_offset(data, place * ENTRY_BYTES, offset)
    return data


@examples(100)
@given(
    steps=st.lists(st.tuples(st.integers(1, 3), st.integers(-1, 9)), max_size=8),
    target=st.integers(0, 12),
    start=st.integers(0, 8),
    cut=st.integers(0, ENTRY_BYTES),
)
def test_scans_find_the_first_that_qualifies(
    steps: list[tuple[int, int]], target: int, start: int, cut: int
) -> None:
    offset, pairs = -1, []
    for step, time in steps:
        offset += step
        pairs.append((offset, time))
    data = stored(*pairs)
    del data[len(data) - cut :]
    begin = min(start, len(data) // ENTRY_BYTES) * ENTRY_BYTES
    whole = list(entries(data, begin))

    by_time = [entry.position for entry in whole if entry.timestamp_ms >= target]
    end = whole[-1].end if whole else begin
    expected = (by_time[0], by_time[0]) if by_time else (NOT_FOUND, end)
    assert scan_timestamp(data, begin, len(data), target) == expected

    heads = [
        (place * ENTRY_BYTES, offset)
        for place, (offset, _) in enumerate(pairs)
        if begin <= place * ENTRY_BYTES <= len(data) - 17
    ]
    by_offset = [position for position, offset in heads if offset >= target]
    found, stopped = scan_offset(data, begin, len(data), target)
    if by_offset:
        assert (found, stopped) == (by_offset[0], by_offset[0])
    else:
        assert found == NOT_FOUND
        assert stopped == (heads[-1][0] + ENTRY_BYTES if heads else begin)


@examples(100)
@given(
    counts=st.lists(st.integers(1, 3), max_size=6),
    target=st.integers(0, 20),
    cut=st.integers(0, 80),
)
def test_batches_are_found_by_their_last_offset_and_largest_time(
    counts: list[int], target: int, cut: int
) -> None:
    data, batches, offset = bytearray(), [], 0
    for count in counts:
        times = [(7 * (offset + number)) % 19 for number in range(count)]
        sent = [NewRecord(b"v", None, time) for time in times]
        batch = build_set(sent, magic=2, base_offset=offset)
        offset += count
        batches.append((len(data), len(data) + len(batch), offset - 1, max(times)))
        data += batch
    del data[len(data) - cut :]
    by_offset = [begin for begin, _, last, _ in batches if begin + 27 <= len(data)]
    passed = [end for begin, end, last, _ in batches if last < target and begin + 27 <= len(data)]
    by_offset = [begin for begin in by_offset if begin not in [0, *passed][: len(passed)]]
    expected = (by_offset[0],) * 2 if by_offset else (NOT_FOUND, ([0, *passed])[-1])
    assert scan_offset(data, 0, len(data), target) == expected
    by_time = [begin for begin, end, _, time in batches if time >= target and end <= len(data)]
    whole = [end for _, end, _, _ in batches if end <= len(data)]
    expected = (by_time[0],) * 2 if by_time else (NOT_FOUND, ([0, *whole])[-1])
    assert scan_timestamp(data, 0, len(data), target) == expected


@pytest.mark.parametrize("place", [8, 23])
def test_a_batch_that_cannot_be_stops_the_scan(place: int) -> None:
    data = build_set([NewRecord(b"v", None, 5)] * 2, magic=2)
    pack_into(">i", data, place, 48 if place == 8 else -1)
    wrong = (BAD_OFFSET, 0) if place == 23 else (NOT_FOUND, 60)
    assert scan_offset(data, 0, 60 if place == 8 else len(data), 9) == wrong
    if place == 8:
        assert scan_timestamp(data, 0, len(data), 1) == (BAD_SIZE, 0)


@pytest.mark.parametrize("size", [13, 0, -1, -(2**31)])
def test_impossible_sizes_stop_both_scans(size: int) -> None:
    data = stored((0, 1), (1, 2), (2, 3))
    pack_into(">i", data, ENTRY_BYTES + 8, size)
    assert scan_offset(data, 0, len(data), 2) == (BAD_SIZE, ENTRY_BYTES)
    assert scan_timestamp(data, 0, len(data), 2) == (BAD_SIZE, ENTRY_BYTES)


def test_a_v1_message_of_a_v0_size_stops_the_time_scan() -> None:
    data = stored((0, 1), (1, 2))
    pack_into(">i", data, 8, 21)
    assert scan_timestamp(data, 0, len(data), 1) == (BAD_SIZE, 0)


def test_v0_messages_have_no_time_to_find() -> None:
    data = build_set([NewRecord(b"hello")] * 2, magic=0)
    assert scan_timestamp(data, 0, len(data), 0) == (NOT_FOUND, len(data))


def test_a_wrapper_is_found_by_its_own_time_and_last_offset() -> None:
    data = build_set([NewRecord(b"v", None, 4), NewRecord(b"v", None, 9)], codec=Codec.GZIP)
    assert scan_timestamp(data, 0, len(data), 9) == (0, 0)
    assert scan_timestamp(data, 0, len(data), 10) == (NOT_FOUND, len(data))
    assert scan_offset(data, 0, len(data), 1) == (0, 0)
    assert scan_offset(data, 0, len(data), 2) == (NOT_FOUND, len(data))


@pytest.mark.parametrize("magic", [0, 1])
def test_the_smallest_messages_are_passed(magic: int) -> None:
    data = build_set([NewRecord(None)] * 2, magic=magic)
    assert scan_offset(data, 0, len(data), 9) == (NOT_FOUND, len(data))
    assert scan_timestamp(data, 0, len(data), 9) == (NOT_FOUND, len(data))


def test_what_of_an_entry_is_enough_for_its_offset_and_its_size() -> None:
    head = stored((7, 1))[:17]
    assert scan_offset(head, 0, 17, 7) == (0, 0)
    assert scan_offset(head, 0, 16, 7) == (NOT_FOUND, 0)
    pack_into(">i", head, 8, 13)
    assert scan_timestamp(head, 0, 12, 1) == (BAD_SIZE, 0)
    assert scan_timestamp(head, 0, 11, 1) == (NOT_FOUND, 0)
