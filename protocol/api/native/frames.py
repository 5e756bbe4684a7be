"""The native encoding: each frame is one msgpack array, after a 4-byte big-endian length.

    request    [api, version, correlation_id, client_id, body]
    response   [correlation_id, error_code, body]

Bodies are maps with string keys, as the message classes declare them; a response with an error code
has the body {"error_message": text}. A record set is one `bin`.

A request is decoded in two steps, `open_request` and `decode_body`, so that a request with a wrong
body can still be answered under its correlation id.

Large messages are read and written in pieces. To read one, its arrays are first split into the
bytes of their items, which only looks at lengths.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, repeat
from typing import Annotated, Any, Final, NamedTuple, TypeVar, cast

import msgspec
from msgspec import msgpack
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
from ...records.kernel import PackedField, PackedMessage, packed_places
from ..framing import Frame, ProtocolError
from ..pieces import Output, Pieces, chunks, is_large
from ..schema import (
    INT16,
    INT32,
    INT64,
    Api,
    Array,
    Field,
    Text,
    WireType,
    all_fields,
    fields_of,
    has_record_sets,
    most_values,
)
from ..writing import AnswersEncoder, InMemory, Written, clip, clip_of, field_kind, in_memory
from .decoding import WRONG, decoder, item_decoder, request_reader, splitter, struct_in_version
from .faults import fault_of, find_frame_fault, quoted

Type = WireType | type[Any]

_AT_ONCE_BYTES: Final = 8 * 1024
"""A message of at most this size is decoded at once: it has no more values than bytes."""
_NIL: Final = b"\xc0"
_ARRAYS: Final = (*range(0x90, 0xA0), 0xDC, 0xDD)
"""First bytes that an array can have."""

T = TypeVar("T")

NAME: Final = "Horolog's protocol"
NATIVE: Final = True
"""Whether requests have their native versions, not Kafka's."""

_HEAD_BYTES: Final = 5 + 3 * 9 + 5 + MAX_CLIENT_ID_BYTES
"""Maximum size of a request before its body: array header, three numbers, a string."""

_Int16 = Annotated[int, msgspec.Meta(ge=INT16.low, le=INT16.high)]
_Int32 = Annotated[int, msgspec.Meta(ge=INT32.low, le=INT32.high)]
_Int64 = Annotated[int, msgspec.Meta(ge=INT64.low, le=INT64.high)]


def _make_packed_writer(struct: type[Any], version: int) -> PackedMessage:
    fields = [
        (
            spec.name,
            packed_field(spec.type, version),
            (spec.default_value(),) if spec.native else (),
        )
        for spec in fields_of(struct, version, native=True)
    ]
    return PackedMessage(fields)


# The cast is needed because mypy does not consider a class hashable.
packed_message: Final = cast(Callable[[type[Any], int], PackedMessage], cache(_make_packed_writer))
"""Returns the writer of a message class in a version (cached)."""


def packed_field(wire_type: WireType | type[Any], version: int) -> PackedField:
    """Return the writer for values of a type."""
    message = item = None
    match wire_type:
        case Array():
            item = packed_field(wire_type.of, version)
        case type():
            message = packed_message(wire_type, version)
    return PackedField(field_kind(wire_type), clip_of(wire_type), message, item)


def read_message(struct: type[T], version: int, content: memoryview) -> Pieces[T]:
    """Return the message of a request, decoded as by its decoder. Raises the decoder's errors."""
    if len(content) <= _AT_ONCE_BYTES:
        return cast(T, decoder(struct, version, True)(content))
    split = splitter(struct, version)(content)
    found = {spec.name: getattr(split, spec.name) for spec in all_fields(struct)}
    arrays = {spec.name: cast(Array, spec.type) for spec in _arrays_of(struct, version)}
    # The arrays are cut from `content`, because the splitter's copies cannot be written to, as
    # record sets must be.
    places = packed_places(content)
    for begin, middle, end in zip(places[::2], places[1::2], places[2::2], strict=False):
        name = msgpack.decode(content[begin:middle])
        if name in arrays:
            array = arrays[name]
            found[name] = yield from _read_items(array, version, content[middle:end])
    return cast(T, struct_in_version(struct, version, True)(**found))


def _read_items(array: Array, version: int, content: memoryview) -> Pieces[list[Any] | None]:
    if array.nullable and bytes(content[:2]) == _NIL:
        return None
    if content[0] not in _ARRAYS:
        raise ValueError("it is no array")
    of, items = array.of, list[Any]()
    decode = item_decoder(of, version)
    places = packed_places(content)
    if len(places) > 1 + array.max_items:
        raise ValueError(f"there are more than {array.max_items} items")
    left_bytes = _AT_ONCE_BYTES
    for begin, end in pairwise(places):
        if end - begin > _AT_ONCE_BYTES and isinstance(of, type):
            items.append((yield from read_message(of, version, content[begin:end])))
        else:
            items.append(decode(content[begin:end]))
        left_bytes -= end - begin
        if left_bytes < 0:
            yield
            left_bytes = _AT_ONCE_BYTES
    return items


def write_message(struct: type[Any], version: int, message: Any, output: Output) -> Pieces[None]:
    """Write a message, as its writer would, in pieces."""
    written = [
        (spec, value)
        for spec in fields_of(struct, version, native=True)
        if not ((value := getattr(message, spec.name)) == spec.default_value() and spec.native)
    ]
    output.put(_container_head(0x80, 0xDE, len(written)))
    for spec, value in written:
        output.put(bytes((0xA0 | len(spec.name), *spec.name.encode())))
        if isinstance(spec.type, Array) and value is not None:
            yield from _write_items(spec.type.of, version, value, output)
        else:
            put_value(output, spec.type, version, value)


def put_value(output: Output, of: Type, version: int, value: Any) -> None:
    """Write one value."""
    # The value's writer puts it into an array, after the length of a frame.
    output.put_parts(_writer(of, version).parts(value), LENGTH_BYTES + 1)


def _write_items(of: Type, version: int, items: Sequence[Any], output: Output) -> Pieces[None]:
    output.put(_container_head(0x90, 0xDC, len(items)))
    write = _items_writer(of, version).parts
    for chunk in chunks(of, items):
        if is_large(of, chunk):
            yield from write_message(cast(type[Any], of), version, chunk[0], output)
        else:
            head = _container_head(0x90, 0xDC, len(chunk))
            output.put_parts(write(chunk), LENGTH_BYTES + 1 + len(head))
        yield


def _container_head(few: int, many: int, count: int) -> bytes:
    """Return the header of a container with `count` items. `few` is its first byte for fewer than
    16 items, `many` for a count of two bytes."""
    if count < 0x10:
        return bytes((few | count,))
    if count < 0x1_0000:
        return bytes((many, *count.to_bytes(2, "big")))
    return bytes((many + 1, *count.to_bytes(4, "big")))


def _make_arrays_of(struct: type[Any], version: int) -> list[Field]:
    specs = fields_of(struct, version, native=True)
    return [spec for spec in specs if isinstance(spec.type, Array)]


def _make_writer(of: Type, version: int) -> PackedMessage:
    return PackedMessage([("", packed_field(of, version), ())])


def _make_items_writer(of: Type, version: int) -> PackedMessage:
    return _make_writer(Array(of, 0), version)


# The casts are needed because mypy does not consider a class hashable.
_arrays_of: Final = cast(Callable[[type[Any], int], list[Field]], cache(_make_arrays_of))
_writer: Final = cast(Callable[[Type, int], PackedMessage], cache(_make_writer))
_items_writer: Final = cast(Callable[[Type, int], PackedMessage], cache(_make_items_writer))


class RequestHead(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """The header of a request. `api_key` and `version` may be unknown ones."""

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


# The casts are needed because mypy does not consider a class hashable.
_request_writer: Final = cast(
    Callable[[type[Any], int], PackedMessage], cache(_make_request_writer)
)
_response_encoder: Final = cast(
    Callable[[type[Any], int], AnswersEncoder], cache(_make_response_encoder)
)

_REQUEST: Final = 0x95
_ANSWER: Final = b"\x93"
"""First bytes of a request (an array of 5) and a response (an array of 3)."""
_KIND_BYTES: Final = 3
_KIND: Final = 0x7F7F
"""The bits of the api key and the version, if each takes one byte."""

_read_request: Final = Decoder(_Request).decode
_read_response: Final = Decoder(_Response).decode


@dataclass(slots=True)
class Body:
    """A body that is not decoded yet: the frame from `start` on, or what is wrong with it."""

    frame: Frame
    start: int
    fault: str | None = None

    @property
    def content(self) -> memoryview:
        """The bytes of the body."""
        return memoryview(self.frame)[self.start :]


class ResponseHead(NamedTuple):
    """The header of a response."""

    correlation_id: int
    error_code: int


def kind_of(frame: Frame) -> int | None:
    """Return the number of a request's api key and version, as `schema.kind`; `None` if that takes
    decoding."""
    begin = int.from_bytes(frame[:_KIND_BYTES], "big")
    return begin & _KIND if begin & ~_KIND == _REQUEST << 16 else None


def reader(api: Api, version: int) -> Callable[[Frame], Request | None]:
    """Return a function that decodes a whole request in one step.

    It returns `None` if the frame is of another kind, malformed or not small; `open_request` then
    finds out which.
    """
    begin = bytes((_REQUEST, api.key, version))
    whole = request_reader(
        api.request, version, Request, begin, MAX_SMALL_REQUEST_VALUES, MAX_CLIENT_ID_BYTES
    )
    read: Callable[[Frame], Request | None] = whole.read
    return read


def open_request(frame: Frame) -> tuple[RequestHead, Body]:
    """Decode the header of a request.

    A malformed body is no error yet; that of a large request is not checked here. Raises
    ProtocolError if the header is not readable, so that no answer is possible: the connection has
    to be closed.
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
    """Decode the header of a request that is malformed as a whole. Raises ProtocolError if the
    header is malformed too."""
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
    """Return why a frame is not one msgpack value within the limits; `None` if it is."""
    fault = find_frame_fault(frame, max_values)
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
    """Decode the body of a request. Raises InvalidRequest with the name of the field that is wrong.

    Record sets are views of the frame, and keep it in memory.
    """
    if body.fault is not None:
        raise InvalidRequest(body.fault)
    return _decoded(struct, version, body.content, most_values(struct), InvalidRequest)


def decode_in_pieces(struct: type[T], version: int, body: Body) -> Pieces[T]:
    """Like `decode_body`, in pieces."""
    if body.fault is not None:
        raise InvalidRequest(body.fault)
    content, values = body.content, most_values(struct)
    if find_frame_fault(content, values, outer_depth=1) is None:
        yield
        try:
            return (yield from read_message(struct, version, content))
        except WRONG:
            yield
    raise InvalidRequest(fault_of(content, struct, version, strict=True, max_values=values))


def decodes_slowly(struct: type[Any], version: int) -> bool:
    """Whether even a request of some KiB takes long to decode."""
    return False


def _decoded(
    struct: type[T],
    version: int,
    content: memoryview,
    max_values: int,
    refusal: type[InvalidRequest | ProtocolError],
) -> T:
    strict = refusal is InvalidRequest
    # A value takes at least one byte and may decode to many: values in larger bodies are counted
    # first.
    if len(content) <= max_values or find_frame_fault(content, max_values) is None:
        try:
            return decoder(struct, version, strict)(content)  # type: ignore[no-any-return]
        except WRONG:
            pass
    fault = fault_of(content, struct, version, strict=strict, max_values=max_values)
    raise refusal(fault if strict else f"in a response, {fault}")


def encode_request(
    api: Api, version: int, correlation_id: int, client_id: str | None, body: object
) -> bytes:
    """Return the frame of a request, with its length in front."""
    return b"".join(request_parts(api, version, correlation_id, client_id, body))


def request_parts(
    api: Api, version: int, correlation_id: int, client_id: str | None, body: object
) -> list[InMemory]:
    """Return the frame of a request in parts. Each record set is a part of its own and is not
    copied."""
    write = _request_writer(api.request, version).parts
    parts: list[InMemory] = write(api.key, version, correlation_id, client_id, body)
    return parts


def encode_response(correlation_id: int, api: Api, version: int, body: object) -> bytes:
    """Return the frame of a response, with its length in front."""
    (frame,) = answers_encoder(api, version)((correlation_id,), (body,))
    return in_memory(frame)


def answers_encoder(api: Api, version: int) -> AnswersEncoder:
    """Return a function that encodes many responses of one kind: joined into one frame part, or one
    by one where responses may contain record sets, and in parts if these are not in memory."""
    return _response_encoder(api.response, version)


def answer_in_pieces(api: Api, version: int, correlation_id: int, body: object) -> Pieces[Written]:
    """Encode one response as `answers_encoder` does, in pieces."""
    output = Output()
    output.put(_ANSWER)
    put_value(output, INT64, version, correlation_id)
    put_value(output, INT64, version, NO_ERROR)
    yield from write_message(api.response, version, body, output)
    return output.frame(LENGTH_BYTES)


def encode_error(correlation_id: int, code: int, message: str) -> bytes:
    """Return the frame of an error response, with its length in front."""
    error = {"error_message": clip(message, MAX_ERROR_TEXT_BYTES)}
    content = msgspec.msgpack.encode([correlation_id, code, error])
    return len(content).to_bytes(LENGTH_BYTES, "big") + content


def encode_refusal(
    head: RequestHead, api: Api | None, request: object, code: int, message: str
) -> bytes:
    """Return the frame of a response that refuses a request as a whole, with its length in
    front."""
    return encode_error(head.correlation_id, code, message)


def refuse_in_pieces(
    head: RequestHead, api: Api, request: object, code: int, message: str
) -> Pieces[Written]:
    """Like `encode_refusal`, as pieces."""
    return encode_refusal(head, api, request, code, message)
    yield


def open_response(frame: Frame) -> tuple[ResponseHead, Body]:
    """Decode the header of a response. Raises ProtocolError if the frame is no response."""
    try:
        found = _read_response(frame)
    except WRONG:
        raise _no_response(frame) from None
    head = ResponseHead(found.correlation_id, found.error_code)
    return head, Body(frame, len(frame) - len(memoryview(found.body)))


def _no_response(frame: Frame) -> ProtocolError:
    """Return the error that says what is wrong with a frame that is no response."""
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
    """Decode the body of a response. Fields that this side does not know are skipped.

    Record sets are views of the frame. Raises ProtocolError with the name of the field that is
    wrong.
    """
    return _decoded(struct, version, body.content, MAX_RESPONSE_VALUES, ProtocolError)


def error_message(body: Body) -> str | None:
    """Return the text of an error response; `None` if there is none."""
    try:
        return _read_error(body.content).error_message
    except WRONG:
        return None


class _Error(msgspec.Struct, gc=False):
    error_message: Annotated[str, msgspec.Meta(max_length=MAX_ERROR_TEXT_BYTES)] | None = None


_read_error: Final = Decoder(_Error).decode


def _salvage(frame: Frame, length: int, fault: str) -> tuple[list[Any], int]:
    """Return all but the last value of an array of `length`, and where the last one starts, which
    is not decoded. Raises ProtocolError with `fault` if there are no such values."""
    import msgpack  # decodes value by value; most brokers never need it

    unpacker = msgpack.Unpacker(max_buffer_size=_HEAD_BYTES, max_ext_len=0)
    unpacker.feed(frame[:_HEAD_BYTES])
    try:
        if unpacker.read_array_header() == length:
            return [unpacker.unpack() for _ in range(length - 1)], unpacker.tell()
    except (ValueError, msgpack.OutOfData):
        pass
    if frame[:1] == b"\x00":
        # A Kafka request has the high byte of its api key there.
        raise ProtocolError("a Kafka client: it speaks Kafka's protocol, which has another port")
    raise ProtocolError(f"the frame is not a msgpack request: {fault}")
