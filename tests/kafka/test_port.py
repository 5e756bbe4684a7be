"""Kafka's port: versions, where the broker is, what is refused and how."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from horolog.config.broker import broker_settings
from horolog.protocol.api.broker.api_versions import (
    API_VERSIONS,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from horolog.protocol.api.broker.describe_broker import DescribeBrokerRequest
from horolog.protocol.api.broker.describe_cluster import DescribeClusterRequest
from horolog.protocol.api.broker.describe_quorum import DescribeQuorumRequest
from horolog.protocol.api.groups.find_coordinator import FIND_COORDINATOR
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.log.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopic,
)
from horolog.protocol.api.log.fetch import FetchRequest
from horolog.protocol.api.log.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from horolog.protocol.api.log.list_transactions import ListTransactionsRequest
from horolog.protocol.api.log.produce import PRODUCE
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.native.frames import ResponseHead
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.rights import NOT_ASKED
from horolog.protocol.api.schema import replaced
from horolog.protocol.api.topics.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from horolog.protocol.api.topics.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopic,
)
from horolog.protocol.api.topics.metadata import METADATA, MetadataRequest, MetadataTopic
from horolog.protocol.errors import (
    InvalidRequest,
    MismatchedEndpointType,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from horolog.protocol.records.batch import finish_batch
from horolog.protocol.records.kernel import RecordEncoder
from horolog.server.broker import Broker
from horolog.testing.broker import running_broker
from horolog.testing.requests import (
    create_topic,
    fetch,
    list_offsets,
    message_set,
    produce,
    result,
)
from horolog.testing.wire import Wire, wire

SET = message_set(1_500_000_000_000, 1_500_000_001_000)
ENTRY = message_set(1_500_000_000_000)

# Kafka 2.1's table without what is not served here; find-coordinator as of before transactions;
# create-topics, changes of some settings, and members of groups as of 2.4; users' credentials as of
# 2.7, lists of groups as of 3.8; and what Kafka's tools ask for, once each.
SERVED = {
    0: (0, 7),
    1: (0, 10),
    2: (0, 7),
    3: (0, 7),
    8: (0, 7),
    9: (0, 5),
    10: (0, 0),
    11: (0, 5),
    12: (0, 3),
    13: (0, 3),
    14: (0, 3),
    15: (0, 4),
    16: (0, 5),
    17: (0, 1),
    18: (0, 3),
    19: (0, 4),
    20: (0, 3),
    21: (0, 1),
    22: (0, 1),
    23: (0, 3),
    29: (0, 1),
    30: (0, 1),
    31: (0, 1),
    32: (0, 2),
    33: (0, 1),
    35: (0, 1),
    36: (0, 1),
    37: (0, 1),
    42: (0, 1),
    43: (1, 1),
    44: (0, 1),
    46: (0, 0),
    47: (0, 0),
    48: (0, 1),
    49: (0, 1),
    50: (0, 0),
    51: (0, 0),
    55: (0, 2),
    60: (0, 1),
    61: (0, 0),
    66: (0, 0),
}


@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_the_versions_are_those_of_kafka(client: Wire, version: int) -> None:
    asks = ApiVersionsRequest(client_software_name="wire", client_software_version="1.0-rc.1")
    response = await client.call(asks, version)
    served = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert (response.error_code, served) == (0, SERVED)


async def test_an_answer_in_version_3_has_a_plain_head(client: Wire) -> None:
    """As librdkafka and Java send it, and read the answer before they know what the broker has."""
    head = struct.pack(">hhih7s", API_VERSIONS.key, 3, 9, 7, b"rdkafka") + b"\x00"
    body = head + b"\x0blibrdkafka\x062.0.0\x00"
    client.send_bytes(len(body).to_bytes(4, "big") + body)
    frame = await client.frame()
    count = len(SERVED) + 1
    assert frame[:7] == struct.pack(">ihB", 9, 0, count)
    first = struct.pack(">hhh", 0, *SERVED[0]) + b"\x00"
    assert frame[7:14] == first
    assert frame[-5:] == bytes(5), "the throttle time and no tagged fields"
    assert len(frame) == 7 + 7 * len(SERVED) + 5


@pytest.mark.parametrize(
    ("name", "version"), [("", "1"), ("a", ""), ("-a", "1"), ("a", "1."), ("a b", "1"), ("a", "ä")]
)
async def test_what_names_no_software_is_refused(client: Wire, name: str, version: str) -> None:
    asks = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    response = await client.call(asks, 3)
    assert (response.error_code, response.api_keys) == (InvalidRequest.code, [])
    assert (await client.call(asks, 2)).error_code == 0


@pytest.mark.parametrize("version", [4, 77, -1])
async def test_newer_api_versions_are_answered_in_version_0_and_the_connection_stays(
    client: Wire, version: int
) -> None:
    # As Kafka's newer clients send it: a header with tags, compact strings.
    head = struct.pack(">hhih7s", API_VERSIONS.key, version, 9, 7, b"rdkafka") + b"\x00"
    body = head + b"\x0blibrdkafka\x062.0.0\x00"
    client.send_bytes(len(body).to_bytes(4, "big") + body)
    found, raw = kafka.open_response(await client.frame())
    assert found == ResponseHead(9, 0)
    response = kafka.decode_response(ApiVersionsResponse, 0, raw)
    assert response.error_code == UnsupportedVersion.code
    assert {api.api_key for api in response.api_keys} == set(SERVED)
    assert (await client.call(ApiVersionsRequest(), 2)).error_code == 0


@pytest.mark.parametrize("version", range(8))
async def test_produce_and_fetch_in_every_version_of_produce(client: Wire, version: int) -> None:
    answer = result(await client.call(produce("t", SET), version))
    assert (answer.error_code, answer.base_offset) == (0, 0)
    answer = result(await client.call(produce("t", SET), version))
    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, 2, -1)
    read = result(await client.call(fetch("t", (0, 0)), 4))
    assert (read.error_code, read.high_watermark, len(read.records)) == (0, 4, 2 * len(SET))


@pytest.mark.parametrize("version", range(11))
async def test_fetch_in_every_version(client: Wire, version: int) -> None:
    await client.call(produce("t", SET), 2)
    read = result(await client.call(fetch("t", (0, 1)), version))
    assert (read.error_code, read.high_watermark) == (0, 2)
    assert len(read.records) == len(ENTRY) - (8 if version < 2 else 0)
    if version >= 4:
        assert read.last_stable_offset == 2
        assert not read.aborted_transactions
    if version >= 5:
        assert read.log_start_offset == 0


@pytest.mark.parametrize("version", range(5))
async def test_list_offsets_in_every_version(client: Wire, version: int) -> None:
    await client.call(produce("t", SET), 2)
    wanted = ListOffsetsPartition(partition=0, timestamp=1_500_000_000_500)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[wanted])])
    found = result(await client.call(request, version))
    assert found.error_code == 0
    if version == 0:
        assert found.old_style_offsets == [1]
    else:
        assert (found.offset, found.timestamp) == (1, 1_500_000_001_000)
    assert found.leader_epoch == -1


@pytest.mark.parametrize("version", range(8))
async def test_metadata_in_every_version(broker: Broker, client: Wire, version: int) -> None:
    await client.call(create_topic("t", partitions=2), 0)
    response = await client.call(MetadataRequest(topics=[MetadataTopic(name="t")]), version)
    (node,) = response.brokers
    assert f"{node.host}:{node.port}" == broker.addresses.kafka
    (topic,) = response.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "t", False)
    assert [(p.partition, p.leader_id, p.isr_nodes) for p in topic.partitions] == [
        (0, 0, [0]),
        (1, 0, [0]),
    ]
    assert response.controller_id == (0 if version >= 1 else -1)
    assert (response.cluster_id is not None) == (version >= 2)


@pytest.mark.parametrize(
    ("version", "topics", "named"),
    [(0, [], ["a", "b"]), (1, None, ["a", "b"]), (1, [], []), (7, None, ["a", "b"]), (7, [], [])],
)
async def test_all_topics_and_none(
    client: Wire, version: int, topics: list[MetadataTopic] | None, named: list[str]
) -> None:
    for name in ("a", "b"):
        await client.call(create_topic(name), 0)
    response = await client.call(MetadataRequest(topics=topics), version)
    assert [topic.name for topic in response.topics] == named


@pytest.mark.parametrize(
    ("version", "allow", "error"), [(3, False, 0), (4, True, 0), (4, False, 3)]
)
async def test_topics_are_created_unless_the_client_forbids_it(
    client: Wire, version: int, allow: bool, error: int
) -> None:
    request = MetadataRequest(topics=[MetadataTopic(name="new")], allow_auto_topic_creation=allow)
    (topic,) = (await client.call(request, version)).topics
    assert topic.error_code == error


async def test_the_cluster_id_stays(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        async with running_broker(
            tmp_path, http_listen="off", kafka_listen="127.0.0.1:0"
        ) as broker:
            assert broker.addresses.kafka is not None
            async with wire(broker.addresses.kafka, kafka) as client:
                seen.append((await client.call(MetadataRequest(topics=None))).cluster_id)
            async with wire(broker.addresses.native) as own:
                answer = await own.call(MetadataRequest())
                seen.append(answer.cluster_id)
    assert len(set(seen)) == 1
    assert len(seen[0]) == 22


async def test_topic_ids_are_only_in_the_native_encoding(client: Wire, tmp_path: Path) -> None:
    await client.call(create_topic("a"), 0)
    for version in range(8):
        (told,) = (
            await client.call(MetadataRequest(topics=[MetadataTopic(name="a")]), version)
        ).topics
        assert told.topic_id == ""


async def test_clients_are_told_the_advertised_address(tmp_path: Path) -> None:
    async with running_broker(
        tmp_path,
        http_listen="off",
        kafka_listen="127.0.0.1:0",
        advertised_listeners="PLAINTEXT://broker.example:19092",
    ) as broker:
        assert broker.addresses.kafka is not None
        async with wire(broker.addresses.kafka, kafka) as client:
            (node,) = (await client.call(MetadataRequest(topics=None))).brokers
            assert (node.host, node.port) == ("broker.example", 19092)
        async with wire(broker.addresses.native) as own:
            (node,) = (await own.call(MetadataRequest())).brokers
            assert f"{node.host}:{node.port}" == broker.addresses.native


async def test_the_broker_says_where_its_port_is(broker: Broker, own_client: Wire) -> None:
    described = await own_client.call(DescribeBrokerRequest())
    assert (described.kafka_listen, described.kafka_open) == (broker.addresses.kafka, True)
    assert described.kafka_advertised == ""


async def test_what_one_port_wrote_the_other_reads(client: Wire, own_client: Wire) -> None:
    await client.call(produce("t", SET), 2)
    await own_client.call(produce("t", SET))
    by_kafka = result(await client.call(fetch("t", (0, 0)), 3))
    by_own = result(await own_client.call(fetch("t", (0, 0))))
    assert bytes(by_kafka.records) == bytes(by_own.records)
    assert by_kafka.high_watermark == 4


async def test_a_large_record_set_is_sent_from_its_file(client: Wire) -> None:
    large = message_set(1_500_000_000_000, value=bytes(300_000))
    for _ in range(3):
        await client.call(produce("t", large), 2)
    read = result(await client.call(fetch("t", (0, 0), partition_max_bytes=1 << 20)))
    assert len(read.records) == 3 * len(large)
    assert bytes(read.records)[8 : len(large)] == large[8:]


async def test_produce_without_an_answer(client: Wire) -> None:
    client.send(PRODUCE, 2, produce("t", SET, acks=0))
    assert result(await client.call(produce("t", SET), 2)).base_offset == 2


async def test_requests_of_a_pipeline_are_answered_in_order(client: Wire) -> None:
    sent = [client.send(PRODUCE, 2, produce("t", ENTRY)) for _ in range(500)]
    offsets = []
    for number in sent:
        found, body = await client.receive()
        assert found == number
        offsets.append(result(body).base_offset)
    assert offsets == list(range(500))


async def test_sessions_of_fetches_do_not_exist(client: Wire) -> None:
    await client.call(produce("t", SET), 2)
    answer = await client.call(fetch("t", (0, 0)), 7)
    assert (answer.error_code, answer.session_id) == (0, 0)
    refused = await client.call(FetchRequest(session_id=5, session_epoch=1, topics=[]), 7)
    assert (refused.error_code, refused.session_id, refused.topics) == (70, 0, [])


@pytest.mark.parametrize("version", [7, 8, 9, 10])
@pytest.mark.parametrize("session_id", [-1, 0, 5, 2**31 - 1])
@pytest.mark.parametrize("epoch", [-(2**31), -2, -1, 0, 1, 2**31 - 1])
async def test_a_fetch_that_names_all_it_asks_for_is_of_no_session(
    client: Wire, version: int, session_id: int, epoch: int
) -> None:
    """Kafka ends the session that such a request names, and answers it whole."""
    await client.call(produce("t", SET), 2)
    for _ in range(3):  # the first, and those that repeat it
        request = replaced(fetch("t", (0, 0)), session_id=session_id, session_epoch=epoch)
        answer = await client.call(request, version)
        assert answer.session_id == 0
        if epoch in (-1, 0):
            assert answer.error_code == 0
            assert result(answer).records == SET
        else:
            assert (answer.error_code, answer.topics) == (70, [])


async def test_errors_stand_beside_what_they_are_about(broker: Broker, client: Wire) -> None:
    answer = result(await client.call(fetch("missing", (0, 0)), 3))
    assert answer.error_code == 3
    answer = result(await client.call(produce("t", b"\x00" * 40), 2))
    assert answer.error_code == 2
    assert broker.figures.requests["produce", "CORRUPT_MESSAGE"] == 1


@pytest.mark.parametrize(
    ("api_key", "version", "cause"),
    [
        (0, 8, "produce version 8 is unknown; versions 0 to 7 are served"),
        (3, -1, "metadata version -1 is unknown"),
        (24, 0, "request 24 is unknown; there are 0 produce"),
        (1000, 0, "request 1000 is unknown"),
    ],
)
async def test_unknown_requests_close_the_connection_and_are_named(
    broker: Broker, client: Wire, api_key: int, version: int, cause: str
) -> None:
    """P-7."""
    events = seen_events(broker)
    client.send_bytes(struct.pack(">ihhih", 10, api_key, version, 1, -1))
    assert await client.at_end()
    (dropped,) = [fields for event, fields in events if event == "connection_dropped"]
    assert cause in str(dropped["cause"])


async def test_what_came_before_an_unknown_request_is_answered(
    broker: Broker, client: Wire
) -> None:
    """P-7, of requests that came together with it."""
    unknown = struct.pack(">ihhih", 10, 1000, 0, 1, -1)
    sent = client.send_together(*[MetadataRequest() for _ in range(3)])
    client.send_bytes(unknown)
    assert [(await client.receive())[0] for _ in sent] == sent
    assert await client.at_end()


@pytest.mark.parametrize(
    ("sent", "cause"),
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00", "speaks TLS, not Kafka's protocol", id="tls"),
        pytest.param(b"GET / HTTP/1.1\r\n", "speaks HTTP, not Kafka's protocol", id="http"),
        pytest.param(b"SSH-2.0-x\r\n", "speaks SSH, not Kafka's protocol", id="ssh"),
        pytest.param(
            native.encode_request(METADATA, 0, 1, "c", MetadataRequest()),
            "a client of Horolog's own protocol",
            id="native",
        ),
        pytest.param(b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes", id="large"),
        pytest.param(b"\0\0\0\4\0\0\0\0", "a frame of 4 bytes is too short", id="short"),
    ],
)
async def test_another_protocol_on_kafkas_port_is_named(
    broker: Broker, client: Wire, sent: bytes, cause: str
) -> None:
    events = seen_events(broker)
    client.send_bytes(sent)
    # A client of TLS is told in its own words: a fatal alert, protocol_version.
    told = bytes.fromhex("15 0303 0002 02 46") if "TLS" in cause else b""
    assert await client.reader.read() == told
    (dropped,) = [fields for event, fields in events if event == "connection_dropped"]
    assert cause in str(dropped["cause"])


@pytest.mark.parametrize("version", [0, 3])
async def test_kafkas_protocol_on_the_native_port_is_named(
    broker: Broker, own_client: Wire, version: int
) -> None:
    events = seen_events(broker)
    own_client.send_bytes(kafka.encode_request(API_VERSIONS, version, 1, "c", ApiVersionsRequest()))
    assert await own_client.at_end()
    (dropped,) = [fields for event, fields in events if event == "connection_dropped"]
    assert "a Kafka client: it speaks Kafka's protocol, which has another port" in str(
        dropped["cause"]
    )


async def test_a_broken_body_closes_the_connection_and_names_the_field(
    broker: Broker, client: Wire
) -> None:
    events = seen_events(broker)
    body = struct.pack(">hhih", METADATA.key, 1, 1, -1) + struct.pack(">i", 5)
    client.send_bytes(len(body).to_bytes(4, "big") + body)
    assert await client.at_end()
    (dropped,) = [fields for event, fields in events if event == "connection_dropped"]
    assert "metadata version 1 was refused: `topics` says that it has 5 items" in str(
        dropped["cause"]
    )
    assert broker.figures.requests["metadata", "INVALID_REQUEST"] == 1


async def test_what_stands_before_a_broken_request_is_answered(client: Wire) -> None:
    good = kafka.encode_request(PRODUCE, 2, 5, "c", produce("t", SET))
    broken = bytearray(kafka.encode_request(PRODUCE, 2, 6, "c", produce("t", SET)))
    at = len(broken) - len(SET) - 4
    broken[at : at + 4] = b"\x7f\xff\xff\xff"
    client.send_bytes(good + bytes(broken) + good)
    head, raw = kafka.open_response(await client.frame())
    answer = result(kafka.decode_response(PRODUCE.response, 2, raw))
    assert (head.correlation_id, answer.error_code, answer.base_offset) == (5, 0, 0)
    assert await client.at_end()


def seen_events(broker: Broker) -> list[tuple[str, dict[str, object]]]:
    """The events from now on."""
    seen: list[tuple[str, dict[str, object]]] = []
    observe = broker._connections._observe

    def note(event: str, /, **fields: object) -> None:
        seen.append((event, fields))
        observe(event, **fields)

    broker._connections._observe = note
    return seen


async def test_a_default_port_that_is_taken_is_no_reason_not_to_start(
    broker: Broker, tmp_path: Path
) -> None:
    taken = str(broker.addresses.kafka)
    settings = broker_settings(
        {"data.dir": str(tmp_path / "other"), "listen": "127.0.0.1:0", "http.listen": "off"}
    )
    other = Broker(replace(settings, kafka_listen=taken))
    await other.start()
    assert other.addresses.kafka is None
    async with wire(other.addresses.native) as client:
        described = await client.call(DescribeBrokerRequest())
        assert (described.kafka_listen, described.kafka_open) == (taken, False)
    await other.stop()


def test_every_request_of_the_table_is_registered() -> None:
    assert {
        api.key: (offered[0], offered[-1])
        for api in APIS.values()
        if (offered := api.offered(native=False))
    } == SERVED
    assert FIND_COORDINATOR.versions(native=False) == range(3)


@pytest.mark.parametrize("version", range(1, 8))
async def test_the_largest_time_in_every_version_of_list_offsets(
    client: Wire, version: int
) -> None:
    await client.call(produce("t", SET))
    found = result(await client.call(list_offsets("t", (0, -3)), version))
    assert (found.error_code, found.offset, found.timestamp) == (0, 1, 1_500_000_001_000)
    assert found.leader_epoch == -1


@pytest.mark.parametrize(("target", "named"), [(-4, "earliest-local"), (-5, "latest-tiered")])
async def test_targets_of_tiered_storage_are_refused_by_name(
    client: Wire, own_client: Wire, target: int, named: str
) -> None:
    await client.call(produce("t", SET))
    found = result(await client.call(list_offsets("t", (0, target)), 7))
    assert (found.error_code, found.offset) == (UnsupportedVersion.code, -1)
    found = result(await own_client.call(list_offsets("t", (0, target))))
    assert found.error_code == UnsupportedVersion.code
    assert named in found.error_message


async def test_the_cluster_without_topics(broker: Broker, client: Wire) -> None:
    metadata = await client.call(MetadataRequest(topics=[]), 7)
    found = await client.call(DescribeClusterRequest())
    assert (found.error_code, found.cluster_id) == (0, metadata.cluster_id)
    assert found.controller_id == metadata.controller_id
    assert [(each.broker_id, each.host, each.port) for each in found.brokers] == [
        (each.node_id, each.host, each.port) for each in metadata.brokers
    ]
    assert found.cluster_authorized_operations == NOT_ASKED
    found = await client.call(DescribeClusterRequest(include_cluster_authorized_operations=True))
    assert found.endpoint_type == 1
    refused = await client.call(DescribeClusterRequest(endpoint_type=2))
    assert (refused.error_code, refused.brokers) == (MismatchedEndpointType.code, [])
    assert "controllers" in refused.error_message
    every = sum(1 << number for number in (5, 7, 8, 9, 10, 11, 12))
    assert found.cluster_authorized_operations == every


async def test_no_partition_is_reassigned_and_no_transaction_goes_on(client: Wire) -> None:
    topics = [ListPartitionReassignmentsTopic(name="t", partition_indexes=[0])]
    for asked in (None, topics):
        moved = await client.call(ListPartitionReassignmentsRequest(topics=asked))
        assert (moved.error_code, moved.error_message, moved.topics) == (0, None, [])
    listed = await client.call(
        ListTransactionsRequest(state_filters=["Ongoing", "x", "x"], producer_id_filters=[1])
    )
    assert (listed.error_code, listed.transaction_states) == (0, [])
    assert listed.unknown_state_filters == ["x"]


async def test_producers_of_a_partition(client: Wire) -> None:
    await client.call(create_topic("t", 2))
    encoder = RecordEncoder()
    for _ in range(5):
        encoder.add(b"hello", None, 1_500_000_000_000, ())
    sent = bytes(finish_batch(encoder, producer_id=7, producer_epoch=3, base_sequence=0))
    answer = result(await client.call(produce("t", sent), 7))
    assert answer.error_code == 0
    topics = [
        DescribeProducersTopic(name="t", partitions=[0, 1, 9]),
        DescribeProducersTopic(name="none", partitions=[0]),
    ]
    found = await client.call(DescribeProducersRequest(topics=topics))
    known, empty, unknown = found.topics[0].partitions
    (producer,) = known.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 3, 4)
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
    assert producer.last_timestamp > 0
    assert (empty.error_code, empty.active_producers) == (0, [])
    assert unknown.error_code == UnknownTopicOrPartition.code
    assert found.topics[1].partitions[0].error_code == UnknownTopicOrPartition.code


async def test_elections_and_quorums_are_refused_by_name(client: Wire) -> None:
    topics = [ElectLeadersTopic(topic="t", partitions=[1, 0, 1])]
    refused = await client.call(ElectLeadersRequest(topic_partitions=topics))
    assert refused.error_code == 0, "Java's admin shows the sentences then"
    results = refused.topics[0].partitions
    assert [(each.partition, each.error_code) for each in results] == [(1, 35), (0, 35)]
    assert "horolog cluster promote" in results[0].error_message
    refused = await client.call(ElectLeadersRequest(topic_partitions=None))
    assert (refused.error_code, refused.topics) == (UnsupportedVersion.code, [])
    await client.call(create_topic("t", 2))
    refused = await client.call(ElectLeadersRequest(topic_partitions=None))
    assert refused.error_code == 0
    codes = {each.partition: each.error_code for each in refused.topics[0].partitions}
    assert codes == {0: 35, 1: 35}
    for version in range(3):
        refused = await client.call(DescribeQuorumRequest(topics=[]), version)
        assert refused.error_code == UnsupportedVersion.code
    assert "horolog cluster status" in refused.error_message
