"""Requests that look after partitions, over the wire: raise, trim, measure; and producer ids."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from horolog.protocol.api.log.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from horolog.protocol.api.log.init_producer_id import InitProducerIdRequest
from horolog.protocol.api.topics.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from horolog.protocol.api.topics.create_topics import CreatableTopic, CreateTopicsRequest
from horolog.protocol.api.topics.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.protocol.api.topics.describe_configs import (
    BROKER_RESOURCE,
    ConfigSynonym,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from horolog.protocol.errors import (
    CodedError,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    OffsetOutOfRange,
    PolicyViolation,
    StorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from horolog.protocol.records.batch import finish_batch
from horolog.protocol.records.kernel import RecordEncoder
from horolog.server.broker import Broker
from horolog.storage.files import SystemFiles
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.directories import copy_as_killed
from horolog.testing.files import FaultyFiles
from horolog.testing.requests import (
    create_topic,
    fetch,
    list_offsets,
    message_set,
    produce,
    result,
    results,
)
from horolog.testing.wire import Wire, wire

NOW = ManualClock().now_ms()
EARLIEST = -2


async def test_creating_can_be_tried_out(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("there"))
    (broker.settings.data_dir / "left-0").mkdir()
    (broker.settings.data_dir / "left-0" / "precious").touch()
    topics = [CreatableTopic(name=name, num_partitions=2) for name in ("a", "there", "left")]
    response = await client.call(CreateTopicsRequest(topics=topics, validate_only=True))
    exists = TopicAlreadyExists.code
    assert [topic.error_code for topic in response.topics] == [0, exists, exists]
    assert set(broker.directory.topics()) == {"there"}
    assert not (broker.settings.data_dir / "a-0").exists()


def raising(
    name: str, count: int, *brokers: list[int], validate_only: bool = False
) -> CreatePartitionsRequest:
    assignments = [CreatePartitionsAssignment(broker_ids=ids) for ids in brokers] or None
    topic = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    return CreatePartitionsRequest(topics=[topic], validate_only=validate_only)


async def test_more_partitions(broker: Broker, client: Wire) -> None:
    await client.call(produce("a", message_set(NOW)))
    (got,) = (await client.call(raising("a", 3, validate_only=True))).results
    assert (got.name, got.error_code) == ("a", 0)
    assert broker.directory.topics()["a"].partitions == 1
    (got,) = (await client.call(raising("a", 3, [0], [0]))).results
    assert got.error_code == 0
    assert broker.directory.topics()["a"].partitions == 3
    assert result(await client.call(produce("a", message_set(NOW), partition=2))).base_offset == 0
    assert result(await client.call(produce("a", message_set(NOW)))).base_offset == 1


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        (raising("a", 2), InvalidPartitions, "has 2 partitions"),
        (raising("a", 1), InvalidPartitions, "only grow"),
        (raising("a", 1_000_000), InvalidPartitions, "max.partitions"),
        (raising("nowhere", 3), UnknownTopicOrPartition, "nowhere"),
        (raising("a", 4, [0]), InvalidReplicaAssignment, "1 assignments for 2 new"),
        (raising("a", 3, [1]), InvalidReplicaAssignment, "only broker 0"),
        (raising("a", 3, [0, 0]), InvalidReplicaAssignment, "only broker 0"),
    ],
)
async def test_partitions_that_cannot_be(
    broker: Broker,
    client: Wire,
    request_: CreatePartitionsRequest,
    error: type[CodedError],
    words: str,
) -> None:
    await client.call(create_topic("a", 2))
    (got,) = (await client.call(request_)).results
    assert got.error_code == error.code
    assert words in got.error_message
    assert broker.directory.topics()["a"].partitions == 2


async def test_a_topic_named_twice_is_not_raised(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("a"))
    twice = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=2)] * 2)
    (got,) = (await client.call(twice)).results
    assert got.error_code == InvalidRequest.code
    assert broker.directory.topics()["a"].partitions == 1


def trimming(*places: tuple[int, int], topic: str = "a") -> DeleteRecordsRequest:
    """`places` are (partition, offset)."""
    partitions = [DeleteRecordsPartition(partition=at, offset=offset) for at, offset in places]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=partitions)])


async def test_a_topic_that_is_only_compacted_is_not_trimmed(client: Wire) -> None:
    """As by Kafka."""
    for policy, code in (("compact", PolicyViolation.code), ("compact,delete", 0)):
        await client.call(create_topic(policy[-6:], cleanup_policy=policy))
        got = result(await client.call(trimming((0, 0), topic=policy[-6:])))
        assert got.error_code == code, got.error_message


async def test_what_is_trimmed_is_gone_for_good(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("a", segment_bytes=2 * 39, file_delete_delay_ms=0))
    for time in (NOW - 9, NOW - 8, NOW - 7, NOW - 6, NOW - 5):
        await client.call(produce("a", message_set(time)))
    got = result(await client.call(trimming((0, 3))))
    assert (got.error_code, got.low_watermark) == (0, 3)
    below = result(await client.call(fetch("a", (0, 2))))
    assert below.error_code == OffsetOutOfRange.code
    assert result(await client.call(list_offsets("a", (0, EARLIEST)))).offset == 3
    assert result(await client.call(list_offsets("a", (0, NOW - 9)))).offset == 3
    assert broker.directory.log("a", 0).segments[0].base_offset == 2
    # What was trimmed before stays so, and is no error.
    assert result(await client.call(trimming((0, 1)))).low_watermark == 3
    checkpoint = broker.settings.data_dir / "log-start-offset-checkpoint"
    assert "a 0 3" in checkpoint.read_text().splitlines()


async def test_trimming_all_there_is_frees_the_disk(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("a", file_delete_delay_ms=0))
    await client.call(produce("a", message_set(NOW, NOW, NOW)))
    got = result(await client.call(trimming((0, -1))))
    assert (got.error_code, got.low_watermark) == (0, 3)
    log = broker.directory.log("a", 0)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (3, 3, 0)
    assert log.recovery_point == 3
    assert result(await client.call(produce("a", message_set(NOW)))).base_offset == 3


@pytest.mark.parametrize("offset", [3, -1])
async def test_a_batch_that_was_trimmed_is_known_after_a_kill(
    broker: Broker, client: Wire, tmp_path: Path, offset: int
) -> None:
    """It was acknowledged: sent again, it is not stored a second time."""
    encoder = RecordEncoder()
    for _ in range(3):
        encoder.add(b"hello", None, NOW, ())
    sent = bytes(finish_batch(encoder, producer_id=7, producer_epoch=0, base_sequence=0))
    assert result(await client.call(produce("a", sent, acks=-1))).error_code == 0
    assert result(await client.call(trimming((0, offset)))).low_watermark == 3
    copy_as_killed(broker.settings.data_dir, tmp_path / "left")
    async with (
        running_broker(tmp_path / "left", http_listen="off") as restarted,
        wire(restarted.addresses.native) as again,
    ):
        assert result(await again.call(produce("a", sent, acks=-1))).base_offset == 0
        assert restarted.directory.log("a", 0).log_end_offset == 3


async def test_offsets_that_cannot_be_trimmed_to(broker: Broker, client: Wire) -> None:
    await client.call(produce("a", message_set(NOW, NOW)))
    broker.directory.log("a", 0).hold_high_watermark(1)
    await client.call(produce("a", message_set(NOW)))
    got = []
    for place in ((0, 4), (0, -2), (1, 0)):
        got += (await client.call(trimming(place))).topics[0].partitions
    out = OffsetOutOfRange.code
    assert [each.error_code for each in got] == [out, out, UnknownTopicOrPartition.code]
    assert [each.low_watermark for each in got] == [-1, -1, -1]
    assert f"0 to {broker.directory.log('a', 0).high_watermark}" in got[0].error_message
    assert broker.directory.log("a", 0).log_start_offset == 0


async def test_a_partition_named_twice_is_not_trimmed_and_answered_once(
    broker: Broker, client: Wire
) -> None:
    """However often it is named."""
    await client.call(create_topic("a", 2))
    for partition in (0, 1):
        await client.call(produce("a", message_set(NOW, NOW), partition=partition))
    got = results(await client.call(trimming(*[(0, 1)] * 5_000, (1, 1))))
    assert [(each.partition, each.error_code) for each in got] == [
        (0, InvalidRequest.code),
        (1, 0),
    ]
    assert got[0].error_message == "the request names a-0 more than once"
    starts = [broker.directory.log("a", number).log_start_offset for number in (0, 1)]
    assert starts == [0, 1]


async def test_a_trim_that_the_disk_refuses_is_told(tmp_path: Path) -> None:
    files = FaultyFiles(SystemFiles())
    async with (
        running_broker(tmp_path, http_listen="off", files=files) as broker,
        wire(broker.addresses.native) as client,
    ):
        await client.call(produce("a", message_set(NOW, NOW)))
        await broker.maintenance.stop()  # It writes this file, too.
        files.fail("rename", 28, name="log-start-offset-checkpoint.tmp")
        got = result(await client.call(trimming((0, 1))))
        assert (got.error_code, got.low_watermark) == (StorageError.code, -1)
        got = result(await client.call(trimming((0, 1))))
        assert (got.error_code, got.low_watermark) == (0, 1)


async def test_sizes_of_partitions(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("a", 2))
    await client.call(create_topic("b"))
    await client.call(produce("a", message_set(NOW, NOW), partition=1))
    (everything,) = (await client.call(DescribeLogDirsRequest())).results
    assert everything.log_dir == str(broker.settings.data_dir.absolute())
    assert {
        (topic.name, each.partition): (each.size_bytes, each.error_code, each.is_future_key)
        for topic in everything.topics
        for each in topic.partitions
    } == {("a", 0): (0, 0, False), ("a", 1): (78, 0, False), ("b", 0): (0, 0, False)}
    some = DescribeLogDirsRequest(
        topics=[
            DescribableLogDirTopic(name="a", partitions=[1, 7, 1]),
            DescribableLogDirTopic(name="nowhere", partitions=[0]),
        ]
    )
    (found,) = (await client.call(some)).results
    (topic,) = found.topics
    assert [(each.partition, each.size_bytes) for each in topic.partitions] == [(1, 78)]


async def test_producer_ids_are_given_once(broker: Broker, client: Wire) -> None:
    answers = [await client.call(InitProducerIdRequest()) for _ in range(3)]
    assert {(answer.error_code, answer.producer_epoch) for answer in answers} == {(0, 0)}
    ids = {answer.producer_id for answer in answers}
    assert len(ids) == 3
    assert min(ids) >= 0
    assert (broker.settings.data_dir / "producer-ids").exists()


async def test_transactions_are_refused(client: Wire) -> None:
    with pytest.raises(UnsupportedVersion, match=r"'orders'.*no transactions"):
        await client.call(InitProducerIdRequest(transactional_id="orders"))


async def test_every_place_of_a_setting(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, http_listen="off", retention_ms=9000) as broker,
        wire(broker.addresses.native) as client,
    ):
        await client.call(create_topic("a", retention_ms=5))
        resource = DescribeConfigsResource(resource_name="a", configuration_keys=["retention.ms"])
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        (got,) = (await client.call(request)).results
        (config,) = got.configs
        assert (config.config_source, config.read_only, config.is_sensitive) == (1, False, False)
        assert config.synonyms == [
            ConfigSynonym(name="retention.ms", value="5", source=1),
            ConfigSynonym(name="log.retention.ms", value="9000", source=4),
            ConfigSynonym(name="log.retention.ms", value="604800000", source=5),
        ]
        request.include_synonyms = False
        (got,) = (await client.call(request)).results
        assert got.configs[0].synonyms == []
        of_broker = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=BROKER_RESOURCE, resource_name="0")]
        )
        (got,) = (await client.call(of_broker)).results
        assert all(config.read_only for config in got.configs)


async def answers(client: Wire, *requests: object) -> list[Any]:
    """The answers to requests that were sent in one piece, in order."""
    return [(await client.receive())[1] for _ in client.send_together(*requests)]


async def test_many_changes_at_a_time(broker: Broker, client: Wire) -> None:
    """Each is made once, whoever asks; a producer that needs a topic finds it, or makes it."""
    names = [f"t{number}" for number in range(10)]
    async with wire(broker.addresses.native) as other:
        creations = asyncio.create_task(answers(client, *(create_topic(name) for name in names)))
        appends = await answers(other, *(produce(name, message_set(NOW)) for name in names))
        assert [result(answer).base_offset for answer in appends] == [0] * 10
        exists = TopicAlreadyExists.code
        codes = {answer.topics[0].error_code for answer in await creations}
        assert codes <= {0, exists}
        assert set(broker.directory.topics()) == set(names)
        deletion = asyncio.create_task(answers(client, DeleteTopicsRequest(topic_names=names)))
        appends = await answers(other, *(produce(name, message_set(NOW)) for name in names))
        ((deleted,), codes) = (await deletion, {result(answer).error_code for answer in appends})
        assert {each.error_code for each in deleted.responses} == {0}
        assert codes == {0}
        for name, answer in zip(names, appends, strict=True):
            # The message went into the topic that was deleted, or into a new one of that name.
            if name in broker.directory.topics():
                assert result(answer).base_offset == 0
                assert broker.directory.log(name, 0).log_end_offset == 1


async def test_a_request_behind_a_creation_finds_the_topic(client: Wire) -> None:
    made, appended, described, deleted, again = await answers(
        client,
        create_topic("a", 3),
        produce("a", message_set(NOW), partition=2),
        DescribeLogDirsRequest(),
        DeleteTopicsRequest(topic_names=["a"]),
        produce("a", message_set(NOW)),
    )
    assert made.topics[0].error_code == deleted.responses[0].error_code == 0
    assert (result(appended).error_code, result(appended).base_offset) == (0, 0)
    assert len(described.results[0].topics[0].partitions) == 3
    assert result(again).base_offset == 0
