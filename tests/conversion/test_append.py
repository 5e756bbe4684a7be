"""What becomes of a set on a topic that stores one fixed format."""

import gzip
import zlib

import lz4.frame
import pytest

from horolog.protocol.errors import (
    CorruptMessage,
    HorologError,
    InvalidTimestamp,
    MessageTooLarge,
    RecordListTooLarge,
)
from horolog.protocol.records.codecs.codec import compress, decompress
from horolog.protocol.records.layout import MESSAGE_CODECS, Codec
from horolog.protocol.records.messages.sets import (
    Entry,
    NewRecord,
    build_message,
    build_set,
    build_wrapper,
    entries,
    open_wrapper,
    set_timestamp,
)
from horolog.storage.log.admitted import Conversion
from horolog.testing.logs import ENTRY_BYTES, LogFolder, timed_set, untimed_set

NOW = 1_479_144_272_509
V0, V1 = "0.9.0", "0.10.0"
GZIP = Codec.GZIP
CODECS = MESSAGE_CODECS
COMPRESSED = CODECS[1:]


def inner(entry: Entry) -> list[Entry]:
    return open_wrapper(entry, max_decompressed_bytes=1 << 20)


def as_entry(message: bytes) -> bytes:
    return bytes(8) + len(message).to_bytes(4, "big") + message


def wrapped(value: bytes, codec: Codec, magic: int, time_ms: int = NOW) -> bytes:
    """The entry of a wrapper with that value."""
    return as_entry(
        build_message(
            None, value, timestamp_ms=time_ms if magic else -1, magic=magic, attributes=codec
        )
    )


def wrong_lz4(content: bytes, magic: int, checksum: str) -> bytes:
    """A frame with a wrong checksum, its last one."""
    frame = bytearray(lz4.frame.compress(content, block_linked=False, **{checksum: True}))
    frame[-1 if checksum == "content_checksum" else -5] ^= 1
    if not magic:
        frame[14] ^= 0xFF  # the header's, which is another one in v0
    return bytes(frame)


def facts(stored: list[Entry]) -> list[tuple[int, int, int, int]]:
    """Offset, magic, timestamp and attributes of entries."""
    return [(one.offset, one.magic, one.timestamp_ms, one.attributes) for one in stored]


@pytest.mark.parametrize(
    ("sent", "version", "kind", "expected"),
    [
        pytest.param(
            untimed_set(2), V1, "CreateTime", [(1, -1, 0), (1, -1, 0)], id="tc41-P-31-create"
        ),
        pytest.param(
            untimed_set(2), V1, "LogAppendTime", [(1, NOW, 8), (1, NOW, 8)], id="tc41-P-31-append"
        ),
        pytest.param(timed_set(5, -1), V0, "CreateTime", [(0, -1, 0)] * 2, id="tc42-P-32"),
        pytest.param(timed_set(5, -1), V0, "LogAppendTime", [(0, -1, 0)] * 2, id="tc42-append"),
        pytest.param(untimed_set(2), V0, "LogAppendTime", [(0, -1, 0)] * 2, id="MG-1-in-place"),
        pytest.param(
            timed_set(NOW, -1), V1, "CreateTime", [(1, NOW, 0), (1, -1, 0)], id="MG-2-in-place"
        ),
        pytest.param(timed_set(NOW, -1), V1, "LogAppendTime", [(1, NOW, 8)] * 2, id="MG-2-stamped"),
        pytest.param(
            untimed_set() + timed_set(7) + untimed_set() + timed_set(8),
            V0,
            "CreateTime",
            [(0, -1, 0)] * 4,
            id="tc40-P-3A-v0",
        ),
        pytest.param(
            untimed_set() + timed_set(7) + untimed_set() + timed_set(8),
            V1,
            "CreateTime",
            [(1, -1, 0), (1, 7, 0), (1, -1, 0), (1, 8, 0)],
            id="tc40-P-3A-v1",
        ),
        pytest.param(
            untimed_set() + timed_set(7),
            V1,
            "LogAppendTime",
            [(1, NOW, 8)] * 2,
            id="tc40-P-3A-v1-stamped",
        ),
    ],
)
def test_plain_sets(
    folder: LogFolder,
    sent: bytearray,
    version: str,
    kind: str,
    expected: list[tuple[int, int, int]],
) -> None:
    log = folder.open(message_format_version=version, message_timestamp_type=kind)
    log.appender.append(timed_set(NOW))
    appended = log.appender.append(sent)
    assert (appended.first_offset, appended.count) == (1, len(expected))
    stored = folder.entries()[1:]  # which checks the CRCs
    assert facts(stored) == [(at, *fact) for at, fact in enumerate(expected, 1)]
    assert {entry.value for entry in stored} == {b"hello"}
    assert appended.size_bytes == len(expected) * ENTRY_BYTES[expected[0][0]]


@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.label)
@pytest.mark.parametrize("magic", [0, 1], ids=["sent-v0", "sent-v1"])
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_wrappers_on_a_v0_topic_p34(folder: LogFolder, codec: Codec, magic: int, kind: str) -> None:
    """MG-1: one wrapper without a time, with absolute offsets inside and the codec's v0 form."""
    log = folder.open(message_format_version=V0, message_timestamp_type=kind)
    log.appender.append(untimed_set(5))
    times = (7, 9, 8) if magic else (-1, -1, -1)
    appended = log.appender.append(timed_set(*times, magic=magic, codec=codec))
    assert (appended.first_offset, appended.last_offset, appended.append_time_ms) == (5, 7, -1)
    wrapper = folder.entries()[-1]
    assert facts([wrapper]) == [(7, 0, -1, codec)]
    assert facts(inner(wrapper)) == [(5, 0, -1, 0), (6, 0, -1, 0), (7, 0, -1, 0)]
    assert wrapper.value is not None
    if codec is Codec.LZ4:
        assert wrapper.value[:7].hex() == "04224d1860401a", "M-54, M-55"


@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.label)
@pytest.mark.parametrize(
    ("kind", "time", "attributes"), [("CreateTime", -1, 0), ("LogAppendTime", NOW, 8)]
)
def test_v0_wrappers_on_a_v1_topic_p34(
    folder: LogFolder, codec: Codec, kind: str, time: int, attributes: int
) -> None:
    """MG-2: relative offsets inside; only the wrapper is stamped."""
    log = folder.open(message_format_version=V1, message_timestamp_type=kind)
    log.appender.append(untimed_set(5))
    appended = log.appender.append(untimed_set(3, codec=codec))
    assert (appended.first_offset, appended.last_offset) == (5, 7)
    wrapper = folder.entries()[-1]
    assert facts([wrapper]) == [(7, 1, time, codec | attributes)]
    assert facts(inner(wrapper)) == [(0, 1, -1, 0), (1, 1, -1, 0), (2, 1, -1, 0)]
    assert [record.timestamp_ms for record in folder.records()[5:]] == [time] * 3
    assert wrapper.value is not None
    if codec is Codec.LZ4:
        assert wrapper.value[:7].hex() == "04224d18604082", "M-54, M-55"


@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.label)
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_v1_wrapper_on_a_v1_topic_keeps_its_payload_p38(
    folder: LogFolder, codec: Codec, kind: str
) -> None:
    sent = bytes(timed_set(NOW, NOW + 9, NOW - 9, codec=codec))
    log = folder.open(message_format_version=V1, message_timestamp_type=kind)
    log.appender.append(untimed_set(5))
    assert log.appender.append(sent).conversion is None
    (wrapper,) = folder.entries()[5:]
    assert wrapper.offset == 7
    assert folder.stored()[-len(sent) :][26:] == sent[26:]


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("version", ["producer", V0, V1])
@pytest.mark.parametrize("magic", [0, 1])
def test_gzip_of_several_members_is_compressed_anew(
    folder: LogFolder, kind: str, version: str, magic: int
) -> None:
    """librdkafka reads one member alone, and aborts or loses what is in the others."""
    plain = timed_set(*[NOW + 9 if magic else -1] * 3, magic=magic)
    value = b"".join(gzip.compress(one, mtime=0) for one in (plain[:7], b"", plain[7:]))
    log = folder.open(message_format_version=version, message_timestamp_type=kind)
    log.appender.append(untimed_set(4))
    assert log.appender.append(wrapped(value, GZIP, magic, NOW + 9)).count == 3
    (wrapper,) = folder.entries()[4:]
    assert (wrapper.offset, wrapper.codec) == (6, GZIP)
    assert wrapper.value is not None
    decompressor = zlib.decompressobj(31)
    decompressor.decompress(wrapper.value)
    assert (decompressor.eof, decompressor.unused_data) == (True, b"")
    assert [one.value for one in inner(wrapper)] == [b"hello"] * 3


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(
            timed_set(7, 9, codec=GZIP) + untimed_set(1, codec=GZIP), id="tc39-two-wrappers"
        ),
        pytest.param(timed_set(7, 9) + untimed_set(1, codec=GZIP), id="P-37-plain-then-wrapper"),
        pytest.param(timed_set(7, 9, codec=GZIP) + untimed_set(), id="P-37-wrapper-then-plain"),
        pytest.param(
            timed_set(7) + timed_set(9, codec=Codec.LZ4) + untimed_set(codec=GZIP), id="all"
        ),
    ],
)
@pytest.mark.parametrize(("version", "times"), [(V0, [-1, -1, -1]), (V1, [7, 9, -1])])
def test_mixtures_with_wrappers_become_one_wrapper_p30(
    folder: LogFolder, sent: bytearray, version: str, times: list[int]
) -> None:
    log = folder.open(message_format_version=version)
    log.appender.append(untimed_set(4))
    assert log.appender.append(sent).count == 3
    (wrapper,) = folder.entries()[4:]
    magic = 0 if version == V0 else 1
    assert facts([wrapper]) == [(6, magic, max(times), GZIP)]
    offsets = [4, 5, 6] if version == V0 else [0, 1, 2]
    assert facts(inner(wrapper)) == [
        (offset, magic, time, 0) for offset, time in zip(offsets, times, strict=True)
    ]


@pytest.mark.parametrize("sent_codec", CODECS, ids=lambda codec: f"sent-{codec.label}")
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize(("version", "times"), [(V0, [-1, -1, -1]), (V1, [NOW, NOW + 9, NOW - 9])])
def test_the_topic_s_compression_tc37(
    folder: LogFolder, sent_codec: Codec, wanted: str, version: str, times: list[int]
) -> None:
    log = folder.open(compression_type=wanted, message_format_version=version)
    log.appender.append(timed_set(NOW, NOW + 9, NOW - 9, codec=sent_codec))
    codec = Codec.NONE if wanted == "uncompressed" else Codec[wanted.upper()]
    assert {entry.codec for entry in folder.entries()} == {codec}
    assert folder.times() == list(enumerate(times))
    assert {record.value for record in folder.records()} == {b"hello"}


@pytest.mark.parametrize("magic", [0, 1])
def test_unpacked_messages_are_all_stamped_tc38(folder: LogFolder, magic: int) -> None:
    folder.open(
        compression_type="uncompressed",
        message_timestamp_type="LogAppendTime",
        message_format_version=V1,
    )
    sent = untimed_set(2, codec=GZIP) if magic == 0 else timed_set(5, 6, codec=GZIP)
    folder.log.appender.append(sent)
    assert facts(folder.entries()) == [(0, 1, NOW, 8), (1, 1, NOW, 8)]


def test_a_wrapper_with_other_inner_offsets_tc34(folder: LogFolder) -> None:
    plain = timed_set(7, 9, base_offset=30)
    sent = build_wrapper(plain, offset=0, timestamp_ms=3, magic=1, codec=GZIP)
    log = folder.open(message_format_version=V0)
    log.appender.append(untimed_set(2))
    log.appender.append(sent)
    assert [one.offset for one in inner(folder.entries()[-1])] == [2, 3]


@pytest.mark.parametrize(
    ("sent", "limit", "error"),
    [
        pytest.param(untimed_set(), 31, MessageTooLarge, id="tc44-P-3C-grown-by-8"),
        pytest.param(untimed_set(), 38, MessageTooLarge, id="tc44-P-3C-one-too-few"),
        pytest.param(untimed_set(), 39, None, id="tc44-P-3C-fits-converted"),
        pytest.param(timed_set(5), 38, MessageTooLarge, id="tc43-P-21-as-sent"),
        pytest.param(timed_set(5), 39, None, id="tc43-P-21-fits"),
    ],
)
def test_sizes_after_conversion_to_v1(
    folder: LogFolder, sent: bytearray, limit: int, error: type[HorologError] | None
) -> None:
    log = folder.open(message_format_version=V1, max_message_bytes=limit)
    if error is None:
        assert log.appender.append(sent).count == 1
        return
    before = folder.content()
    with pytest.raises(error, match=rf"{ENTRY_BYTES[1]} bytes.*max\.message\.bytes"):
        log.appender.append(sent)
    assert folder.content() == before
    assert log.log_end_offset == 0


def test_a_message_is_too_large_as_sent_even_if_it_would_shrink_p21(folder: LogFolder) -> None:
    log = folder.open(message_format_version=V0, max_message_bytes=38)
    with pytest.raises(MessageTooLarge):
        log.appender.append(timed_set(5))
    assert log.appender.append(untimed_set()).count == 1


@pytest.mark.parametrize(("limit", "fits"), [(78, True), (77, False)])
def test_the_set_is_measured_after_conversion_tc45(
    folder: LogFolder, limit: int, fits: bool
) -> None:
    log = folder.open(message_format_version=V1, segment_bytes=limit)
    if fits:
        assert log.appender.append(untimed_set(2)).size_bytes == 78
        return
    with pytest.raises(RecordListTooLarge, match="78 bytes"):
        log.appender.append(untimed_set(2))


def test_index_marks_fall_where_the_converted_messages_are(folder: LogFolder) -> None:
    log = folder.open(message_format_version=V1, index_interval_bytes=39)
    log.appender.append(untimed_set(5))
    assert folder.offset_entries() == [(2, 78), (4, 156)]
    folder.set(message_format_version=V0)
    log.appender.append(timed_set(1, 2, 3))
    assert folder.offset_entries() == [(2, 78), (4, 156), (6, 226)]
    assert folder.time_entries() == []


@pytest.mark.parametrize(
    ("sent", "version", "accepted"),
    [
        pytest.param(untimed_set(), V1, True, id="P-2A-v0"),
        pytest.param(untimed_set(codec=GZIP), V1, True, id="P-2A-v0-gzip"),
        pytest.param(timed_set(-1), V1, True, id="tc26-P-2A-v1"),
        pytest.param(untimed_set() + timed_set(NOW - 1001), V1, False, id="P-28-mixed"),
        pytest.param(timed_set(NOW - 1001), V1, False, id="tc22-P-28"),
        pytest.param(timed_set(NOW - 1001), V0, True, id="D17-plain"),
        pytest.param(timed_set(NOW + 10**9, codec=GZIP), V0, True, id="D17-gzip"),
        pytest.param(untimed_set() + timed_set(0), V0, True, id="D17-mixed"),
    ],
)
@pytest.mark.parametrize("compression", ["producer", "uncompressed", "lz4"])
def test_which_times_are_judged_p33(
    folder: LogFolder, sent: bytearray, version: str, accepted: bool, compression: str
) -> None:
    folder.set(max_message_time_difference_ms=1000, compression_type=compression)
    log = folder.open(message_format_version=version)
    if accepted:
        log.appender.append(sent)
        assert {time for _, time in folder.times()} == {-1}
    else:
        with pytest.raises(InvalidTimestamp, match=r"max\.message\.time\.difference\.ms=1000"):
            log.appender.append(sent)
        assert log.log_end_offset == 0


@pytest.mark.parametrize("codec", [Codec.NONE, GZIP])
@pytest.mark.parametrize("timestamp_ms", [-2, -5, -(2**63)])
def test_a_time_that_is_not_stored_may_be_anything_d17(
    folder: LogFolder, timestamp_ms: int, codec: Codec
) -> None:
    """It is not counted as a latency either."""
    sent = timed_set(5, NOW)
    set_timestamp(sent, 0, 27, timestamp_ms)
    if codec:
        sent = build_wrapper(sent, offset=1, timestamp_ms=NOW, magic=1, codec=codec)
    log = folder.open(message_format_version=V0)
    latency = log.appender.append(bytes(sent)).latency
    assert latency is not None
    assert (latency.timed, latency.untimed, latency.sum_ms, latency.max_ms) == (0, 2, 0, 0)
    folder.set(message_format_version=V1)
    with pytest.raises(InvalidTimestamp, match="0 or more"):
        log.appender.append(bytes(sent))


@pytest.mark.parametrize("version", [V0, V1, "producer"])
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(as_entry(build_message(None, b"x", attributes=8)), id="plain"),
        pytest.param(
            build_wrapper(
                timed_set(5), offset=0, timestamp_ms=5, magic=1, codec=GZIP, append_time=True
            ),
            id="gzip",
        ),
    ],
)
def test_a_producer_never_sets_bit_3_tc30(
    folder: LogFolder, sent: bytes, kind: str, version: str
) -> None:
    """P-29: whatever is stored, it is the producer that is wrong."""
    log = folder.open(message_format_version=version, message_timestamp_type=kind)
    with pytest.raises(InvalidTimestamp, match="bit 3"):
        log.appender.append(bytes(sent))


def test_bit_3_of_a_v0_message_means_nothing_m6(folder: LogFolder) -> None:
    sent = as_entry(build_message(None, b"hello", magic=0, attributes=8))
    log = folder.open(message_format_version=V1)
    log.appender.append(sent)
    assert facts(folder.entries()) == [(0, 1, -1, 0)]


@pytest.mark.parametrize("version", [V0, V1])
@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(timed_set(5)[:-1] + b"?", id="tc48-crc"),
        pytest.param(
            as_entry(
                build_message(
                    None, compress(GZIP, timed_set(5)[:-1] + b"?", magic=1), attributes=GZIP
                )
            ),
            id="P-39-inner-crc",
        ),
        pytest.param(
            as_entry(build_message(None, compress(GZIP, untimed_set(), magic=1), attributes=GZIP)),
            id="tc36-M-27-v0-in-v1",
        ),
        pytest.param(
            as_entry(
                build_message(None, compress(GZIP, timed_set(5), magic=0), magic=0, attributes=GZIP)
            ),
            id="M-27-v1-in-v0",
        ),
        pytest.param(
            as_entry(
                build_message(None, compress(GZIP, timed_set(5, codec=GZIP), magic=1), attributes=1)
            ),
            id="tc35-M-26-nested",
        ),
        pytest.param(
            as_entry(build_message(None, compress(GZIP, b"", magic=1), attributes=GZIP)),
            id="M-30-empty-wrapper",
        ),
        *(
            pytest.param(
                wrapped(
                    wrong_lz4(bytes(timed_set(NOW if magic else -1, magic=magic)), magic, checksum),
                    Codec.LZ4,
                    magic,
                ),
                id=f"lz4-{checksum}-v{magic}",
            )
            for magic in (0, 1)
            for checksum in ("content_checksum", "block_checksum")
        ),
    ],
)
def test_conversion_blesses_nothing_that_is_corrupt(
    folder: LogFolder, sent: bytes, version: str
) -> None:
    """Nor does what would be stored as it was sent."""
    log = folder.open(message_format_version=version)
    log.appender.append(untimed_set())
    before = folder.content()
    with pytest.raises(CorruptMessage):
        log.appender.append(bytes(untimed_set()) + bytes(timed_set(5)) + bytes(sent))
    with pytest.raises(CorruptMessage):
        log.appender.append(bytes(sent))
    assert folder.content() == before


def test_a_trailing_piece_is_dropped_tc53(folder: LogFolder) -> None:
    log = folder.open(message_format_version=V0)
    assert log.appender.append(timed_set(5, 6) + timed_set(7)[:20]).count == 2
    assert [entry.value for entry in folder.entries()] == [b"hello"] * 2
    assert log.appender.append(timed_set(7)[:20]).first_offset == -1


@pytest.mark.parametrize("codec", [Codec.NONE, GZIP])
def test_no_append_time_is_answered_where_none_is_stored_p4(
    folder: LogFolder, codec: Codec
) -> None:
    log = folder.open(message_timestamp_type="LogAppendTime", message_format_version=V0)
    assert log.appender.append(timed_set(5, codec=codec)).append_time_ms == -1
    folder.set(message_format_version=V1)
    assert log.appender.append(untimed_set(codec=codec)).append_time_ms == NOW


def test_a_clock_that_goes_back_matters_only_where_times_are_stored(folder: LogFolder) -> None:
    log = folder.open(message_timestamp_type="LogAppendTime", message_format_version=V1)
    log.appender.append(untimed_set())
    folder.set(message_format_version=V0)
    folder.clock.step(-10_000)
    log.appender.append(untimed_set())
    assert not folder.events.named("clock_behind_log")
    folder.set(message_format_version=V1)
    assert log.appender.append(untimed_set()).append_time_ms == NOW - 10_000


@pytest.mark.parametrize(
    ("sent", "version", "kind", "expected"),
    [
        pytest.param(untimed_set(3), V1, "CreateTime", (1, 3, 93), id="up"),
        pytest.param(untimed_set(3), "producer", "LogAppendTime", (1, 3, 93), id="up-to-stamp"),
        pytest.param(timed_set(1, 2), V0, "CreateTime", (0, 2, 78), id="down"),
        pytest.param(untimed_set(2) + timed_set(1), V0, "CreateTime", (0, 1, 101), id="one-of-3"),
        pytest.param(untimed_set(2) + timed_set(1), V1, "CreateTime", (1, 2, 101), id="two-of-3"),
        pytest.param(untimed_set(3), V0, "CreateTime", None, id="v0-as-it-is"),
        pytest.param(untimed_set(3, codec=GZIP), V0, "CreateTime", None, id="v0-only-rebuilt"),
        pytest.param(timed_set(1, 2), V1, "LogAppendTime", None, id="v1-only-stamped"),
        pytest.param(timed_set(1, 2), "producer", "CreateTime", None, id="as-sent"),
        pytest.param(untimed_set(2) + timed_set(1), "producer", "CreateTime", None, id="both"),
    ],
)
def test_conversions_are_told(
    folder: LogFolder,
    sent: bytearray,
    version: str,
    kind: str,
    expected: tuple[int, int, int] | None,
) -> None:
    log = folder.open(message_format_version=version, message_timestamp_type=kind)
    conversion = log.appender.append(sent).conversion
    if expected is None:
        assert conversion is None
    else:
        magic, messages, size_bytes = expected
        assert conversion == Conversion(magic, magic > 0, messages, size_bytes, 0.0)


def test_a_large_set_of_a_wrapper_and_many_plain_messages(folder: LogFolder) -> None:
    """Each plain stretch counts once, not message by message, and in its place."""
    values = [b"%d" % number for number in range(500)]
    records = [NewRecord(value, timestamp_ms=NOW) for value in values]
    sent = (
        build_set(records[:200])
        + build_set(records[200:300], codec=GZIP)
        + build_set(records[300:450], magic=1)
        + build_set(records[450:], codec=Codec.SNAPPY)
    )
    log = folder.open(message_format_version=V0)
    assert log.appender.append(sent).count == 500
    assert [record.value for record in folder.records()] == values
    assert {entry.codec for entry in folder.entries()} == {Codec.SNAPPY}


def test_gzip_payload_is_a_v0_set_that_any_reader_understands(folder: LogFolder) -> None:
    log = folder.open(message_format_version=V0)
    log.appender.append(timed_set(7, 9, codec=GZIP))
    (wrapper,) = folder.entries()
    assert wrapper.value is not None
    data = decompress(GZIP, wrapper.value, magic=0, max_bytes=1 << 20)
    assert data == bytes(timed_set(-1, -1, magic=0))
    assert [one.offset for one in entries(data)] == [0, 1]
