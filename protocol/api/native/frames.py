"""The native encoding: one msgpack array a frame, after a 4-byte big-endian length.

    request    [api, version, correlation_id, client_id, body]
    response   [correlation_id, error_code, body]

Bodies are maps with string keys, as the message classes declare them; a response with an error
code has the body {"error_message": text}. A record set is one `bin`.

A request is opened in two steps, so that one whose body is wrong can still be answered under its
correlation id: `open_request`, then `decode_body`.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import msgpack

from ...errors import NO_ERROR, InvalidRequest
from ...limits import (
    MAX_CLIENT_ID_BYTES,
    MAX_ERROR_TEXT_BYTES,
    MAX_REQUEST_VALUES,
    MAX_RESPONSE_VALUES,
    UNCHECKED_FRAME_BYTES,
)
from ..framing import ProtocolError
from ..joining import joined, joined_if_in_memory
from ..schema import INT32, Api
from . import arranging
from .decoding import UNUSUAL, Unusual, decoder
from .decoding import integer as decode_integer
from .decoding import nullable_string as decode_nullable_string
from .encoding import encoder
from .plans import Refused, clip, quoted, reader
from .shape import find_fault
from .values import Elsewhere, Part, integer, text

T = TypeVar("T")
Frame = bytes | bytearray | memoryview

NAME: Final = "Horolog's protocol"
NATIVE: Final = True
"""Which versions of requests it has."""

_NO_ERROR: Final = integer(NO_ERROR)

_RESPONSE_START: Final = 0x93
"""An array of three."""

_HEAD_BYTES: Final = 5 + 3 * 9 + 5 + MAX_CLIENT_ID_BYTES
"""The most that a request's bytes before its body take: array, three numbers, a string."""


class RequestHead(NamedTuple):
    """What every request begins with. `api_key` and `version` may be unknown ones."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None


@dataclass(slots=True)
class RawBody:
    """A body not yet decoded: what msgpack made of it, or what is wrong with it."""

    value: Any
    fault: str | None = None


@dataclass(slots=True)
class PackedBody:
    """A body that was not looked at: it begins at `start` of the frame."""

    frame: Frame
    start: int


Body = RawBody | PackedBody


class ResponseHead(NamedTuple):
    """What every response begins with."""

    correlation_id: int
    error_code: int


def likely_api_key(frame: Frame) -> int | None:
    """The api key of a request as most clients write it; `None` where that takes a closer look."""
    return frame[1] if len(frame) > 1 and frame[0] == 0x95 and frame[1] < 0x80 else None


def open_request(frame: Frame) -> tuple[RequestHead, Body]:
    """Take the head off a request.

    Raises ProtocolError when there is no telling what to answer to: the connection is to be
    closed. A broken body is no error yet.
    """
    if len(frame) > UNCHECKED_FRAME_BYTES:
        try:
            return _usual_request(frame)
        except UNUSUAL:
            pass
    return _unpacked_request(frame)


def _usual_request(frame: Frame) -> tuple[RequestHead, PackedBody]:
    """The same without unpacking the body; raises one of `UNUSUAL`."""
    if frame[0] != 0x95:
        raise Unusual
    api_key, at = decode_integer(frame, 1)
    version, at = decode_integer(frame, at)
    correlation_id, at = decode_integer(frame, at)
    client_id, at = decode_nullable_string(frame, at, MAX_CLIENT_ID_BYTES)
    if at >= len(frame) or not INT32.low <= correlation_id <= INT32.high:
        raise Unusual
    return RequestHead(api_key, version, correlation_id, client_id), PackedBody(frame, at)


def _unpacked_request(frame: Frame) -> tuple[RequestHead, RawBody]:
    try:
        outer = _unpack(frame, MAX_REQUEST_VALUES)
    except _Unreadable as unreadable:
        head = _head(_salvage(frame, 5, str(unreadable)))
        return head, RawBody(None, f"the body is not valid msgpack: {unreadable}")
    if type(outer) is not list or len(outer) != 5:
        raise ProtocolError(
            "a request must be an array of 5: api, version, correlation id, client id, body; "
            f"got {quoted(outer)}"
        )
    return _head(outer), RawBody(outer[4])


def _head(outer: list[Any]) -> RequestHead:
    api_key, version, correlation_id, client_id = outer[:4]
    if type(api_key) is not int or type(version) is not int:
        raise ProtocolError(
            f"a request's api and version must be integers, not {quoted(api_key)} "
            f"and {quoted(version)}"
        )
    _check_correlation_id(correlation_id)
    if client_id is not None:
        if type(client_id) is not str:
            raise ProtocolError(f"a client id must be a string or null, not {quoted(client_id)}")
        # A character is at most 4 bytes: most ids need no encoding to be measured.
        if len(client_id) * 4 > MAX_CLIENT_ID_BYTES < len(client_id.encode()):
            raise ProtocolError(f"a client id must be at most {MAX_CLIENT_ID_BYTES} bytes long")
    return RequestHead(api_key, version, correlation_id, client_id)


def _check_correlation_id(value: object) -> None:
    if type(value) is not int or not INT32.low <= value <= INT32.high:
        raise ProtocolError(f"a correlation id must be an int32, not {quoted(value)}")


def decode_body(struct: type[T], version: int, raw: Body) -> T:
    """Make a request's message object. Raises InvalidRequest naming the field that is wrong.

    Record sets are views of the frame when they can be: whoever keeps one keeps the frame.
    """
    if isinstance(raw, PackedBody):
        try:
            usual, end = decoder(struct, version)(raw.frame, raw.start)
            if end == len(raw.frame):
                return usual  # type: ignore[no-any-return]
        except UNUSUAL:
            pass
        raw = _unpacked_request(raw.frame)[1]
    if raw.fault is not None:
        raise InvalidRequest(raw.fault)
    try:
        return arranging.arranger(struct, version)(raw.value)  # type: ignore[no-any-return]
    except arranging.UNUSUAL:
        pass
    try:
        body: T = reader(struct, version, True)(raw.value)
    except Refused as refused:
        raise InvalidRequest(str(refused)) from None
    return body


def encode_request(
    api: Api, version: int, correlation_id: int, client_id: str | None, body: object
) -> bytes:
    """A request's frame, with its length in front."""
    parts: list[Part] = [b"\x95", integer(api.key), integer(version), integer(correlation_id)]
    parts.append(text(client_id))
    encoder(api.request, version)(body, parts)
    return joined(parts)


def encode_response(correlation_id: int, api: Api, version: int, body: object) -> bytes:
    """A response's frame, with its length in front."""
    return joined(_response(correlation_id, api, version, body))


def encode_answer(
    correlation_id: int, api: Api, version: int, body: object
) -> bytes | list[bytes | Elsewhere]:
    """As `encode_response`; in parts when there are record sets that are not in memory."""
    return joined_if_in_memory(_response(correlation_id, api, version, body))


def _response(correlation_id: int, api: Api, version: int, body: object) -> list[Part]:
    parts: list[Part] = [b"\x93", integer(correlation_id), _NO_ERROR]
    encoder(api.response, version)(body, parts)
    return parts


def encode_error(correlation_id: int, code: int, message: str) -> bytes:
    """The frame of a response that is an error as a whole, with its length in front."""
    return _frame([correlation_id, code, {"error_message": clip(message, MAX_ERROR_TEXT_BYTES)}])


def encode_refusal(
    head: RequestHead, api: Api | None, request: object, code: int, message: str
) -> bytes:
    """The frame that refuses a request as a whole, with its length in front."""
    return encode_error(head.correlation_id, code, message)


def open_response(frame: Frame) -> tuple[ResponseHead, Body]:
    """Take the head off a response. Raises ProtocolError when the frame is no response."""
    if len(frame) > UNCHECKED_FRAME_BYTES and frame[0] == _RESPONSE_START:
        try:
            correlation_id, at = decode_integer(frame, 1)
            error_code, at = decode_integer(frame, at)
        except UNUSUAL:
            pass
        else:
            if error_code == NO_ERROR and INT32.low <= correlation_id <= INT32.high:
                return ResponseHead(correlation_id, error_code), PackedBody(frame, at)
    return _unpacked_response(frame)


def _unpacked_response(frame: Frame) -> tuple[ResponseHead, RawBody]:
    try:
        outer = _unpack(frame, MAX_RESPONSE_VALUES)
    except _Unreadable as unreadable:
        raise ProtocolError(f"a response is not valid msgpack: {unreadable}") from None
    if type(outer) is not list or len(outer) != 3:
        raise ProtocolError(
            "a response must be an array of 3: correlation id, error code, body; "
            f"got {quoted(outer)}"
        )
    correlation_id, error_code, body = outer
    _check_correlation_id(correlation_id)
    if type(error_code) is not int:
        raise ProtocolError(f"an error code must be an integer, not {quoted(error_code)}")
    return ResponseHead(correlation_id, error_code), RawBody(body)


def decode_response(struct: type[T], version: int, raw: Body) -> T:
    """Make a response's message object; fields this side does not know are skipped.

    The record sets of a large response are views of its frame. Raises ProtocolError naming the
    field that is wrong.
    """
    body: T
    if type(raw) is PackedBody:
        try:
            body, end = decoder(struct, version)(raw.frame, raw.start)
            if end == len(raw.frame):
                return body
        except UNUSUAL:
            pass
        _, raw = _unpacked_response(raw.frame)
    assert type(raw) is RawBody
    try:
        body = reader(struct, version, False)(raw.value)
    except Refused as refused:
        raise ProtocolError(f"in a response, {refused}") from None
    return body


def error_message(raw: Body) -> str | None:
    """The sentence in the body of an error response; None when there is none."""
    if type(raw) is RawBody and type(raw.value) is tuple:
        for key, text in raw.value:
            if key == "error_message" and isinstance(text, str):
                return text
    return None


class _Unreadable(Exception):
    """The bytes are not one msgpack value within the limits."""


def _refuse_extension(code: int, _: bytes) -> None:
    raise ValueError(f"it holds an extension type ({code}), which the protocol does not use")


def _unpack(frame: Frame, max_values: int) -> Any:
    """One msgpack value: arrays as lists, maps as tuples of pairs."""
    if len(frame) > UNCHECKED_FRAME_BYTES:
        fault = find_fault(frame, max_values)
        if fault is not None:
            raise _Unreadable(fault)
    try:
        return msgpack.unpackb(
            frame,
            object_pairs_hook=tuple,
            ext_hook=_refuse_extension,
            strict_map_key=True,
            max_ext_len=0,
        )
    except ValueError as error:
        # Every error of msgpack is a ValueError; the one for depth has no text.
        raise _Unreadable(str(error) or "it is nested too deeply") from None


def _salvage(frame: Frame, length: int, fault: str) -> list[Any]:
    """All but the last value of an array of `length`, when the last is what is unreadable."""
    unpacker = msgpack.Unpacker(
        max_buffer_size=_HEAD_BYTES, ext_hook=_refuse_extension, max_ext_len=0
    )
    unpacker.feed(frame[:_HEAD_BYTES])
    try:
        if unpacker.read_array_header() == length:
            return [unpacker.unpack() for _ in range(length - 1)]
    except (ValueError, msgpack.OutOfData):
        pass
    if frame[:1] == b"\x00":
        # Where a Kafka request has the high byte of its api key.
        raise ProtocolError("a Kafka client: it speaks Kafka's protocol, which has another port")
    raise ProtocolError(f"the frame is not a msgpack request: {fault}")


def _frame(values: list[Any]) -> bytes:
    return joined([msgpack.packb(values)])
