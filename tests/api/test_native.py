"""The native encoding: what goes in comes out, and what is wrong is refused by name."""

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.api.encodings import Encoding
from horolog.protocol.api.framing import ProtocolError
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.log.produce import (
    PRODUCE,
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResult,
)
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.native.frames import (
    RequestHead,
    ResponseHead,
    decode_body,
    decode_response,
    encode_request,
    encode_response,
    open_request,
    open_response,
)
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.schema import (
    Array,
    Boolean,
    Data,
    Float,
    Integer,
    Records,
    Text,
    fields_of,
)
from horolog.protocol.api.topics.metadata import METADATA, MetadataRequest, MetadataTopic
from horolog.protocol.errors import InvalidRequest
from horolog.protocol.limits import (
    MAX_CLIENT_ID_BYTES,
    MAX_STRING_BYTES,
    MAX_TOPICS,
)

GOOD = {
    "acks": 1,
    "timeout_ms": 5,
    "topics": [{"name": "a", "partitions": [{"partition": 0, "records": b"r"}]}],
}


def opened(body: Any, api: int = 0, version: int = 2) -> Any:
    """Decode a produce request that a client in another language might have packed."""
    _, raw = open_request(msgpack.packb([api, version, 9, "me", body]))
    return decode_body(APIS[api].request, version, raw)


def test_a_request_comes_back_as_it_was(golden: Any) -> None:
    head, raw = open_request(golden.request_frame)
    assert head == RequestHead(golden.api.key, golden.version, 77, "someone")
    assert decode_body(golden.api.request, golden.version, raw) == golden.request


def test_a_response_comes_back_as_it_was(golden: Any) -> None:
    head, raw = open_response(golden.response_frame)
    assert head == ResponseHead(77, 0)
    assert decode_response(golden.api.response, golden.version, raw) == golden.response


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
            some_bytes = st.binary(max_size=9)
            return st.none() | some_bytes if wire_type.nullable else some_bytes
        case Array():
            most = min(2, wire_type.max_items)
            items = st.lists(values(wire_type.of, version), max_size=most)
            return st.none() | items if wire_type.nullable else items
    fields = fields_of(wire_type, version, native=True)
    return st.builds(wire_type, **{spec.name: values(spec.type, version) for spec in fields})


MESSAGES = st.one_of(
    [
        st.tuples(st.just(api), st.just(version), values(api.request, version))
        for api in APIS.values()
        for version in api.versions(native=True)
    ]
)


@given(MESSAGES, st.integers(-(2**31), 2**31 - 1), st.none() | st.just("me"))
def test_any_request_comes_back(
    message: tuple[Any, int, Any], correlation_id: int, client_id: str | None
) -> None:
    api, version, body = message
    frame = encode_request(api, version, correlation_id, client_id, body)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    head, raw = open_request(frame[4:])
    assert head == RequestHead(api.key, version, correlation_id, client_id)
    assert decode_body(api.request, version, raw) == body


@pytest.mark.parametrize("encoding", [native, kafka])
@pytest.mark.parametrize("records", [b"", bytearray(b"set"), memoryview(bytes(100_000))])
def test_the_sets_of_a_request_go_as_they_were_given(encoding: Encoding, records: Any) -> None:
    """They are large, and are not copied."""
    partitions = [ProducePartition(partition=number, records=records) for number in range(2)]
    topics = [ProduceTopic(name="a", partitions=partitions)]
    body = ProduceRequest(acks=1, timeout_ms=5, topics=topics)
    parts = encoding.request_parts(PRODUCE, 2, 5, "me", body)
    assert sum(part is records for part in parts) == 2
    assert b"".join(parts) == encoding.encode_request(PRODUCE, 2, 5, "me", body)


def test_the_bytes_of_a_request() -> None:
    body = ProduceRequest(
        acks=-1,
        timeout_ms=100,
        topics=[
            ProduceTopic(name="a", partitions=[ProducePartition(partition=3, records=b"\x01")])
        ],
    )
    assert encode_request(PRODUCE, 2, 5, None, body).hex(" ") == (
        "00 00 00 4b 95 00 02 05 c0 83 "
        "a4 61 63 6b 73 ff "
        "aa 74 69 6d 65 6f 75 74 5f 6d 73 64 "
        "a6 74 6f 70 69 63 73 91 82 "
        "a4 6e 61 6d 65 a1 61 "
        "aa 70 61 72 74 69 74 69 6f 6e 73 91 82 "
        "a9 70 61 72 74 69 74 69 6f 6e 03 "
        "a7 72 65 63 6f 72 64 73 c4 01 01"
    )


def test_a_frame_may_be_any_buffer(golden: Any) -> None:
    for form in (bytearray, memoryview):
        _, raw = open_request(form(golden.request_frame))
        assert decode_body(golden.api.request, golden.version, raw) == golden.request


def test_records_may_be_any_buffer() -> None:
    for form in (bytes, bytearray, memoryview):
        records: Any = form(b"set")
        body = ProducePartition(partition=0, records=records)
        request = ProduceRequest(acks=1, topics=[ProduceTopic(name="a", partitions=[body])])
        _, raw = open_request(encode_request(PRODUCE, 2, 0, None, request)[4:])
        assert decode_body(ProduceRequest, 2, raw).topics[0].partitions[0].records == b"set"


def test_a_missing_field_gets_its_default() -> None:
    body = opened({"acks": 1, "topics": []})
    assert body == ProduceRequest(acks=1, timeout_ms=30_000, topics=[])


def test_a_native_field_with_its_default_is_not_sent() -> None:
    def keys(message: MetadataRequest) -> set[str]:
        frame = encode_request(METADATA, 0, 1, None, message)
        return set(msgpack.unpackb(frame[4:])[4])

    asked = MetadataRequest(topics=[MetadataTopic(name="a")])
    assert keys(asked) == {"topics"}
    asked.allow_auto_topic_creation = False
    assert keys(asked) == {"topics", "allow_auto_topic_creation"}


def test_a_version_has_only_its_fields() -> None:
    result = ProducePartitionResult(partition=0, base_offset=4, log_append_time_ms=99)
    response = ProduceResponse(topics=[ProduceTopicResult(name="a", partitions=[result])])
    for version, expected in [(0, -1), (1, -1), (2, 99)]:
        _, raw = open_response(encode_response(1, PRODUCE, version, response)[4:])
        body = decode_response(ProduceResponse, version, raw)
        assert body.topics[0].partitions[0].log_append_time_ms == expected


def with_partition(**changes: Any) -> dict[str, Any]:
    partition = {"partition": 0, "records": b"r"} | changes
    topics = [GOOD["topics"][0], {"name": "b", "partitions": [partition]}]  # type: ignore[index]
    return GOOD | {"topics": topics}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param(GOOD | {"acks": "1"}, "`acks` must be an int16, not '1' (str)", id="text"),
        pytest.param(GOOD | {"acks": True}, "`acks` must be an int16, not True (bool)", id="bool"),
        pytest.param(GOOD | {"acks": 1.0}, "`acks` must be an int16, not 1.0 (float)", id="float"),
        pytest.param(
            GOOD | {"acks": float("nan")}, "`acks` must be an int16, not nan (float)", id="nan"
        ),
        pytest.param(GOOD | {"acks": None}, "`acks` must be an int16, not null", id="null"),
        pytest.param(
            GOOD | {"acks": 2**15}, "`acks` must be from -32768 to 32767, not 32768", id="above"
        ),
        pytest.param(
            GOOD | {"acks": -(2**15) - 1},
            "`acks` must be from -32768 to 32767, not -32769",
            id="below",
        ),
        pytest.param(
            GOOD | {"timeout_ms": 2**64 - 1},
            f"`timeout_ms` must be from {-(2**31)} to {2**31 - 1}, not {2**64 - 1}",
            id="uint64",
        ),
        pytest.param({"acks": 1}, "`topics` is missing", id="missing"),
        pytest.param(GOOD | {"topics": {}}, "`topics` must be an array, not a map of 0", id="map"),
        pytest.param(GOOD | {"topics": None}, "`topics` must be an array, not null", id="no array"),
        pytest.param(
            GOOD | {"topics": [[]]}, "`topics[0]` must be a map, not an array of 0", id="array"
        ),
        pytest.param(
            GOOD | {"topics": [{"name": "a"}]}, "`topics[0].partitions` is missing", id="inner"
        ),
        pytest.param(
            with_partition(records="r"),
            "`topics[1].partitions[0].records` must be bytes or null, not 'r' (str)",
            id="records",
        ),
        pytest.param(
            with_partition(records=[]),
            "`topics[1].partitions[0].records` must be bytes or null, not an array of 0",
            id="records array",
        ),
        pytest.param(
            with_partition(offset=1),
            "`topics[1].partitions[0]` has no field 'offset' (str) in version 2",
            id="unknown",
        ),
        pytest.param(
            GOOD | {"topics": [{"name": b"a", "partitions": []}]},
            "`topics[0].name` must be a string, not 1 bytes",
            id="bytes for text",
        ),
        pytest.param(GOOD | {b"acks": 1}, "the body has no field 4 bytes in version 2", id="key"),
        pytest.param([], "the body must be a map, not an array of 0", id="no map"),
        pytest.param(None, "the body must be a map, not null", id="null body"),
    ],
)
def test_a_wrong_value_is_refused_by_its_place(body: Any, text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        opened(body)
    assert caught.value.message == text


def test_a_key_given_twice_has_its_last_value() -> None:
    packed = msgpack.packb([0, 2, 9, "me", {"acks": 1, "akcs": -1, "topics": []}])
    _, raw = open_request(packed.replace(b"akcs", b"acks"))
    assert decode_body(ProduceRequest, 2, raw).acks == -1


def test_a_long_value_is_quoted_in_part() -> None:
    with pytest.raises(InvalidRequest) as caught:
        opened(GOOD | {"acks": "x" * 10_000})
    assert len(caught.value.message) < 120


@pytest.mark.parametrize(
    ("name", "good"),
    [
        pytest.param("x" * MAX_STRING_BYTES, True, id="at the limit"),
        pytest.param("x" * (MAX_STRING_BYTES + 1), False, id="one more"),
        pytest.param("é" * (MAX_STRING_BYTES // 2), True, id="two-byte characters"),
        pytest.param("é" * (MAX_STRING_BYTES // 2 + 1), False, id="one two-byte character more"),
    ],
)
def test_the_limit_of_a_string_is_in_bytes(name: str, good: bool) -> None:
    body = {"topics": [{"name": name}]}
    if good:
        assert opened(body, api=3, version=0).topics[0].name == name
    else:
        with pytest.raises(InvalidRequest, match=f"at most {MAX_STRING_BYTES} bytes long, not"):
            opened(body, api=3, version=0)


def test_the_limit_of_an_array() -> None:
    topics = [{"name": "a"}] * MAX_TOPICS
    assert len(opened({"topics": topics}, api=3, version=0).topics) == MAX_TOPICS
    with pytest.raises(InvalidRequest) as caught:
        opened({"topics": [*topics, {"name": "a"}]}, api=3, version=0)
    assert caught.value.message == f"`topics` must have at most {MAX_TOPICS} items, not 10001"


@pytest.mark.parametrize(
    "head",
    [
        pytest.param([0, 2, 9, "me"], id="short"),
        pytest.param([0, 2, 9, "me", {}, {}], id="long"),
        pytest.param({"api": 0}, id="map"),
        pytest.param(7, id="number"),
        pytest.param(["0", 2, 9, "me", {}], id="api"),
        pytest.param([0, 2.0, 9, "me", {}], id="version"),
        pytest.param([0, 2, None, "me", {}], id="no correlation id"),
        pytest.param([0, 2, 2**31, "me", {}], id="correlation id above int32"),
        pytest.param([0, 2, -(2**31) - 1, "me", {}], id="correlation id below int32"),
        pytest.param([0, 2, 9, 1, {}], id="client id"),
        pytest.param([0, 2, 9, "x" * (MAX_CLIENT_ID_BYTES + 1), {}], id="client id too long"),
    ],
)
def test_a_request_without_a_usable_head_is_a_protocol_error(head: Any) -> None:
    with pytest.raises(ProtocolError):
        open_request(msgpack.packb(head))


def test_the_limit_of_a_client_id() -> None:
    client_id = "x" * MAX_CLIENT_ID_BYTES
    assert open_request(msgpack.packb([0, 2, 9, client_id, {}]))[0].client_id == client_id


def test_a_kafka_client_is_recognised() -> None:
    versions_request = bytes.fromhex("0012 0003 00000001 0002 6d65 00")
    with pytest.raises(ProtocolError, match="a Kafka client"):
        open_request(versions_request)


@pytest.mark.parametrize(
    ("api", "version"), [(0, 99), (0, -1), (4711, 0), (-5, 0), (2**63, 0), (0, 2**63)]
)
def test_unknown_requests_and_versions_can_be_answered(api: int, version: int) -> None:
    head, _ = open_request(msgpack.packb([api, version, 9, None, {"what": [1, 2]}]))
    assert head == RequestHead(api, version, 9, None)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x81\xa1\xff\x01", id="invalid UTF-8"),
        pytest.param(b"\x81\x01\x02", id="number for a key"),
        pytest.param(b"\x81\x90\x02", id="array for a key"),
        pytest.param(b"\xd4\x05\x00", id="extension"),
        pytest.param(b"\xc7\x00\x05", id="empty extension"),
        pytest.param(b"\xd6\xff\x00\x00\x00\x00", id="timestamp extension"),
        pytest.param(b"\xc1", id="unused type"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x82\xa4acks", id="cut"),
        pytest.param(b"\xdd\xff\xff\xff\xff", id="huge array"),
        pytest.param(b"\xdf\xff\xff\xff\xff", id="huge map"),
        pytest.param(b"\xdb\xff\xff\xff\xffabc", id="huge string"),
        pytest.param(b"\xc6\x7f\xff\xff\xffabc", id="huge bytes"),
        pytest.param(b"\x91" * 1_000 + b"\xc0", id="1,000 deep"),
        pytest.param(b"\x91" * 100_000 + b"\xc0", id="100,000 deep"),
        pytest.param(b"\x81\xa1k" * 100_000 + b"\xc0", id="100,000 maps deep"),
        pytest.param(b"\x80\x80", id="two bodies"),
    ],
)
def test_a_broken_body_is_answered_under_its_correlation_id(body: bytes) -> None:
    head, raw = open_request(b"\x95\x00\x02\x09\xa2me" + body)
    assert head == RequestHead(0, 2, 9, "me")
    with pytest.raises(InvalidRequest):
        decode_body(ProduceRequest, 2, raw)


def test_a_longest_head_before_a_broken_body_is_understood() -> None:
    # Each value in its longest form, which need not be the shortest that holds it.
    numbers = b"".join(b"\xd3" + n.to_bytes(8, "big", signed=True) for n in (-(2**63), 2, 9))
    client_id = b"\xdb" + MAX_CLIENT_ID_BYTES.to_bytes(4, "big") + b"x" * MAX_CLIENT_ID_BYTES
    frame = b"\xdd\x00\x00\x00\x05" + numbers + client_id + b"\xc1"
    assert open_request(frame)[0] == RequestHead(-(2**63), 2, 9, "x" * MAX_CLIENT_ID_BYTES)
