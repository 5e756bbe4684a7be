"""Which message times a topic takes, and what one message that it does not take does to its set."""

from typing import Any

import pytest

from horolog.protocol.errors import InvalidTimestamp
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import (
    build_message,
    build_wrapper,
    set_append_time,
    set_timestamp,
)
from horolog.testing.logs import LogFolder, timed_set

NOW = 1_479_144_272_509
DAY_MS = 86_400_000
INT64_MAX = 2**63 - 1
GZIP = Codec.GZIP


def raw_time(timestamp_ms: int) -> bytearray:
    """A set of one message with a time that cannot be built: only its bytes are written."""
    data = timed_set(0)
    set_timestamp(data, 0, len(data) - 12, timestamp_ms)
    return data


def wrapped_raw_time(timestamp_ms: int) -> bytearray:
    inner = timed_set(0, NOW)
    set_timestamp(inner, 39, 27, timestamp_ms)
    inner[39:47] = (1).to_bytes(8, "big")
    return build_wrapper(inner, offset=1, timestamp_ms=NOW, magic=1, codec=GZIP)


@pytest.mark.parametrize(
    ("settings", "timestamps"),
    [
        pytest.param({"max": 1000}, [NOW - 1000], id="tc21-P-28-oldest"),
        pytest.param({"max": 1000}, [NOW + 1000], id="tc21-P-28-latest"),
        pytest.param({"max": 0}, [NOW], id="tc25-P-28-equal"),
        pytest.param({"max": 1000}, [-1], id="tc26-P-2A-none"),
        pytest.param({"max": 1000}, [NOW, -1, NOW - 1000], id="tc26-P-2A-none-among-others"),
        pytest.param({}, [0], id="no-limit-epoch"),
        pytest.param({}, [INT64_MAX], id="no-limit-largest"),
        pytest.param({"max": 2 * NOW}, [0], id="P-2B-lower-bound-below-zero"),
        pytest.param({"max": 10, "before": 1000}, [NOW - 1000], id="decision-11-before-wins"),
        pytest.param({"max": 10, "after": 1000}, [NOW + 1000], id="decision-11-after-wins"),
        pytest.param({"before": 0}, [INT64_MAX], id="B-21-only-the-past-is-limited"),
        pytest.param({"after": 0}, [0], id="B-21-only-the-future-is-limited"),
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, GZIP], ids=["plain", "gzip"])
def test_accepted(
    folder: LogFolder, settings: dict[str, int], timestamps: list[int], codec: Codec
) -> None:
    """B-11, decision 11."""
    folder.open(**limits(settings))
    folder.log.appender.append(timed_set(*timestamps, codec=codec))
    assert [at for _, at in folder.times()] == timestamps


def limits(short: dict[str, int]) -> dict[str, Any]:
    names = {
        "max": "max_message_time_difference_ms",
        "before": "message_timestamp_before_max_ms",
        "after": "message_timestamp_after_max_ms",
    }
    return {names[name]: value for name, value in short.items()}


@pytest.mark.parametrize(
    ("settings", "timestamps", "named", "setting"),
    [
        pytest.param(
            {"max": 1000},
            [NOW - 1001],
            f"timestamp {NOW - 1001} ",
            "max.message.time.difference.ms=1000",
            id="tc22-P-28-too-old",
        ),
        pytest.param(
            {"max": 1000},
            [NOW + 1001],
            f"timestamp {NOW + 1001} ",
            "max.message.time.difference.ms=1000",
            id="tc22-P-28-too-late",
        ),
        pytest.param(
            {"max": 1000},
            [NOW, NOW, NOW + 1001],
            "message 2 ",
            "max.message.time.difference.ms=1000",
            id="tc23-tc24-P-28-only-the-last",
        ),
        pytest.param(
            {"max": 1000},
            [-1, NOW - 1001, NOW],
            "message 1 ",
            "max.message.time.difference.ms=1000",
            id="tc23-P-28-in-the-middle",
        ),
        pytest.param(
            {"max": 0},
            [NOW - 1],
            f"timestamp {NOW - 1} ",
            "max.message.time.difference.ms=0",
            id="tc25-P-28-zero-limit",
        ),
        pytest.param(
            {"max": 1000},
            [INT64_MAX],
            f"timestamp {INT64_MAX} ",
            "max.message.time.difference.ms=1000",
            id="P-2B-largest",
        ),
        pytest.param(
            {"max": 1000, "before": 10},
            [NOW - 11],
            f"timestamp {NOW - 11} ",
            "message.timestamp.before.max.ms=10",
            id="decision-11-before-is-narrower",
        ),
        pytest.param(
            {"max": 1000, "after": 10},
            [NOW + 11],
            f"timestamp {NOW + 11} ",
            "message.timestamp.after.max.ms=10",
            id="decision-11-after-is-narrower",
        ),
        pytest.param(
            {"max": 10, "before": 1000},
            [NOW + 11],
            f"timestamp {NOW + 11} ",
            "max.message.time.difference.ms=10",
            id="decision-11-before-says-nothing-of-after",
        ),
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, GZIP], ids=["plain", "gzip"])
def test_refused_whole(
    folder: LogFolder,
    settings: dict[str, int],
    timestamps: list[int],
    named: str,
    setting: str,
    codec: Codec,
) -> None:
    log = folder.open(**limits(settings))
    folder.append(NOW, -1)
    before = folder.content()
    with pytest.raises(InvalidTimestamp) as refused:
        log.appender.append(timed_set(*timestamps, codec=codec))
    assert refused.value.code == 32
    assert named in refused.value.message
    assert setting in refused.value.message
    assert folder.content() == before
    assert (log.log_end_offset, log.high_watermark) == (2, 2)


def test_the_refusal_names_the_accepted_range(folder: LogFolder) -> None:
    log = folder.open(max_message_time_difference_ms=1000)
    with pytest.raises(InvalidTimestamp) as refused:
        log.appender.append(timed_set(NOW + 1001))
    assert "1479144271509 (2016-11-14T17:24:31.509Z)" in refused.value.message
    assert "1479144273509 (2016-11-14T17:24:33.509Z)" in refused.value.message


@pytest.mark.parametrize(
    "refused_set",
    [
        pytest.param(raw_time(-2), id="P-27-minus-two"),
        pytest.param(raw_time(-5), id="tc56-P-27"),
        pytest.param(raw_time(-(2**63)), id="P-27-smallest"),
        pytest.param(timed_set(NOW) + raw_time(-2), id="P-27-second-of-two"),
        pytest.param(raw_time(-2) + timed_set(NOW), id="P-27-first-of-two"),
        pytest.param(wrapped_raw_time(-5), id="P-27-inside-a-wrapper"),
    ],
)
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_negative_times_but_minus_one_are_refused(
    folder: LogFolder, refused_set: bytearray, kind: str
) -> None:
    log = folder.open(message_timestamp_type=kind)
    before = folder.content()
    with pytest.raises(InvalidTimestamp):
        log.appender.append(refused_set)
    assert folder.content() == before
    assert log.log_end_offset == 0


def test_a_wrapper_s_own_time_is_not_judged_but_replaced(folder: LogFolder) -> None:
    sent = timed_set(NOW, NOW + 5, codec=GZIP)
    set_timestamp(sent, 0, len(sent) - 12, -7)
    folder.open(max_message_time_difference_ms=1000)
    folder.log.appender.append(sent)
    assert [entry.timestamp_ms for entry in folder.entries()] == [NOW + 5]


def marked(codec: Codec) -> bytearray:
    data = timed_set(NOW, codec=codec)
    set_append_time(data, 0, len(data) - 12, NOW)
    return data


def marked_among_others() -> bytearray:
    return timed_set(NOW) + marked(Codec.NONE) + timed_set(NOW)


def marked_inside(codec: Codec, *, offset: int = 1) -> bytearray:
    """A wrapper whose second message claims an append time."""
    inner = timed_set(NOW, NOW)
    set_append_time(inner, 39, 27, NOW)
    return build_wrapper(inner, offset=offset, timestamp_ms=NOW, magic=1, codec=codec)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(marked(Codec.NONE), id="tc30-P-29-plain"),
        pytest.param(marked(GZIP), id="tc30-P-29-wrapper"),
        pytest.param(marked_among_others(), id="tc30-P-29-one-of-three"),
        pytest.param(marked(GZIP) + timed_set(NOW), id="tc30-P-29-wrapper-before-a-message"),
        pytest.param(marked_inside(GZIP), id="inside-gzip"),
        pytest.param(marked_inside(Codec.SNAPPY), id="inside-snappy"),
        pytest.param(marked_inside(Codec.LZ4), id="inside-lz4"),
        pytest.param(marked_inside(GZIP, offset=0), id="inside-a-wrapper-that-is-rebuilt"),
        pytest.param(timed_set(NOW) + marked_inside(GZIP), id="inside-behind-a-message"),
    ],
)
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("compression", ["producer", "uncompressed", "zstd"])
@pytest.mark.parametrize("version", ["producer", "0.9.0", "0.10.0", "0.11.0"])
def test_a_producer_must_not_claim_an_append_time(
    folder: LogFolder, sent: bytearray, kind: str, compression: str, version: str
) -> None:
    log = folder.open(
        message_timestamp_type=kind,
        compression_type=compression,
        message_format_version=version,
    )
    before = folder.content()
    with pytest.raises(InvalidTimestamp, match="bit 3"):
        log.appender.append(bytes(sent))
    assert folder.content() == before


def test_bit_3_of_a_v0_message_means_nothing(folder: LogFolder) -> None:
    message = build_message(None, b"hello", magic=0, attributes=0x08)
    folder.open()
    folder.log.appender.append(bytes(8) + len(message).to_bytes(4, "big") + message)
    assert folder.times() == [(0, -1)]


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_the_type_of_the_topic_decides_whether_limits_hold(folder: LogFolder, kind: str) -> None:
    log = folder.open(message_timestamp_type=kind, max_message_time_difference_ms=1000)
    if kind == "CreateTime":
        with pytest.raises(InvalidTimestamp):
            log.appender.append(timed_set(0))
    else:
        log.appender.append(timed_set(0))
        assert folder.times() == [(0, NOW)]


def test_limits_follow_the_clock(folder: LogFolder) -> None:
    log = folder.open(max_message_time_difference_ms=1000)
    log.appender.append(timed_set(NOW))
    folder.clock.advance(DAY_MS)
    with pytest.raises(InvalidTimestamp):
        log.appender.append(timed_set(NOW))
    log.appender.append(timed_set(NOW + DAY_MS))
    assert log.log_end_offset == 2


def test_limits_follow_changed_settings(folder: LogFolder) -> None:
    log = folder.open()
    log.appender.append(timed_set(0))
    folder.set(max_message_time_difference_ms=1000)
    with pytest.raises(InvalidTimestamp):
        log.appender.append(timed_set(0))
