"""Responses of the native encoding: errors as a whole, odd ones, and more than this side knows."""

from typing import Any

import msgpack
import pytest

from horolog.protocol.api.framing import ProtocolError
from horolog.protocol.api.log.fetch import (
    FETCH,
    FetchPartitionResult,
    FetchResponse,
    FetchTopicResult,
)
from horolog.protocol.api.log.produce import (
    PRODUCE,
    ProducePartitionResult,
    ProduceResponse,
    ProduceTopicResult,
)
from horolog.protocol.api.native.frames import (
    ResponseHead,
    decode_response,
    encode_error,
    encode_response,
    error_message,
    open_response,
)
from horolog.protocol.limits import MAX_ERROR_TEXT_BYTES, MAX_RESPONSE_VALUES


def test_an_error_response() -> None:
    frame = encode_error(9, 42, "no such thing")
    head, raw = open_response(frame[4:])
    assert (head, error_message(raw)) == (ResponseHead(9, 42), "no such thing")


@pytest.mark.parametrize("body", [{}, None, [], {"error_message": 1}, {"other": "x"}])
def test_an_error_response_without_a_sentence(body: Any) -> None:
    _, raw = open_response(msgpack.packb([9, 42, body]))
    assert error_message(raw) is None


def test_an_error_text_is_cut_at_its_limit() -> None:
    text = "é" * MAX_ERROR_TEXT_BYTES
    _, raw = open_response(encode_error(9, 42, text)[4:])
    cut = "é" * (MAX_ERROR_TEXT_BYTES // 2)
    assert error_message(raw) == cut

    result = ProducePartitionResult(partition=0, error_code=42, error_message=text)
    response = ProduceResponse(topics=[ProduceTopicResult(name="a", partitions=[result])])
    _, raw = open_response(encode_response(1, PRODUCE, 2, response)[4:])
    assert decode_response(ProduceResponse, 2, raw).topics[0].partitions[0].error_message == cut


def test_an_error_text_may_hold_what_utf8_cannot() -> None:
    _, raw = open_response(encode_error(9, 42, "a\ud800b")[4:])
    assert error_message(raw) == "a?b"


@pytest.mark.parametrize(
    "response", [[1, 0], [1, 0, {}, {}], {}, 5, ["1", 0, {}], [1, "0", {}], [2**31, 0, {}]]
)
def test_a_frame_that_is_no_response_is_a_protocol_error(response: Any) -> None:
    with pytest.raises(ProtocolError):
        open_response(msgpack.packb(response))


def test_a_response_may_say_more_than_this_side_knows() -> None:
    partition = {"partition": 1, "error_code": 0, "base_offset": 2, "colour": "red"}
    body = {"topics": [{"name": "a", "partitions": [partition], "x": [1]}], "y": None}
    _, raw = open_response(msgpack.packb([1, 0, body]))
    decoded = decode_response(ProduceResponse, 2, raw)
    assert decoded.topics[0].partitions[0].base_offset == 2


def test_a_wrong_response_is_a_protocol_error_that_names_the_field() -> None:
    _, raw = open_response(msgpack.packb([1, 0, {"topics": [{"name": 5}]}]))
    with pytest.raises(ProtocolError, match=r"in a response, `topics\[0\]\.name` must be"):
        decode_response(ProduceResponse, 2, raw)


RECORDS = bytes(range(256)) * 16_000
FETCHED = FetchResponse(
    topics=[
        FetchTopicResult(name="a", partitions=[FetchPartitionResult(partition=1, records=RECORDS)])
    ]
)


def test_the_records_of_a_large_response_are_a_view_of_its_frame() -> None:
    assert len(RECORDS) > MAX_RESPONSE_VALUES
    frame = bytearray(encode_response(7, FETCH, 3, FETCHED)[4:])
    head, raw = open_response(frame)
    assert head == ResponseHead(7, 0)
    records = decode_response(FetchResponse, 3, raw).topics[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    assert records == RECORDS


@pytest.mark.parametrize("cut", [1, 100, len(RECORDS)])
def test_a_large_response_that_ends_early_is_a_protocol_error(cut: int) -> None:
    frame = encode_response(7, FETCH, 3, FETCHED)[4:-cut]
    with pytest.raises(ProtocolError):
        decode_response(FetchResponse, 3, open_response(frame)[1])


def test_a_large_response_with_more_behind_it_is_a_protocol_error() -> None:
    frame = encode_response(7, FETCH, 3, FETCHED)[4:] + b"\xc0"
    with pytest.raises(ProtocolError):
        decode_response(FetchResponse, 3, open_response(frame)[1])


def test_a_large_response_may_say_more_than_this_side_knows() -> None:
    partition = {"partition": 1, "records": RECORDS, "colour": "red"}
    frame = msgpack.packb([1, 0, {"topics": [{"name": "a", "partitions": [partition]}]}])
    response = decode_response(FetchResponse, 3, open_response(frame)[1])
    assert response == FETCHED


def test_a_large_response_that_is_an_error_has_its_sentence() -> None:
    body = {"padding": bytes(MAX_RESPONSE_VALUES), "error_message": "no such thing"}
    head, raw = open_response(msgpack.packb([9, 42, body]))
    assert (head, error_message(raw)) == (ResponseHead(9, 42), "no such thing")
