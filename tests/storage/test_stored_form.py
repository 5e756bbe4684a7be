"""What an accepted set looks like in the log: offsets, times, payloads."""

import pytest

from horolog.protocol.records.codecs.codec import decompress
from horolog.protocol.records.layout import Codec, TimestampType
from horolog.protocol.records.messages.sets import Entry, build_wrapper, set_offset, set_timestamp
from horolog.testing.logs import LogFolder, timed_set, untimed_set

NOW = 1_479_144_272_509
GZIP = Codec.GZIP
CT = TimestampType.CREATE_TIME
LAT = TimestampType.LOG_APPEND_TIME
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def inner(entry: Entry) -> bytes:
    assert entry.value is not None
    return decompress(entry.codec, entry.value, magic=entry.magic, max_bytes=1 << 20)


def wrapped(*timestamps_ms: int, offset: int, timestamp_ms: int) -> bytearray:
    plain = timed_set(*timestamps_ms)
    return build_wrapper(plain, offset=offset, timestamp_ms=timestamp_ms, magic=1, codec=GZIP)


def test_create_time_is_stored_as_sent_tc28(folder: LogFolder) -> None:
    log = folder.open()
    log.appender.append(timed_set(NOW))
    sent = timed_set(NOW - 5, NOW + 5, -1)
    appended = log.appender.append(sent)
    assert (appended.first_offset, appended.last_offset, appended.count) == (1, 3, 3)
    assert appended.append_time_ms == -1
    assert folder.times() == [(0, NOW), (1, NOW - 5), (2, NOW + 5), (3, -1)]
    stored = folder.stored()[39:]
    assert [stored[at + 8 : at + 39] for at in (0, 39, 78)] == [
        bytes(sent[at + 8 : at + 39]) for at in (0, 39, 78)
    ]


def test_log_append_time_tc27(folder: LogFolder) -> None:
    log = folder.open(message_timestamp_type="LogAppendTime", max_message_time_difference_ms=1000)
    appended = log.appender.append(timed_set(0, -1, NOW + 10**9))
    assert appended.append_time_ms == NOW
    assert [
        (entry.offset, entry.timestamp_ms, entry.attributes, entry.value)
        for entry in folder.entries()
    ] == [(0, NOW, 0x08, b"hello"), (1, NOW, 0x08, b"hello"), (2, NOW, 0x08, b"hello")]
    assert [record.timestamp_type for record in folder.records()] == [LAT, LAT, LAT]


@pytest.mark.parametrize(
    ("wrapper_offset", "wrapper_ms", "crc_kept"),
    [
        pytest.param(2, NOW + 9, True, id="tc31-P-38-all-as-it-should-be"),
        pytest.param(2, NOW, False, id="tc32-P-38-time-too-small"),
        pytest.param(2, NOW + 99, False, id="tc32-P-38-time-too-large"),
        pytest.param(2, -1, False, id="tc32-P-38-no-time"),
        pytest.param(0, NOW + 9, True, id="tc34-P-35-offset-0"),
        pytest.param(77, NOW + 9, True, id="tc34-P-35-any-offset"),
    ],
)
def test_a_good_wrapper_is_kept_in_place(
    folder: LogFolder, wrapper_offset: int, wrapper_ms: int, crc_kept: bool
) -> None:
    sent = wrapped(NOW, NOW + 9, NOW - 9, offset=wrapper_offset, timestamp_ms=wrapper_ms)
    log = folder.open()
    folder.append(NOW)
    appended = log.appender.append(bytes(sent))
    assert (appended.first_offset, appended.last_offset, appended.count) == (1, 3, 3)
    stored = folder.stored()[39:]
    assert int.from_bytes(stored[:8], "big") == 3
    assert stored[26:] == bytes(sent[26:])
    assert (stored[12:16] == bytes(sent[12:16])) is crc_kept
    assert folder.entries()[1].timestamp_ms == NOW + 9
    assert folder.times()[1:] == [(1, NOW), (2, NOW + 9), (3, NOW - 9)]


def test_a_wrapper_s_largest_time_is_none_when_no_message_has_one(folder: LogFolder) -> None:
    folder.open()
    folder.log.appender.append(wrapped(-1, -1, offset=1, timestamp_ms=NOW))
    assert [entry.timestamp_ms for entry in folder.entries()] == [-1]
    assert folder.time_entries() == []
    assert folder.log.segments[-1].largest_timestamp_ms == -1


def test_log_append_time_on_a_wrapper_tc33(folder: LogFolder) -> None:
    """D6, decision 12."""
    sent = wrapped(NOW - 7, NOW - 5, offset=1, timestamp_ms=NOW - 5)
    log = folder.open(message_timestamp_type="LogAppendTime")
    assert log.appender.append(bytes(sent)).append_time_ms == NOW
    (stored,) = folder.entries()
    assert (stored.offset, stored.timestamp_ms, stored.attributes) == (1, NOW, 0x09)
    assert folder.stored()[26:] == bytes(sent[26:])
    assert inner(stored) == timed_set(NOW - 7, NOW - 5)
    assert folder.times() == [(0, NOW), (1, NOW)]


@pytest.mark.parametrize(
    "offsets",
    [
        pytest.param((5, 6, 7), id="not-from-0"),
        pytest.param((0, 2, 4), id="with-gaps"),
        pytest.param((0, 0, 0), id="all-0"),
        pytest.param((2, 1, 0), id="falling"),
    ],
)
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_wrapper_with_other_inner_offsets_is_rebuilt_p35(
    folder: LogFolder, offsets: tuple[int, int, int], kind: str
) -> None:
    plain = timed_set(NOW, NOW + 9, NOW - 9)
    for number, offset in enumerate(offsets):
        set_offset(plain, number * 39, offset)
    sent = build_wrapper(plain, offset=2, timestamp_ms=NOW + 9, magic=1, codec=GZIP)
    folder.open(message_timestamp_type=kind)
    folder.append(NOW)
    folder.log.appender.append(sent)
    stored = folder.entries()[1]
    assert (stored.offset, stored.codec, stored.magic) == (3, GZIP, 1)
    assert inner(stored) == timed_set(NOW, NOW + 9, NOW - 9)
    times = [NOW, NOW + 9, NOW - 9] if kind == "CreateTime" else [NOW, NOW, NOW]
    assert folder.times()[1:] == list(zip((1, 2, 3), times, strict=True))


@pytest.mark.parametrize(
    ("sent", "codec", "count"),
    [
        pytest.param(
            wrapped(NOW, NOW, offset=1, timestamp_ms=NOW)
            + wrapped(NOW, NOW, offset=3, timestamp_ms=NOW),
            GZIP,
            4,
            id="tc39-P-37-two-wrappers",
        ),
        pytest.param(
            wrapped(NOW, NOW, offset=1, timestamp_ms=NOW) + timed_set(NOW, base_offset=2),
            GZIP,
            3,
            id="P-37-wrapper-then-message",
        ),
        pytest.param(
            timed_set(NOW) + wrapped(NOW, NOW, offset=2, timestamp_ms=NOW),
            GZIP,
            3,
            id="P-37-message-then-wrapper",
        ),
        pytest.param(
            timed_set(NOW, codec=GZIP) + timed_set(NOW, codec=Codec.LZ4),
            Codec.LZ4,
            2,
            id="P-30-the-last-codec-counts",
        ),
    ],
)
def test_several_entries_with_a_wrapper_become_one(
    folder: LogFolder, sent: bytearray, codec: Codec, count: int
) -> None:
    log = folder.open()
    folder.append(NOW)
    assert log.appender.append(sent).count == count
    assert [(entry.offset, entry.codec) for entry in folder.entries()] == [
        (0, Codec.NONE),
        (count, codec),
    ]
    assert [offset for offset, _ in folder.times()] == list(range(count + 1))
    assert folder.append(NOW) == [count + 1]


@pytest.mark.parametrize("sent_codec", CODECS, ids=lambda codec: f"sent-{codec.label}")
@pytest.mark.parametrize(
    "wanted", ["uncompressed", "gzip", "snappy", "lz4"], ids=lambda name: f"topic-{name}"
)
def test_the_topic_s_compression_tc37(folder: LogFolder, sent_codec: Codec, wanted: str) -> None:
    folder.open(compression_type=wanted)
    folder.log.appender.append(timed_set(NOW, NOW + 9, NOW - 9, codec=sent_codec))
    codec = Codec.NONE if wanted == "uncompressed" else Codec[wanted.upper()]
    assert {entry.codec for entry in folder.entries()} == {codec}
    assert folder.times() == [(0, NOW), (1, NOW + 9), (2, NOW - 9)]
    assert {record.value for record in folder.records()} == {b"hello"}


def test_unpacked_messages_are_all_stamped_tc38(folder: LogFolder) -> None:
    folder.open(compression_type="uncompressed", message_timestamp_type="LogAppendTime")
    folder.log.appender.append(timed_set(NOW - 5, NOW - 6, codec=GZIP))
    assert [(one.codec, one.timestamp_ms, one.attributes) for one in folder.entries()] == [
        (Codec.NONE, NOW, 0x08),
        (Codec.NONE, NOW, 0x08),
    ]


@pytest.mark.parametrize(
    ("kind", "magics", "sizes"),
    [
        pytest.param("CreateTime", [0, 1, 0, 1], [19, 27, 19, 27], id="tc40-as-sent"),
        pytest.param("LogAppendTime", [1, 1, 1, 1], [27, 27, 27, 27], id="tc40-P-3A-stamped"),
    ],
)
def test_a_set_of_both_formats(
    folder: LogFolder, kind: str, magics: list[int], sizes: list[int]
) -> None:
    folder.open(message_timestamp_type=kind)
    sent = untimed_set() + timed_set(NOW - 1) + untimed_set() + timed_set(NOW - 2)
    folder.log.appender.append(sent)
    stored = folder.entries()
    assert [entry.magic for entry in stored] == magics
    assert [entry.size for entry in stored] == sizes
    assert [entry.offset for entry in stored] == [0, 1, 2, 3]
    assert {entry.value for entry in stored} == {b"hello"}
    times = [-1, NOW - 1, -1, NOW - 2] if kind == "CreateTime" else [NOW] * 4
    assert [entry.timestamp_ms for entry in stored] == times


@pytest.mark.parametrize(
    ("kind", "codec", "magic", "times", "type_"),
    [
        pytest.param("CreateTime", Codec.NONE, 0, [-1, -1], None, id="tc41-decision-25-plain"),
        pytest.param("CreateTime", GZIP, 0, [-1, -1], None, id="tc41-decision-25-gzip"),
        pytest.param("LogAppendTime", Codec.NONE, 1, [NOW, NOW], LAT, id="tc41-P-31-plain"),
        pytest.param("LogAppendTime", GZIP, 1, [NOW, NOW], LAT, id="tc41-P-34-gzip"),
        pytest.param("LogAppendTime", Codec.SNAPPY, 1, [NOW, NOW], LAT, id="tc41-P-34-snappy"),
        pytest.param("LogAppendTime", Codec.LZ4, 1, [NOW, NOW], LAT, id="tc41-M-55-lz4"),
    ],
)
def test_v0_sets(
    folder: LogFolder,
    kind: str,
    codec: Codec,
    magic: int,
    times: list[int],
    type_: TimestampType | None,
) -> None:
    log = folder.open(message_timestamp_type=kind)
    log.appender.append(untimed_set(1))
    appended = log.appender.append(untimed_set(2, codec=codec))
    assert (appended.first_offset, appended.last_offset) == (1, 2)
    assert appended.append_time_ms == (NOW if kind == "LogAppendTime" else -1)
    assert {entry.magic for entry in folder.entries()} == {magic}
    assert folder.entries()[-1].codec is codec
    assert [record.timestamp_ms for record in folder.records()[1:]] == times
    assert [record.timestamp_type for record in folder.records()[1:]] == [type_, type_]
    assert [record.offset for record in folder.records()] == [0, 1, 2]


def test_an_upconverted_message_is_8_bytes_longer_p31(folder: LogFolder) -> None:
    log = folder.open(message_timestamp_type="LogAppendTime")
    assert log.appender.append(untimed_set(3)).size_bytes == 3 * 39
    assert len(untimed_set(3)) == 3 * 31


def test_a_v0_wrapper_holds_absolute_offsets_m22(folder: LogFolder) -> None:
    folder.open()
    folder.log.appender.append(untimed_set(7))
    folder.log.appender.append(untimed_set(3, codec=GZIP))
    stored = inner(folder.entries()[-1])
    assert [int.from_bytes(stored[at : at + 8], "big") for at in (0, 31, 62)] == [7, 8, 9]


@pytest.mark.parametrize(
    ("sent", "sums"),
    [
        pytest.param(timed_set(NOW - 5, NOW), (2, 0, 0, 5, 5), id="plain"),
        pytest.param(timed_set(NOW - 5, NOW, codec=GZIP), (2, 0, 0, 5, 5), id="gzip"),
        pytest.param(timed_set(NOW + 5, NOW - 7), (2, 1, 0, 7, 7), id="one-from-the-future"),
        pytest.param(timed_set(-1, NOW - 2), (1, 0, 1, 2, 2), id="one-without-a-time"),
        pytest.param(untimed_set(2), (0, 0, 2, 0, 0), id="v0"),
        pytest.param(untimed_set(2) + timed_set(NOW - 1, codec=GZIP), (1, 0, 2, 1, 1), id="mixed"),
    ],
)
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_latency_is_taken_before_times_are_overwritten_decision_34(
    folder: LogFolder, sent: bytearray, sums: tuple[int, ...], kind: str
) -> None:
    latency = folder.open(message_timestamp_type=kind).appender.append(sent).latency
    assert latency is not None
    assert sums == (
        latency.timed,
        latency.skewed,
        latency.untimed,
        latency.sum_ms,
        latency.max_ms,
    )


def test_a_wrapper_s_wrong_time_does_not_reach_the_time_index(folder: LogFolder) -> None:
    """P-3D."""
    folder.open(index_interval_bytes=0)
    folder.append(NOW)
    sent = wrapped(NOW + 1, NOW + 2, offset=1, timestamp_ms=NOW + 10**9)
    folder.log.appender.append(sent)
    assert folder.time_entries() == [(NOW + 2, 3)]
    assert folder.found(NOW + 3) == [None]


def test_the_crc_of_a_restamped_message_is_right(folder: LogFolder) -> None:
    sent = timed_set(5)
    set_timestamp(sent, 0, 27, NOW)
    folder.open(message_timestamp_type="LogAppendTime")
    folder.append(5)
    folder.log.appender.append(sent)
    first, second = folder.entries()  # which verifies the CRCs
    assert (first.timestamp_ms, second.timestamp_ms) == (NOW, NOW)
