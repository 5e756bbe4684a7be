"""Bytes that are nearly right: whatever they are, a typed error or a message comes of them."""

import contextlib
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.api.framing import ProtocolError
from horolog.protocol.api.native.faults import find_frame_fault
from horolog.protocol.api.native.frames import (
    decode_body,
    decode_response,
    open_request,
    open_response,
)
from horolog.protocol.api.registry import APIS
from horolog.protocol.errors import InvalidRequest
from horolog.protocol.limits import MAX_DEPTH, MAX_REQUEST_VALUES

from .conftest import SomeOf

# A container's count in its longest forms, with counts that no frame can hold.
COUNTS = [-1, -2, 2**31 - 1, 2**31, 2**16]


def decode(frame: bytes) -> Any:
    """What the broker does with a frame, up to the handler. None: refused by name."""
    try:
        head, raw = open_request(frame)
    except ProtocolError:
        return None
    api = APIS.get(head.api_key)
    if api is None or head.version not in api.versions(native=True):
        return None
    try:
        return decode_body(api.request, head.version, raw)
    except InvalidRequest:
        return None


def test_faults_4_truncated_at_each_byte(golden: Any) -> None:
    for cut in range(len(golden.request_frame)):
        assert decode(golden.request_frame[:cut]) is None, cut


def test_faults_4_bits_of_each_byte_flipped(golden: Any, some_of: SomeOf) -> None:
    frame = bytearray(golden.request_frame)
    for place in range(len(frame)):
        for bit in some_of(range(8), 2):
            frame[place] ^= 1 << bit
            decode(bytes(frame))
            frame[place] ^= 1 << bit
    assert decode(bytes(frame)) == golden.request


def decode_answer(golden: Any, frame: bytearray) -> None:
    _, raw = open_response(frame)
    decode_response(golden.api.response, golden.version, raw)


def test_faults_4_responses_truncated_and_flipped(golden: Any, some_of: SomeOf) -> None:
    frame = bytearray(golden.response_frame)
    for cut in range(len(frame)):
        with pytest.raises(ProtocolError):
            decode_answer(golden, frame[:cut])
    for place in range(len(frame)):
        for bit in some_of(range(8), 2):
            frame[place] ^= 1 << bit
            with contextlib.suppress(ProtocolError):
                decode_answer(golden, frame)
            frame[place] ^= 1 << bit


def test_trailing_bytes_are_refused(golden: Any) -> None:
    assert decode(golden.request_frame + b"\x00") is None


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    "first", [0xDD, 0xDF, 0xDB, 0xC6, 0xC9], ids=["array", "map", "string", "bytes", "extension"]
)
def test_faults_5_lengths_that_the_frame_cannot_hold(
    first: int, count: int, peak_bytes: Callable[[], int]
) -> None:
    opening = b"\x95\x00\x02\x09\xc0" + bytes([first]) + (count % 2**32).to_bytes(4, "big")
    frames = [opening + bytes(padding) for padding in (0, MAX_REQUEST_VALUES)]
    decode(frames[0][:5] + bytes(10))  # makes the decoder
    peak_bytes()
    for frame in frames:
        assert decode(frame) is None
    assert peak_bytes() < 100_000


@given(st.binary(max_size=300))
def test_faults_7_any_bytes(frame: bytes) -> None:
    decode(frame)


@given(st.integers(0, 40), st.binary(max_size=100))
def test_faults_7_any_body(api: int, body: bytes) -> None:
    head, raw = open_request(b"\x95" + msgpack.packb(api) + b"\x00\x09\xc0" + body)
    assert head.correlation_id == 9
    if api in APIS:
        with contextlib.suppress(InvalidRequest):
            decode_body(APIS[api].request, 0, raw)


JSON_LIKE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["topics", "partitions", "name", "partition", "acks", "records"]),
            inner,
            max_size=4,
        )
    ),
)


@given(st.sampled_from(sorted(APIS)), st.integers(0, 3), JSON_LIKE)
def test_faults_7_any_values_in_any_place(api: int, version: int, body: Any) -> None:
    try:
        frame = msgpack.packb([api, version, 9, None, body])
    except ValueError:  # lone surrogates cannot be packed
        return
    decode(frame)


@pytest.mark.parametrize(
    ("items", "item"),
    [
        pytest.param(2_000_000, b"\x90", id="empty arrays"),
        pytest.param(1_000_000, b"\x91\xc0", id="arrays of one"),
        pytest.param(1_000_000, b"\x81\xa0\xc0", id="maps of one"),
        pytest.param(400_000, b"\xdd\x00\x20\x00\x00", id="nested large arrays"),
    ],
)
def test_small_values_in_great_number_are_refused_before_they_are_made(
    items: int, item: bytes, peak_bytes: Callable[[], int]
) -> None:
    frame = b"\x95\x00\x02\x09\xc0\xdd" + items.to_bytes(4, "big") + item * items
    peak_bytes()
    assert decode(frame) is None
    assert peak_bytes() < 100_000


def test_values_are_counted_wherever_they_are() -> None:
    frame = msgpack.packb([[[1, 2], {"a": [3]}] for _ in range(10)])
    assert find_frame_fault(frame, 81) is None
    assert find_frame_fault(frame, 80) == "it holds more than 80 values"


@pytest.mark.parametrize(
    ("opening", "longest"),
    [
        pytest.param(b"\xdc", 0xFFFF, id="arrays"),
        pytest.param(b"\xde", 0xFFFF, id="maps"),
        pytest.param(b"\xdd\x00\x0f", 0x4000, id="arrays with long counts"),
    ],
)
def test_what_a_frame_whose_values_are_not_counted_can_cost(
    opening: bytes, longest: int, peak_bytes: Callable[[], int]
) -> None:
    """The most that nested containers can claim of a frame of this size."""
    level = opening + longest.to_bytes(2, "big") + (b"\xa0" if opening == b"\xde" else b"")
    frame = (b"\x95\x00\x02\x09\xc0" + level * MAX_REQUEST_VALUES)[:MAX_REQUEST_VALUES]
    peak_bytes()
    assert decode(frame) is None
    assert peak_bytes() < 100_000


def test_faults_13_many_partitions_are_decoded_up_to_the_limit_of_values() -> None:
    def frame(count: int) -> bytes:
        partitions = [{"partition": n, "timestamp": -1} for n in range(count)]
        body = {"replica_id": -1, "topics": [{"name": "a", "partitions": partitions}]}
        packed: bytes = msgpack.packb([2, 1, 9, None, body])
        return packed

    most = (MAX_REQUEST_VALUES - 10) // 5
    assert len(decode(frame(most)).topics[0].partitions) == most
    assert decode(frame(most + 1)) is None


def test_depth_is_limited_in_frames_that_are_checked() -> None:
    padding = bytes(MAX_REQUEST_VALUES)

    def fault(depth: int) -> str:
        body: Any = padding
        for _ in range(depth):
            body = [body]
        _, raw = open_request(msgpack.packb([0, 2, 9, None, body]))
        with pytest.raises(InvalidRequest) as caught:
            decode_body(APIS[0].request, 2, raw)
        return caught.value.message

    assert "must be a map" in fault(MAX_DEPTH - 1)
    assert "nested more than" in fault(MAX_DEPTH)
