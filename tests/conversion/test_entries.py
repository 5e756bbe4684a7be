"""Conversion of plain entries, byte for byte."""

from struct import unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.records.layout import MESSAGE_CODECS, Codec
from horolog.protocol.records.messages.downconversion import convert_entries, runs
from horolog.protocol.records.messages.sets import NewRecord, build_message, build_set, entries

contents = st.one_of(st.none(), st.just(b""), st.binary(max_size=40))
V0_HELLO = "87a77ab20000ffffffff0000000568656c6c6f"
V1_HELLO = "314c83f30100ffffffffffffffffffffffff0000000568656c6c6f"
V0_NULL = "a7ec68030000ffffffffffffffff"
V1_NULL = "5b41f4e30100ffffffffffffffffffffffffffffffff"
V1_CREATE = "e4e321bc010000000000000003e8000000016b0000000176"
V1_APPEND = "7cedad1f010800000000000007d0000000016b0000000176"


def entry(message: bytes, offset: int = 0) -> bytes:
    return offset.to_bytes(8, "big", signed=True) + len(message).to_bytes(4, "big") + message


def converted(data: bytes, magic: int | None, **more: int) -> bytes:
    target = bytearray()
    convert_entries(target, data, 0, len(data), magic=magic, **more)
    return bytes(target)


@pytest.mark.parametrize(
    ("message", "magic", "more", "expected"),
    [
        pytest.param(V0_HELLO, 1, {}, V1_HELLO, id="P-31-M-10-hello"),
        pytest.param(V0_NULL, 1, {}, V1_NULL, id="P-31-M-10-null"),
        pytest.param(V1_HELLO, 0, {}, V0_HELLO, id="P-32-M-10-hello"),
        pytest.param(V1_NULL, 0, {}, V0_NULL, id="P-32-M-10-null"),
        pytest.param(V0_HELLO, 0, {}, V0_HELLO, id="v0-stays"),
        pytest.param(V1_CREATE, 1, {}, V1_CREATE, id="v1-stays"),
        pytest.param(V1_CREATE, None, {}, V1_CREATE, id="v1-own-format"),
        pytest.param(V0_HELLO, None, {}, V0_HELLO, id="v0-own-format"),
        pytest.param(V1_CREATE, 1, {"stamp_ms": 2000}, V1_APPEND, id="M-10-stamped"),
        pytest.param(V1_APPEND, 1, {"stamp_ms": 2000}, V1_APPEND, id="stamped-again"),
    ],
)
def test_golden_bytes(message: str, magic: int | None, more: dict[str, int], expected: str) -> None:
    assert converted(entry(bytes.fromhex(message)), magic, **more).hex()[24:] == expected


@given(contents, contents, st.sampled_from([0, 8, 0x10, 0xF8]), st.integers(-1, 2**63 - 1))
def test_down_p32_f35(
    key: bytes | None, value: bytes | None, attributes: int, timestamp_ms: int
) -> None:
    """Time and bit 3 go, the reserved bits stay; key and value are the same bytes."""
    message = build_message(key, value, timestamp_ms=timestamp_ms, attributes=attributes)
    (old,) = entries(converted(entry(message, 7), 0))  # which checks the CRC
    assert (old.magic, old.offset, old.key, old.value) == (0, 7, key, value)
    assert old.attributes == attributes & 0xF0
    assert old.size == len(message) - 8


@given(contents, contents, st.sampled_from([0, 8, 0x10, 0xF8]), st.sampled_from([None, 0, 70]))
def test_up_p31(
    key: bytes | None, value: bytes | None, attributes: int, stamp_ms: int | None
) -> None:
    message = build_message(key, value, magic=0, attributes=attributes)
    more = {} if stamp_ms is None else {"stamp_ms": stamp_ms}
    (new,) = entries(converted(entry(message), 1, **more))
    assert (new.magic, new.key, new.value, new.codec) == (1, key, value, Codec.NONE)
    assert new.timestamp_ms == (-1 if stamp_ms is None else stamp_ms)
    assert new.is_append_time is (stamp_ms is not None)
    assert new.attributes & 0xF0 == attributes & 0xF0
    assert new.size == len(message) + 8


@given(contents, contents)
def test_up_and_down_again_is_the_same(key: bytes | None, value: bytes | None) -> None:
    data = entry(build_message(key, value, magic=0))
    assert converted(converted(data, 1), 0) == data


def test_a_v1_message_keeps_its_time_but_is_no_append_time_of_this_broker() -> None:
    """Inside a wrapper nobody looks at bit 3; a message that comes out must not claim it."""
    marked = entry(build_message(b"k", b"v", timestamp_ms=1000, attributes=8))
    assert converted(marked, 1)[12:].hex() == V1_CREATE
    assert converted(marked, None)[12:].hex() == V1_CREATE


def test_offsets() -> None:
    data = bytes(build_set([NewRecord(b"a"), NewRecord(b"b")], base_offset=5))
    for magic in (0, 1):
        target = bytearray(b"before")
        count = convert_entries(target, data, 0, len(data), magic=magic, first_offset=100)
        assert count == (2 if magic == 0 else 0)
        assert target[:6] == b"before"
        assert [each.offset for each in entries(target[6:])] == [100, 101]
        shifted = converted(data, magic, offset_shift=-3)
        assert [each.offset for each in entries(shifted)] == [2, 3]
        assert [each.offset for each in entries(converted(data, magic))] == [5, 6]


def test_only_what_changes_its_format_is_counted() -> None:
    data = bytes(build_set([NewRecord(b"a")]) + build_set([NewRecord(b"b")] * 2, magic=0))
    for magic, count in ((0, 1), (1, 2), (None, 0)):
        assert convert_entries(bytearray(), data, 0, len(data), magic=magic) == count


@given(st.lists(st.sampled_from(MESSAGE_CODECS), max_size=8), st.integers(0, 1))
def test_runs(codecs: list[Codec], magic: int) -> None:
    data = bytearray()
    expected: list[tuple[int, int, Codec]] = []
    for codec in codecs:
        start = len(data)
        data += build_set([NewRecord(b"v")], magic=magic, codec=codec)
        if codec is Codec.NONE and expected and expected[-1][2] is Codec.NONE:
            start = expected.pop()[0]
        expected.append((start, len(data), codec))
    assert list(runs(data, 0, len(data))) == expected


def test_the_time_of_an_upconverted_message_is_where_it_belongs() -> None:
    data = converted(entry(bytes.fromhex(V0_HELLO)), 1, stamp_ms=70)
    assert unpack(">q", data[18:26]) == (70,)
