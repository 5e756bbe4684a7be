"""The format cases of the case table, one by one, by their ids."""

from struct import pack_into
from typing import Any

import pytest

from horolog.protocol.errors import CorruptMessage
from horolog.protocol.records.codecs.codec import compress, decompress
from horolog.protocol.records.kernel import walk
from horolog.protocol.records.kernel.terms import Problem
from horolog.protocol.records.layout import LOG_APPEND_TIME_BIT, Codec, TimestampType
from horolog.protocol.records.messages.sets import (
    NewRecord,
    Record,
    build_message,
    build_set,
    build_wrapper,
    entries,
    records,
    set_append_time,
    set_offset,
)

MIB = 1 << 20
CT = TimestampType.CREATE_TIME
LAT = TimestampType.LOG_APPEND_TIME

GOLDEN_INNER = bytes.fromhex(
    "000000000000000000000017efbe66e301000000000000000064ffffffff0000000161"
    "0000000000000001000000173a54afcd0100000000000000012cffffffff0000000162"
    "000000000000000200000017b2d4ed90010000000000000000c8ffffffff0000000163"
)


def read(buffer: bytes | bytearray, **options: int) -> list[Record]:
    return list(records(buffer, max_decompressed_bytes=MIB, **options))


def seen(buffer: bytes | bytearray) -> list[tuple[int, int, TimestampType | None]]:
    return [(record.offset, record.timestamp_ms, record.timestamp_type) for record in read(buffer)]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param(
            {"key": None, "value": b"hello", "magic": 0},
            "87a77ab20000ffffffff0000000568656c6c6f",
            id="tc1-M-10-v0-hello",
        ),
        pytest.param(
            {"key": None, "value": None, "magic": 0},
            "a7ec68030000ffffffffffffffff",
            id="tc1-M-10-v0-nulls",
        ),
        pytest.param(
            {"key": None, "value": b"hello"},
            "314c83f30100ffffffffffffffffffffffff0000000568656c6c6f",
            id="tc1-M-10-v1-hello",
        ),
        pytest.param(
            {"key": None, "value": None},
            "5b41f4e30100ffffffffffffffffffffffffffffffff",
            id="tc1-M-10-v1-nulls",
        ),
        pytest.param(
            {"key": b"", "value": b"", "timestamp_ms": 0},
            "884979ac010000000000000000000000000000000000",
            id="tc1-M-10-v1-empty",
        ),
        pytest.param(
            {"key": b"k", "value": b"v", "timestamp_ms": 1000},
            "e4e321bc010000000000000003e8000000016b0000000176",
            id="tc1-M-10-v1-create-time",
        ),
        pytest.param(
            {"key": b"k", "value": b"v", "timestamp_ms": 2000, "attributes": LOG_APPEND_TIME_BIT},
            "7cedad1f010800000000000007d0000000016b0000000176",
            id="tc1-M-10-v1-append-time",
        ),
    ],
)
def test_golden_messages(fields: dict[str, Any], expected: str) -> None:
    """M-1, M-2."""
    assert build_message(**fields).hex() == expected


def test_restamping_in_place_gives_the_golden_bytes() -> None:
    stored = build_set([NewRecord(b"v", b"k", 1000)], base_offset=7)
    set_append_time(stored, 0, len(stored) - 12, 2000)
    assert stored[12:].hex() == "7cedad1f010800000000000007d0000000016b0000000176"
    assert seen(stored) == [(7, 2000, LAT)]


def test_golden_inner_set_m32() -> None:
    three = [NewRecord(b"a", None, 100), NewRecord(b"b", None, 300), NewRecord(b"c", None, 200)]
    assert build_set(three) == GOLDEN_INNER
    (wrapper,) = entries(build_set(three, codec=Codec.GZIP))
    assert (wrapper.offset, wrapper.timestamp_ms, wrapper.key) == (2, 300, None)
    assert wrapper.value is not None
    assert decompress(Codec.GZIP, wrapper.value, magic=1, max_bytes=105) == GOLDEN_INNER


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_value_bit_breaks_the_crc_tc2_m4(bit: int) -> None:
    stored = build_set([NewRecord(b"hello", None, 5)])
    stored[-1] ^= 1 << bit
    assert walk(stored, 0, len(stored)).problem is Problem.CRC
    with pytest.raises(CorruptMessage, match="CRC"):
        list(entries(stored))
    assert [entry.offset for entry in entries(stored, verify_crc=False)] == [0]


def test_another_offset_needs_no_new_crc_tc3_m4() -> None:
    stored = build_set([NewRecord(b"hello", None, 5)])
    set_offset(stored, 0, 123456789)
    assert seen(stored) == [(123456789, 5, CT)]


def test_null_and_empty_key_differ_tc4_m3() -> None:
    null, empty = build_message(None, b"v"), build_message(b"", b"v")
    assert (null[14:18].hex(), empty[14:18].hex()) == ("ffffffff", "00000000")
    stored = build_set(
        [NewRecord(b"v", None), NewRecord(b"v", b""), NewRecord(None), NewRecord(b"")]
    )
    assert [(record.key, record.value) for record in read(stored)] == [
        (None, b"v"),
        (b"", b"v"),
        (None, None),
        (None, b""),
    ]


def test_any_negative_length_is_null_m3() -> None:
    stored = bytearray(build_set([NewRecord(None, None, 5)]))
    pack_into(">i", stored, 26, -7)
    pack_into(">i", stored, 30, -(2**31))
    (entry,) = entries(stored, verify_crc=False)
    assert (entry.key, entry.value) == (None, None)


def test_bit_3_of_v0_says_nothing_tc5_m6() -> None:
    message = build_message(None, b"v", magic=0, attributes=LOG_APPEND_TIME_BIT)
    stored = bytes(8) + len(message).to_bytes(4, "big") + message
    assert seen(stored) == [(0, -1, None)]
    (entry,) = entries(stored)
    assert not entry.is_append_time
    assert walk(stored, 0, len(stored)).append_time_bits == 0


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        pytest.param({"timestamp_ms": -3}, "-3", id="tc6-M-7"),
        pytest.param({"timestamp_ms": -2}, "-2", id="M-7-just-below-none"),
        pytest.param({"timestamp_ms": 5, "magic": 0}, "magic 0", id="tc7-M-7"),
        pytest.param({"magic": 2}, "magic 2", id="M-7-magic-2"),
        pytest.param({"magic": -1}, "magic -1", id="M-7-magic-below"),
    ],
)
def test_messages_that_are_not_built(fields: dict[str, int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        build_message(None, b"v", **fields)


def test_trailing_bytes_are_ignored_tc8_m15() -> None:
    stored = build_set([NewRecord(b"hello", None, 5)])
    whole = len(stored)
    stored += b"\xff\xff"
    assert seen(stored) == [(0, 5, CT)]
    walked = walk(stored, 0, len(stored))
    assert (walked.problem, walked.end, walked.count) == (Problem.PARTIAL, whole, 1)


@pytest.mark.parametrize(
    ("magic", "size"),
    [
        pytest.param(0, 13, id="tc9-M-15"),
        pytest.param(0, 0, id="M-15-zero"),
        pytest.param(0, -1, id="M-15-negative"),
        pytest.param(0, -(2**31), id="M-15-lowest"),
        pytest.param(1, 21, id="M-9-v1"),
        pytest.param(1, 14, id="M-9-v1-of-v0-size"),
    ],
)
def test_sizes_below_the_smallest_message(magic: int, size: int) -> None:
    stored = build_set([NewRecord(b"hello")] * 2, magic=magic)
    pack_into(">i", stored, 8, size)
    assert walk(stored, 0, len(stored)).problem is Problem.SIZE
    with pytest.raises(CorruptMessage, match=f"has {size} bytes.*14"):
        read(stored)


@pytest.mark.parametrize(
    ("wrapper_offset", "inner_offsets", "expected"),
    [
        pytest.param(2, (0, 1, 2), [0, 1, 2], id="tc10-M-23"),
        pytest.param(1002, (0, 1, 2), [1000, 1001, 1002], id="tc11-M-33"),
        pytest.param(1002, (0, 2), [1000, 1002], id="tc12-M-33"),
        pytest.param(1001, (0, 1), [1000, 1001], id="M-33-last-one-gone"),
        pytest.param(1002, (5, 6, 7), [1000, 1001, 1002], id="M-23-not-from-zero"),
    ],
)
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_offsets_in_a_v1_wrapper(
    codec: Codec, wrapper_offset: int, inner_offsets: tuple[int, ...], expected: list[int]
) -> None:
    times = (100, 300, 200)[: len(inner_offsets)]
    inner = build_set([NewRecord(b"v", None, time) for time in times])
    for place, offset in enumerate(inner_offsets):
        set_offset(inner, place * 35, offset)
    wrapper = build_wrapper(inner, offset=wrapper_offset, timestamp_ms=300, magic=1, codec=codec)
    assert seen(wrapper) == [
        (offset, time, CT) for offset, time in zip(expected, times, strict=True)
    ]


def test_an_append_time_wrapper_gives_its_time_to_all_tc13_m40() -> None:
    inner = build_set([NewRecord(b"a", None, 100), NewRecord(b"b", None, -1)])
    wrapper = build_wrapper(
        inner, offset=8, timestamp_ms=5000, magic=1, codec=Codec.GZIP, append_time=True
    )
    assert seen(wrapper) == [(7, 5000, LAT), (8, 5000, LAT)]


def test_a_create_time_wrapper_lends_no_time_tc14_m42() -> None:
    """M-41, D7."""
    stored = build_set([NewRecord(b"a", None, -1), NewRecord(b"b", None, 7)], codec=Codec.GZIP)
    assert seen(stored) == [(0, -1, CT), (1, 7, CT)]


def test_bit_3_of_an_inner_message_says_nothing_m25() -> None:
    inner = build_set([NewRecord(b"a", None, 100)])
    set_append_time(inner, 0, len(inner) - 12, 100)
    wrapper = build_wrapper(inner, offset=0, timestamp_ms=100, magic=1, codec=Codec.GZIP)
    assert seen(wrapper) == [(0, 100, CT)]


def test_offsets_in_a_v0_wrapper_are_absolute_tc15_m22() -> None:
    stored = build_set([NewRecord(b"a"), NewRecord(b"b")], magic=0, codec=Codec.GZIP, base_offset=8)
    assert seen(stored) == [(8, -1, None), (9, -1, None)]
    set_offset(stored, 0, 77)
    assert [offset for offset, _, _ in seen(stored)] == [8, 9]


@pytest.mark.parametrize(
    ("wrapper_magic", "inner_magic", "expected"),
    [
        pytest.param(1, 0, [(40, -1, None), (41, -1, None)], id="v0-in-v1"),
        pytest.param(0, 1, [(0, 9, CT), (1, 9, CT)], id="v1-in-v0"),
    ],
)
def test_the_wrapper_decides_about_offsets_m27(
    wrapper_magic: int, inner_magic: int, expected: list[tuple[int, int, TimestampType | None]]
) -> None:
    time = 9 if inner_magic else -1
    inner = build_set([NewRecord(b"a", None, time)] * 2, magic=inner_magic)
    wrapper = build_wrapper(
        inner, offset=41, timestamp_ms=-1, magic=wrapper_magic, codec=Codec.SNAPPY
    )
    assert seen(wrapper) == expected


@pytest.mark.parametrize(
    ("magic", "expected"),
    [pytest.param(1, "04224d18604082", id="tc16"), pytest.param(0, "04224d1860401a", id="tc17")],
)
def test_lz4_headers_written_m54(magic: int, expected: str) -> None:
    frame = compress(Codec.LZ4, b"content", magic=magic)
    assert (frame[:7].hex(), frame[-4:].hex()) == (expected, "00000000")


@pytest.mark.parametrize(
    ("magic", "checksum", "good"),
    [
        pytest.param(1, 0x1A, False, id="tc18-M-53"),
        pytest.param(1, 0x82, True, id="M-53-v1-right"),
        pytest.param(0, 0x82, True, id="tc19-M-53-right"),
        pytest.param(0, 0x1A, True, id="tc19-M-53-broken"),
        pytest.param(0, 0x00, True, id="tc19-M-53-any"),
    ],
)
def test_lz4_header_checksum_read(magic: int, checksum: int, good: bool) -> None:
    frame = bytearray(compress(Codec.LZ4, b"content", magic=magic))
    frame[6] = checksum
    if good:
        assert decompress(Codec.LZ4, frame, magic=magic, max_bytes=100) == b"content"
        return
    with pytest.raises(CorruptMessage, match="checksum is 1a, not 82"):
        decompress(Codec.LZ4, frame, magic=magic, max_bytes=100)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x05\x10hello", id="tc20-M-56-raw"),
        pytest.param(
            bytes.fromhex("82534e41505059000000000100000001") + b"\0\0\0\x07\x05\x10hello",
            id="tc20-M-56-framed",
        ),
    ],
)
def test_snappy_with_and_without_framing(data: bytes) -> None:
    assert decompress(Codec.SNAPPY, data, magic=1, max_bytes=5) == b"hello"
