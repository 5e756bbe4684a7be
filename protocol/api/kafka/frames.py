"""Kafka's encoding: a header, then the fields of a message one after the other.

    request    api key int16, version int16, correlation id int32, client id nullable string, body
    response   correlation id int32, body

A 4-byte big-endian length precedes each. Bodies have Kafka's fields as the message classes declare
them, without names; native fields are left out. Nearly all versions are older than Kafka's compact
encoding; `compact` handles the others, whose headers end with tagged fields. Large messages are
read and written in pieces.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is an exception
from typing import Any, Final, TypeVar, cast

from ...errors import CorruptMessage, InvalidRecord, InvalidRequest, StorageError
from ...limits import (
    LENGTH_BYTES,
    MAX_CLIENT_ID_BYTES,
    MAX_PIECE_VALUES,
    MAX_RESPONSE_VALUES,
    MAX_SMALL_REQUEST_VALUES,
)
from ...records.kernel import MessageReader, MessageWriter
from ...records.kernel.terms import NULL_LENGTH, Unreadable
from ..framing import Frame, ProtocolError
from ..log.fetch import FETCH
from ..log.produce import PRODUCE
from ..native.frames import Body, Request, RequestHead, ResponseHead
from ..pieces import VALUE_BYTES, Output, Pieces, chunks, has_arrays, is_large
from ..schema import (
    INT16,
    INT32,
    Api,
    Array,
    Field,
    Text,
    WireType,
    fields_of,
    has_record_sets,
    is_flexible,
    most_values,
)
from ..writing import AnswersEncoder, InMemory, Written, in_memory
from . import compact
from .fields import (
    UNREADABLE,
    field_reader,
    field_writer,
    find_fault,
    message_reader,
    smallest_size,
    values_in,
)
from .refusals import refusal, refusal_in_pieces

Type = WireType | type[Any]

_COUNT: Final = Struct(">i")
_HEAD_BYTES: Final = LENGTH_BYTES + _COUNT.size
"""Bytes before the items in the output of an array's writer: the length of a frame, and the number
of items."""

T = TypeVar("T")

NAME: Final = "Kafka's protocol"
NATIVE: Final = False
"""Whether requests have their native versions, not Kafka's."""

_REQUEST_HEAD: Final = Struct(">hhih")
_RESPONSE_HEAD: Final = Struct(">i")

_REQUEST_BEGIN: Final = Struct(">hh")
"""Api key and version, the start of a request."""

_KIND_BYTES: Final = 3

_NATIVE_START: Final = 0x95
"""First byte of a native request (an array of 5), where a Kafka request has the high byte of its
api key."""

NOT_LEADER: Final = 6

_STORAGE_ERROR: Final = {StorageError.code: NOT_LEADER}
"""Both codes make clients look for the leader again."""
_INVALID_RECORD: Final = {InvalidRecord.code: CorruptMessage.code}

_HEAD: Final[Sequence[tuple[str, WireType]]] = (
    ("api_key", INT16),
    ("version", INT16),
    ("correlation_id", INT32),
    ("client_id", Text(nullable=True, max_bytes=MAX_CLIENT_ID_BYTES)),
)
"""The header of a request."""


class Place:
    """The reading position in a frame."""

    __slots__ = ("at", "frame", "left", "room")

    def __init__(self, frame: Frame, at: int, room: int) -> None:
        self.frame = frame
        self.at = at
        self.room = room
        """How many more values arrays may have."""
        self.left = MAX_PIECE_VALUES
        """Values left in the current piece."""


def read_message(struct: type[T], version: int, place: Place) -> Pieces[T]:
    """Return the message at a place, decoded as by its reader. Raises the reader's errors."""
    found: dict[str, Any] = {}
    for step in _read_steps(struct, version):
        if isinstance(step, Field):
            found[step.name] = yield from _read_items(cast(Array, step.type), version, place)
        else:
            values, place.at, _ = step.read(place.frame, place.at, 0)
            found |= values
    return struct(**found)


def _read_items(array: Array, version: int, place: Place) -> Pieces[list[Any] | None]:
    try:
        (count,) = _COUNT.unpack_from(place.frame, place.at)
    except StructError:
        raise Unreadable from None
    place.at += _COUNT.size
    if count == NULL_LENGTH and array.nullable:
        return None
    left = len(place.frame) - place.at
    if not 0 <= count <= array.max_items or count * smallest_size(array.of, version) > left:
        raise Unreadable
    read, values = _item_reader(array.of, version).read, values_in(array.of, version)
    place.room -= count * values
    if place.room < 0:
        raise Unreadable
    items: list[Any] = []
    for _ in range(count):
        begin, room = place.at, min(place.room, MAX_PIECE_VALUES)
        try:
            item, place.at, room_left = read(place.frame, begin, room)
        except Unreadable:
            if room == place.room or not has_arrays(array.of):
                raise
            # The item has more values than fit in one piece.
            item = yield from read_message(cast(type[Any], array.of), version, place)
        else:
            place.room -= room - room_left
            place.left -= values + room - room_left + (place.at - begin) // VALUE_BYTES
            if place.left < 0:
                yield
                place.left = MAX_PIECE_VALUES
        items.append(item)
    return items


def write_message(struct: type[Any], version: int, message: Any, output: Output) -> Pieces[None]:
    """Write a message, as its writer would, in pieces."""
    for step in _write_steps(struct, version):
        if isinstance(step, Field):
            items = getattr(message, step.name)
            yield from _write_items(cast(Array, step.type).of, version, items, output)
        else:
            names, writer = step
            values = [getattr(message, name) for name in names]
            output.put_parts(writer.parts(*values), LENGTH_BYTES)


def _write_items(
    of: Type, version: int, items: Sequence[Any] | None, output: Output
) -> Pieces[None]:
    output.put(_COUNT.pack(NULL_LENGTH if items is None else len(items)))
    write = _items_writer(of, version).parts
    for chunk in chunks(of, items or ()):
        if is_large(of, chunk):
            yield from write_message(cast(type[Any], of), version, chunk[0], output)
        else:
            output.put_parts(write(chunk), _HEAD_BYTES)
        yield


_Between = tuple[list[str], MessageWriter]
"""Names of the fields between two arrays, and the writer of these fields."""


def _split(struct: type[Any], version: int) -> list[Field | list[Field]]:
    """Split the fields of a message into arrays and the runs of other fields between them."""
    found: list[Field | list[Field]] = []
    for spec in fields_of(struct, version, native=False):
        if isinstance(spec.type, Array):
            found.append(spec)
        elif found and isinstance(found[-1], list):
            found[-1].append(spec)
        else:
            found.append([spec])
    return found


def _make_read_steps(struct: type[Any], version: int) -> list[MessageReader | Field]:
    return [
        step
        if isinstance(step, Field)
        else MessageReader(dict, [(spec.name, field_reader(spec.type, version)) for spec in step])
        for step in _split(struct, version)
    ]


def _make_write_steps(struct: type[Any], version: int) -> list[_Between | Field]:
    steps: list[_Between | Field] = []
    for step in _split(struct, version):
        if isinstance(step, Field):
            steps.append(step)
        else:
            fields = [(spec.name, field_writer(spec.type, version)) for spec in step]
            steps.append(([spec.name for spec in step], MessageWriter(fields)))
    return steps


def _make_item_reader(of: Type, version: int) -> MessageReader:
    if isinstance(of, type):
        return message_reader(of, version)
    return MessageReader(cast(type[Any], _only), [("value", field_reader(of, version))])


def _only(value: Any) -> Any:
    return value


def _make_items_writer(of: Type, version: int) -> MessageWriter:
    return MessageWriter([("items", field_writer(Array(of, 0), version))])


# The casts are needed because mypy does not consider a class hashable.
_read_steps: Final = cast(
    Callable[[type[Any], int], list[MessageReader | Field]], cache(_make_read_steps)
)
_write_steps: Final = cast(
    Callable[[type[Any], int], list[_Between | Field]], cache(_make_write_steps)
)
_item_reader: Final = cast(Callable[[Type, int], MessageReader], cache(_make_item_reader))
_items_writer: Final = cast(Callable[[Type, int], MessageWriter], cache(_make_items_writer))


def _make_request_writer(struct: type[Any], version: int) -> MessageWriter:
    head = [(name, field_writer(wire_type, version)) for name, wire_type in _HEAD]
    return MessageWriter([*head, ("body", field_writer(struct, version))])


def _make_response_writer(struct: type[Any], version: int) -> MessageWriter:
    number, body = field_writer(INT32, version), field_writer(struct, version)
    return MessageWriter([("correlation_id", number), ("body", body)])


# The casts are needed because mypy does not consider a class hashable.
_request_writer: Final = cast(
    Callable[[type[Any], int], MessageWriter], cache(_make_request_writer)
)
_response_writer: Final = cast(
    Callable[[type[Any], int], MessageWriter], cache(_make_response_writer)
)

_REPLACED: Final[Mapping[tuple[int, int], Mapping[int, int]]] = {
    **{(PRODUCE.key, version): _STORAGE_ERROR | _INVALID_RECORD for version in range(4)},
    **{(PRODUCE.key, version): _INVALID_RECORD for version in range(4, 8)},
    **{(FETCH.key, version): _STORAGE_ERROR for version in range(6)},
}
"""By api key and version, the error codes that are newer than the version, and the codes sent
instead."""


def kind_of(frame: Frame) -> int | None:
    """Return the number of a request's api key and version, as `schema.kind`; `None` if the frame
    is no such request."""
    if len(frame) > _KIND_BYTES and frame[0] == frame[2] == 0:
        return frame[1] << 8 | frame[3]
    return None


def reader(api: Api, version: int) -> Callable[[Frame], Request | None]:
    """Return a function that decodes a whole request. It returns `None` if the frame is of another
    kind, malformed or not small; `open_request` then finds out which."""
    if is_flexible(api.request, version):
        return _never
    head = [(name, field_reader(wire_type, version)) for name, wire_type in _HEAD]
    whole = MessageReader(Request, [*head, ("body", field_reader(api.request, version))])
    begin = _REQUEST_BEGIN.pack(api.key, version)
    return partial(whole.whole, begin, MAX_SMALL_REQUEST_VALUES)


def _never(_: Frame) -> None:
    """Reader of compact requests, which cannot be decoded in one step."""


def open_request(frame: Frame) -> tuple[RequestHead, Body]:
    """Decode the header of a request.

    A client id is cut to the size that is logged. Raises ProtocolError if the frame is no request
    at all.
    """
    try:
        api_key, version, correlation_id, size = _REQUEST_HEAD.unpack_from(frame)
    except StructError:
        raise ProtocolError(
            f"a frame of {len(frame)} bytes is too short for a request of Kafka's protocol"
        ) from None
    if frame[0] == _NATIVE_START:
        raise ProtocolError(
            "a client of Horolog's own protocol, which has another port (the setting `listen`)"
        )
    begin = _REQUEST_HEAD.size
    end = begin + max(size, 0)
    if size < NULL_LENGTH or end > len(frame):
        raise ProtocolError(
            f"a request's client id says that it has {size} bytes, and {len(frame) - begin} are "
            "left"
        )
    head = RequestHead(api_key, version, correlation_id, _client_id(frame, size))
    return head, Body(frame, end)


def _client_id(frame: Frame, size: int) -> str | None:
    if size < 0:
        return None
    begin = _REQUEST_HEAD.size
    return str(frame[begin : begin + min(size, MAX_CLIENT_ID_BYTES)], "utf-8", "replace")


def decode_body(struct: type[T], version: int, raw: Body) -> T:
    """Decode the body of a request. Raises InvalidRequest with the name of the field that is wrong.

    Record sets are views of the frame, and keep it in memory.
    """
    values = most_values(struct)
    if is_flexible(struct, version):
        try:
            return compact.read(struct, version, raw.content, values)
        except compact.Wrong as wrong:
            raise InvalidRequest(str(wrong)) from None
    found, end = _decoded(struct, version, raw, values)
    if found is None or end != len(raw.frame):
        raise InvalidRequest(_fault(struct, version, raw, values))
    return found


def decode_in_pieces(struct: type[T], version: int, raw: Body) -> Pieces[T]:
    """Like `decode_body`, in pieces."""
    values = most_values(struct)
    if is_flexible(struct, version):
        try:
            return (yield from compact.read_pieces(struct, version, raw.content, values))
        except compact.Wrong as wrong:
            raise InvalidRequest(str(wrong)) from None
    place = Place(raw.frame, raw.start, values)
    try:
        found = yield from read_message(struct, version, place)
    except UNREADABLE:
        found = None
    if found is None or place.at != len(raw.frame):
        raise InvalidRequest(_fault(struct, version, raw, values))
    return found


def decodes_slowly(struct: type[Any], version: int) -> bool:
    """Whether even a request of some KiB takes long to decode."""
    return is_flexible(struct, version)


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
    if is_flexible(api.request, version):
        head = _REQUEST_HEAD.pack(api.key, version, correlation_id, NULL_LENGTH)
        if client_id is not None:
            name = client_id.encode()
            head = _REQUEST_HEAD.pack(api.key, version, correlation_id, len(name)) + name
        return [compact.write(head, body, version)]
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
    return _response_encoder(api.key, api.response, version)


def _make_response_encoder(api_key: int, response: type[Any], version: int) -> AnswersEncoder:
    if is_flexible(response, version):
        return _compact_encoder(version)
    writer = _response_writer(response, version)
    alone = has_record_sets(response, version, native=False)
    write, write_joined = writer.frame, writer.joined
    replaced = _REPLACED.get((api_key, version))

    def encode(
        correlation_ids: Iterable[int], bodies: Sequence[object], *, faulty: bool = True
    ) -> list[Written]:
        if faulty and replaced is not None:
            for body in bodies:
                _use_known_codes(body, replaced)
        if alone:
            return list(map(write, correlation_ids, bodies))
        return [write_joined(correlation_ids, bodies)]

    return encode


_response_encoder: Final = cast(
    Callable[[int, type[Any], int], AnswersEncoder], cache(_make_response_encoder)
)


def answer_in_pieces(api: Api, version: int, correlation_id: int, body: object) -> Pieces[Written]:
    """Encode one response as `answers_encoder` does, in pieces."""
    replaced = _REPLACED.get((api.key, version))
    if replaced is not None:
        _use_known_codes(body, replaced)
        yield
    head = _RESPONSE_HEAD.pack(correlation_id)
    if is_flexible(api.response, version):
        return (yield from compact.write_pieces(head, body, version))
    output = Output()
    output.put(head)
    yield from write_message(api.response, version, body, output)
    return output.frame(LENGTH_BYTES)


def _compact_encoder(version: int) -> AnswersEncoder:
    def encode(
        correlation_ids: Iterable[int], bodies: Sequence[object], *, faulty: bool = True
    ) -> list[Written]:
        return [
            compact.write(_RESPONSE_HEAD.pack(one), body, version)
            for one, body in zip(correlation_ids, bodies, strict=True)
        ]

    return encode


def encode_refusal(
    head: RequestHead, api: Api | None, request: object, code: int, message: str
) -> bytes:
    """Return the frame of a response that refuses a request as a whole, with its length in front.

    Raises ProtocolError if the response has no field for the error.
    """
    refused = None if api is None else refusal(api.response, request, code, message)
    if api is None or refused is None:
        name = f"request {head.api_key}" if api is None else api.name
        raise ProtocolError(f"{name} version {head.version} was refused: {message}")
    return encode_response(head.correlation_id, api, head.version, refused)


def refuse_in_pieces(
    head: RequestHead, api: Api, request: object, code: int, message: str
) -> Pieces[Written]:
    """Like `encode_refusal`, in pieces."""
    refused = yield from refusal_in_pieces(api.response, request, code, message)
    if refused is None:
        raise ProtocolError(f"{api.name} version {head.version} was refused: {message}")
    return (yield from answer_in_pieces(api, head.version, head.correlation_id, refused))


def open_response(frame: Frame) -> tuple[ResponseHead, Body]:
    """Decode the header of a response. Raises ProtocolError if the frame is no response."""
    try:
        (correlation_id,) = _RESPONSE_HEAD.unpack_from(frame)
    except StructError:
        raise ProtocolError(f"a frame of {len(frame)} bytes is too short for a response") from None
    return ResponseHead(correlation_id, 0), Body(frame, _RESPONSE_HEAD.size)


def decode_response(struct: type[T], version: int, raw: Body) -> T:
    """Decode the body of a response. Raises ProtocolError with the name of the field that is wrong.

    Bytes after the last field are skipped. Record sets are views of the frame.
    """
    if is_flexible(struct, version):
        try:
            return compact.read(struct, version, raw.content, MAX_RESPONSE_VALUES)
        except compact.Wrong as wrong:
            raise ProtocolError(f"in a response, {wrong}") from None
    found, _ = _decoded(struct, version, raw, MAX_RESPONSE_VALUES)
    if found is None:
        fault = _fault(struct, version, raw, MAX_RESPONSE_VALUES)
        raise ProtocolError(f"in a response, {fault}")
    return found


def error_message(raw: Body) -> None:
    """Return `None`: Kafka's encoding has neither an error nor an error text for a whole
    response."""


def _decoded(struct: type[T], version: int, raw: Body, max_values: int) -> tuple[T | None, int]:
    try:
        found, end, _ = message_reader(struct, version).read(raw.frame, raw.start, max_values)
    except UNREADABLE:
        return None, 0
    return found, end


def _fault(struct: type[Any], version: int, raw: Body, max_values: int) -> str:
    fault = find_fault(struct, version, raw.frame, raw.start, max_values)
    assert fault is not None
    return fault


def _use_known_codes(body: Any, replaced: Mapping[int, int]) -> None:
    """Replace the error codes of a response by ones that clients of its version know."""
    for topic in body.topics:
        for result in topic.partitions:
            if result.error_code:
                result.error_code = replaced.get(result.error_code, result.error_code)
