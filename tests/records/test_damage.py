"""Cut, flipped and random bytes: a named problem or an error of ours, never anything else."""

import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.errors import CorruptMessage, HorologError, UnsupportedForMessageFormat
from horolog.protocol.records.kernel import crc32, walk
from horolog.protocol.records.kernel.terms import Offsets, Problem
from horolog.protocol.records.layout import MESSAGE_CODECS, Codec
from horolog.protocol.records.messages.sets import (
    NewRecord,
    build_message,
    build_set,
    build_wrapper,
    entries,
    open_wrapper,
    records,
    set_offset,
)
from horolog.protocol.records.problems import problem_error
from horolog.tests.properties.examples import examples

MIB = 1 << 20
TWO = [NewRecord(b"one", b"k", 5), NewRecord(b"two", None, 7)]


@cache
def small_set() -> bytes:
    """A v0 message, a v1 message and a wrapper, with offsets 0, 1 and 3."""
    return bytes(
        build_set([NewRecord(b"hello")], magic=0)
        + build_set([NewRecord(b"hello", b"key", 5)], base_offset=1)
        + build_set(TWO, codec=Codec.GZIP, base_offset=2)
    )


@cache
def boundaries() -> list[int]:
    data = small_set()
    return [0, *(entry.end for entry in entries(data))]


def test_truncation_at_each_byte_m15() -> None:
    for size in range(len(small_set()) + 1):
        cut = small_set()[:size]
        whole = [end for end in boundaries() if end <= size]
        walked = walk(cut, 0, size)
        assert (walked.end, walked.count) == (whole[-1], len(whole) - 1), size
        expected = Problem.NONE if size == whole[-1] else Problem.PARTIAL
        assert (walked.problem, walked.problem_position) == (expected, whole[-1]), size
        assert len(list(entries(cut))) == walked.count, size
        seen = [record.offset for record in records(cut, max_decompressed_bytes=MIB)]
        assert seen == [0, 1, 2, 3][: walked.count + walked.count // 3], size


@pytest.mark.parametrize("entry", range(3))
def test_a_flipped_bit_is_a_problem_or_another_offset_m4(entry: int) -> None:
    start, end = boundaries()[entry : entry + 2]
    for place in range(start, end):
        for bit in range(8):
            data = bytearray(small_set())
            data[place] ^= 1 << bit
            walked = walk(data, 0, len(data))
            if place - start < 8:
                assert (walked.problem, walked.count) == (Problem.NONE, 3), (place, bit)
                assert [found.offset for found in entries(data)] != [0, 1, 3], (place, bit)
            else:
                assert walked.problem is not Problem.NONE, (place, bit)
                assert walked.end == start, (place, bit)


@pytest.mark.parametrize("place", range(8))
@pytest.mark.parametrize("entry", range(3))
def test_a_flipped_offset_bit_breaks_contiguity(entry: int, place: int) -> None:
    """Except that a wrapper, which may hold any number of messages, may have a larger offset."""
    at = boundaries()[entry]
    for bit in range(8):
        data = bytearray(small_set())
        data[at + place] ^= 1 << bit
        walked = walk(data, 0, len(data), offsets=Offsets.CONTIGUOUS)
        if entry == 2 and walked.last_offset >= 2:
            assert (walked.problem, walked.count) == (Problem.NONE, 3)
            assert walked.last_offset != 3
        else:
            assert (walked.problem, walked.end) == (Problem.OFFSET, at)


def consume(data: bytes, *readers: Callable[[bytes], Iterator[object]]) -> None:
    """Anything raised that is not ours fails the test."""
    for reader in readers:
        with suppress(HorologError):
            deque(reader(data), maxlen=0)


def read_records(data: bytes) -> Iterator[object]:
    return records(data, max_decompressed_bytes=4096)


def renewed_crcs(data: bytearray) -> bytearray:
    """Each entry's CRC made right again, so that what comes after it is reached."""
    at = 0
    while at + 26 <= len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "big")
        if size < 14 or at + 12 + size > len(data):
            break
        data[at + 12 : at + 16] = pack(">I", crc32(data[at + 16 : at + 12 + size]))
        at += 12 + size
    return data


@examples(500)
@given(st.binary(max_size=300))
def test_random_bytes(data: bytes) -> None:
    consume(data, read_records, entries, lambda data: entries(data, verify_crc=False))


new_records = st.builds(
    NewRecord,
    value=st.one_of(st.none(), st.binary(max_size=20)),
    key=st.one_of(st.none(), st.binary(max_size=20)),
)
good_sets = st.builds(
    build_set,
    st.lists(new_records, max_size=5),
    magic=st.sampled_from([0, 1]),
    codec=st.sampled_from(MESSAGE_CODECS),
    base_offset=st.integers(0, 100),
)


@examples(1000)
@given(
    parts=st.lists(good_sets, min_size=1, max_size=3),
    edits=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
    cut=st.integers(0, 40),
    with_crcs=st.booleans(),
)
def test_damaged_sets(
    parts: list[bytearray], edits: list[tuple[int, int]], cut: int, with_crcs: bool
) -> None:
    data = bytearray().join(parts)
    for place, byte in edits:
        if place < len(data):
            data[place] = byte
    del data[len(data) - cut // 2 :]
    if with_crcs:
        renewed_crcs(data)
    consume(bytes(data), read_records, entries, lambda data: entries(data, verify_crc=False))


@examples(500)
@given(
    inner=st.one_of(st.binary(max_size=200), st.lists(good_sets, max_size=3).map(b"".join)),
    edits=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
    magic=st.sampled_from([0, 1]),
    codec=st.sampled_from([Codec.GZIP, Codec.SNAPPY, Codec.LZ4]),
)
def test_damage_inside_a_good_wrapper(
    inner: bytes, edits: list[tuple[int, int]], magic: int, codec: Codec
) -> None:
    content = bytearray(inner)
    for place, byte in edits:
        if place < len(content):
            content[place] = byte
    data = build_wrapper(content, offset=9, timestamp_ms=-1, magic=magic, codec=codec)
    consume(bytes(data), read_records)


# Wrappers


def wrapper_of(inner: bytes | bytearray, codec: Codec = Codec.GZIP) -> bytearray:
    return build_wrapper(inner, offset=9, timestamp_ms=5, magic=1, codec=codec)


def nested(depth: int) -> bytearray:
    data = build_set(TWO)
    for _ in range(depth):
        data = wrapper_of(data)
    return data


@pytest.mark.parametrize("depth", [2, 3, 100])
def test_a_wrapper_in_a_wrapper_is_refused_m26(depth: int) -> None:
    with pytest.raises(CorruptMessage, match="offset 9 holds another compressed message"):
        list(records(nested(depth), max_decompressed_bytes=MIB))
    assert len(list(records(nested(1), max_decompressed_bytes=MIB))) == 2


def broken_inner(change: Callable[[bytearray], None]) -> bytes:
    data = build_set(TWO)
    change(data)
    return bytes(data)


def flip_value(data: bytearray) -> None:
    data[-1] ^= 1


def shrink_size(data: bytearray) -> None:
    data[8:12] = pack(">i", 13)


def raise_magic(data: bytearray) -> None:
    data[16] = 3


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        pytest.param(
            broken_inner(flip_value), "decompressed: the message at byte 38 has CRC", id="crc"
        ),
        pytest.param(broken_inner(shrink_size), "13 bytes", id="M-28-size"),
        pytest.param(broken_inner(raise_magic), "magic 3; this version reads", id="magic"),
        pytest.param(build_set(TWO, magic=2), "another compressed message", id="batch"),
        pytest.param(b"", "holds no message", id="M-30-nothing"),
        pytest.param(bytes(build_set(TWO)[:37]), "holds no message", id="M-30-only-a-part"),
    ],
)
def test_what_a_wrapper_may_not_hold(inner: bytes, text: str) -> None:
    with pytest.raises(CorruptMessage, match=text) as caught:
        list(records(wrapper_of(inner), max_decompressed_bytes=MIB))
    assert "offset 9" in caught.value.message


def test_a_partial_last_inner_message_is_dropped_on_reading_m28() -> None:
    data = wrapper_of(bytes(build_set(TWO)[:-1]))
    assert [r.value for r in records(data, max_decompressed_bytes=MIB)] == [b"one"]


def test_a_wrapper_without_a_value_is_corrupt_m29() -> None:
    message = build_message(None, None, attributes=Codec.GZIP)
    with pytest.raises(CorruptMessage, match="offset 4 has a null value"):
        list(records(pack(">qi", 4, len(message)) + message, max_decompressed_bytes=MIB))


@pytest.mark.parametrize("codec", [4, 5, 6, 7])
def test_unknown_codecs_are_corrupt_m57(codec: int) -> None:
    message = build_message(None, b"v", attributes=codec)
    with pytest.raises(CorruptMessage, match=f"codec {codec}; known are 1 to 3"):
        list(records(pack(">qi", 4, len(message)) + message, max_decompressed_bytes=MIB))


def test_open_wrapper_gives_what_is_written_there() -> None:
    (wrapper,) = entries(build_set(TWO, codec=Codec.LZ4, base_offset=500))
    inner = open_wrapper(wrapper, max_decompressed_bytes=MIB)
    assert [(entry.offset, entry.position, entry.timestamp_ms) for entry in inner] == [
        (0, 0, 5),
        (1, 38, 7),
    ]


# What is said


def test_good_entries_come_before_the_error() -> None:
    data = bytearray(build_set(TWO))
    data[-1] ^= 1
    reader = records(data, max_decompressed_bytes=MIB)
    assert next(reader).value == b"one"
    with pytest.raises(CorruptMessage, match=r"at byte 38 has CRC [0-9a-f]{8}.*gives [0-9a-f]{8}"):
        next(reader)


@pytest.mark.parametrize(
    ("magic", "text"),
    [(3, "magic 3; this version reads"), (255, "magic 255;")],
)
def test_later_formats_are_refused_by_name(magic: int, text: str) -> None:
    data = build_set(TWO)
    data[16] = magic
    with pytest.raises(UnsupportedForMessageFormat, match=text):
        list(records(data, max_decompressed_bytes=MIB))
    with pytest.raises(UnsupportedForMessageFormat, match=text):
        list(entries(data))


def told(data: bytearray, end: int, offsets: Offsets = Offsets.ANY) -> str:
    error = problem_error(data, walk(data, 0, end, offsets=offsets), end)
    assert isinstance(error, CorruptMessage)
    return error.message


def test_problems_are_told_with_their_values() -> None:
    """About the second message of two, at byte 38."""
    data = build_set(TWO)
    assert told(data, 70) == "the message at byte 38 is incomplete: 32 bytes of it are there"

    set_offset(data, 38, -4)
    assert told(data, 75, Offsets.CONTIGUOUS) == (
        "the message at byte 38 has offset -4, which does not follow 0"
    )
    data[38 + 33] = 2
    stored, computed = data[50:54].hex(), f"{zlib.crc32(data[54:]):08x}"
    assert told(data, 75) == (
        f"the message at byte 38 has CRC {stored}, but its content gives {computed}"
    )
    renewed_crcs(data)
    assert told(data, 75) == "the message at byte 38: key and value do not add up to its 25 bytes"
