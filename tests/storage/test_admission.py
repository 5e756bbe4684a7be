"""What is refused, in which order it is judged, and that a refusal leaves no trace."""

import pytest

from horolog.protocol.errors import (
    CorruptMessage,
    HorologError,
    MessageTooLarge,
    RecordListTooLarge,
    UnsupportedForMessageFormat,
)
from horolog.protocol.records.codecs.codec import compress
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import build_message
from horolog.testing.logs import LogFolder, timed_set, untimed_set

NOW = 1_479_144_272_509
GZIP = Codec.GZIP


def flipped(data: bytearray, place: int) -> bytearray:
    """`data` with one bit of the byte at `place` changed."""
    data = bytearray(data)
    data[place] ^= 1
    return data


def entry(message: bytes, offset: int = 0) -> bytes:
    return offset.to_bytes(8, "big") + len(message).to_bytes(4, "big") + message


def wrapper(value: bytes | None, *, magic: int = 1, codec: int = 1) -> bytes:
    return entry(build_message(None, value, magic=magic, attributes=codec))


def around(inner: bytes | bytearray, *, magic: int = 1) -> bytes:
    return wrapper(compress(GZIP, inner, magic=magic), magic=magic)


def batch_of_magic_3() -> bytes:
    """A batch of a format that does not exist yet."""
    return entry(b"\0\0\0\0" + b"\x03" + bytes(60))


PLAIN = timed_set(NOW, NOW)
REFUSED = [
    pytest.param(flipped(PLAIN, 38), CorruptMessage, "CRC", id="tc48-P-21-first"),
    pytest.param(flipped(PLAIN, 77), CorruptMessage, "CRC", id="tc48-P-21-last"),
    pytest.param(
        timed_set(NOW) + b"\0" * 8 + (13).to_bytes(4, "big") + bytes(20),
        CorruptMessage,
        "13 bytes",
        id="tc9-P-22-size-13",
    ),
    pytest.param(
        b"\0" * 8 + (-1).to_bytes(4, "big", signed=True) + bytes(30),
        CorruptMessage,
        "-1 bytes",
        id="P-22-negative-size",
    ),
    pytest.param(around(timed_set(NOW, codec=GZIP)), CorruptMessage, "again", id="tc35-M-26"),
    pytest.param(
        around(timed_set(NOW) + timed_set(NOW, codec=GZIP, base_offset=1)),
        CorruptMessage,
        "again",
        id="tc35-M-26-behind-a-plain-one",
    ),
    pytest.param(around(untimed_set()), CorruptMessage, "format", id="tc36-M-27"),
    pytest.param(around(timed_set(NOW), magic=0), CorruptMessage, "format", id="M-27-v0-with-v1"),
    pytest.param(
        around(timed_set(NOW) + untimed_set()), CorruptMessage, "format", id="M-27-both-in-one"
    ),
    pytest.param(
        around(flipped(timed_set(NOW, NOW), 77)), CorruptMessage, "CRC", id="P-39-inner-crc"
    ),
    pytest.param(around(timed_set(NOW)[:-1]), CorruptMessage, "incomplete", id="M-28-inner-cut"),
    pytest.param(wrapper(b"not gzip at all"), CorruptMessage, "gzip", id="M-28-not-compressed"),
    pytest.param(
        wrapper(compress(GZIP, timed_set(NOW), magic=1)[:-3]),
        CorruptMessage,
        "gzip",
        id="M-28-stream-cut",
    ),
    pytest.param(
        wrapper(compress(GZIP, timed_set(NOW), magic=1) + b"x"),
        CorruptMessage,
        "gzip",
        id="M-28-trailing-bytes",
    ),
    pytest.param(wrapper(None), CorruptMessage, "null value", id="M-29"),
    pytest.param(wrapper(compress(GZIP, b"", magic=1)), CorruptMessage, "no message", id="M-30"),
    pytest.param(wrapper(b"", codec=5), CorruptMessage, "codec 5", id="M-57"),
    pytest.param(
        timed_set(NOW) + wrapper(None), CorruptMessage, "null value", id="M-29-behind-a-good-one"
    ),
    pytest.param(
        batch_of_magic_3(), UnsupportedForMessageFormat, "magic 3", id="decision-26-magic-3"
    ),
    pytest.param(
        entry(b"\0\0\0\0" + b"\x09" + bytes(60)),
        UnsupportedForMessageFormat,
        "magic 9",
        id="M-7-magic-9",
    ),
    pytest.param(
        timed_set(NOW, value=b"x" * 1000), MessageTooLarge, "max.message.bytes", id="P-21-too-large"
    ),
]


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize(("sent", "error", "words"), REFUSED)
def test_refused_without_a_trace_v14(
    folder: LogFolder, sent: bytes, error: type[HorologError], words: str, kind: str
) -> None:
    log = folder.open(
        message_timestamp_type=kind, max_message_bytes=500, index_interval_bytes=0, segment_ms=1
    )
    folder.append(NOW, NOW)
    folder.log.appender.append(untimed_set())
    before = folder.content()
    facts = (log.log_end_offset, log.high_watermark, log.segment_count, folder.time_entries())
    with pytest.raises(error, match=words):
        log.appender.append(sent)
    assert folder.content() == before
    assert facts == (
        log.log_end_offset,
        log.high_watermark,
        log.segment_count,
        folder.time_entries(),
    )
    assert folder.append(NOW) == [3]


def sized(entry_bytes: int, *, magic: int = 1) -> bytearray:
    overhead = 12 + {0: 14, 1: 22}[magic]
    timestamp_ms = NOW if magic else -1
    return timed_set(timestamp_ms, magic=magic, value=b"x" * (entry_bytes - overhead))


@pytest.mark.parametrize(
    ("sent", "kind", "accepted"),
    [
        pytest.param(sized(100), "CreateTime", True, id="tc43-P-21-equal"),
        pytest.param(sized(101), "CreateTime", False, id="tc43-P-21-one-more"),
        pytest.param(sized(100) + sized(101), "CreateTime", False, id="tc43-P-21-second"),
        pytest.param(sized(100) * 5, "CreateTime", True, id="P-21-each-by-itself"),
        pytest.param(sized(100, magic=0), "CreateTime", True, id="tc44-P-3C-stays-v0"),
        pytest.param(sized(100, magic=0), "LogAppendTime", False, id="tc44-P-3C-grows-by-8"),
        pytest.param(sized(92, magic=0), "LogAppendTime", True, id="tc44-P-3C-room-to-grow"),
    ],
)
def test_the_limit_of_a_message(
    folder: LogFolder, sent: bytearray, kind: str, accepted: bool
) -> None:
    log = folder.open(max_message_bytes=100, message_timestamp_type=kind)
    if accepted:
        assert log.appender.append(sent).first_offset == 0
        return
    before = folder.content()
    with pytest.raises(MessageTooLarge):
        log.appender.append(sent)
    assert folder.content() == before


@pytest.mark.parametrize(
    ("missing", "accepted"),
    [pytest.param(0, True, id="P-21-equal"), pytest.param(1, False, id="P-21-one-less")],
)
def test_a_wrapper_counts_as_it_was_sent(folder: LogFolder, missing: int, accepted: bool) -> None:
    sent = timed_set(*[NOW] * 50, codec=GZIP)
    log = folder.open(max_message_bytes=len(sent) - missing)
    assert len(sent) < 50 * 39 / 2
    if accepted:
        assert log.appender.append(sent).count == 50
    else:
        with pytest.raises(MessageTooLarge):
            log.appender.append(sent)


def test_a_rebuilt_wrapper_is_measured_again_p3c(folder: LogFolder) -> None:
    # Each wrapper is small enough; one wrapper around both messages' bytes would not be.
    noise = [bytes((i * j * 7919) % 251 for i in range(200)) for j in (3, 5)]
    sent = b"".join(timed_set(NOW, codec=GZIP, value=value) for value in noise)
    limit = max(len(sent) * 3 // 4, 1)
    log = folder.open(max_message_bytes=limit)
    with pytest.raises(MessageTooLarge):
        log.appender.append(sent)
    assert log.log_end_offset == 0


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        pytest.param(flipped(sized(101), 100), MessageTooLarge, id="P-21-size-before-crc"),
        pytest.param(
            flipped(sized(100), 99) + sized(101), CorruptMessage, id="P-21-first-message-first"
        ),
        pytest.param(
            sized(101) + flipped(sized(100), 99), MessageTooLarge, id="P-21-large-then-corrupt"
        ),
    ],
)
def test_order_of_judgement(folder: LogFolder, sent: bytearray, error: type[HorologError]) -> None:
    log = folder.open(max_message_bytes=100)
    with pytest.raises(error):
        log.appender.append(sent)


@pytest.mark.parametrize(
    ("set_bytes", "kind", "accepted"),
    [
        pytest.param(390, "CreateTime", True, id="tc45-P-24-equal"),
        pytest.param(391, "CreateTime", False, id="tc45-P-24-one-more"),
        pytest.param(390, "LogAppendTime", True, id="tc45-P-24-stamped"),
        pytest.param(391, "LogAppendTime", False, id="tc45-P-24-stamped-one-more"),
    ],
)
def test_the_limit_of_a_set(folder: LogFolder, set_bytes: int, kind: str, accepted: bool) -> None:
    log = folder.open(segment_bytes=390, message_timestamp_type=kind)
    sent = timed_set(*[NOW] * 9) + sized(set_bytes - 9 * 39)
    if accepted:
        assert log.appender.append(sent).size_bytes == set_bytes
        return
    before = folder.content()
    with pytest.raises(RecordListTooLarge, match=r"391 bytes.*390 \(segment\.bytes\)") as refused:
        log.appender.append(sent)
    assert refused.value.code == 18
    assert folder.content() == before


def test_a_set_too_large_for_a_segment_does_not_roll_v14(folder: LogFolder) -> None:
    log = folder.open(segment_bytes=100)
    folder.append(NOW, NOW)
    before = folder.content()
    with pytest.raises(RecordListTooLarge):
        log.appender.append(timed_set(NOW, NOW, NOW))
    assert folder.content() == before


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="P-23-empty"),
        pytest.param(b"\0" * 11, id="P-23-less-than-a-header"),
        pytest.param(bytes(timed_set(NOW)[:-1]), id="tc52-P-23-partial"),
        pytest.param(bytes(timed_set(NOW)[:12]), id="tc52-P-23-header-alone"),
        pytest.param(bytes(timed_set(NOW, codec=GZIP)[:-1]), id="tc52-P-23-partial-wrapper"),
    ],
)
def test_nothing_complete_is_success_and_appends_nothing(folder: LogFolder, sent: bytes) -> None:
    log = folder.open(segment_ms=1)
    log.appender.append(untimed_set())
    folder.clock.advance(100)  # The segment is past its time: an empty set still does not roll it.
    before = folder.content()
    appended = log.appender.append(sent)
    assert (appended.first_offset, appended.last_offset, appended.append_time_ms) == (-1, -1, -1)
    assert (appended.count, appended.size_bytes, appended.rolled) == (0, 0, None)
    assert folder.content() == before
    assert log.log_end_offset == 1


@pytest.mark.parametrize(
    ("tail", "kind"),
    [
        pytest.param(bytes(timed_set(NOW)[:-1]), "CreateTime", id="tc53-P-22"),
        pytest.param(b"\0" * 11, "CreateTime", id="tc53-P-22-short-header"),
        pytest.param(bytes(timed_set(NOW)[:-1]), "LogAppendTime", id="tc53-P-22-stamped"),
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, GZIP], ids=["plain", "gzip"])
def test_a_partial_tail_is_dropped(folder: LogFolder, tail: bytes, kind: str, codec: Codec) -> None:
    log = folder.open(message_timestamp_type=kind)
    sent = timed_set(NOW, NOW, codec=codec)
    appended = log.appender.append(sent + tail)
    assert (appended.first_offset, appended.last_offset, appended.count) == (0, 1, 2)
    assert appended.size_bytes == len(sent)
    assert log.size_bytes == len(sent)
    assert folder.times() == [(0, NOW), (1, NOW)]


def test_what_a_wrapper_may_open_to_is_limited(folder: LogFolder) -> None:
    log = folder.open(max_decompressed_bytes=2000)
    zeros = b"\0" * 2001
    with pytest.raises(MessageTooLarge, match=r"max\.decompressed\.bytes"):
        log.appender.append(timed_set(NOW, codec=GZIP, value=zeros))
    assert log.appender.append(timed_set(NOW, codec=GZIP, value=zeros[: 2000 - 34])).count == 1


def test_all_wrappers_of_a_set_share_that_limit(folder: LogFolder) -> None:
    log = folder.open(max_decompressed_bytes=2000)
    half = timed_set(NOW, codec=GZIP, value=b"\0" * 1000)
    log.appender.append(half)
    with pytest.raises(MessageTooLarge, match=r"max\.decompressed\.bytes"):
        log.appender.append(half + half)
    assert log.log_end_offset == 1


def test_a_read_only_buffer_is_not_changed(folder: LogFolder) -> None:
    folder.open(message_timestamp_type="LogAppendTime")
    sent = bytes(timed_set(5))
    kept = bytes(bytearray(sent))
    folder.log.appender.append(memoryview(sent))
    assert sent == kept
    assert folder.times() == [(0, NOW)]


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_part_of_a_frame_is_stored_as_it_is_and_what_is_around_it_stays(
    folder: LogFolder, kind: str
) -> None:
    """A set is a view of the request that it came in, with other bytes before and behind it."""
    log = folder.open(message_timestamp_type=kind)
    sent = timed_set(NOW, NOW)
    frame = bytearray(b"front" + sent + b"end")
    log.appender.append(timed_set(NOW))
    log.appender.append(memoryview(frame)[5:-3])
    assert (bytes(frame[:5]), bytes(frame[-3:])) == (b"front", b"end")
    assert bytes(frame[5:-3]) == folder.stored()[len(sent) // 2 :]


def test_null_and_empty_values_are_messages_p26(folder: LogFolder) -> None:
    folder.open()
    for value in (None, b""):
        folder.log.appender.append(entry(build_message(b"", value, timestamp_ms=NOW)))
    assert [(record.key, record.value) for record in folder.records()] == [
        (b"", None),
        (b"", b""),
    ]


def test_a_topic_that_wants_one_codec_gets_one_wrapper(folder: LogFolder) -> None:
    folder.open(compression_type="lz4")
    folder.log.appender.append(timed_set(NOW, NOW - 1, NOW + 1))
    stored = folder.entries()
    assert [(one.codec, one.offset, one.timestamp_ms) for one in stored] == [
        (Codec.LZ4, 2, NOW + 1)
    ]
    assert folder.times() == [(0, NOW), (1, NOW - 1), (2, NOW + 1)]


def test_a_wrapper_with_unusual_bits_keeps_them_m5(folder: LogFolder) -> None:
    inner = compress(GZIP, timed_set(NOW, NOW), magic=1)
    folder.open()
    folder.log.appender.append(
        entry(build_message(None, inner, timestamp_ms=NOW, attributes=0xF1), 1)
    )
    assert [one.attributes for one in folder.entries()] == [0xF1]
