"""Responses of the native encoding: errors as a whole, odd ones, and more than this side knows."""

from typing import Any

import msgpack
import pytest

from horolog.protocol.api.framing import ProtocolError
from horolog.protocol.api.native import (
    ResponseHead,
    decode_response,
    encode_error,
    encode_response,
    error_message,
    open_response,
)
from horolog.protocol.api.produce import (
    PRODUCE,
    ProducePartitionResult,
    ProduceResponse,
    ProduceTopicResult,
)
from horolog.protocol.limits import MAX_ERROR_TEXT_BYTES


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
