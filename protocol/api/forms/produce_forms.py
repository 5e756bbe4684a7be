"""Produce requests that repeat one before them but for the correlation id and the record set.

A producer that sends to a partition again and again sends the same bytes around its record sets.
Once such a request has been decoded, the next ones are recognised by these bytes, and their answers
made of those of the first, without message objects in between. That holds for requests with one
record set in the form that Horolog's own encoders give; all others are none of these.
"""

from collections.abc import Callable, Sequence
from typing import Final

from ...limits import LENGTH_BYTES
from ..log.produce import (
    PRODUCE,
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResult,
)
from ..native.encoding import encoder
from ..native.frames import Frame, RequestHead, encode_request
from ..native.values import Part, integer, text
from ..schema import INT32

_BEGIN: Final = b"\x95" + integer(PRODUCE.key)
_RECORDS: Final = text("records")
_OFFSET: Final = text("base_offset")
_TIME: Final = text("log_append_time_ms")
_SEARCHED_BYTES: Final = 1024
"""The name of the record set is looked for in so many bytes behind the correlation id."""
_CORRELATION_AT: Final = 3
_EMPTY_RECORDS: Final = b"\xc4\x00"

Around = tuple[int, bytes]
"""What repeats: the version, and the bytes from the client id up to the record set."""


class ProduceForm:
    """What requests with the same bytes around their record sets ask for."""

    __slots__ = (
        *("_before", "_behind", "_behind_time", "_last"),
        *("acks", "around", "partition", "request", "timeout_ms", "topic", "version"),
    )

    def __init__(self, head: RequestHead, request: ProduceRequest) -> None:
        """The form of a request that names one partition."""
        (topic,) = request.topics
        (partition,) = topic.partitions
        self.topic, self.partition = topic.name, partition.partition
        self.acks, self.timeout_ms, self.version = request.acks, request.timeout_ms, head.version
        empty = ProducePartition(partition=partition.partition, records=b"")
        self.request = ProduceRequest(
            acks=request.acks,
            timeout_ms=request.timeout_ms,
            topics=[ProduceTopic(name=topic.name, partitions=[empty])],
        )
        """Such a request, without messages."""
        self.around = self._around(head.client_id)
        self._before, self._behind, self._behind_time = self._answer()
        self._last: tuple[tuple[int, int], Callable[[int, int], bytes]] | None = None
        """What `answers` was asked for last, and what it gave; for encodings where it stays."""

    def _around(self, client_id: str | None) -> Around:
        frame = encode_request(PRODUCE, self.version, 0, client_id, self.request)
        begin = LENGTH_BYTES + _CORRELATION_AT + 1
        return self.version, frame[begin : -len(_EMPTY_RECORDS)]

    def asks_as(self, other: "ProduceForm") -> bool:
        """Whether both ask for the same durability, and wait as long for it if they do."""
        return self.acks == other.acks and (self.acks > 0 or self.timeout_ms == other.timeout_ms)

    def _answer(self) -> tuple[bytes, bytes, bytes | None]:
        """The bytes of an answer's body before the base offset, between that and the append time,
        and behind it; `None` in a version without append times."""
        result = ProducePartitionResult(partition=self.partition)
        body = ProduceResponse(topics=[ProduceTopicResult(name=self.topic, partitions=[result])])
        parts: list[Part] = []
        encoder(PRODUCE.response, self.version)(body, parts)
        values = [bytes(part) for part in parts if isinstance(part, bytes)]
        # From the end: a topic can have the name of a field.
        offset_at = len(values) - values[::-1].index(_OFFSET)
        before, behind = b"".join(values[:offset_at]), values[offset_at + 1 :]
        if _TIME not in behind:
            return before, b"".join(behind), None
        time_at = behind.index(_TIME) + 1
        return before, b"".join(behind[:time_at]), b"".join(behind[time_at + 1 :])

    def answers(self, append_time_ms: int, log_start_offset: int) -> Callable[[int, int], bytes]:
        """A function from correlation id and base offset to the frame of the answer, with its
        length in front."""
        before, behind = b"\x00" + self._before, self._behind
        if self._behind_time is not None:
            behind += integer(append_time_ms) + self._behind_time
        around_bytes = 1 + len(before) + len(behind)

        def answer(correlation_id: int, base_offset: int) -> bytes:
            number, offset = integer(correlation_id), integer(base_offset)
            length = around_bytes + len(number) + len(offset)
            frame = length.to_bytes(LENGTH_BYTES, "big"), b"\x93", number, before, offset, behind
            return b"".join(frame)

        return answer

    def burst(
        self, received: memoryview, most: int
    ) -> tuple[int, Sequence[int], Sequence[memoryview]]:
        """Requests of this form at the front of frames with their lengths, up to so many: where
        they end, their correlation ids and their record sets, as views.

        There are none in the native encoding, whose numbers have no fixed size.
        """
        return 0, (), ()


def split(frame: Frame) -> tuple[Around, int, memoryview] | None:
    """What is around the record set, the correlation id, and the record set as a view of `frame`;
    `None` for what is no produce request in the usual form."""
    if isinstance(frame, memoryview) or not frame.startswith(_BEGIN):
        return None
    try:
        number, at = frame[_CORRELATION_AT], _CORRELATION_AT + 1
        if number >= 0x80:
            if not 0xCC <= number <= 0xCE:
                return None
            end = at + (1 << (number - 0xCC))
            number, at = int.from_bytes(frame[at:end], "big"), end
            if number > INT32.high:
                return None
        name_at = frame.find(_RECORDS, at, at + _SEARCHED_BYTES)
        head_at = name_at + len(_RECORDS)
        width = frame[head_at] - 0xC4
        if name_at < 0 or not 0 <= width <= 2:
            return None
        begin = head_at + 1 + (1 << width)
        if begin + int.from_bytes(frame[head_at + 1 : begin], "big") != len(frame):
            return None
        return (frame[2], bytes(frame[at:head_at])), number, memoryview(frame)[begin:]
    except IndexError:
        return None
