"""The native encoding: one msgpack array a frame, after a 4-byte big-endian length.

    request    [api, version, correlation_id, client_id, body]
    response   [correlation_id, error_code, body]

Bodies are maps with string keys, as the message classes declare them; a response with an error
code has the body {"error_message": text}. A record set is one `bin`.

A request is opened in two steps, so that one whose body is wrong can still be answered under its
correlation id: `open_request`, then `decode_body`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from typing import Annotated, Any, Final, NamedTuple, TypeVar, cast

import msgspec
from msgspec.msgpack import Decoder

from ...errors import NO_ERROR, InvalidRequest
from ...limits import (
    LARGE_REQUEST_BYTES,
    LENGTH_BYTES,
    MAX_CLIENT_ID_BYTES,
    MAX_ERROR_TEXT_BYTES,
    MAX_REQUEST_VALUES,
    MAX_RESPONSE_VALUES,
    MAX_SMALL_REQUEST_VALUES,
)
from ...records.kernel import PackedField, PackedMessage
from ..framing import Frame, ProtocolError
from ..pieces import Output, Pieces
from ..schema import INT16, INT32, INT64, Api, Text, has_record_sets, most_values
from ..writing import AnswersEncoder, InMemory, Written, clip, in_memory
from . import pieces
from .decoding import WRONG, decoder, request_reader
from .faults import fault_of, quoted
from .fields import packed_field
from .shape import find_fault

T = TypeVar("T")

NAME: Final = "Horolog's protocol"
NATIVE: Final = True
"""Which versions of requests it has."""

_HEAD_BYTES: Final = 5 + 3 * 9 + 5 + MAX_CLIENT_ID_BYTES
"""The most that a request's bytes before its body take: array, three numbers, a string."""

_Int16 = Annotated[int, msgspec.Meta(ge=INT16.low, le=INT16.high)]
_Int32 = Annotated[int, msgspec.Meta(ge=INT32.low, le=INT32.high)]
_Int64 = Annotated[int, msgspec.Meta(ge=INT64.low, le=INT64.high)]


class RequestHead(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """What every request begins with. `api_key` and `version` may be unknown ones."""

    api_key: _Int64
    version: _Int64
    correlation_id: _Int32
    client_id: Annotated[str, msgspec.Meta(max_length=MAX_CLIENT_ID_BYTES)] | None


class Request(RequestHead, gc=False):
    """A whole request; `body` is its message."""

    body: Any


class _Request(RequestHead, gc=False):
    body: msgspec.Raw


class _Response(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    correlation_id: _Int32
    error_code: _Int16
    body: msgspec.Raw


Writer = Callable[..., Written]
_NUMBER: Final = packed_field(INT64, 0)
_TEXT: Final = packed_field(Text(nullable=True), 0)


def _make_request_writer(struct: type[Any], version: int) -> PackedMessage:
    return _array_of(_NUMBER, _NUMBER, _NUMBER, _TEXT, packed_field(struct, version))


def _make_response_encoder(struct: type[Any], version: int) -> AnswersEncoder:
    writer = _array_of(_NUMBER, _NUMBER, packed_field(struct, version))
    write, write_joined = writer.frame, writer.joined
    alone = has_record_sets(struct, version, native=True)

    def encode(
        correlation_ids: Iterable[int], bodies: Sequence[object], *, faulty: bool = True
    ) -> list[Written]:
        no_errors = repeat(NO_ERROR, len(bodies))
        if alone:
            return list(map(write, correlation_ids, no_errors, bodies))
        return [write_joined(correlation_ids, no_errors, bodies)]

    return encode


def _array_of(*fields: PackedField) -> PackedMessage:
    return PackedMessage([("", field, ()) for field in fields])


# The casts are there because mypy does not take a class for something hashable.
_request_writer: Final = cast(
    Callable[[type[Any], int], PackedMessage], cache(_make_request_writer)
)
_response_encoder: Final = cast(
    Callable[[type[Any], int], AnswersEncoder], cache(_make_response_encoder)
)

_REQUEST: Final = 0x95
_ANSWER: Final = b"\x93"
"""The arrays that a request and a response are."""
_KIND_BYTES: Final = 3
_KIND: Final = 0x7F7F
"""The bits of the api key and the version, if each of them takes a byte."""

_read_request: Final = Decoder(_Request).decode
_read_response: Final = Decoder(_Response).decode


@dataclass(slots=True)
class Body:
    """A body not yet decoded: the frame from `start` on, or what is wrong with it."""

    frame: Frame
    start: int
    fault: str | None = None

    @property
    def content(self) -> memoryview:
        """The bytes of it."""
        return memoryview(self.frame)[self.start :]


class ResponseHead(NamedTuple):
    """What every response begins with."""

    correlation_id: int
    error_code: int


def kind_of(frame: Frame) -> int | None:
    """A number for the api key and the version of a request, as `kind`; `None` where to tell them
    takes a closer look."""
    begin = int.from_bytes(frame[:_KIND_BYTES], "big")
    return begin & _KIND if begin & ~_KIND == _REQUEST << 16 else None


def reader(api: Api, version: int) -> Callable[[Frame], Request | None]:
    """A function that gives the whole request of a frame, in one step.

    `None` where it is of another kind, not as it should be, or not a small one: then `open_request`
    tells.
    """
    begin = bytes((_REQUEST, api.key, version))
    whole = request_reader(
        api.request, version, Request, begin, MAX_SMALL_REQUEST_VALUES, MAX_CLIENT_ID_BYTES
    )
    read: Callable[[Frame], Request | None] = whole.read
    return read


def open_request(frame: Frame) -> tuple[RequestHead, Body]:
    """Take the head off a request.

    Raises ProtocolError when there is no telling what to answer to: the connection is to be
    closed. A broken body is no error yet; that of a large request is not looked at.
    """
    if len(frame) > LARGE_REQUEST_BYTES:
        values, start = _salvage(frame, 5, "its head is not readable")
        return _head(values), Body(frame, start)
    try:
        found = _read_request(frame)
        if found.client_id is None or len(found.client_id.encode()) <= MAX_CLIENT_ID_BYTES:
            head = RequestHead(found.api_key, found.version, found.correlation_id, found.client_id)
            return head, Body(frame, len(frame) - len(memoryview(found.body)))
    except WRONG:
        pass
    return _doubtful_request(frame)


def _doubtful_request(frame: Frame) -> tuple[RequestHead, Body]:
    """The head of a request that is not good as a whole; `ProtocolError` if that is not either."""
    fault = _fault_in(frame, MAX_REQUEST_VALUES)
    if fault is not None:
        values, _ = _salvage(frame, 5, fault)
        return _head(values), Body(frame, 0, f"the body is not valid msgpack: {fault}")
    outer = msgspec.msgpack.decode(frame)
    if type(outer) is not list or len(outer) != 5:
        raise ProtocolError(
            "a request must be an array of 5: api, version, correlation id, client id, body; "
            f"got {quoted(outer)}"
        )
    return _head(outer), Body(frame, len(frame), "the body is not valid msgpack")


def _fault_in(frame: Frame, max_values: int) -> str | None:
    """Why a frame is not one value of msgpack within the limits, if it is not."""
    fault = find_fault(frame, max_values)
    if fault is None:
        try:
            msgspec.msgpack.decode(frame)
        except WRONG as error:
            fault = str(error)
    return fault


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
        if len(client_id.encode()) > MAX_CLIENT_ID_BYTES:
            raise ProtocolError(f"a client id must be at most {MAX_CLIENT_ID_BYTES} bytes long")
    return RequestHead(api_key, version, correlation_id, client_id)


def _check_correlation_id(value: object) -> None:
    if type(value) is not int or not INT32.low <= value <= INT32.high:
        raise ProtocolError(f"a correlation id must be an int32, not {quoted(value)}")


def decode_body(struct: type[T], version: int, body: Body) -> T:
    """Make a request's message object. Raises InvalidRequest naming the field that is wrong.

    Record sets are views of the frame: whoever keeps one keeps the frame.
    """
    if body.fault is not None:
        raise InvalidRequest(body.fault)
    return _decoded(struct, version, body.content, most_values(struct), InvalidRequest)


def decode_in_pieces(struct: type[T], version: int, body: Body) -> Pieces[T]:
    """As `decode_body`, in pieces."""
    if body.fault is not None:
        raise InvalidRequest(body.fault)
    content, values = body.content, most_values(struct)
    if find_fault(content, values, outer_depth=1) is None:
        yield
        try:
            return (yield from pieces.read_message(struct, version, content))
        except WRONG:
            yield
    raise InvalidRequest(fault_of(content, struct, version, strict=True, max_values=values))


def decodes_slowly(struct: type[Any], version: int) -> bool:
    """Whether a request of some KiB takes long to decode already."""
    return False


def _decoded(
    struct: type[T],
    version: int,
    content: memoryview,
    max_values: int,
    refusal: type[InvalidRequest | ProtocolError],
) -> T:
    strict = refusal is InvalidRequest
    # A value takes a byte at the least, and may become many: what is larger is counted first.
    if len(content) <= max_values or find_fault(content, max_values) is None:
        try:
            return decoder(struct, version, strict)(content)  # type: ignore[no-any-return]
        except WRONG:
            pass
    fault = fault_of(content, struct, version, strict=strict, max_values=max_values)
    raise refusal(fault if strict else f"in a response, {fault}")


def encode_request(
    api: Api, version: int, correlation_id: int, client_id: str | None, body: object
) -> bytes:
    """A request's frame, with its length in front."""
    return b"".join(request_parts(api, version, correlation_id, client_id, body))


def request_parts(
    api: Api, version: int, correlation_id: int, client_id: str | None, body: object
) -> list[InMemory]:
    """The same as parts: each record set is one, as it was given."""
    write = _request_writer(api.request, version).parts
    parts: list[InMemory] = write(api.key, version, correlation_id, client_id, body)
    return parts


def encode_response(correlation_id: int, api: Api, version: int, body: object) -> bytes:
    """A response's frame, with its length in front."""
    (frame,) = answers_encoder(api, version)((correlation_id,), (body,))
    return in_memory(frame)


def answers_encoder(api: Api, version: int) -> AnswersEncoder:
    """A function that does as `encode_response` for responses of one kind: as one, or where they
    may have record sets each by itself, in parts when these are not in memory."""
    return _response_encoder(api.response, version)


def answer_in_pieces(api: Api, version: int, correlation_id: int, body: object) -> Pieces[Written]:
    """As `answers_encoder` does for one response, in pieces."""
    output = Output()
    output.put(_ANSWER)
    pieces.put_value(output, INT64, version, correlation_id)
    pieces.put_value(output, INT64, version, NO_ERROR)
    yield from pieces.write_message(api.response, version, body, output)
    return output.frame(LENGTH_BYTES)


def encode_error(correlation_id: int, code: int, message: str) -> bytes:
    """The frame of a response that is an error as a whole, with its length in front."""
    error = {"error_message": clip(message, MAX_ERROR_TEXT_BYTES)}
    content = msgspec.msgpack.encode([correlation_id, code, error])
    return len(content).to_bytes(LENGTH_BYTES, "big") + content


def encode_refusal(
    head: RequestHead, api: Api | None, request: object, code: int, message: str
) -> bytes:
    """The frame that refuses a request as a whole, with its length in front."""
    return encode_error(head.correlation_id, code, message)


def refuse_in_pieces(
    head: RequestHead, api: Api, request: object, code: int, message: str
) -> Pieces[Written]:
    """As `encode_refusal`."""
    return encode_refusal(head, api, request, code, message)
    yield


def open_response(frame: Frame) -> tuple[ResponseHead, Body]:
    """Take the head off a response. Raises ProtocolError when the frame is no response."""
    try:
        found = _read_response(frame)
    except WRONG:
        raise _no_response(frame) from None
    head = ResponseHead(found.correlation_id, found.error_code)
    return head, Body(frame, len(frame) - len(memoryview(found.body)))


def _no_response(frame: Frame) -> ProtocolError:
    """What is wrong with a frame that is no response."""
    fault = _fault_in(frame, MAX_RESPONSE_VALUES)
    if fault is not None:
        return ProtocolError(f"a response is not valid msgpack: {fault}")
    outer = msgspec.msgpack.decode(frame)
    if type(outer) is not list or len(outer) != 3:
        return ProtocolError(
            "a response must be an array of 3: correlation id, error code, body; "
            f"got {quoted(outer)}"
        )
    correlation_id, error_code, _ = outer
    if type(correlation_id) is not int or not INT32.low <= correlation_id <= INT32.high:
        return ProtocolError(f"a correlation id must be an int32, not {quoted(correlation_id)}")
    return ProtocolError(f"an error code must be an int16, not {quoted(error_code)}")


def decode_response(struct: type[T], version: int, body: Body) -> T:
    """Make a response's message object; fields this side does not know are skipped.

    Its record sets are views of its frame. Raises ProtocolError naming the field that is wrong.
    """
    return _decoded(struct, version, body.content, MAX_RESPONSE_VALUES, ProtocolError)


def error_message(body: Body) -> str | None:
    """The sentence in the body of an error response; None when there is none."""
    try:
        return _read_error(body.content).error_message
    except WRONG:
        return None


class _Error(msgspec.Struct, gc=False):
    error_message: Annotated[str, msgspec.Meta(max_length=MAX_ERROR_TEXT_BYTES)] | None = None


_read_error: Final = Decoder(_Error).decode


def _salvage(frame: Frame, length: int, fault: str) -> tuple[list[Any], int]:
    """All but the last value of an array of `length`, and where the last one begins, which is not
    read. Raises `ProtocolError` that says `fault` where there are no such values."""
    import msgpack  # the one who reads value by value; most brokers never need it here

    unpacker = msgpack.Unpacker(max_buffer_size=_HEAD_BYTES, max_ext_len=0)
    unpacker.feed(frame[:_HEAD_BYTES])
    try:
        if unpacker.read_array_header() == length:
            return [unpacker.unpack() for _ in range(length - 1)], unpacker.tell()
    except (ValueError, msgpack.OutOfData):
        pass
    if frame[:1] == b"\x00":
        # Where a Kafka request has the high byte of its api key.
        raise ProtocolError("a Kafka client: it speaks Kafka's protocol, which has another port")
    raise ProtocolError(f"the frame is not a msgpack request: {fault}")
