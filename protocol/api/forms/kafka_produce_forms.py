"""Produce requests in Kafka's encoding that repeat one before them: see `produce_forms`."""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from ...limits import LENGTH_BYTES
from ..kafka.frames import encode_request, encode_response
from ..log.produce import PRODUCE, ProducePartitionResult, ProduceResponse, ProduceTopicResult
from ..native.frames import Frame
from .produce_forms import Around, ProduceForm

_FIRST_VERSION_WITH_TIMES: Final = 2
_FIRST_VERSION_WITH_TRANSACTIONS: Final = 3
_FIRST_VERSION_WITH_LOG_START: Final = 5

_CORRELATION: Final = Struct(">i")
_CLIENT_ID_AT: Final = 8
_NULL_TEXT: Final = 0xFFFF
_NULL_TEXT_BYTES: Final = b"\xff\xff"
_SIZE_BYTES: Final = 4
"""Before a record set."""

_BEFORE_NAME_BYTES: Final = 2 + 4 + 4
"""Acks, timeout, and how many topics there are."""
_BEHIND_NAME_BYTES: Final = 4 + 4
"""How many partitions there are, and the first one."""

_HEAD: Final = Struct(">ii")
_OFFSET: Final = Struct(">q")


class KafkaProduceForm(ProduceForm):
    """The same in Kafka's encoding."""

    __slots__ = ("_before_records",)

    def _around(self, client_id: str | None) -> Around:
        frame = encode_request(PRODUCE, self.version, 0, client_id, self.request)
        around = frame[LENGTH_BYTES + _CLIENT_ID_AT : -_SIZE_BYTES]
        # Length, what is asked for, version, correlation id, what repeats, size of the records.
        self._before_records = Struct(f">ihhi{len(around)}si")
        return self.version, around

    def _answer(self) -> tuple[bytes, bytes, bytes | None]:
        offset, time_ms = b"\x77" * 8, 0x6666_6666_6666_6666
        result = ProducePartitionResult(
            partition=self.partition,
            base_offset=int.from_bytes(offset, "big"),
            log_append_time_ms=time_ms,
        )
        body = ProduceResponse(topics=[ProduceTopicResult(name=self.topic, partitions=[result])])
        frame = encode_response(0, PRODUCE, self.version, body)
        # From the end: a topic can have any name.
        offset_at = frame.rindex(offset)
        before = frame[_HEAD.size : offset_at]
        behind = frame[offset_at + len(offset) :]
        if self.version < _FIRST_VERSION_WITH_TIMES:
            return before, behind, None
        return before, b"", behind[self._told * _OFFSET.size :]

    @property
    def _told(self) -> int:
        """How many of append time and log start the version has."""
        return 1 if self.version < _FIRST_VERSION_WITH_LOG_START else 2

    def answers(self, append_time_ms: int, log_start_offset: int) -> Callable[[int, int], bytes]:
        told = append_time_ms, log_start_offset
        if self._last is not None and self._last[0] == told:
            return self._last[1]
        before, behind = self._before, self._behind
        if self._behind_time is not None:
            behind = b"".join((*map(_OFFSET.pack, told[: self._told]), self._behind_time))
        layout = Struct(f">ii{len(before)}sq{len(behind)}s")
        pack, length = layout.pack, layout.size - LENGTH_BYTES

        def answer(correlation_id: int, base_offset: int) -> bytes:
            return pack(length, correlation_id, before, base_offset, behind)

        self._last = told, answer
        return answer

    def burst(
        self, received: memoryview, most: int
    ) -> tuple[int, Sequence[int], Sequence[memoryview]]:
        unpack_from, records_at = self._before_records.unpack_from, self._before_records.size
        known = PRODUCE.key, *self.around
        numbers: list[int] = []
        record_sets: list[memoryview] = []
        begin, end = 0, len(received)
        while end - begin >= records_at and len(numbers) < most:
            length, key, version, number, around, size = unpack_from(received, begin)
            stop = begin + LENGTH_BYTES + length
            if stop > end or size < 0 or begin + records_at + size != stop:
                break
            if (key, version, around) != known:
                break
            numbers.append(number)
            record_sets.append(received[begin + records_at : stop])
            begin = stop
        return begin, numbers, record_sets


def split(frame: Frame) -> tuple[Around, int, memoryview] | None:
    """What is around the record set, the correlation id, and the record set as a view of `frame`;
    `None` for what is no produce request with one record set and no transaction."""
    try:
        if frame[0] or frame[1] != PRODUCE.key or frame[2]:
            return None
        version = frame[3]
        size = frame[8] << 8 | frame[9]
        at = _CLIENT_ID_AT + 2 + (0 if size == _NULL_TEXT else size)
        if version >= _FIRST_VERSION_WITH_TRANSACTIONS:
            if frame[at : at + 2] != _NULL_TEXT_BYTES:
                return None
            at += 2
        at += _BEFORE_NAME_BYTES
        at += 2 + (frame[at] << 8 | frame[at + 1]) + _BEHIND_NAME_BYTES
        begin = at + _SIZE_BYTES
        if begin + int.from_bytes(frame[at:begin], "big") != len(frame):
            return None
    except IndexError:
        return None
    (correlation_id,) = _CORRELATION.unpack_from(frame, 4)
    around = version, bytes(frame[_CLIENT_ID_AT:at])
    return around, correlation_id, memoryview(frame)[begin:]
