"""lz4 in message format v0 has a header checksum of its own, which most readers of today refuse."""

from typing import Any

import pytest

from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import Entry, entries
from horolog.server.broker import Broker
from horolog.testing.clock import ManualClock
from horolog.testing.logs import LogFolder
from horolog.testing.requests import create_topic, fetch, message_set, produce, result
from horolog.testing.wire import Wire

from .wishes import NEW, OLD, read

NOW = ManualClock().now_ms()
HEADER_CHECKSUM_AT = 6
OWN, OLD_ONE = 0x82, 0x1A
"""M-54: of frames in v1 and later, and in v0."""

V0_LZ4 = message_set(-1, -1, magic=0, codec=Codec.LZ4)
V0_PLAIN = message_set(-1, -1, magic=0)


def told(entry: Entry) -> tuple[int, Codec, int]:
    assert entry.value is not None
    return entry.magic, entry.codec, entry.value[HEADER_CHECKSUM_AT]


@pytest.mark.parametrize(
    ("sent", "compression"),
    [
        pytest.param(V0_LZ4, "producer", id="as-sent"),
        pytest.param(V0_LZ4, "lz4", id="of-the-topic-s-codec"),
        pytest.param(V0_PLAIN, "lz4", id="compressed-here"),
        pytest.param(message_set(-1, magic=0, codec=Codec.GZIP) * 2, "lz4", id="recompressed"),
        pytest.param(
            V0_PLAIN[:31] + message_set(-1, magic=0, codec=Codec.LZ4),
            "producer",
            id="behind-a-plain-one",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_v0_set_with_lz4_is_stored_as_v1(
    folder: LogFolder, sent: bytes, compression: str, kind: str
) -> None:
    """Decision 25."""
    folder.open(compression_type=compression, message_timestamp_type=kind)
    appended = folder.log.appender.append(sent)
    (entry,) = folder.entries()
    assert told(entry) == (1, Codec.LZ4, OWN)
    stamp_ms = NOW if kind == "LogAppendTime" else -1
    assert folder.times() == [(0, stamp_ms), (1, stamp_ms)]
    assert appended.append_time_ms == stamp_ms
    assert appended.conversion is not None
    assert (appended.conversion.up, appended.conversion.messages) == (True, 2)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY])
def test_other_codecs_stay_v0(folder: LogFolder, codec: Codec) -> None:
    folder.open()
    folder.log.appender.append(message_set(-1, -1, magic=0, codec=codec))
    assert {entry.magic for entry in folder.entries()} == {0}


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_topic_of_format_v0_keeps_v0_and_its_checksum(folder: LogFolder, magic: int) -> None:
    folder.open(message_format_version="0.9.0")
    folder.log.appender.append(message_set(NOW if magic else -1, magic=magic, codec=Codec.LZ4))
    assert [told(entry) for entry in folder.entries()] == [(0, Codec.LZ4, OLD_ONE)]


def read_with(got: Any) -> tuple[list[tuple[int, Codec, int]], list[int]]:
    assert got.error_code == 0, got.error_message
    return [told(one) for one in entries(got.records)], [one.offset for one in read(got.records)]


@pytest.mark.parametrize("stored", ["producer", "0.9.0", "0.10.0", "0.11.0"])
@pytest.mark.parametrize("sent_magic", [0, 1, 2])
async def test_each_reader_gets_the_checksum_of_the_format_that_it_gets(
    broker: Broker, client: Wire, stored: str, sent_magic: int
) -> None:
    await client.call(create_topic("a", message_format_version=stored))
    time_ms = NOW if sent_magic else -1
    sent = message_set(time_ms, time_ms, magic=sent_magic, codec=Codec.LZ4)
    assert result(await client.call(produce("a", sent))).error_code == 0
    formats = {"producer": max(sent_magic, 1), "0.9.0": 0, "0.10.0": 1, "0.11.0": 2}
    for version in (*OLD, *NEW, 4):
        newest = 0 if version in OLD else 1 if version in NEW else 2
        magic = min(formats[stored], newest)
        expected = (magic, Codec.LZ4, OWN if magic else OLD_ONE)
        got = result(await client.call(fetch("a", (0, 0)), version))
        assert read_with(got) == ([expected], [0, 1]), version
