"""Sets as a producer sends them, changes in place, up-conversion, and reading all of it back."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.errors import MessageTooLarge
from horolog.protocol.records.kernel import walk
from horolog.protocol.records.kernel.terms import Problem
from horolog.protocol.records.layout import MESSAGE_CODECS, Codec, TimestampType
from horolog.protocol.records.messages.sets import (
    NewRecord,
    Record,
    build_set,
    build_wrapper,
    entries,
    records,
    set_append_time,
    set_offset,
    set_timestamp,
)
from horolog.tests.properties.examples import examples

MIB = 1 << 20

contents = st.one_of(st.none(), st.binary(max_size=200))
timed_records = st.builds(
    NewRecord, value=contents, key=contents, timestamp_ms=st.integers(-1, 2**63 - 1)
)
combinations = pytest.mark.parametrize(
    ("magic", "codec"),
    list(product([0, 1], MESSAGE_CODECS)),
    ids=lambda value: getattr(value, "label", value),
)


def read(data: bytes | bytearray | memoryview, from_offset: int = 0) -> list[Record]:
    return list(records(data, max_decompressed_bytes=MIB, from_offset=from_offset))


@combinations
@examples(100)
@given(sent=st.lists(timed_records, max_size=8), base_offset=st.integers(0, 2**62))
def test_what_goes_in_comes_out(
    magic: int, codec: Codec, sent: list[NewRecord], base_offset: int
) -> None:
    if magic == 0:
        sent = [NewRecord(record.value, record.key) for record in sent]
    data = build_set(sent, magic=magic, codec=codec, base_offset=base_offset)
    kind = TimestampType.CREATE_TIME if magic else None
    expected = [
        Record(base_offset + place, record.timestamp_ms, kind, record.key, record.value)
        for place, record in enumerate(sent)
    ]
    for holder in (bytes, bytearray, memoryview):
        assert read(holder(data)) == expected
    assert walk(data, 0, len(data)).problem is Problem.NONE


@combinations
def test_a_set_of_nothing_is_empty(magic: int, codec: Codec) -> None:
    assert build_set([], magic=magic, codec=codec) == b""
    assert read(b"") == []


@pytest.mark.parametrize(
    ("magic", "inner_offsets"), [(0, [70, 71, 72]), (1, [0, 1, 2])], ids=["M-22-v0", "M-22-v1"]
)
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_wrapper_fields(codec: Codec, magic: int, inner_offsets: list[int]) -> None:
    """M-20, M-21, M-24, P-43."""
    times = [5, 9, -1] if magic else [-1, -1, -1]
    sent = [NewRecord(b"v", b"k", time) for time in times]
    (wrapper,) = entries(build_set(sent, magic=magic, codec=codec, base_offset=70))
    assert (wrapper.magic, wrapper.codec, wrapper.key) == (magic, codec, None)
    assert (wrapper.offset, wrapper.timestamp_ms) == (72, 9 if magic else -1)
    assert not wrapper.is_append_time
    inner = build_set(sent, magic=magic, base_offset=inner_offsets[0])
    rewrapped = build_wrapper(
        inner, offset=72, timestamp_ms=wrapper.timestamp_ms, magic=magic, codec=codec
    )
    assert rewrapped == build_set(sent, magic=magic, codec=codec, base_offset=70)


def test_a_wrapper_whose_messages_have_no_time_has_none_m24() -> None:
    (wrapper,) = entries(build_set([NewRecord(b"v")] * 2, codec=Codec.GZIP))
    assert wrapper.timestamp_ms == -1


@pytest.mark.parametrize(
    ("from_offset", "expected"),
    [(0, [5, 6, 7, 8, 9]), (6, [6, 7, 8, 9]), (7, [7, 8, 9]), (9, [9]), (10, [])],
)
def test_messages_below_the_offset_asked_for_are_dropped_f11(
    from_offset: int, expected: list[int]
) -> None:
    data = build_set([NewRecord(b"v")] * 3, codec=Codec.GZIP, base_offset=5)
    data += build_set([NewRecord(b"v")] * 2, base_offset=8)
    assert [record.offset for record in read(data, from_offset)] == expected


def test_the_bound_is_that_of_each_wrapper() -> None:
    sent = [NewRecord(bytes(100))] * 10
    size = len(build_set(sent))
    data = build_set(sent, codec=Codec.GZIP) * 3
    assert len(list(records(data, max_decompressed_bytes=size))) == 30
    with pytest.raises(MessageTooLarge, match=r"max\.decompressed\.bytes"):
        list(records(data, max_decompressed_bytes=size - 1))


def test_reading_a_part_of_a_buffer() -> None:
    data = build_set([NewRecord(b"a"), NewRecord(b"b"), NewRecord(b"c")])
    assert [entry.value for entry in entries(data, 35)] == [b"b", b"c"]
    middle = list(entries(data, 35, 70))
    assert [(entry.position, entry.end, entry.value) for entry in middle] == [(35, 70, b"b")]


# Changes in place


@examples(100)
@given(
    sent=st.lists(timed_records, min_size=1, max_size=4),
    time_ms=st.integers(-1, 2**63 - 1),
    data=st.data(),
)
def test_a_new_time_touches_that_message_alone(
    sent: list[NewRecord], time_ms: int, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(sent) - 1))
    stamp = data.draw(st.booleans())
    stored = build_set(sent)
    entry = list(entries(stored))[place]
    (set_append_time if stamp else set_timestamp)(stored, entry.position, entry.size, time_ms)
    before, after = read(build_set(sent)), read(stored)
    kind = TimestampType.LOG_APPEND_TIME if stamp else TimestampType.CREATE_TIME
    old = before[place]
    before[place] = Record(old.offset, time_ms, kind, old.key, old.value)
    assert after == before


def test_a_new_time_leaves_the_append_time_bit_alone() -> None:
    stored = build_set([NewRecord(b"v", None, 5)])
    set_append_time(stored, 0, len(stored) - 12, 70)
    set_timestamp(stored, 0, len(stored) - 12, 71)
    (entry,) = entries(stored)
    assert (entry.timestamp_ms, entry.is_append_time) == (71, True)


def test_changes_through_a_memoryview_reach_the_buffer() -> None:
    stored = build_set([NewRecord(b"v", None, 5)] * 2)
    view = memoryview(stored)
    set_offset(view, 35, 99)
    set_append_time(view[35:], 0, 23, 70)
    assert [(r.offset, r.timestamp_ms) for r in read(stored)] == [(0, 5), (99, 70)]
