"""Kafka's encoding: bytes written down by hand, and every message there and back."""

import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.api.broker.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.log.fetch import (
    FETCH,
    AbortedTransaction,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResult,
)
from horolog.protocol.api.log.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from horolog.protocol.api.log.produce import (
    PRODUCE,
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResult,
)
from horolog.protocol.api.native.frames import RequestHead, ResponseHead
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.schema import (
    Api,
    Array,
    Boolean,
    Data,
    Float,
    Integer,
    Records,
    Text,
    fields_of,
    has_plain_head,
    is_flexible,
)
from horolog.protocol.api.topics.metadata import (
    METADATA,
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
    MetadataTopicResult,
)

SET = b"\x00\xff records"

# Request or response, version, its object, and its body field by field in hexadecimal.
WRITTEN_DOWN = [
    pytest.param(
        PRODUCE,
        2,
        ProduceRequest(
            acks=-1,
            timeout_ms=1500,
            topics=[
                ProduceTopic(name="t", partitions=[ProducePartition(partition=3, records=SET)])
            ],
        ),
        "ffff 000005dc 00000001 0001 74 00000001 00000003 0000000a 00ff207265636f726473",
        id="P-1-produce-2",
    ),
    pytest.param(
        PRODUCE,
        7,
        ProduceRequest(
            transactional_id=None,
            acks=1,
            timeout_ms=1,
            topics=[
                ProduceTopic(name="é", partitions=[ProducePartition(partition=0, records=None)])
            ],
        ),
        "ffff 0001 00000001 00000001 0002 c3a9 00000001 00000000 ffffffff",
        id="produce-7",
    ),
    pytest.param(
        PRODUCE,
        5,
        ProduceResponse(
            topics=[
                ProduceTopicResult(
                    name="t",
                    partitions=[
                        ProducePartitionResult(
                            partition=3, error_code=32, base_offset=-1, log_append_time_ms=5
                        )
                    ],
                )
            ]
        ),
        "00000001 0001 74 00000001 00000003 0020 ffffffffffffffff 0000000000000005 "
        "ffffffffffffffff 00000000",
        id="produce-response-5",
    ),
    pytest.param(
        FETCH,
        10,
        FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=1,
            session_epoch=0,
            topics=[
                FetchTopic(
                    name="t",
                    partitions=[
                        FetchPartition(partition=1, fetch_offset=7, partition_max_bytes=256)
                    ],
                )
            ],
        ),
        "ffffffff 000001f4 00000001 00100000 01 00000000 00000000 00000001 0001 74 00000001 "
        "00000001 ffffffff 0000000000000007 ffffffffffffffff 00000100 00000000",
        id="fetch-10",
    ),
    pytest.param(
        FETCH,
        4,
        FetchResponse(
            topics=[
                FetchTopicResult(
                    name="t",
                    partitions=[
                        FetchPartitionResult(
                            partition=1,
                            high_watermark=9,
                            last_stable_offset=8,
                            aborted_transactions=[
                                AbortedTransaction(producer_id=2, first_offset=3)
                            ],
                            records=SET,
                        )
                    ],
                )
            ]
        ),
        "00000000 00000001 0001 74 00000001 00000001 0000 0000000000000009 0000000000000008 "
        "00000001 0000000000000002 0000000000000003 0000000a 00ff207265636f726473",
        id="fetch-response-4",
    ),
    pytest.param(
        LIST_OFFSETS,
        0,
        ListOffsetsRequest(
            topics=[
                ListOffsetsTopic(
                    name="t",
                    partitions=[ListOffsetsPartition(partition=0, timestamp=-2, max_num_offsets=1)],
                )
            ]
        ),
        "ffffffff 00000001 0001 74 00000001 00000000 fffffffffffffffe 00000001",
        id="L-1-list-offsets-0",
    ),
    pytest.param(METADATA, 1, MetadataRequest(topics=None), "ffffffff", id="metadata-all"),
    pytest.param(
        METADATA,
        4,
        MetadataRequest(topics=[MetadataTopic(name="ab")], allow_auto_topic_creation=False),
        "00000001 0002 6162 00",
        id="metadata-4",
    ),
    pytest.param(
        METADATA,
        7,
        MetadataResponse(
            brokers=[MetadataBroker(node_id=0, host="h", port=9092)],
            cluster_id="c",
            controller_id=0,
            topics=[
                MetadataTopicResult(
                    name="t",
                    partitions=[
                        MetadataPartition(
                            partition=0, leader_id=0, replica_nodes=[0], isr_nodes=[0]
                        )
                    ],
                )
            ],
        ),
        "00000000 00000001 00000000 0001 68 00002384 ffff 0001 63 00000000 00000001 0000 0001 74 "
        "00 00000001 0000 00000000 00000000 ffffffff 00000001 00000000 00000001 00000000 00000000",
        id="metadata-response-7",
    ),
    pytest.param(
        API_VERSIONS,
        1,
        ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)]),
        "0000 00000001 0012 0000 0002 00000000",
        id="api-versions-response-1",
    ),
]


def plain(value: Any) -> Any:
    """Views of bytes as bytes, so that messages compare."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
        return type(value)(**{name: plain(getattr(value, name)) for name in names})
    return value


@pytest.mark.parametrize(("api", "version", "message", "written"), WRITTEN_DOWN)
def test_messages_have_kafkas_bytes(api: Api, version: int, message: Any, written: str) -> None:
    body = bytes.fromhex(written)
    if isinstance(message, api.request):
        frame = kafka.encode_request(api, version, 258, "me", message)
        head = struct.pack(">ihhih2s", len(frame) - 4, api.key, version, 258, 2, b"me")
        assert frame == head + body
        found, raw = kafka.open_request(frame[4:])
        assert found == RequestHead(api.key, version, 258, "me")
        assert plain(kafka.decode_body(api.request, version, raw)) == message
    else:
        frame = kafka.encode_response(258, api, version, message)
        assert frame == struct.pack(">ii", len(frame) - 4, 258) + body
        head_found, raw = kafka.open_response(frame[4:])
        assert head_found == ResponseHead(258, 0)
        assert plain(kafka.decode_response(api.response, version, raw)) == message


def values(wire_type: Any, version: int) -> st.SearchStrategy[Any]:
    """Any value that a declared type takes."""
    match wire_type:
        case Integer():
            return st.integers(wire_type.low, wire_type.high)
        case Float():
            return st.floats(allow_nan=False)
        case Boolean():
            return st.booleans()
        case Text():
            text = st.text(st.characters(codec="utf-8"), max_size=9)
            return st.none() | text if wire_type.nullable else text
        case Records():
            return st.none() | st.binary(max_size=9)
        case Data():
            return (
                st.none() | st.binary(max_size=9) if wire_type.nullable else st.binary(max_size=9)
            )
        case Array():
            most = min(2, wire_type.max_items)
            items = st.lists(values(wire_type.of, version), max_size=most)
            return st.none() | items if wire_type.nullable else items
    specs = fields_of(wire_type, version, native=False)
    return st.builds(wire_type, **{spec.name: values(spec.type, version) for spec in specs})


def written_out(wire_type: Any, version: int, value: Any) -> bytes:
    """A value's bytes in Kafka's encoding, one after the other."""
    match wire_type:
        case Integer():
            return int(value).to_bytes(wire_type.bits // 8, "big", signed=True)
        case Float():
            return struct.pack(">d", value)
        case Boolean():
            return bytes([value])
        case Text():
            if value is None:
                return b"\xff\xff"
            return struct.pack(">h", len(value.encode())) + bytes(value.encode())
        case Records() | Data():
            if value is None:
                return b"\xff\xff\xff\xff"
            return len(value).to_bytes(4, "big") + bytes(value)
        case Array():
            if value is None:
                return b"\xff\xff\xff\xff"
            items = (written_out(wire_type.of, version, item) for item in value)
            return len(value).to_bytes(4, "big") + b"".join(items)
    return b"".join(
        written_out(spec.type, version, getattr(value, spec.name))
        for spec in fields_of(wire_type, version, native=False)
    )


def compact_out(wire_type: Any, version: int, value: Any) -> bytes:
    """A value's bytes in Kafka's compact encoding; messages end with no tagged fields."""
    match wire_type:
        case Text() | Records() | Data():
            content = value.encode() if isinstance(value, str) else value
            return varint(0) if content is None else varint(len(content) + 1) + bytes(content)
        case Array():
            items = (compact_out(wire_type.of, version, item) for item in value or ())
            return varint(0 if value is None else len(value) + 1) + b"".join(items)
        case type():
            specs = fields_of(wire_type, version, native=False)
            fields = (compact_out(each.type, version, getattr(value, each.name)) for each in specs)
            return b"".join(fields) + varint(0)
    return written_out(wire_type, version, value)


def varint(number: int) -> bytes:
    """An unsigned number of 7 bits a byte, the lowest ones first."""
    groups = [number >> shift & 0x7F for shift in range(0, 35, 7) if shift == 0 or number >> shift]
    return bytes(group | 0x80 for group in groups[:-1]) + bytes(groups[-1:])


def behind_head(struct: Any, version: int, value: Any) -> bytes:
    """What stands behind the head that all versions have."""
    if is_flexible(struct, version):
        tags = b"" if has_plain_head(struct) else varint(0)
        return tags + compact_out(struct, version, value)
    return written_out(struct, version, value)


def messages_of(side: str) -> st.SearchStrategy[Any]:
    return st.one_of(
        [
            st.tuples(st.just(api), st.just(version), values(getattr(api, side), version))
            for api in APIS.values()
            for version in api.versions(native=False)
        ]
    )


@given(messages_of("request"), st.integers(-(2**31), 2**31 - 1), st.none() | st.just("me"))
def test_any_request_comes_back(drawn: Any, correlation_id: int, client_id: str | None) -> None:
    api, version, body = drawn
    frame = kafka.encode_request(api, version, correlation_id, client_id, body)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    head, raw = kafka.open_request(frame[4:])
    assert head == RequestHead(api.key, version, correlation_id, client_id)
    assert frame.endswith(behind_head(api.request, version, body))
    assert len(frame) - 4 - raw.start == len(behind_head(api.request, version, body))
    assert plain(kafka.decode_body(api.request, version, raw)) == body


@given(messages_of("response"), st.integers(-(2**31), 2**31 - 1))
def test_any_response_comes_back(drawn: Any, correlation_id: int) -> None:
    api, version, body = drawn
    frame = kafka.encode_response(correlation_id, api, version, body)
    # What old clients get in place of a storage error stands in the message from then on.
    assert frame[8:] == behind_head(api.response, version, body)
    _, raw = kafka.open_response(frame[4:])
    assert plain(kafka.decode_response(api.response, version, raw)) == body


def test_native_fields_are_not_sent() -> None:
    result = ProducePartitionResult(partition=0, error_message="why")
    body = ProduceResponse(topics=[ProduceTopicResult(name="t", partitions=[result])])
    assert b"why" not in kafka.encode_response(1, PRODUCE, 7, body)


@pytest.mark.parametrize(
    ("version", "sent"), [(0, 6), (3, 6), (4, 56), (7, 56)], ids=lambda value: str(value)
)
def test_old_produce_requests_are_told_to_look_for_the_leader_instead_of_storage_errors(
    version: int, sent: int
) -> None:
    result = ProducePartitionResult(partition=0, error_code=56)
    body = ProduceResponse(topics=[ProduceTopicResult(name="t", partitions=[result])])
    _, raw = kafka.open_response(kafka.encode_response(1, PRODUCE, version, body)[4:])
    found = kafka.decode_response(ProduceResponse, version, raw)
    assert found.topics[0].partitions[0].error_code == sent


@pytest.mark.parametrize(("version", "sent"), [(0, 6), (5, 6), (6, 56), (10, 56)])
def test_old_fetches_are_told_to_look_for_the_leader_instead_of_storage_errors(
    version: int, sent: int
) -> None:
    result = FetchPartitionResult(partition=0, error_code=56)
    body = FetchResponse(topics=[FetchTopicResult(name="t", partitions=[result])])
    _, raw = kafka.open_response(kafka.encode_response(1, FETCH, version, body)[4:])
    found = kafka.decode_response(FetchResponse, version, raw)
    assert found.topics[0].partitions[0].error_code == sent


def test_record_sets_are_views_that_can_be_written_to() -> None:
    partition = ProducePartition(partition=0, records=SET)
    body = ProduceRequest(acks=1, topics=[ProduceTopic(name="t", partitions=[partition])])
    frame = bytearray(kafka.encode_request(PRODUCE, 3, 1, None, body)[4:])
    found = kafka.decode_body(ProduceRequest, 3, kafka.open_request(frame)[1])
    view: Any = found.topics[0].partitions[0].records
    view[:2] = b"\x01\x02"
    assert frame.endswith(b"\x01\x02 records")


def test_each_name_is_that_of_its_own_request() -> None:
    """Names that repeat the one before, or only look like it, and one that is no text."""
    read = kafka.reader(METADATA, 1)
    names = ["a", "a", "b", "ab", "a", "\u00e9", "ee", "x" * 100, "x" * 99 + "y", "a"]
    for name in names:
        request = MetadataRequest(topics=[MetadataTopic(name=name)])
        frame = kafka.encode_request(METADATA, 1, 7, "client", request)[4:]
        spoiled = frame.replace(name.encode(), b"\xff" * len(name.encode()))
        assert read(spoiled) is None
        whole = read(frame)
        assert whole is not None
        assert [topic.name for topic in whole.body.topics] == [name]
        assert whole.client_id == "client"


def test_a_long_client_id_is_cut() -> None:
    frame = kafka.encode_request(METADATA, 1, 1, "é" * 300, MetadataRequest(topics=None))
    head, raw = kafka.open_request(frame[4:])
    assert head.client_id == "é" * 127 + "\N{REPLACEMENT CHARACTER}"
    assert kafka.decode_body(MetadataRequest, 1, raw) == MetadataRequest(topics=None)
