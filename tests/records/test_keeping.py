"""Sets with some of their messages left out: every message that is kept is as it was, and no other
is there; both forms of the kernel."""

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.errors import CodedError, MessageTooLarge
from horolog.protocol.records.batch import Record, finish_batch, read_header, write_header
from horolog.protocol.records.columns import read_columns
from horolog.protocol.records.kernel import (
    RecordEncoder,
    keep_messages,
    keep_records,
    rows_between,
    walk,
)
from horolog.protocol.records.kernel.terms import Problem
from horolog.protocol.records.layout import BATCH_OVERHEAD, Buffer, Codec
from horolog.protocol.records.messages.downconversion import DamagedSlice, run
from horolog.protocol.records.messages.sets import NewRecord, build_set, records, set_append_time
from horolog.protocol.records.selection import Selected, selection
from horolog.tests.properties.examples import examples

LIMIT = 1 << 20
T0 = 1_479_132_000_000

new_records = st.lists(
    st.builds(
        NewRecord,
        st.none() | st.binary(max_size=12),
        st.none() | st.binary(max_size=3),
        st.integers(T0, T0 + 9) | st.just(-1),
    ),
    min_size=1,
    max_size=6,
)
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


@st.composite
def stored_sets(draw: st.DrawFn) -> tuple[bytes, list[Record]]:
    """Sets of one format behind each other, with gaps between them, and their messages."""
    magic = draw(st.sampled_from([0, 1, 2]))
    data, offset = bytearray(), draw(st.integers(0, 5))
    for _ in range(draw(st.integers(1, 4))):
        new = draw(new_records)
        codec = draw(st.sampled_from([*CODECS, Codec.ZSTD] if magic == 2 else CODECS))
        if magic == 0:
            new = [NewRecord(one.value, one.key) for one in new]
        elif magic == 2 and draw(st.booleans()):
            new = [
                NewRecord(one.value, one.key, one.timestamp_ms, (("h", b"1"), ("", None)))
                for one in new
            ]
        made = build_set(new, magic=magic, codec=codec, base_offset=offset)
        if magic == 2 and draw(st.integers(0, 3)) == 0:
            encoder = RecordEncoder()
            for one in new:
                encoder.add(one.value, one.key, one.timestamp_ms, one.headers)
            made = finish_batch(
                encoder,
                codec=codec,
                base_offset=offset,
                append_time_ms=draw(st.integers(T0, T0 + 9)),
                producer_id=7,
                producer_epoch=1,
                base_sequence=4,
            )
        elif magic == 1 and codec and draw(st.booleans()):
            set_append_time(made, 0, len(made) - 12, draw(st.integers(T0, T0 + 9)))
        data += made
        offset += len(new) + draw(st.integers(0, 2))
    stored = bytes(data)
    return stored, list(records(stored, max_decompressed_bytes=LIMIT))


def between(from_ms: int, last_ms: int) -> Any:
    def choose(_: Buffer, times: Buffer) -> tuple[Buffer, int]:
        return rows_between(times, from_ms=from_ms, last_ms=last_ms)

    return choose


def select(
    data: bytes, choose: Any, from_offset: int = 0, max_bytes: int = LIMIT, **more: Any
) -> Selected:
    return run(
        selection(
            data,
            choose,
            from_offset=from_offset,
            max_bytes=max_bytes,
            max_content_bytes=LIMIT,
            **more,
        )
    )


def read(data: Buffer, from_offset: int = 0) -> list[Record]:
    return list(records(bytes(data), max_decompressed_bytes=LIMIT, from_offset=from_offset))


@examples(150)
@given(stored=stored_sets(), window=st.tuples(st.integers(T0, T0 + 9), st.integers(T0, T0 + 9)))
def test_what_is_in_the_window_comes_and_nothing_else(
    stored: tuple[bytes, list[Record]], window: tuple[int, int]
) -> None:
    data, messages = stored
    first_ms, last_ms = window
    found = select(data, between(first_ms, last_ms))
    expected = [one for one in messages if first_ms <= one.timestamp_ms <= last_ms]
    assert read(found.data) == expected
    assert found.messages == len(expected)
    assert found.used_bytes == len(data)
    assert found.next_offset == messages[-1].offset + 1
    assert found.kept_offset == (expected[-1].offset + 1 if expected else -1)
    if expected:
        assert walk(found.data, 0, len(found.data)).last_offset == expected[-1].offset


@examples(100)
@given(
    stored=stored_sets(),
    chosen=st.sets(st.integers(0, 40)),
    from_offset=st.integers(0, 30),
    max_bytes=st.integers(0, 300),
)
def test_any_messages_from_an_offset_on_in_as_many_steps_as_it_takes(
    stored: tuple[bytes, list[Record]], chosen: set[int], from_offset: int, max_bytes: int
) -> None:
    data, messages = stored

    def choose(offsets: Buffer, _: Buffer) -> tuple[Buffer, int]:
        marks = bytes(offset in chosen for offset in memoryview(offsets).cast("q"))
        return marks, sum(marks)

    expected = [one for one in messages if one.offset in chosen and one.offset >= from_offset]
    found: list[Record] = []
    position = from_offset
    while position <= messages[-1].offset:
        some = select(data, choose, position, max_bytes)
        found += read(some.data, position)
        assert len(some.data) <= max(max_bytes, len(data) + 100)
        following = max(some.kept_offset, some.next_offset if not some.data else 0)
        if some.data and some.used_bytes == len(data):
            following = some.next_offset
        assert following > position
        position = following
    assert found == expected


@examples(100)
@given(stored=stored_sets())
def test_sets_that_are_kept_whole_are_as_they_were_stored(
    stored: tuple[bytes, list[Record]],
) -> None:
    data, _ = stored

    def everything(offsets: Buffer, _: Buffer) -> tuple[Buffer, int]:
        count = len(offsets) // 8
        return b"\1" * count, count

    assert select(data, everything).data == data


def test_a_batch_keeps_its_header_but_for_what_changed() -> None:
    encoder = RecordEncoder()
    for number in range(5):
        encoder.add(b"%d" % number, None, T0 + number)
    batch = bytes(
        finish_batch(encoder, base_offset=100, producer_id=7, producer_epoch=1, base_sequence=40)
    )
    before, made = read_header(batch), select(batch, between(T0 + 1, T0 + 3)).data
    after = read_header(made)
    assert [one.offset for one in read(made)] == [101, 102, 103]
    assert after == before._replace(
        size=after.size,
        crc=after.crc,
        last_offset_delta=3,
        record_count=3,
        max_timestamp_ms=T0 + 3,
    )
    assert walk(made, 0, len(made)).problem is Problem.NONE
    assert made[BATCH_OVERHEAD:] in batch  # the records as they were written


def test_a_wrapper_keeps_the_offsets_in_it() -> None:
    new = [NewRecord(b"%d" % number, None, T0 + number) for number in range(5)]
    data = bytes(build_set(new, magic=1, codec=Codec.GZIP, base_offset=100))
    made = select(data, between(T0 + 1, T0 + 3)).data
    assert [one.offset for one in read(made)] == [101, 102, 103]
    assert walk(made, 0, len(made)).last_offset == 103
    assert walk(made, 0, len(made)).max_timestamp_ms == T0 + 3


@examples(200)
@given(
    stored=stored_sets(),
    spoiled=st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 500),
)
def test_hostile_bytes_raise_what_they_should_or_are_left_out(
    stored: tuple[bytes, list[Record]], spoiled: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(stored[0])
    for place, byte in spoiled:
        data[place % len(data)] = byte
    try:
        found = select(bytes(data[: max(len(data) - cut, 0)]), between(T0 + 2, T0 + 7))
    except (DamagedSlice, CodedError):
        return
    for one in read(found.data):
        assert T0 + 2 <= one.timestamp_ms <= T0 + 7


def test_the_marks_are_one_for_each_message() -> None:
    new = [NewRecord(b"v", None, T0)] * 3
    plain, batch = bytes(build_set(new, magic=1)), bytes(build_set(new, magic=2))
    target = bytearray(b"x")
    for marks in (b"", b"\1\1", b"\1\1\1\1"):
        with pytest.raises(ValueError, match="are not one for each message"):
            keep_messages(target, plain, 0, len(plain), marks)
        with pytest.raises(ValueError, match="are not one for each message"):
            keep_records(target, batch[BATCH_OVERHEAD:], marks, base_timestamp_ms=T0)
    assert target == b"x"
    assert keep_messages(target, plain, 0, len(plain), b"\0\2\0") == (1, 1, T0)
    assert keep_records(target, b"", b"", base_timestamp_ms=T0) == (0, -1, -1)


def test_no_time_is_between_any_two() -> None:
    times = array("q", [-1, 0, 5, -7, 2**63 - 1])
    assert rows_between(times, from_ms=-(2**63), last_ms=2**63 - 1) == (
        bytearray(b"\0\1\1\0\1"),
        3,
    )
    assert rows_between(times, from_ms=5, last_ms=0) == (bytearray(5), 0)


def test_control_batches_and_others_are_left_out() -> None:
    control = bytes(_control(3))
    batch = bytes(build_set([NewRecord(b"v", None, T0)], magic=2, base_offset=4))
    both = control + batch + bytes(_control(5))
    choose = between(T0, T0)
    assert select(both, choose).data == batch
    found = select(both, choose, left_out=lambda header: header.base_offset == 4)
    assert not found.data
    assert found.next_offset == 6


def _control(offset: int) -> bytearray:
    made = build_set([NewRecord(b"\0\0\0\0", b"\0\0\0\0", T0)], magic=2, base_offset=offset)
    header = read_header(made)
    write_header(made, header._replace(attributes=0x30, producer_id=7))
    return made


def test_columns_see_the_same() -> None:
    new = [NewRecord(b"%d" % number, None, T0 + number) for number in range(50)]
    data = bytes(build_set(new, magic=2, codec=Codec.ZSTD, base_offset=7))
    made = select(data, between(T0 + 10, T0 + 19)).data
    (columns,) = read_columns(made, max_decompressed_bytes=LIMIT)
    assert memoryview(columns.offsets).cast("q").tolist() == list(range(17, 27))


def test_more_than_may_be_opened_is_refused() -> None:
    data = bytes(build_set([NewRecord(bytes(3000), None, T0)] * 2, magic=2, codec=Codec.GZIP))
    with pytest.raises(MessageTooLarge):
        run(
            selection(data, between(T0, T0), from_offset=0, max_bytes=LIMIT, max_content_bytes=1000)
        )
