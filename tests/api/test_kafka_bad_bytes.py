"""Bytes that are nearly Kafka's: whatever they are, a typed error or a message comes of them."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.api.framing import ProtocolError
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.kafka.fields import find_fault
from horolog.protocol.api.log.list_offsets import LIST_OFFSETS
from horolog.protocol.api.log.produce import PRODUCE, ProduceRequest
from horolog.protocol.api.native.frames import encode_request
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.schema import is_flexible
from horolog.protocol.api.topics.metadata import METADATA, MetadataRequest
from horolog.protocol.errors import InvalidRequest
from horolog.protocol.limits import MAX_REQUEST_VALUES, MAX_TOPICS

from .conftest import SomeOf, example

COUNTS = [-1, -2, 2**31 - 1, -(2**31), 2**16, 2**24]


def frames(side: str) -> list[Any]:
    """An example of every request, or of every response, in every version."""
    made = []
    for api in APIS.values():
        for version in api.versions(native=False):
            body = example(getattr(api, side), version)
            if side == "request":
                frame = kafka.encode_request(api, version, 77, "someone", body)
            else:
                frame = kafka.encode_response(77, api, version, body)
            made.append(pytest.param(api, version, frame[4:], id=f"{api.name}-{version}"))
    return made


requests = pytest.mark.parametrize(("api", "version", "frame"), frames("request"))
responses = pytest.mark.parametrize(("api", "version", "frame"), frames("response"))


def decode(frame: bytes) -> Any:
    """What the broker does with a frame, up to the handler. None: refused by name."""
    try:
        head, raw = kafka.open_request(frame)
    except ProtocolError:
        return None
    api = APIS.get(head.api_key)
    if api is None or head.version not in api.versions(native=False):
        return None
    try:
        return kafka.decode_body(api.request, head.version, raw)
    except InvalidRequest:
        return None


def decode_answer(api: Any, version: int, frame: bytes) -> Any:
    """What a client does with a frame."""
    try:
        _, raw = kafka.open_response(frame)
        return kafka.decode_response(api.response, version, raw)
    except ProtocolError:
        return None


@requests
def test_requests_truncated_at_each_byte(api: Any, version: int, frame: bytes) -> None:
    for cut in range(len(frame)):
        assert decode(frame[:cut]) is None, cut


@requests
def test_requests_with_bits_of_each_byte_flipped(
    api: Any, version: int, frame: bytes, some_of: SomeOf
) -> None:
    flipped = bytearray(frame)
    for place in range(len(frame)):
        for bit in some_of(range(8), 2):
            flipped[place] ^= 1 << bit
            decode(bytes(flipped))
            flipped[place] ^= 1 << bit


@responses
def test_responses_truncated_and_flipped(
    api: Any, version: int, frame: bytes, some_of: SomeOf
) -> None:
    for cut in range(len(frame)):
        assert decode_answer(api, version, frame[:cut]) is None, cut
    flipped = bytearray(frame)
    for place in range(len(frame)):
        for bit in some_of(range(8), 2):
            flipped[place] ^= 1 << bit
            decode_answer(api, version, bytes(flipped))
            flipped[place] ^= 1 << bit


@requests
def test_impossible_lengths_at_each_place(
    api: Any, version: int, frame: bytes, some_of: SomeOf
) -> None:
    for place in range(8, len(frame) - 3):
        for count in some_of(COUNTS, 2):
            changed = bytearray(frame)
            changed[place : place + 4] = count.to_bytes(4, "big", signed=True)
            decode(bytes(changed))


@given(st.binary(max_size=200), st.data())
def test_any_bytes_behind_a_head(body: bytes, data: st.DataObject) -> None:
    api = data.draw(st.sampled_from([api for api in APIS.values() if api.versions(native=False)]))
    version = data.draw(st.sampled_from(api.versions(native=False)))
    frame = kafka.encode_request(METADATA, 1, 1, None, MetadataRequest(topics=None))[4:14]
    head = api.key.to_bytes(2, "big") + version.to_bytes(2, "big")
    decode(head + frame[4:] + body)


@given(st.binary(max_size=200))
def test_any_bytes(frame: bytes) -> None:
    decode(frame)


def broken(api: Any, version: int, body: bytes) -> str:
    head = api.key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff"
    _, raw = kafka.open_request(head + body)
    with pytest.raises(InvalidRequest) as refused:
        kafka.decode_body(api.request, version, raw)
    return refused.value.message


@pytest.mark.parametrize(
    ("api", "version", "body", "fault"),
    [
        (PRODUCE, 2, "0001", "it ends in the middle of `timeout_ms`"),
        (
            PRODUCE,
            2,
            "0001 00000000 7fffffff",
            "`topics` says that it has 2147483647 items, and 0 bytes are left",
        ),
        (
            PRODUCE,
            2,
            "0001 00000000 ffffffff",
            "`topics` says that it has -1 items, and 0 bytes are left",
        ),
        (
            PRODUCE,
            2,
            "0001 00000000 00000001 0009 7474 00000000",
            "`topics[0].name` says that it has 9 bytes, and 6 are left",
        ),
        (
            PRODUCE,
            2,
            "0001 00000000 00000001 0001 ff 00000000",
            "`topics[0].name` is not UTF-8",
        ),
        (
            PRODUCE,
            2,
            "0001 00000000 00000001 0001 74 00000001 00000000 00000005 00",
            "`topics[0].partitions[0].records` says that it has 5 bytes, and 1 are left",
        ),
        (METADATA, 1, "ffffffff 00", "1 bytes follow its last field"),
        (METADATA, 1, "fffffffe", "`topics` says that it has -2 items, and 0 bytes are left"),
    ],
)
def test_faults_name_the_field(api: Any, version: int, body: str, fault: str) -> None:
    assert broken(api, version, bytes.fromhex(body)) == fault


def test_more_items_than_the_limit_are_refused() -> None:
    count = MAX_TOPICS + 1
    body = count.to_bytes(4, "big") + bytes(2 * count)
    assert broken(METADATA, 1, body) == (
        f"`topics` must have at most {MAX_TOPICS} items, not {count}"
    )


def test_more_values_than_the_limit_are_refused_before_they_are_made(
    peak_bytes: Callable[[], int],
) -> None:
    partitions = 10_000
    topic = b"\x00\x01t" + partitions.to_bytes(4, "big") + bytes(16 * partitions)
    topics = MAX_REQUEST_VALUES // (4 * partitions) + 1
    body = b"\xff\xff\xff\xff" + topics.to_bytes(4, "big") + topic * topics
    peak_bytes()
    assert broken(LIST_OFFSETS, 0, body) == "something is wrong behind its first 10000 values"
    assert peak_bytes() < 100 * MAX_REQUEST_VALUES


@requests
def test_what_is_right_has_no_fault(api: Any, version: int, frame: bytes) -> None:
    if is_flexible(api.request, version):
        return  # the compact encoding's reader names what is wrong by itself
    _, raw = kafka.open_request(frame)
    assert find_fault(api.request, version, frame, raw.start, MAX_REQUEST_VALUES) is None


def test_a_client_of_the_native_protocol_is_named() -> None:
    body = ProduceRequest(acks=1, topics=[])
    with pytest.raises(ProtocolError, match="Horolog's own protocol, which has another port"):
        kafka.open_request(encode_request(PRODUCE, 2, 1, None, body)[4:])


@pytest.mark.parametrize("frame", [b"", b"\x00", bytes(9)])
def test_a_frame_too_short_for_a_head(frame: bytes) -> None:
    with pytest.raises(ProtocolError, match=f"a frame of {len(frame)} bytes is too short"):
        kafka.open_request(frame)


@pytest.mark.parametrize("size", [-2, 1, 2**15 - 1])
def test_a_client_id_that_does_not_fit(size: int) -> None:
    frame = bytes(8) + size.to_bytes(2, "big", signed=True)
    with pytest.raises(ProtocolError, match=f"client id says that it has {size} bytes, and 0 are"):
        kafka.open_request(frame)
