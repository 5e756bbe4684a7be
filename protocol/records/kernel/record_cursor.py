"""One record of a batch after the other: where everything in it is.

This is the only place that knows how records are written when it reads them. It runs as it is and
compiled, as `walk` does, and never looks behind the bytes it is given, whatever they say. The
compiled form has a shorter way for records that are like most, which is in the .pxd file (`usual`).
"""

from typing import Final

try:
    import cython
except ImportError:
    from . import uncompiled as cython

if not cython.compiled:
    from .uncompiled import bytes_of, usual

FORM: Final = "compiled" if cython.compiled else "interpreted"
"""How this module runs."""

RECORD: Final = 1
"""`RecordCursor.step` came to a record."""
NO_MORE: Final = 0
"""It is at the end."""
BAD_LENGTH: Final = -1
"""The record's length is none, or goes behind the end."""
BAD_FIELD: Final = -2
"""A key, value, header or number in the record goes behind the record's end."""
BAD_END: Final = -3
"""The record is longer than what is in it."""

_RECORD: Final = RECORD
_NO_MORE: Final = NO_MORE
_BAD_LENGTH: Final = BAD_LENGTH
_BAD_FIELD: Final = BAD_FIELD
_BAD_END: Final = BAD_END
SMALLEST_RECORD: Final = 6
"""Bytes behind the length of a record with null key, null value and no headers."""
_SMALLEST: Final = SMALLEST_RECORD
_INT32_BYTES: Final = 5
_INT64_BYTES: Final = 10
"""Bytes of the longest varints."""
_INT32_TOP: Final = 0x0F
_INT64_TOP: Final = 0x01
"""What fits into their last byte."""


class RecordCursor:
    """Goes over the records in `view[start:end]`, which are not compressed.

    `step` goes to the next one. What follows is about the record it came to:

    position: where it begins.
    following: where the next one begins.
    attributes: 0 to 255; no bit means anything so far.
    timestamp_delta_ms, offset_delta: to be added to those of the batch.
    key_at, key_bytes: where the key is, and its length; negative for null.
    value_at, value_bytes: the same for the value.
    header_count: how many headers it has.
    headers_at: where they begin; they end with the record.
    """

    __slots__ = (
        "_at",
        "_data",
        "_end",
        "_stop",
        "_view",
        "attributes",
        "following",
        "header_count",
        "headers_at",
        "key_at",
        "key_bytes",
        "offset_delta",
        "position",
        "timestamp_delta_ms",
        "value_at",
        "value_bytes",
    )

    def __init__(self, view: memoryview, start: int, end: int) -> None:
        self._view = view
        self._data = bytes_of(view)
        self.begin(start, end)

    def begin(self, start: int, end: int) -> None:
        """Go over the records in `view[start:end]` from now on."""
        if not 0 <= start <= end <= len(self._view):
            raise IndexError(f"no bytes {start} to {end} in a buffer of {len(self._view)}")
        self._end = end
        self._at = self._stop = self.following = self.position = start
        self.attributes = self.header_count = self.headers_at = 0
        self.timestamp_delta_ms = self.offset_delta = 0
        self.key_at = self.key_bytes = self.value_at = self.value_bytes = 0

    def step(self) -> int:
        """Go to the next record: `RECORD`, `NO_MORE`, or what is wrong with it.

        At a bad record it stays for ever.
        """
        return _RECORD if cython.compiled and usual(self) else self.step_any()

    def step_any(self) -> int:
        """As `step`, in the way that does for every record."""
        if self.following >= self._end:
            return _NO_MORE
        self.position = self._at = self.following
        self._stop = self._end
        length = self._varint(_INT32_BYTES, _INT32_TOP)
        start = self._at
        if length < _SMALLEST or length > self._end - start:
            return _BAD_LENGTH
        stop = start + length
        self._stop = stop
        self.attributes = self._data[start]
        self._at = start + 1
        self.timestamp_delta_ms = self._varint(_INT64_BYTES, _INT64_TOP)
        self.offset_delta = self._varint(_INT32_BYTES, _INT32_TOP)
        length = self._varint(_INT32_BYTES, _INT32_TOP)
        if length > stop - self._at:
            return _BAD_FIELD
        self.key_at = self._at
        self.key_bytes = length
        if length > 0:
            self._at += length
        length = self._varint(_INT32_BYTES, _INT32_TOP)
        if length > stop - self._at:
            return _BAD_FIELD
        self.value_at = self._at
        self.value_bytes = length
        if length > 0:
            self._at += length
        count = self._varint(_INT32_BYTES, _INT32_TOP)
        self.header_count = count
        self.headers_at = self._at
        if count < 0 or 2 * count > stop - self._at:
            return _BAD_FIELD
        while count > 0:
            length = self._varint(_INT32_BYTES, _INT32_TOP)
            if length < 0 or length > stop - self._at:
                return _BAD_FIELD
            self._at += length
            length = self._varint(_INT32_BYTES, _INT32_TOP)
            if length > stop - self._at:
                return _BAD_FIELD
            if length > 0:
                self._at += length
            count -= 1
        if self._at != stop:
            return _BAD_END
        self.following = stop
        return _RECORD

    def _varint(self, most_bytes: int, top: int) -> int:
        """The number at `_at`, which goes behind it, or behind `_stop` where there is none.

        There no length is possible, so that the caller has to look only at those.
        """
        at = self._at
        if at < self._stop:
            small = self._data[at]
            if small < 0x80:
                self._at = at + 1
                return (small >> 1) ^ -(small & 1)
            at += 1
            if at < self._stop and self._data[at] < 0x80:
                second = self._data[at]
                self._at = at + 1
                return (small & 0x7F | second << 7) >> 1 ^ -(small & 1)
        return self._long_varint(most_bytes, top)

    def _long_varint(self, most_bytes: int, top: int) -> int:
        """As `_varint`, for a number of several bytes, or for none."""
        at = self._at
        last = at + most_bytes - 1
        number = shift = 0
        while at < self._stop:
            byte = self._data[at]
            if at == last and byte > top:
                break
            wide = byte & 0x7F
            number |= wide << shift
            at += 1
            if byte < 0x80:
                self._at = at
                return (number >> 1) ^ -(number & 1)
            shift += 7
        self._at = self._stop + 1
        return 0

    def key(self) -> bytes | None:
        """The key of the record."""
        if self.key_bytes < 0:
            return None
        return bytes(self._view[self.key_at : self.key_at + self.key_bytes])

    def value(self) -> bytes | None:
        """The value of the record."""
        if self.value_bytes < 0:
            return None
        return bytes(self._view[self.value_at : self.value_at + self.value_bytes])

    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """The headers of the record, in their order; what is not UTF-8 in a name is replaced."""
        if self.header_count == 0:
            return ()
        found = []
        self._at = self.headers_at
        for _ in range(self.header_count):
            length = self._varint(_INT32_BYTES, _INT32_TOP)
            name = str(self._view[self._at : self._at + length], "utf-8", "replace")
            self._at += length
            length = self._varint(_INT32_BYTES, _INT32_TOP)
            content = None
            if length >= 0:
                content = bytes(self._view[self._at : self._at + length])
                self._at += length
            found.append((name, content))
        return tuple(found)
