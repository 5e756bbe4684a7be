"""Finds an offset by time.

The segment is found by bisection over the running maximum of the segments' largest timestamps. The
place in the segment is found through its time index and offset index, and the message by reading on
from there. A search is a series of bounded steps, so that other requests run between the steps of a
long one.

Nearly every search is one look in one segment: one read, which begins at the last index entry
before the time. Other cases (damaged bytes, compressed messages, an entry that is larger than the
read) take further steps. These find the damage, and decompress entries in pieces.
"""

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from ...protocol.errors import CorruptMessage, HorologError, MessageTooLarge
from ...protocol.records.batch import find_in_batch
from ...protocol.records.kernel import find_first_time, scan_timestamp, walk
from ...protocol.records.kernel.terms import BAD_SIZE, Problem
from ...protocol.records.layout import (
    ATTRIBUTES_AT,
    BATCH_ATTRIBUTES_AT,
    BATCH_MAGIC,
    CODEC_MASK,
    ENTRY_OVERHEAD,
    MAGIC_AT,
    NO_TIMESTAMP,
    SIZE_AT,
)
from ...protocol.records.messages.sets import Record, records
from ...values import value_class
from ..entries.damage import unopenable_batch
from ..log.admission import OPENED_BYTES
from ..log.trimmed import TrimmedSegment
from ..segment.segment import Segment
from ..stepped_change import Work
from .slices import check_entries, check_readable, visible_end

_LOOKUP_BYTES: Final = 8 << 10
_LOOKUP_BYTES_MAX: Final = 64 << 10
FAR_BYTES: Final = 256 << 10
"""Index entries further apart than this do not narrow the search enough."""

_FIRST_READ_BYTES = 8 << 10
_READ_BYTES_MAX = 256 << 10

EARLIEST = -2
LATEST = -1

T = TypeVar("T")

Steps = Generator[Work | None, None, T]
"""Steps of a search. Each yields `None` as a pause, or work to be run in any thread before the next
step."""

_COMPRESSED_BYTES: Final = 128 * 1024
"""Larger compressed entries are not decompressed in the event loop."""


class FoundMessage(NamedTuple):
    """A message that a search by time found."""

    offset: int
    timestamp_ms: int


def find_time_at_once(
    segment: Segment, target_ms: int, log_start_offset: int, max_decompressed_bytes: int
) -> FoundMessage | None:
    """Return the first message at or after the log start with a timestamp >= `target_ms`, if all
    entries from the index entry before it on are valid, as they nearly always are. `None` means
    nothing was decided.

    Batches that decompress to more than `max_decompressed_bytes`, or to more than `OPENED_BYTES`,
    are not opened. Raises `OSError`.
    """
    # All messages below `start` are earlier than the target.
    start = max(segment.time_index.start_for(target_ms), log_start_offset)
    offset, position, after = segment.offset_index.around(start)
    stop = segment.readable_bytes
    if segment.gaps or position >= stop or min(after, stop) - position > FAR_BYTES:
        return None
    # The message that an index entry leads to is before the next index entry or right behind it.
    wanted = min(max(2 * (after - position), _LOOKUP_BYTES), _LOOKUP_BYTES_MAX, stop - position)
    data = segment.file.pread(wanted, position)
    looked = find_first_time(data, offset, position > 0, target_ms)
    if looked is None:
        return None
    at, found_offset, timestamp = looked
    if found_offset < 0:
        limit_bytes = min(max_decompressed_bytes, OPENED_BYTES)
        try:
            opened = find_in_batch(data, at, target_ms, max_decompressed_bytes=limit_bytes)
        except HorologError:
            return None
        if opened is None:
            return None
        found_offset, timestamp = opened
    if not start <= found_offset < segment.next_offset:
        return None
    return FoundMessage(found_offset, timestamp)


def entry_bytes(data: bytes, position: int) -> int:
    """Return the size of the entry at `position` according to its header, including the header's 12
    bytes."""
    return ENTRY_OVERHEAD + int.from_bytes(data[position + 8 : position + 12], "big", signed=True)


def opened(entry: bytes, max_bytes: int, call: Callable[[int], T]) -> Steps[T]:
    """Apply `call` to a complete entry. `call` gets the decompression limit in bytes.

    Small entries are handled at once; for large ones the work is yielded, to be run in any thread.
    Raises what `call` raises.
    """
    if not _is_compressed(entry):
        return call(max_bytes)
    if len(entry) <= _COMPRESSED_BYTES:
        try:
            return call(min(max_bytes, OPENED_BYTES))
        except MessageTooLarge:
            if max_bytes <= OPENED_BYTES:
                raise
    result: list[T] = []
    failure: list[Exception] = []

    def work() -> None:
        try:
            result.append(call(max_bytes))
        except Exception as error:
            failure.append(error)

    yield work
    if failure:
        raise failure[0]
    return result[0]


def _is_compressed(entry: bytes) -> bool:
    at = BATCH_ATTRIBUTES_AT + 1 if entry[MAGIC_AT] == BATCH_MAGIC else ATTRIBUTES_AT
    return bool(entry[at] & CODEC_MASK)


@value_class
class SearchView:
    """The log as it was when the search began.

    Segments dropped later count as empty from then on.
    """

    segments: Sequence[Segment]
    closed_max_ms: Sequence[int]
    """For each closed segment, the largest timestamp in it and in all before it."""
    log_start_offset: int
    high_watermark: int
    max_decompressed_bytes: int


class Search(Generic[T]):
    """A running search: call `step` until it returns `True`, or `run`."""

    __slots__ = ("_done", "_result", "_steps", "_work")

    def __init__(self, steps: Steps[T] | None, found: T | None = None) -> None:
        """Without `steps` the search is done, and `found` is its result."""
        self._steps = steps
        self._work: Work | None = None
        self._result = found
        self._done = steps is None

    def step(self) -> bool:
        """Do a bounded part of the work. Return `True` once `result` is available."""
        if self._work is not None:
            self.open()
        if self._steps is not None and not self._done:
            try:
                self._work = next(self._steps)
            except StopIteration as stop:
                self._result = stop.value
                self._done = True
        return self._done

    @property
    def opens(self) -> bool:
        """Whether the next step begins with `open`."""
        return self._work is not None

    def open(self) -> None:
        """Decompress a large entry, if the search has come to one. May run in any thread."""
        work, self._work = self._work, None
        if work is not None:
            work()

    @property
    def result(self) -> T:
        """The message found; only valid after `step` returned `True`."""
        return self._result  # type: ignore[return-value]

    def run(self) -> T:
        """Do all steps now."""
        while not self.step():
            pass
        return self.result


def find_time(
    view: SearchView, target_ms: int, looked_at: Segment | None = None
) -> Steps[FoundMessage | None]:
    """Find the first message, in offset order, with a timestamp >= `target_ms`, or `None`.

    `looked_at` is a segment in which `find_time_at_once` was tried without success. Only messages
    between the log start and the high watermark count, and only real timestamps. Raises
    `StorageError` if the log cannot be read, `MessageTooLarge` for a wrapper message that
    decompresses to more than `max.decompressed.bytes`.
    """
    segments = view.segments
    for number in range(bisect_left(view.closed_max_ms, target_ms), len(segments)):
        segment = segments[number]
        if segment.base_offset >= view.high_watermark:
            break
        if _is_gone(view, segment) or segment.largest_possible_ms < target_ms:
            continue
        looked = segment is looked_at
        found = yield from _find_in_segment(view, segment, target_ms, looked=looked)
        if found is not None:
            return found if found.offset < view.high_watermark else None
        yield None
    return None


def find_largest(view: SearchView) -> Steps[FoundMessage | None]:
    """Find the first message with the largest timestamp of all, or `None` if no message has one."""
    largest_ms = NO_TIMESTAMP
    for segment in view.segments:
        if segment.base_offset >= view.high_watermark:
            break
        if _is_gone(view, segment):
            continue
        begins_inside = segment.base_offset < view.log_start_offset
        if begins_inside or segment.next_offset > view.high_watermark:
            largest_ms = max(largest_ms, (yield from _largest_in_part(view, segment)))
        else:
            if segment.largest_unknown:
                check_readable(segment, view.high_watermark)
            largest_ms = max(largest_ms, segment.largest_timestamp_ms)
    if largest_ms == NO_TIMESTAMP:
        return None
    found = yield from find_time(view, largest_ms)
    return found if found is not None else (yield from _find_largest_below(view, largest_ms))


def _find_largest_below(view: SearchView, limit_ms: int) -> Steps[FoundMessage | None]:
    """Find the largest timestamp if no message has `limit_ms`: a wrapper message stored by another
    broker can have a later timestamp than all messages inside it."""
    largest = yield from find_time(view, 0)
    while largest is not None and largest.timestamp_ms + 1 < limit_ms:
        middle_ms = (largest.timestamp_ms + 1 + limit_ms) // 2
        later = yield from find_time(view, middle_ms)
        if later is None:
            limit_ms = middle_ms
        else:
            largest = later
    # If several messages have this timestamp, `largest` may not be the first of them.
    return None if largest is None else (yield from find_time(view, largest.timestamp_ms))


def _largest_in_part(view: SearchView, segment: Segment) -> Steps[int]:
    """Find the largest timestamp of a segment's visible messages, -1 if none has one.

    The segment reaches below the log start or above the high watermark. Its indexes cover at most a
    part of it; the rest is read.
    """
    largest_ms, start = NO_TIMESTAMP, view.log_start_offset
    if start <= segment.base_offset:
        largest_ms, start = segment.time_index.known_before(view.high_watermark)
    yield from _close_to(segment, start)
    if segment.dropped:
        return NO_TIMESTAMP
    cuts = segment.cuts
    position = segment.locate(start)
    check_readable(segment, view.high_watermark)
    end = visible_end(segment, view.high_watermark)
    if start == view.log_start_offset and position < end:
        # A wrapper message that contains the log start has messages on both sides of it.
        head = segment.file.pread(ENTRY_OVERHEAD, position)
        first = segment.file.pread(min(entry_bytes(head, 0), end - position), position)
        newest_ms = yield from _opened(view, segment, first, position, partial(_newest, view))
        largest_ms = max(largest_ms, newest_ms)
        position += len(first)
    wanted = _FIRST_READ_BYTES
    while position < end:
        yield None
        if segment.dropped:
            return NO_TIMESTAMP
        if segment.cuts != cuts:
            return (yield from _largest_in_part(view, segment))
        data = segment.file.pread(min(wanted, end - position), position)
        found = walk(data, 0, len(data), check_crc=False)
        largest_ms = max(largest_ms, found.max_timestamp_ms)
        position += found.end
        wanted = _READ_BYTES_MAX
        if not found.end:
            if found.problem is not Problem.PARTIAL or len(data) == end - position:
                raise segment.damage(position)
            wanted = max(entry_bytes(data, 0), wanted)
    return largest_ms


def offsets_before(
    view: SearchView,
    target_ms: int,
    count_max: int,
    now_ms: int,
    trimmed: TrimmedSegment | None = None,
) -> Steps[list[int]]:
    """Return offsets to start from so that no message at or after `target_ms` is missed, in falling
    order.

    The first is the exact answer of `find_time` (the log end if there is none). The others are base
    offsets of segments below it. If no segment has timestamps, file times decide: the first is then
    the base offset of the newest segment whose file is not younger than the target. `trimmed` is
    the segment in which the log begins, if its own largest timestamp was read. `EARLIEST` and
    `LATEST` stand for the log start and the log end.
    """
    if target_ms == EARLIEST:
        return [view.log_start_offset][:count_max]
    if target_ms == LATEST:
        return _falling(_bases(view), view.high_watermark)[:count_max]
    segments = _judged_there(view, trimmed)
    if all(segment.largest_possible_ms < 0 for segment in segments):
        bases, times = _bases(view), [segment.age_from_ms for segment in segments]
        if segments and segments[-1].size_bytes:
            bases, times = [*bases, view.high_watermark], [*times, now_ms]
        old_enough = [number for number, at_ms in enumerate(times) if at_ms <= target_ms]
        if not old_enough:
            return []
        newest = old_enough[-1]
        return _falling(bases[:newest], min(bases[newest], view.high_watermark))[:count_max]
    found = yield from find_time(view, target_ms)
    start = view.high_watermark if found is None else found.offset
    for segment in _judged_there(view, trimmed):
        if segment.largest_possible_ms < 0 and segment.age_from_ms > target_ms:
            start = min(start, max(segment.base_offset, view.log_start_offset))
            break
    return _falling(_bases(view), start)[:count_max]


def _still_there(view: SearchView) -> list[Segment]:
    """Return the segments that were not dropped meanwhile and do not end before the log start."""
    return [
        segment
        for segment in view.segments
        if not segment.dropped
        and (segment.next_offset > view.log_start_offset or segment is view.segments[-1])
    ]


def _judged_there(
    view: SearchView, trimmed: TrimmedSegment | None
) -> list[Segment | TrimmedSegment]:
    return [
        trimmed if trimmed is not None and one is trimmed.segment else one
        for one in _still_there(view)
    ]


def _bases(view: SearchView) -> list[int]:
    """Return their base offsets, oldest first."""
    return [max(segment.base_offset, view.log_start_offset) for segment in _still_there(view)]


def _falling(bases: Sequence[int], start: int) -> list[int]:
    return [start, *(base for base in reversed(bases) if base < start)]


def _find_in_segment(  # noqa: C901, PLR0912 - one search
    view: SearchView, segment: Segment, target_ms: int, *, looked: bool = False
) -> Steps[FoundMessage | None]:
    found = None
    if not looked:
        found = find_time_at_once(
            segment, target_ms, view.log_start_offset, view.max_decompressed_bytes
        )
    if found is not None:
        return found
    start = max(segment.time_index.start_for(target_ms), view.log_start_offset)
    if not segment.located(start):
        yield from _close_to(segment, start)
        if segment.dropped:
            return None
    position = segment.locate(start)
    cuts = segment.cuts
    wanted = _FIRST_READ_BYTES
    while position < segment.readable_bytes:
        data = segment.file.pread(min(wanted, segment.readable_bytes - position), position)
        at, stopped = scan_timestamp(data, 0, len(data), target_ms)
        if at == BAD_SIZE:
            raise segment.damage(position + stopped)
        if at >= 0:
            end = at + entry_bytes(data, at)
            if not segment.base_offset <= _offset(data, at) < segment.next_offset:
                raise segment.damage(position + at)
            call = partial(_first_from, view, target_ms)
            found = yield from _opened(view, segment, data[at:end], position + at, call)
            if segment.dropped:
                return None
            if found is not None:
                check_entries(segment, position + at, position + end, data, position)
                return found
            position += end
        elif stopped:
            position += stopped
        elif entry_bytes(data, 0) <= segment.readable_bytes - position and len(data) == wanted:
            wanted = max(entry_bytes(data, 0), 2 * wanted)
            continue
        else:
            raise segment.damage(position)
        wanted = min(wanted * 2, _READ_BYTES_MAX)
        yield None
        if segment.dropped:
            return None
        if segment.cuts != cuts:
            return (yield from _find_in_segment(view, segment, target_ms))
    check_readable(segment, view.high_watermark)
    return None


def _close_to(segment: Segment, offset: int) -> Generator[None, None, None]:
    """Search for `offset` step by step until `locate` has little left to read."""
    while not segment.dropped and not segment.located(offset):
        yield None


def _is_gone(view: SearchView, segment: Segment) -> bool:
    """Whether the segment was dropped meanwhile, or ends before the log start."""
    return segment.dropped or segment.next_offset <= view.log_start_offset


def _offset(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + SIZE_AT], "big", signed=True)


def _opened(
    view: SearchView,
    segment: Segment,
    entry: bytes,
    position: int,
    call: Callable[[bytes, int], T],
) -> Steps[T]:
    """Apply `call` to the entry at `position`, with the decompression limit. Raises the segment's
    damage if bytes are wrong, and `CorruptMessage` for a batch that was written in a way that it
    cannot be opened."""
    try:
        return (yield from opened(entry, view.max_decompressed_bytes, partial(call, entry)))
    except CorruptMessage as error:
        written = unopenable_batch(segment.log_path, position, entry, error)
        raise written or segment.damage(position) from error


def _first_from(
    view: SearchView, target_ms: int, entry: bytes, max_bytes: int
) -> FoundMessage | None:
    """Return the first message in `entry` at or after `target_ms`."""
    walked = walk(entry, 0, len(entry))
    if entry[MAGIC_AT] == BATCH_MAGIC:
        if walked.problem is not Problem.NONE:
            raise CorruptMessage("the batch is not as it was stored")
        start = view.log_start_offset
        found = find_in_batch(
            entry, 0, target_ms, max_decompressed_bytes=max_bytes, from_offset=start
        )
        return None if found is None else FoundMessage(*found)
    if not walked.last_codec and walked.problem is Problem.NONE:
        if walked.last_offset < view.log_start_offset:
            return None
        return FoundMessage(walked.last_offset, walked.first_timestamp_ms)
    for record in _visible(view, entry, max_bytes):
        if record.timestamp_ms >= target_ms:
            return FoundMessage(record.offset, record.timestamp_ms)
    return None


def _newest(view: SearchView, entry: bytes, max_bytes: int) -> int:
    """Return the largest timestamp of the messages in `entry` from the log start on, -1 if none has
    one."""
    times = (record.timestamp_ms for record in _visible(view, entry, max_bytes))
    return max(times, default=NO_TIMESTAMP)


def _visible(view: SearchView, entry: bytes, max_bytes: int) -> Iterator[Record]:
    """Yield the messages in `entry` from the log start on."""
    return records(entry, max_decompressed_bytes=max_bytes, from_offset=view.log_start_offset)
