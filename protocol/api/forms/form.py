"""Requests that repeat one before them but for the correlation id and one number.

A client asks for one partition with the same bytes again and again: a consumer with the next
offset, one who searches with another time. Once such a request has been decoded, the next ones are
recognised by the bytes around the number, and their answers made of what is the same in all of
them, without message objects in between. That holds for requests in the form that Horolog's own
encoders give; all others are none of these.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, Protocol

from ...limits import LENGTH_BYTES
from ..encodings import Encoding
from ..kafka import frames as kafka
from ..native import frames as native
from ..native.frames import Frame, RequestHead
from ..native.values import UNUSUAL, binary_head, integer, read_integer, text
from ..schema import INT32, Api, fields_of

MOST_BYTES: Final = 2048
"""Requests that name one partition are shorter."""

_NATIVE_CORRELATION_AT: Final = 3
_KAFKA_CORRELATION_AT: Final = 4
_KAFKA_CLIENT_ID_AT: Final = 8
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")

_STAND_IN: Final = 0x7766_5544_3322_1100
"""From here on are numbers that are found again in the bytes of a message."""

Around = tuple[int, bytes, bytes]
"""What repeats: the version, the bytes from the client id up to the number, and those behind it."""


class Wire(Protocol):
    """One kind of request, in one encoding."""

    @property
    def api(self) -> Api: ...

    @property
    def encoding(self) -> Encoding: ...

    def split(self, frame: Frame) -> tuple[Around, int, int] | None:
        """What is around the number, the correlation id and the number; `None` for what is not such
        a request in the usual form."""
        ...

    def head(self, correlation_id: int) -> bytes:
        """What an answer begins with, behind its length."""
        ...

    def number(self, value: int) -> bytes:
        """An int64."""
        ...

    def size(self, size: int) -> bytes:
        """What stands before a record set."""
        ...


class NativeWire:
    """In the native encoding. The number is the last field of its name in a request."""

    encoding: Encoding = native

    def __init__(self, api: Api, name: str) -> None:
        self.api = api
        self._begin = b"\x95" + integer(api.key)
        self._name = text(name)

    def split(self, frame: Frame) -> tuple[Around, int, int] | None:
        if len(frame) > MOST_BYTES or isinstance(frame, memoryview):
            return None
        if not frame.startswith(self._begin):
            return None
        try:
            correlation_id, begin = read_integer(frame, _NATIVE_CORRELATION_AT)
            # From the end: a topic can have any name.
            name_at = frame.rfind(self._name, begin)
            if name_at < 0 or not INT32.low <= correlation_id <= INT32.high:
                return None
            at = name_at + len(self._name)
            number, end = read_integer(frame, at)
        except UNUSUAL:
            return None
        return (frame[2], bytes(frame[begin:at]), bytes(frame[end:])), correlation_id, number

    def head(self, correlation_id: int) -> bytes:
        return b"\x93" + integer(correlation_id) + b"\x00"

    def number(self, value: int) -> bytes:
        return integer(value)

    def size(self, size: int) -> bytes:
        return binary_head(size)


class KafkaWire:
    """In Kafka's encoding. The number is an int64, so many bytes before the end of a request."""

    encoding: Encoding = kafka

    def __init__(self, api: Api, behind_bytes: Sequence[int]) -> None:
        """`behind_bytes` by version."""
        self.api = api
        self._behind_bytes = behind_bytes

    def split(self, frame: Frame) -> tuple[Around, int, int] | None:
        if len(frame) < _KAFKA_CLIENT_ID_AT or frame[0] or frame[1] != self.api.key or frame[2]:
            return None
        version = frame[3]
        if version >= len(self._behind_bytes):
            return None
        end = len(frame) - self._behind_bytes[version]
        at = end - _INT64.size
        if at < _KAFKA_CLIENT_ID_AT:
            return None
        (correlation_id,) = _INT32.unpack_from(frame, _KAFKA_CORRELATION_AT)
        (number,) = _INT64.unpack_from(frame, at)
        around = version, bytes(frame[_KAFKA_CLIENT_ID_AT:at]), bytes(frame[end:])
        return around, correlation_id, number

    def head(self, correlation_id: int) -> bytes:
        return _INT32.pack(correlation_id)

    def number(self, value: int) -> bytes:
        return _INT64.pack(value)

    def size(self, size: int) -> bytes:
        return _INT32.pack(size)


class Form:
    """What requests with the same bytes around their number ask for, and what all answers to them
    have in common."""

    __slots__ = (
        "_behind",
        "_first",
        "_number",
        "_numbers",
        "_numbers_bytes",
        "_wire",
        "around",
        "request",
        "version",
    )

    def __init__(
        self, wire: Wire, head: RequestHead, request: Any, response: Any, result: Any, *names: str
    ) -> None:
        """The form of a request for one partition.

        Its answers are as `response`, in which `result` gets other numbers in the fields `names`:
        in this order, int64, as many of the first ones as the version has. Its record set, if it
        has one, is empty and at the end.
        """
        self._wire = wire
        self.version = head.version
        self.request = request
        """The one that it was learned from; all but its number holds for the others."""
        encoding, api = wire.encoding, wire.api
        frame = encoding.encode_request(api, head.version, 0, head.client_id, request)
        parts = wire.split(frame[LENGTH_BYTES:])
        self.around = None if parts is None else parts[0]
        """`None` where such requests are longer than those that are looked at for their form."""
        specs = fields_of(type(result), self.version, native=encoding.NATIVE)
        has = {spec.name for spec in specs}
        stand_ins = {name: _STAND_IN + place for place, name in enumerate(names) if name in has}
        for name, stand_in in stand_ins.items():
            setattr(result, name, stand_in)
        rest = encoding.encode_response(0, api, self.version, response)
        rest = rest[LENGTH_BYTES + len(wire.head(0)) :]
        if "records" in has:
            rest = rest[: -len(wire.size(0))]
        pieces: list[bytes] = []
        for stand_in in reversed(stand_ins.values()):
            # From the end: a topic can have any name.
            rest, _, behind = rest.rpartition(wire.number(stand_in))
            pieces.append(behind)
        self._first = rest
        self._behind = pieces[::-1]
        self._number = wire.number
        self._numbers: tuple[int, ...] | None = None
        self._numbers_bytes = b""

    def answer(self, correlation_id: int, numbers: tuple[int, ...]) -> bytes:
        """The frame of the answer with these numbers, its length in front."""
        return self._framed(correlation_id, numbers, b"", 0)

    def answer_head(self, correlation_id: int, numbers: tuple[int, ...], size: int) -> bytes:
        """The frame of the answer that ends with a record set of `size` bytes, from its length up
        to where these begin."""
        return self._framed(correlation_id, numbers, self._wire.size(size), size)

    def _framed(
        self, correlation_id: int, numbers: tuple[int, ...], end: bytes, more_bytes: int
    ) -> bytes:
        if numbers != self._numbers:
            pieces = [self._first]
            for number, piece in zip(numbers, self._behind, strict=False):
                pieces.append(self._number(number))
                pieces.append(piece)
            self._numbers_bytes = b"".join(pieces)
            self._numbers = numbers
        head, body = self._wire.head(correlation_id), self._numbers_bytes
        length = len(head) + len(body) + len(end) + more_bytes
        return b"".join((length.to_bytes(LENGTH_BYTES, "big"), head, body, end))
