"""What a follower needs beside the bytes of a fetched part of its leader's log, and its encoding.

All integers are big-endian:

    version        int8    0
    flags          int8    bit 0: offsets of this topic may jump (gaps)
    offset         int64   the requested offset
    segment base   int64   base offset of the segment with these bytes
    first offset   int64   base offset of the oldest segment, where a copy of the log begins
    log start      int64
    created        int64   ms; of the segment while its first message has no timestamp, else -1
    modified       int64   ms; file time of the segment while possibly no message of it, from the
                           log start on, has a timestamp, else -1
    modified before int64  ms; file time of the segment before, at the start of a segment, else -1
    epochs         int32   then for each: epoch int32, first offset int64; the first one, which may
                           be -1, is that of `offset`
    times end      int64   the spans have the append times up to here
    spans          int32   runs of messages that were appended at one time
    offset bytes   int8    1, 2, 4 or 8
    time bytes     int8    1, 2, 4 or 8
    first time     int64   append time of the first span, ms; -1 is unknown
    offsets                distance of each span's offset to that of the span before it, of the
                           first one to `offset`, `offset bytes` each
    times                  difference of each span's time to that of the span before it, of the
                           first one to `first time`, signed, `time bytes` each; with 8 bytes the
                           times themselves

A span usually takes two or three bytes.
"""

import sys
from array import array
from collections.abc import Sequence
from dataclasses import field
from itertools import accumulate, pairwise
from struct import Struct, error
from typing import Any, Final, NamedTuple

from ...values import value_class
from ..index.append_times import Span
from ..log.epoch_history import MAX_EPOCH, NO_EPOCH, EpochStart
from ..names import MAX_OFFSET

SPANS_MAX: Final = 16_384
"""Maximum number of append time spans in one response: about 50 KB, and a few milliseconds."""

EPOCHS_MAX: Final = 16_384
"""Maximum number of epochs in one response. Each leader writes at least one message."""

NEVER: Final = -1
"""Stands for a missing time."""

_VERSION: Final = 0
_GAPS: Final = 1
_HEAD: Final = Struct(">bbqqqqqqqi")
_HEAD_NUMBERS: Final = 10
_EPOCH: Final = Struct(">iq")
_TIMES_HEAD: Final = Struct(">qibbq")
_OF_ONE: Final = Struct(">bbqqqqqqqi iq qibbq bb")
"""The complete encoding for one epoch and one append time, which nearly every small
response has."""
_OFFSET_CODES: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
_TIME_CODES: Final = {1: "b", 2: "h", 4: "i", 8: "q"}


class MalformedFacts(ValueError):
    """The bytes are not an encoding of `CopyFacts`."""


@value_class
class CopyFacts:
    """Data about a part of a log that begins at `offset`."""

    offset: int
    segment_base: int
    """Base offset of the segment with these bytes, or of the segment where they would be."""
    first_offset: int
    """Base offset of the oldest segment. A copy that begins there equals the leader's log."""
    log_start_offset: int
    gaps: bool
    epochs: tuple[EpochStart, ...]
    """Leader epochs of the messages. The first one, perhaps -1, is that of `offset`."""
    append_times: tuple[Span, ...]
    """Append times. The first span begins at `offset`; empty if there are no messages."""
    times_end: int
    """End of the last span. It may be behind the last message."""
    created_ms: int = NEVER
    """Creation time of the segment, while its first message has no timestamp."""
    modified_ms: int = NEVER
    """Modification time of the segment's file, while possibly no message in it, from the log start
    on, has a timestamp."""
    modified_before_ms: int = NEVER
    """Modification time of the previous segment's file, if the messages begin a segment."""
    decoded: bool = field(default=False, compare=False)
    """Whether the values were decoded, and therefore checked."""

    def encode(self) -> bytes:
        """Return the encoding described above."""
        head = (
            _VERSION,
            _GAPS if self.gaps else 0,
            self.offset,
            self.segment_base,
            self.first_offset,
            self.log_start_offset,
            self.created_ms,
            self.modified_ms,
            self.modified_before_ms,
            len(self.epochs),
        )
        if self._is_of_one:
            times_head = (self.times_end, 1, 1, 1, self.append_times[0][1])
            return _OF_ONE.pack(*head, *self.epochs[0], *times_head, 0, 0)
        offsets = [offset for offset, _ in self.append_times]
        times = [ms for _, ms in self.append_times]
        first_ms = times[0] if times else NEVER
        distances = [after - before for before, after in pairwise([self.offset, *offsets])]
        changes = [after - before for before, after in pairwise([first_ms, *times])]
        offset_bytes = _width(max(distances, default=0), signed=False)
        time_bytes = _width(max(map(abs, changes), default=0), signed=True)
        return b"".join(
            [
                _HEAD.pack(*head),
                *(_EPOCH.pack(*one) for one in self.epochs),
                _TIMES_HEAD.pack(self.times_end, len(offsets), offset_bytes, time_bytes, first_ms),
                _column(_OFFSET_CODES[offset_bytes], distances),
                _column(_TIME_CODES[time_bytes], times if time_bytes == 8 else changes),
            ]
        )

    @property
    def _is_of_one(self) -> bool:
        """Whether there is just one epoch and one append time."""
        spans = self.append_times
        return len(spans) == len(self.epochs) == 1 and spans[0][0] == self.offset

    @classmethod
    def decode(cls, data: bytes | memoryview) -> "CopyFacts":
        """The inverse of `encode`. Raises `MalformedFacts` for any other bytes."""
        facts = (len(data) == _OF_ONE.size and cls._of_one(data)) or cls._of_any(data)
        facts.check()
        return facts

    @classmethod
    def _of_one(cls, data: bytes | memoryview) -> "CopyFacts | None":
        """Decode bytes of this length if they have one epoch and one append time; else `None`."""
        numbers = _OF_ONE.unpack(data)
        version, flags, offset, *places = numbers[:_HEAD_NUMBERS]
        if version != _VERSION or flags & ~_GAPS or places.pop() != 1:
            return None
        epoch, epoch_offset, times_end, *widths, time_ms, distance, change = numbers[_HEAD_NUMBERS:]
        if widths != [1, 1, 1] or distance or change:
            return None
        segment_base, first_offset, log_start, created, modified, before = places
        return cls(
            offset,
            segment_base,
            first_offset,
            log_start,
            bool(flags),
            (EpochStart(epoch, epoch_offset),),
            ((offset, time_ms),),
            times_end,
            created,
            modified,
            before,
            decoded=True,
        )

    @classmethod
    def _of_any(cls, data: bytes | memoryview) -> "CopyFacts":
        try:
            version, flags, *numbers, epoch_count = _HEAD.unpack_from(data)
            if version != _VERSION or flags & ~_GAPS:
                raise MalformedFacts(f"version {version} with flags {flags} is not known")
            at = _HEAD.size
            if not 0 <= epoch_count <= min(EPOCHS_MAX, (len(data) - at) // _EPOCH.size):
                raise MalformedFacts(f"{epoch_count} epochs do not fit, or are too many")
            epochs = tuple(
                EpochStart(*_EPOCH.unpack_from(data, at + number * _EPOCH.size))
                for number in range(epoch_count)
            )
            at += epoch_count * _EPOCH.size
            times_end, count, offset_bytes, time_bytes, first_ms = _TIMES_HEAD.unpack_from(data, at)
        except error as cut:
            raise MalformedFacts(f"it ends early: {cut}") from cut
        at += _TIMES_HEAD.size
        if offset_bytes not in _OFFSET_CODES or time_bytes not in _TIME_CODES:
            raise MalformedFacts(f"numbers of {offset_bytes} and {time_bytes} bytes")
        if count < 0 or len(data) - at != count * (offset_bytes + time_bytes):
            raise MalformedFacts(f"{len(data) - at} bytes are not {count} spans")
        if count > SPANS_MAX:
            raise MalformedFacts(f"{count} spans; {SPANS_MAX} is the most")
        offset, segment_base, first_offset, log_start, created, modified, before = numbers
        split = at + count * offset_bytes
        distances = _numbers(_OFFSET_CODES[offset_bytes], data[at:split])
        times: Sequence[int] = _numbers(_TIME_CODES[time_bytes], data[split:])
        if time_bytes < 8:
            times = list(accumulate(times, initial=first_ms))[1:]
        offsets = list(accumulate(distances, initial=offset))[1:]
        spans = tuple(zip(offsets, times, strict=True))
        return cls(
            offset,
            segment_base,
            first_offset,
            log_start,
            bool(flags & _GAPS),
            epochs,
            spans,
            times_end,
            created,
            modified,
            before,
            decoded=True,
        )

    def check(self) -> None:
        """Raise `MalformedFacts` if the values cannot describe any log."""
        places = (
            *(self.offset, self.segment_base, self.first_offset),
            *(self.log_start_offset, self.times_end),
        )
        if min(places) < 0 or max(places) > MAX_OFFSET:
            raise MalformedFacts("an offset is not between 0 and 2**63-1")
        if min(self.created_ms, self.modified_ms, self.modified_before_ms) < NEVER:
            raise MalformedFacts("a file time is below -1")
        _check_epochs(self.epochs)
        spans = self.append_times
        if not spans:
            return
        if spans[0][0] != self.offset or spans[-1][0] >= self.times_end:
            raise MalformedFacts("the append times are not of these messages")
        if spans[0][1] < NEVER or (len(spans) > 1 and not _rise(spans)):
            raise MalformedFacts("the offsets of append times must rise, no time is below -1")


@value_class
class ReceivedSets:
    """Record sets of a log that a follower received, and data about them."""

    records: bytes | memoryview
    facts: CopyFacts


class Stored(NamedTuple):
    """Whole record sets as they are stored in a log."""

    data: Any
    """The record sets, as the `append_stored` of a copy takes them: a `Copied` if they were read
    from a log, a `ReceivedSets` if they were received."""
    next_offset: int
    """First offset after the sets."""
    size_bytes: int
    exact: bool = True
    """Whether the next message starts exactly at `next_offset`; if not, perhaps before it."""


def _check_epochs(epochs: Sequence[EpochStart]) -> None:
    least = NO_EPOCH
    for epoch, start_offset in epochs:
        if not least <= epoch <= MAX_EPOCH:
            raise MalformedFacts(f"epoch {epoch} is none")
        if not 0 <= start_offset <= MAX_OFFSET:
            raise MalformedFacts(f"epoch {epoch} begins at offset {start_offset}")
        least = 0
    if len(epochs) > 1 and any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(epochs)):
        raise MalformedFacts("epochs and their first offsets must rise")


def _rise(spans: Sequence[Span]) -> bool:
    rising = all(a[0] < b[0] for a, b in pairwise(spans))
    return rising and min(ms for _, ms in spans) >= NEVER


def _width(largest: int, *, signed: bool) -> int:
    """Return how many bytes hold numbers up to `largest`."""
    bits = largest.bit_length() + signed
    return next(width for width in (1, 2, 4, 8) if bits <= width * 8 or width == 8)


def _column(code: str, numbers: Sequence[int]) -> bytes:
    column = array(code, numbers)
    if sys.byteorder == "little":
        column.byteswap()
    return column.tobytes()


def _numbers(code: str, data: bytes | memoryview) -> "array[int]":
    column = array(code, bytes(data))
    if sys.byteorder == "little":
        column.byteswap()
    return column
