"""produce: acks, the order of checks, all or nothing, what is answered."""

import asyncio
import errno
import struct
from pathlib import Path

import pytest

from horolog.protocol.api.log.produce import PRODUCE, ProduceRequest, ProduceTopic
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.protocol.errors import (
    CodedError,
    CorruptMessage,
    InvalidRequiredAcks,
    InvalidTimestamp,
    InvalidTopic,
    MessageTooLarge,
    RecordListTooLarge,
    RequestTimedOut,
    StorageError,
    UnknownTopicOrPartition,
    UnsupportedForMessageFormat,
)
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import (
    build_message,
    build_wrapper,
    records,
    set_timestamp,
)
from horolog.server.broker import Broker
from horolog.storage.files import SystemFiles
from horolog.testing.broker import running_broker, synced
from horolog.testing.clock import ManualClock
from horolog.testing.files import FaultyFiles
from horolog.testing.requests import (
    create_topic,
    fetch,
    message_set,
    produce,
    produce_to,
    result,
    results,
)
from horolog.testing.wire import Wire, wire

NOW = ManualClock().now_ms()


async def stored(client: Wire, topic: str, partition: int = 0) -> list[tuple[int, int]]:
    """(offset, timestamp) of every message."""
    got = result(await client.call(fetch(topic, (partition, 0))))
    assert got.error_code == 0
    return [
        (record.offset, record.timestamp_ms)
        for record in records(got.records, max_decompressed_bytes=1 << 20)
    ]


@pytest.mark.both_loops
@pytest.mark.parametrize("acks", [1, -1])
async def test_an_appended_set_is_answered_with_its_first_offset(client: Wire, acks: int) -> None:
    """P-6."""
    for first in (0, 3, 6):
        got = result(await client.call(produce("a", message_set(NOW, NOW, NOW), acks=acks)))
        assert (got.error_code, got.base_offset, got.log_append_time_ms) == (0, first, -1)
    assert await stored(client, "a") == [(offset, NOW) for offset in range(9)]


@pytest.mark.parametrize("version", [0, 1, 2], ids=["tc29-v0", "tc29-v1", "tc27-v2"])
async def test_the_append_time_is_answered_from_version_2_on(
    client: Wire, clock: ManualClock, version: int
) -> None:
    await client.call(create_topic("a", message_timestamp_type="LogAppendTime"))
    clock.advance(500)
    got = result(await client.call(produce("a", message_set(0, NOW - 10**9)), version))
    assert got.log_append_time_ms == (NOW + 500 if version == 2 else -1)
    assert await stored(client, "a") == [(0, NOW + 500), (1, NOW + 500)]


@pytest.mark.parametrize(
    ("record_set", "error", "words"),
    [
        pytest.param(
            message_set(NOW)[:-1] + b"!", CorruptMessage, ("CRC",), id="tc48-P-21-bad-crc"
        ),
        pytest.param(
            message_set(NOW, value=b"x" * 3000),
            MessageTooLarge,
            ("max.message.bytes", "2000"),
            id="tc43-P-21-too-large",
        ),
        pytest.param(
            message_set(*[NOW] * 200),
            RecordListTooLarge,
            ("segment.bytes", "5000"),
            id="tc45-P-24-set-too-large",
        ),
        pytest.param(
            message_set(NOW, NOW, NOW - 1001),
            InvalidTimestamp,
            ("max.message.time.difference.ms", str(NOW - 1001)),
            id="tc23-P-28-last-one-too-old",
        ),
        pytest.param(
            message_set(NOW + 1001), InvalidTimestamp, (str(NOW + 1001),), id="tc22-P-28-too-new"
        ),
    ],
)
async def test_a_refused_set_appends_nothing_and_says_why(
    client: Wire,
    record_set: bytes,
    error: type[CodedError],
    words: tuple[str, ...],
) -> None:
    await client.call(
        create_topic(
            "a", max_message_bytes=2000, segment_bytes=5000, max_message_time_difference_ms=1000
        )
    )
    await client.call(produce("a", message_set(NOW)))
    got = result(await client.call(produce("a", record_set)))
    assert (got.error_code, got.base_offset, got.log_append_time_ms) == (error.code, -1, -1)
    for word in words:
        assert word in got.error_message
    assert await stored(client, "a") == [(0, NOW)]


async def test_a_later_magic_is_refused_by_name(client: Wire) -> None:
    record_set = bytearray(message_set(NOW))
    record_set[16] = 3
    got = result(await client.call(produce("a", bytes(record_set))))
    assert got.error_code == UnsupportedForMessageFormat.code
    assert "magic 3" in got.error_message


def nested(depth: int) -> bytes:
    """A compressed set inside of compressed sets."""
    inner = message_set(NOW, codec=Codec.GZIP)
    for _ in range(depth - 1):
        inner = bytes(build_wrapper(inner, offset=0, timestamp_ms=NOW, magic=1, codec=Codec.GZIP))
    return inner


def with_attributes(attributes: int) -> bytes:
    """One message with these attributes and a right CRC."""
    message = build_message(None, b"hello", timestamp_ms=NOW, attributes=attributes)
    return struct.pack(">qi", 0, len(message)) + message


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize(
    ("record_set", "error"),
    [
        pytest.param(
            message_set(NOW, value=bytes(2 << 20), codec=codec),
            MessageTooLarge,
            id=f"fault8-{codec.label}-bomb",
        )
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
    ]
    + [
        pytest.param(nested(2), CorruptMessage, id="fault9-M-26-depth-2"),
        pytest.param(nested(20), CorruptMessage, id="fault9-M-26-depth-20"),
        pytest.param(with_attributes(5), CorruptMessage, id="fault10-M-57-unknown-codec"),
        pytest.param(
            bytes(build_wrapper(b"", offset=0, timestamp_ms=NOW, magic=1, codec=Codec.GZIP)),
            CorruptMessage,
            id="fault10-M-30-wrapper-of-nothing",
        ),
        pytest.param(with_attributes(8), InvalidTimestamp, id="fault11-tc30-P-29-append-time-bit"),
        pytest.param(
            message_set(*[NOW] * 999) + message_set(NOW)[:-1] + b"!",
            CorruptMessage,
            id="fault12-one-in-a-thousand",
        ),
    ],
)
async def test_hostile_sets_are_refused_on_both_kinds_of_topic(
    broker: Broker, client: Wire, kind: str, record_set: bytes, error: type[CodedError]
) -> None:
    await client.call(
        create_topic("a", message_timestamp_type=kind, max_decompressed_bytes=1 << 20)
    )
    got = result(await client.call(produce("a", record_set)))
    assert (got.error_code, got.base_offset) == (error.code, -1)
    assert got.error_message
    assert broker.directory.log("a", 0).log_end_offset == 0
    got = result(await client.call(produce("a", message_set(NOW))))
    assert (got.error_code, got.base_offset) == (0, 0)


def with_time(timestamp_ms: int) -> bytes:
    """One v1 message with any timestamp at all."""
    record_set = bytearray(message_set(NOW))
    set_timestamp(record_set, 0, len(record_set) - 12, timestamp_ms)
    return bytes(record_set)


@pytest.mark.parametrize(
    ("timestamp_ms", "code"),
    [
        pytest.param(-2, InvalidTimestamp.code, id="fault11-P-27--2"),
        pytest.param(-(2**63), InvalidTimestamp.code, id="fault11-P-27-int64-min"),
        pytest.param(-1, 0, id="fault11-P-2A-none"),
        pytest.param(0, InvalidTimestamp.code, id="fault11-P-28-0"),
        pytest.param(2**63 - 1, InvalidTimestamp.code, id="fault11-P-2B-int64-max"),
        pytest.param(NOW * 1000, InvalidTimestamp.code, id="fault11-P-28-microseconds"),
        pytest.param(NOW // 1000, InvalidTimestamp.code, id="fault11-P-28-seconds"),
        pytest.param(NOW - 1000, 0, id="fault11-tc21-P-28-at-the-limit"),
    ],
)
async def test_times_outside_of_the_range(client: Wire, timestamp_ms: int, code: int) -> None:
    """D8."""
    await client.call(create_topic("a", max_message_time_difference_ms=1000))
    got = result(await client.call(produce("a", with_time(timestamp_ms))))
    assert got.error_code == code
    if code:
        assert str(timestamp_ms) in got.error_message


@pytest.mark.parametrize("acks", [2, -2, 100], ids=lambda acks: f"tc49-P-10-acks-{acks}")
async def test_invalid_acks(client: Wire, acks: int) -> None:
    await client.call(create_topic("a", partitions=2))
    sets = [(0, message_set(NOW)), (1, message_set(NOW))]
    for got in results(await client.call(produce_to("a", sets, acks=acks))):
        assert (got.error_code, got.base_offset) == (InvalidRequiredAcks.code, -1)
    assert await stored(client, "a") == []


async def test_an_unknown_topic_comes_before_invalid_acks(client: Wire) -> None:
    got = result(await client.call(produce("nowhere", message_set(NOW), acks=5)))
    assert got.error_code == UnknownTopicOrPartition.code
    assert (await client.call(MetadataRequest())).topics == []


async def test_no_answer_for_acks_0(client: Wire) -> None:
    """P-11, tc50."""
    for _ in range(3):
        client.send(PRODUCE, 2, produce("a", message_set(NOW), acks=0))
    # The next answer that comes belongs to the next request that gets one.
    got = result(await client.call(produce("a", message_set(NOW))))
    assert got.base_offset == 3


@pytest.mark.both_loops
async def test_a_failure_with_acks_0_closes_the_connection(broker: Broker, client: Wire) -> None:
    """P-11, tc50."""
    client.send(PRODUCE, 2, produce("a", message_set(NOW), acks=0))
    client.send(PRODUCE, 2, produce("a", b"\0" * 40, acks=0))
    client.send(PRODUCE, 2, produce("a", message_set(NOW), acks=0))
    assert await client.at_end()
    assert broker.figures.connections_dropped == {"acks_0": 1}
    async with wire(broker.addresses.native) as another:
        # What came before the failure is in the log; what came after it was not looked at.
        assert len(await stored(another, "a")) == 1


async def test_acks_all_times_out_with_the_real_offset(broker: Broker, client: Wire) -> None:
    """P-13, tc51."""
    await client.call(produce("a", message_set(NOW)))
    broker.directory.log("a", 0).hold_high_watermark(1)
    got = result(await client.call(produce("a", message_set(NOW), acks=-1, timeout_ms=1)))
    assert (got.error_code, got.base_offset) == (RequestTimedOut.code, 1)
    assert broker.directory.log("a", 0).log_end_offset == 2


async def test_acks_all_is_answered_when_the_watermark_passes(broker: Broker, client: Wire) -> None:
    """P-12."""
    await client.call(produce("a", message_set(NOW)))
    log = broker.directory.log("a", 0)
    log.hold_high_watermark(1)
    answer = asyncio.ensure_future(client.call(produce("a", message_set(NOW, NOW), acks=-1)))
    async with wire(broker.addresses.native) as another:
        await another.call(MetadataRequest())
    assert len(broker.services.produces) == 1
    log.hold_high_watermark(2)
    async with wire(broker.addresses.native) as another:
        await another.call(MetadataRequest())
    assert not answer.done()
    log.hold_high_watermark(None)
    assert result(await answer).base_offset == 1


async def test_acks_all_waits_for_the_sync_where_fsync_is_asked_for(
    broker: Broker, client: Wire
) -> None:
    await client.call(create_topic("durable"))
    await client.call(create_topic("written", acks_all_durability="written"))
    await client.call(produce("written", message_set(NOW), acks=-1))
    assert broker.directory.log("written", 0).recovery_point == 0
    await client.call(produce("durable", message_set(NOW), acks=-1))
    assert broker.directory.log("durable", 0).recovery_point == 1


async def test_a_failed_sync_answers_those_who_wait_for_it(tmp_path: Path) -> None:
    files = FaultyFiles(SystemFiles())
    with pytest.raises(StorageError, match="not clean"):  # noqa: PT012  (raised at the stop)
        async with (
            running_broker(tmp_path, files=files, http_listen="off") as broker,
            wire(broker.addresses.native) as client,
        ):
            await client.call(produce("a", message_set(NOW), acks=-1))
            files.fail("sync", errno.EIO, name=".log")
            got = result(await client.call(produce("a", message_set(NOW), acks=-1)))
            assert got.error_code == StorageError.code
            got = result(await client.call(produce("a", message_set(NOW))))
            assert got.error_code == StorageError.code, "a failed sync is final"
            assert await stored(client, "a") == [(0, NOW)], "what is synced can still be read"
            assert result(await client.call(produce("b", message_set(NOW)))).error_code == 0
            assert broker.figures.topic("a").failures == 1
            assert broker.figures.topic("a").rejected == {"storage": 1}


async def test_a_topic_deleted_while_acks_all_waits(broker: Broker, client: Wire) -> None:
    await client.call(produce("a", message_set(NOW)))
    broker.directory.log("a", 0).hold_high_watermark(1)
    answer = asyncio.ensure_future(client.call(produce("a", message_set(NOW), acks=-1)))
    async with wire(broker.addresses.native) as another:
        await another.call(DeleteTopicsRequest(topic_names=["a"]))
    assert result(await answer).error_code == UnknownTopicOrPartition.code


@pytest.mark.parametrize(
    "record_set",
    [
        pytest.param(b"", id="P-23-empty"),
        pytest.param(None, id="P-23-null"),
        pytest.param(message_set(NOW)[:-3], id="tc52-P-23-partial"),
    ],
)
@pytest.mark.parametrize("acks", [1, -1])
async def test_a_set_without_a_whole_message_is_fine(
    client: Wire, record_set: bytes | None, acks: int
) -> None:
    got = result(await client.call(produce("a", record_set, acks=acks)))
    assert (got.error_code, got.base_offset, got.log_append_time_ms) == (0, -1, -1)


async def test_a_partial_message_at_the_end_is_dropped(client: Wire) -> None:
    got = result(await client.call(produce("a", message_set(NOW) + message_set(NOW)[:-3])))
    assert (got.error_code, got.base_offset) == (0, 0)
    assert await stored(client, "a") == [(0, NOW)]


@pytest.mark.parametrize("version", [0, 1, 2], ids=lambda version: f"tc55-P-5-v{version}")
@pytest.mark.parametrize("magic", [0, 1])
async def test_every_version_takes_every_magic(client: Wire, version: int, magic: int) -> None:
    time = -1 if magic == 0 else NOW
    got = result(await client.call(produce("a", message_set(time, magic=magic)), version))
    assert got.error_code == 0
    assert await stored(client, "a") == [(0, time)]


async def test_one_bad_partition_does_not_touch_the_other(client: Wire) -> None:
    """P-20, tc57."""
    await client.call(create_topic("a", partitions=3))
    sets = [(0, message_set(NOW)), (1, b"\0" * 40), (2, message_set(NOW)), (7, message_set(NOW))]
    got = results(await client.call(produce_to("a", sets, acks=-1)))
    assert [each.error_code for each in got] == [0, CorruptMessage.code, 0, 3]
    assert [each.base_offset for each in got] == [0, -1, 0, -1]


async def test_of_a_partition_named_twice_the_last_set_counts(client: Wire) -> None:
    """P-8."""
    sets = [(0, message_set(NOW - 1)), (0, message_set(NOW - 2, NOW - 3))]
    (got,) = results(await client.call(produce_to("a", sets)))
    assert got.base_offset == 0
    assert await stored(client, "a") == [(0, NOW - 2), (1, NOW - 3)]


async def test_of_a_topic_named_twice_too(client: Wire) -> None:
    first = produce("a", message_set(NOW - 1)).topics
    second = produce("a", message_set(NOW - 2)).topics
    response = await client.call(ProduceRequest(acks=1, topics=[*first, *second]))
    assert len(results(response)) == 1
    assert await stored(client, "a") == [(0, NOW - 2)]


async def test_a_request_without_topics(client: Wire) -> None:
    assert (await client.call(ProduceRequest(acks=1, topics=[]))).topics == []
    nothing = ProduceTopic(name="a", partitions=[])
    assert results(await client.call(ProduceRequest(acks=-1, topics=[nothing]))) == []


@pytest.mark.parametrize(
    ("topic", "partition", "code"),
    [
        pytest.param("fresh", 0, 0, id="decision-31-created"),
        pytest.param("fresh", 1, UnknownTopicOrPartition.code, id="partition-it-would-not-have"),
        pytest.param("fresh", -1, UnknownTopicOrPartition.code, id="partition-below-0"),
        pytest.param("no/slash", 0, InvalidTopic.code, id="bad-name"),
        pytest.param("", 0, InvalidTopic.code, id="no-name"),
    ],
)
async def test_producing_to_an_unknown_topic_creates_it(
    broker: Broker, client: Wire, topic: str, partition: int, code: int
) -> None:
    got = result(await client.call(produce(topic, message_set(NOW), partition=partition)))
    assert got.error_code == code
    assert set(broker.directory.topics()) == ({topic} if code == 0 else set())


async def test_unless_creating_is_off(tmp_path: Path) -> None:
    """tc54."""
    async with (
        running_broker(tmp_path, http_listen="off", auto_create_topics_enable=False) as broker,
        wire(broker.addresses.native) as client,
    ):
        got = result(await client.call(produce("fresh", message_set(NOW))))
        assert got.error_code == UnknownTopicOrPartition.code
        assert "auto.create.topics.enable" in got.error_message
        assert not broker.directory.topics()


async def test_a_roll_has_the_old_segment_synced_and_retention_looked_at(
    broker: Broker, client: Wire
) -> None:
    await client.call(create_topic("a", segment_bytes=100, retention_bytes=150))
    for _ in range(7):
        await client.call(produce("a", message_set(NOW)))
    await broker.maintenance.tasks["rolled"].run_now()
    log = broker.directory.log("a", 0)
    assert log.log_start_offset > 0
    assert broker.figures.topic("a").rolls == {"size": 3}
    assert broker.figures.topic("a").deleted_segments == 1
    await synced(broker)
    assert log.recovery_point >= 6


@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_flush_messages(tmp_path: Path, acks: int) -> None:
    async with (
        running_broker(tmp_path, http_listen="off", flush_messages=3) as broker,
        wire(broker.addresses.native) as client,
    ):
        await client.call(create_topic("a", acks_all_durability="written"))
        log = broker.directory.log("a", 0)
        for _ in range(2):
            await client.call(produce("a", message_set(NOW)))
        assert log.recovery_point == 0
        client.send(PRODUCE, 2, produce("a", message_set(NOW), acks=acks))
        if acks:
            await client.receive()
        # Syncs are done one after the other, so that of `b` comes after that of `a`.
        await client.call(produce("b", message_set(NOW), acks=-1))
        assert log.recovery_point == 3
