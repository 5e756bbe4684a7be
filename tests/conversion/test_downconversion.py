"""A slice for a reader of format v0: what is in it, and how it is made piece by piece."""

from collections.abc import Callable
from functools import partial

import pytest

from horolog.protocol.errors import CorruptMessage, MessageTooLarge, UnsupportedForMessageFormat
from horolog.protocol.records.codecs.codec import compress
from horolog.protocol.records.layout import MESSAGE_CODECS, Buffer, Codec
from horolog.protocol.records.messages.downconversion import (
    PIECE_BYTES,
    DamagedSlice,
    Downconverted,
    downconversion,
    run,
)
from horolog.protocol.records.messages.sets import (
    Entry,
    NewRecord,
    Record,
    build_message,
    build_set,
    build_wrapper,
    entries,
    open_wrapper,
    records,
    set_offset,
)
from horolog.testing.logs import timed_set

GZIP = Codec.GZIP
COMPRESSED = MESSAGE_CODECS[1:]
PLENTY = 1 << 20


def down(data: Buffer, max_bytes: int = PLENTY, max_content_bytes: int = PLENTY) -> Downconverted:
    return run(downconversion(data, max_bytes=max_bytes, max_content_bytes=max_content_bytes))


def read(data: Buffer) -> list[Record]:
    return list(records(data, max_decompressed_bytes=PLENTY))


def stored(*offsets: int, codec: Codec = Codec.NONE, relative: bool = True) -> bytes:
    """Messages as a log of format v1 holds them; in a wrapper, if there is a codec."""
    plain = bytearray()
    for at, offset in enumerate(offsets):
        inside = offset - offsets[0] if codec and relative else offset
        value = b"value %d" % offset
        plain += build_set([NewRecord(value, b"k", 100 + at)], base_offset=inside)
    if codec is Codec.NONE:
        return bytes(plain)
    return bytes(build_wrapper(plain, offset=offsets[-1], timestamp_ms=100, magic=1, codec=codec))


def shallow(data: Buffer) -> list[tuple[int, int, Codec]]:
    return [(one.offset, one.magic, one.codec) for one in entries(data)]


def inner(entry: Entry) -> list[int]:
    opened = open_wrapper(entry, max_decompressed_bytes=PLENTY)
    assert {one.magic for one in opened} == {0}
    return [one.offset for one in opened]


def test_plain_messages_f35() -> None:
    data = stored(5, 6, 9)
    converted = down(data)
    assert (converted.messages, converted.used_bytes) == (3, len(data))
    assert len(converted.data) == len(data) - 3 * 8
    assert shallow(converted.data) == [(5, 0, Codec.NONE), (6, 0, Codec.NONE), (9, 0, Codec.NONE)]
    assert [(r.key, r.value, r.timestamp_ms) for r in read(converted.data)] == [
        (b"k", b"value %d" % offset, -1) for offset in (5, 6, 9)
    ]


@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.label)
@pytest.mark.parametrize("append_time", [False, True], ids=["create", "append"])
@pytest.mark.parametrize("offsets", [(0, 1, 2), (1000, 1001), (1000, 1002, 1007)])
def test_one_wrapper_tc61(codec: Codec, append_time: bool, offsets: tuple[int, ...]) -> None:
    """F-33: gaps included, inner offsets absolute, bit 3 and the time gone."""
    plain = bytearray()
    for offset in offsets:
        value = b"value %d" % offset
        plain += build_set([NewRecord(value, timestamp_ms=5)], base_offset=offset - offsets[0])
    data = build_wrapper(
        plain, offset=offsets[-1], timestamp_ms=9, magic=1, codec=codec, append_time=append_time
    )
    converted = down(bytes(data)).data
    (wrapper,) = entries(converted)
    assert (wrapper.offset, wrapper.magic, wrapper.attributes) == (offsets[-1], 0, codec)
    assert inner(wrapper) == list(offsets)
    assert wrapper.value is not None
    if codec is Codec.LZ4:
        assert wrapper.value[:7].hex() == "04224d1860401a", "M-53: the broken checksum"
    assert [record.value for record in read(converted)] == [
        b"value %d" % offset for offset in offsets
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(
            stored(0, 1, codec=GZIP) + stored(2, 3), [(3, 0, GZIP)], id="wrapper-then-plain"
        ),
        pytest.param(
            stored(0, codec=Codec.SNAPPY) + stored(1, 2, codec=GZIP) + stored(5, codec=Codec.LZ4),
            [(5, 0, Codec.SNAPPY)],
            id="three-codecs-the-first-counts",
        ),
        pytest.param(
            stored(0) + stored(1, 3, codec=GZIP) + stored(4),
            [(offset, 0, Codec.NONE) for offset in (0, 1, 3, 4)],
            id="plain-first-all-plain",
        ),
    ],
)
def test_the_first_entry_decides_f33(data: bytes, expected: list[tuple[int, int, Codec]]) -> None:
    converted = down(data)
    assert shallow(converted.data) == expected
    before, after = read(data), read(converted.data)
    assert [(r.offset, r.key, r.value) for r in after] == [
        (r.offset, r.key, r.value) for r in before
    ]
    assert converted.messages == len(before)


def test_inner_offsets_that_do_not_start_at_0_m34() -> None:
    data = stored(7, 8, 9, codec=GZIP, relative=False)
    assert [record.offset for record in read(down(data).data)] == [7, 8, 9]


def test_v0_messages_in_a_v1_wrapper_m27() -> None:
    """An old cleaner made such; the wrapper says how offsets are meant."""
    plain = build_set([NewRecord(b"a"), NewRecord(b"b")], magic=0)
    data = build_wrapper(plain, offset=11, timestamp_ms=-1, magic=1, codec=GZIP)
    (wrapper,) = entries(down(bytes(data)).data)
    assert (wrapper.magic, inner(wrapper)) == (0, [10, 11])


@pytest.mark.parametrize("key", [None, b"", b"k"])
@pytest.mark.parametrize("value", [None, b"", b"v"])
@pytest.mark.parametrize("codec", MESSAGE_CODECS, ids=lambda codec: codec.label)
def test_null_stays_null_f35(key: bytes | None, value: bytes | None, codec: Codec) -> None:
    (record,) = read(down(bytes(build_set([NewRecord(value, key, 5)], codec=codec))).data)
    assert (record.key, record.value) == (key, value)


@pytest.mark.parametrize("codec", [Codec.NONE, GZIP])
@pytest.mark.parametrize("cut", [1, 13, 40])
def test_only_complete_messages_f33(codec: Codec, cut: int) -> None:
    first = stored(0, 1, codec=codec)
    converted = down(first + stored(2, codec=codec)[:cut])
    assert (converted.messages, converted.used_bytes) == (2, len(first))
    assert [record.offset for record in read(converted.data)] == [0, 1]


@pytest.mark.parametrize("codec", [Codec.NONE, GZIP])
def test_no_complete_message_f34(codec: Codec) -> None:
    whole = stored(0, codec=codec)
    for size in range(len(whole)):
        assert down(whole[:size]) == Downconverted(whole[:size], 0, size)


def test_what_a_wrapper_holds_of_a_last_message_is_dropped_m28() -> None:
    plain = timed_set(1, 2) + timed_set(3)[:-1]
    data = build_wrapper(plain, offset=21, timestamp_ms=2, magic=1, codec=GZIP)
    assert [record.offset for record in read(down(bytes(data)).data)] == [20, 21]


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


def wrapped(content: bytes, codec: Codec = GZIP) -> bytes:
    return bytes(build_wrapper(content, offset=1, timestamp_ms=1, magic=1, codec=codec))


def as_entry(message: bytes) -> bytes:
    return bytes(8) + len(message).to_bytes(4, "big") + message


DAMAGE = [
    pytest.param(flipped(stored(2), -1), "CRC", id="value"),
    pytest.param(flipped(stored(2, codec=GZIP), -1), "CRC", id="wrapper"),
    pytest.param(flipped(stored(2), 11), "", id="size"),
    pytest.param(stored(2)[:8] + (5).to_bytes(4, "big") + bytes(40), "5 bytes", id="tiny"),
    pytest.param(stored(2)[:8] + b"\xff" * 40, "-1 bytes", id="negative"),
    pytest.param(stored(2)[:16] + b"\x07" + stored(2)[17:], "magic 7", id="magic"),
    pytest.param(as_entry(build_message(None, b"x", attributes=5)), "codec 5", id="M-57-codec"),
    pytest.param(as_entry(build_message(None, None, attributes=GZIP)), "null", id="M-29-null"),
    pytest.param(as_entry(build_message(None, b"x", attributes=GZIP)), "gzip", id="M-28-stream"),
    pytest.param(wrapped(b""), "no message", id="M-30-empty"),
    pytest.param(wrapped(stored(2)[:-1]), "no message", id="M-28-half"),
    pytest.param(wrapped(stored(0) + flipped(stored(1), -1)), "decompressed.*CRC", id="P-39-inner"),
    pytest.param(wrapped(stored(0, codec=GZIP)), "again", id="M-26-nested"),
]


@pytest.mark.parametrize(("bad", "says"), DAMAGE)
def test_damage_ends_a_slice_or_is_all_of_it(bad: bytes, says: str) -> None:
    good = stored(0, 1)
    converted = down(good + bad + stored(9))
    assert converted.used_bytes == len(good)
    assert [record.offset for record in read(converted.data)] == [0, 1]
    wrapper = stored(0, 1, codec=GZIP)
    converted = down(wrapper + bad + stored(9, codec=GZIP))
    assert [record.offset for record in read(converted.data)] == [0, 1]


@pytest.mark.parametrize(
    ("bad", "says"), [case for case in DAMAGE if case.id not in ("size", "magic")]
)
def test_damage_at_the_beginning_is_an_error(bad: bytes, says: str) -> None:
    """What is wrong inside a good wrapper was sent like that; the stored bytes are not damaged."""
    try:
        list(entries(bad))
    except CorruptMessage:
        expected: type[Exception] = DamagedSlice
    else:
        expected = CorruptMessage
    with pytest.raises(expected, match=f"(?s){says}"):
        down(bad + stored(9))


def test_a_later_format_at_the_beginning_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedForMessageFormat, match="magic 7"):
        down(stored(2)[:16] + b"\x07" + stored(2)[17:])


def test_every_damaged_byte_is_found_or_harmless() -> None:
    """Offsets are under no CRC, and a larger size waits for more bytes: nothing else passes."""
    for codec in (Codec.NONE, GZIP):
        data = stored(0, 1, codec=codec)
        for at in range(len(data)):
            for bit in (1, 128):
                changed = bytearray(data)
                changed[at] ^= bit
                try:
                    converted = down(bytes(changed))
                except (DamagedSlice, CorruptMessage, UnsupportedForMessageFormat):
                    continue
                found = {record.value for record in read(converted.data)}
                assert found <= {b"value 0", b"value 1"}


def test_plain_output_is_bounded() -> None:
    """A wrapper behind a plain message comes out plain only if there is room for it."""
    data = stored(0) + bytes(
        build_wrapper(
            timed_set(*[5] * 100, value=bytes(50)), offset=100, timestamp_ms=5, magic=1, codec=GZIP
        )
    )
    size = len(stored(0)) + 100 * 84
    assert down(data, max_bytes=size).messages == 101
    for limit in (size - 1, 1000, len(data), 0):
        converted = down(data, max_bytes=limit)
        assert (converted.messages, converted.used_bytes) == (1, len(stored(0)))
    alone = down(data[len(stored(0)) :], max_bytes=0)
    assert alone.messages == 100
    (wrapper,) = entries(alone.data)
    assert inner(wrapper) == list(range(1, 101))


def bomb(offset: int, count: int = 10, size: int = 10_000) -> bytes:
    """A wrapper of messages that compress well: `count` times `size` + 34 bytes in it."""
    plain = timed_set(*[5] * count, value=bytes(size))
    last = offset + count - 1
    return bytes(build_wrapper(plain, offset=last, timestamp_ms=5, magic=1, codec=GZIP))


def test_the_content_of_a_wrapper_is_bounded() -> None:
    data = bomb(0) + bomb(10) + bomb(20)
    content = 10 * 10_034
    assert down(data, max_content_bytes=3 * content).messages == 30
    assert down(data, max_content_bytes=3 * content - 1).messages == 20
    assert down(data, max_content_bytes=content).messages == 10
    mixed = bomb(0) + stored(10, 11)
    assert down(mixed, max_content_bytes=content + len(stored(10, 11))).messages == 12
    assert down(mixed, max_content_bytes=content + len(stored(10, 11)) - 1).messages == 10


def test_a_first_wrapper_beyond_the_bound_is_refused_by_name() -> None:
    with pytest.raises(MessageTooLarge, match=r"max\.decompressed\.bytes"):
        down(bomb(0), max_content_bytes=100_339)
    assert down(bomb(0), max_content_bytes=100_340).messages == 10


@pytest.mark.parametrize("codec", [Codec.NONE, GZIP])
def test_reading_on_from_what_was_used_gives_everything(codec: Codec) -> None:
    data = b"".join(stored(at, at + 1, codec=codec) for at in range(0, 40, 2))
    seen: list[int] = []
    while data:
        converted = down(data, max_content_bytes=150)
        seen += [record.offset for record in read(converted.data)]
        data = data[converted.used_bytes :]
    assert seen == list(range(40))


def messages_of(*sizes: int) -> bytes:
    data = bytearray()
    for offset, size in enumerate(sizes):
        data += build_set([NewRecord(bytes(size), timestamp_ms=5)], base_offset=offset)
    return bytes(data)


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param((20,) * 3000, id="many-small"),
        pytest.param((PIECE_BYTES * 3,) * 3, id="larger-than-a-piece"),
        pytest.param((20, PIECE_BYTES * 2, 20, PIECE_BYTES - 34, 1), id="both"),
        pytest.param((PIECE_BYTES - 34,) * 3, id="exactly-a-piece"),
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, GZIP])
def test_pieces_lose_and_double_nothing(sizes: tuple[int, ...], codec: Codec) -> None:
    data = messages_of(*sizes)
    if codec:
        data = bytes(
            build_wrapper(data, offset=len(sizes) - 1, timestamp_ms=5, magic=1, codec=codec)
        )
    converted = down(data, max_content_bytes=1 << 24)
    assert converted.messages == len(sizes)
    found = list(records(converted.data, max_decompressed_bytes=1 << 24))
    assert [record.offset for record in found] == list(range(len(sizes)))
    assert [len(record.value or b"") for record in found] == list(sizes)


def test_work_comes_in_pieces() -> None:
    """Between two pauses at most one piece; codecs only in calls."""
    data = messages_of(*[20] * 10_000)
    steps = list(downconversion(data, max_bytes=PLENTY, max_content_bytes=PLENTY))
    assert steps == [None] * len(steps)
    assert len(steps) >= len(data) // PIECE_BYTES

    wrapper = bytes(build_wrapper(data, offset=9999, timestamp_ms=5, magic=1, codec=GZIP))
    pauses, calls = 0, []
    generator = downconversion(wrapper, max_bytes=PLENTY, max_content_bytes=PLENTY)
    step = next(generator)
    while True:
        try:
            if step is None:
                pauses += 1
                step = generator.send(None)
            else:
                calls.append(step)
                step = generator.send(step())
        except StopIteration:
            break
    assert [call.func.__name__ for call in calls if isinstance(call, partial)] == [
        "decompress",
        "build_wrapper",
    ]
    assert pauses >= 2 * (len(data) // PIECE_BYTES), "checked, then converted"


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(make: Callable[[bytes], Buffer]) -> None:
    for codec in (Codec.NONE, GZIP):
        assert [record.offset for record in read(down(make(stored(3, 4, codec=codec))).data)] == [
            3,
            4,
        ]


def test_lz4_frames_are_written_anew_m55() -> None:
    plain = timed_set(1, 2)
    value = compress(Codec.LZ4, plain, magic=1)
    data = bytearray(as_entry(build_message(None, value, timestamp_ms=2, attributes=Codec.LZ4)))
    set_offset(data, 0, 1)
    (wrapper,) = entries(down(bytes(data)).data)
    assert wrapper.value is not None
    assert (value[6], wrapper.value[6]) == (0x82, 0x1A)
