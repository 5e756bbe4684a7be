"""Fetch requests in Kafka's encoding that repeat one before them: see `fetch_forms`."""

from struct import Struct
from typing import Any, Final

from . import kafka
from .fetch import FETCH
from .fetch_forms import Around, FetchForm
from .native import Frame

_CORRELATION: Final = Struct(">i")
_CORRELATION_AT: Final = 4
_CLIENT_ID_AT: Final = 8
_OFFSET: Final = Struct(">q")
_SIZE: Final = Struct(">i")

_BEHIND_BYTES: Final = 4
"""Of what is behind the offset of the only partition: the most bytes of it."""
_LOG_START_SINCE, _LOG_START_BYTES = 5, 8
_FORGOTTEN_SINCE, _FORGOTTEN_BYTES = 7, 4


class KafkaFetchForm(FetchForm):
    """The same in Kafka's encoding."""

    __slots__ = ()

    _ENCODING: Any = kafka

    @staticmethod
    def split(frame: Frame) -> tuple[Around, int, int] | None:
        if len(frame) < _CLIENT_ID_AT or frame[0] or frame[1] != FETCH.key or frame[2]:
            return None
        version = frame[3]
        behind = _BEHIND_BYTES
        if version >= _LOG_START_SINCE:
            behind += _LOG_START_BYTES
        if version >= _FORGOTTEN_SINCE:
            behind += _FORGOTTEN_BYTES
        end = len(frame) - behind
        at = end - _OFFSET.size
        if at < _CLIENT_ID_AT:
            return None
        (correlation_id,) = _CORRELATION.unpack_from(frame, _CORRELATION_AT)
        (offset,) = _OFFSET.unpack_from(frame, at)
        around = version, bytes(frame[_CLIENT_ID_AT:at]), bytes(frame[end:])
        return around, correlation_id, offset

    @staticmethod
    def _head(correlation_id: int) -> bytes:
        return _CORRELATION.pack(correlation_id)

    @staticmethod
    def _number(value: int) -> bytes:
        return _OFFSET.pack(value)

    @staticmethod
    def _size(size: int) -> bytes:
        return _SIZE.pack(size)
