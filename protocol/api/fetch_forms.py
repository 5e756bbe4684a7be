"""Fetch requests that repeat one before them but for the correlation id and the offset.

A consumer of one partition sends the same bytes around the offset again and again. Once such a
request has been decoded, the next ones are recognised by these bytes, and their answers made of
what is the same in all of them, without message objects in between. That holds for requests in the
form that Horolog's own encoders give; all others are none of these.
"""

from typing import Any, Final

from ..limits import LENGTH_BYTES
from . import native
from .decoding import UNUSUAL
from .decoding import integer as decode_integer
from .fetch import (
    FETCH,
    READ_COMMITTED,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopicResult,
)
from .native import Frame, RequestHead
from .packing import binary_head, integer, text
from .schema import INT32, fields_of

_BEGIN: Final = b"\x95" + integer(FETCH.key)
_CORRELATION_AT: Final = 3
_FETCH_OFFSET: Final = text("fetch_offset")
_MOST_BYTES: Final = 2048
"""Requests that name one partition are shorter."""

_STAND_INS: Final = {
    "high_watermark": 0x7766_5544_3322_1101,
    "last_stable_offset": 0x7766_5544_3322_1102,
    "log_start_offset": 0x7766_5544_3322_1103,
}
"""Values that are found again in an answer's bytes, where its own ones have their places."""

Around = tuple[int, bytes, bytes]
"""What repeats: the version, the bytes from the client id up to the offset, and those behind it."""

Told = tuple[int, int, int]
"""High watermark, last stable offset, log start: the first ones are in every version."""


class FetchForm:
    """What requests with the same bytes around their offset ask for."""

    __slots__ = ("_between", "_told", "_told_bytes", "around", "request", "topic", "version")

    _ENCODING: Any = native

    def __init__(self, head: RequestHead, request: FetchRequest) -> None:
        """The form of a request for which `has_form` holds."""
        (self.topic,) = request.topics
        self.version = head.version
        self.request = request
        """The one that it was learned from; all but its offset holds for the others."""
        frame = self._ENCODING.encode_request(FETCH, head.version, 0, head.client_id, request)
        parts = self.split(frame[LENGTH_BYTES:])
        assert parts is not None, "our own encoder gives the usual form"
        self.around = parts[0]
        self._between = self._answer()
        self._told: Told | None = None
        self._told_bytes = b""

    @staticmethod
    def split(frame: Frame) -> tuple[Around, int, int] | None:
        """What is around the offset, the correlation id and the offset; `None` for what is no fetch
        request in the usual form."""
        if len(frame) > _MOST_BYTES or isinstance(frame, memoryview):
            return None
        if not frame.startswith(_BEGIN):
            return None
        try:
            correlation_id, begin = decode_integer(frame, _CORRELATION_AT)
            # From the end: a topic can have any name.
            name_at = frame.rfind(_FETCH_OFFSET, begin)
            if name_at < 0 or not INT32.low <= correlation_id <= INT32.high:
                return None
            at = name_at + len(_FETCH_OFFSET)
            offset, end = decode_integer(frame, at)
        except UNUSUAL:
            return None
        return (frame[2], bytes(frame[begin:at]), bytes(frame[end:])), correlation_id, offset

    def _answer(self) -> list[bytes]:
        """The bytes of an answer between its head and its record set, cut where its numbers have
        their places: one for each that the version has."""
        specs = fields_of(FetchPartitionResult, self.version, native=self._ENCODING.NATIVE)
        told = [spec.name for spec in specs if spec.name in _STAND_INS]
        result = FetchPartitionResult(partition=self.topic.partitions[0].partition, records=b"")
        for name, stand_in in _STAND_INS.items():
            setattr(result, name, stand_in)
        if self.request.isolation_level == READ_COMMITTED:
            result.aborted_transactions = []
        body = FetchResponse(topics=[FetchTopicResult(name=self.topic.name, partitions=[result])])
        frame = self._ENCODING.encode_response(0, FETCH, self.version, body)
        rest = frame[LENGTH_BYTES + len(self._head(0)) : -len(self._size(0))]
        pieces: list[bytes] = []
        for name in reversed(told):
            # From the end: a topic can have any name.
            rest, _, behind = rest.rpartition(self._number(_STAND_INS[name]))
            pieces.append(behind)
        return [rest, *reversed(pieces)]

    def answer_head(self, correlation_id: int, told: Told, size: int) -> bytes:
        """The frame of an answer with a record set of `size` bytes, from its length up to where
        these begin."""
        if told != self._told:
            numbers = map(self._number, told)
            first, *others = self._between
            self._told_bytes = first + b"".join(next(numbers) + piece for piece in others)
            self._told = told
        head, size_head = self._head(correlation_id), self._size(size)
        length = len(head) + len(self._told_bytes) + len(size_head) + size
        return b"".join((length.to_bytes(LENGTH_BYTES, "big"), head, self._told_bytes, size_head))

    @staticmethod
    def _head(correlation_id: int) -> bytes:
        return b"\x93" + integer(correlation_id) + b"\x00"

    @staticmethod
    def _number(value: int) -> bytes:
        return integer(value)

    @staticmethod
    def _size(size: int) -> bytes:
        return binary_head(size)


def has_form(request: FetchRequest) -> bool:
    """Whether there can be a form of it: for one partition, without a session or append times."""
    return (
        len(request.topics) == 1
        and len(request.topics[0].partitions) == 1
        and not request.session_id
        and not request.forgotten_topics
        and not request.include_append_times
    )
