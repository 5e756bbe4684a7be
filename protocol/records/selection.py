"""Sets with some of their messages left out, for a reader of a window, or for a cleaner.

A set all of whose messages are kept stays as it is. Of another one that is kept in part:

- a batch keeps its base offset, base timestamp, codec, producer and timestamp type. The delta of
  its last offset is that of the last record kept; count, largest time, size and CRC are new.
  Records are copied as they are written;
- a wrapper keeps its messages' offsets as they are written, and its codec, and has the offset of
  the last message kept;
- a plain message is a set by itself.

The work comes in steps (`conversion_steps`): pauses, and what opens or compresses, for any thread.
"""

from bisect import bisect_left
from collections.abc import Callable
from functools import partial

from ...values import value_class
from ..errors import CorruptMessage
from .batch import BatchHeader, batch_content, read_header, write_header
from .codecs.codec import compress
from .kernel import (
    Walk,
    gather,
    gather_records,
    keep_messages,
    keep_records,
    walk,
)
from .kernel.terms import OWN, KeptRows
from .layout import (
    BATCH_MAGIC,
    BATCH_OVERHEAD,
    ENTRY_OVERHEAD,
    MAGIC_AT,
    NO_TIMESTAMP,
    SIZE_AT,
    Buffer,
    Codec,
)
from .messages.downconversion import PIECE_BYTES, DamagedSlice, Steps, runs
from .messages.sets import Entry, build_wrapper, entries, open_set
from .problems import problem_error

Choose = Callable[[Buffer, Buffer], tuple[Buffer, int]]
"""Chooses messages by their offsets and effective times (int64 in this machine's byte order, -1 for
no time): a byte for each, 0 for one that is left out, and how many are not."""


@value_class
class Selected:
    """What is kept of the whole sets of a slice."""

    data: bytearray
    messages: int
    used_bytes: int
    """Bytes of the slice that were looked at."""
    next_offset: int
    """Behind all that was looked at."""
    kept_offset: int
    """Behind the last set kept; -1 without any. A set that stays as it is may have offsets behind
    its last message."""
    is_full: bool
    """Whether it ended because the next set had no room."""


def selection(
    data: Buffer,
    choose: Choose,
    *,
    from_offset: int,
    max_bytes: int,
    max_content_bytes: int,
    left_out: Callable[[BatchHeader], bool] | None = None,
) -> Steps[Selected]:
    """The messages of a slice that are chosen, in sets, each with its own offset.

    A set of which no message at or above `from_offset` is chosen is left out whole. It ends before
    a set that would make the result larger than `max_bytes`, which only the first may be, and
    before one that is wrong; when that is the first one, it raises `DamagedSlice`, `CorruptMessage`
    for wrong content, `MessageTooLarge` for more than `max_content_bytes` of it. Control batches
    are left out, and batches of which `left_out` is true.
    """
    made = _Selection(data, choose, from_offset, max_bytes, max_content_bytes, left_out)
    position = 0
    try:
        while position < len(data):
            stop = _piece_end(data, position)
            if stop > len(data):
                break
            piece = walk(data, position, stop)
            if piece.end == position:
                raise DamagedSlice(problem_error(data, piece, stop).message)
            yield from made.add_piece(position, piece)
            position = piece.end
            yield None
    except _BytesSpent:
        made.is_full = True
    except Exception:
        if not made.used_bytes:
            raise
    return made.result


class _BytesSpent(Exception):
    """The next set has no room in the result."""


class _Selection:
    """What was selected so far."""

    def __init__(
        self,
        data: Buffer,
        choose: Choose,
        from_offset: int,
        max_bytes: int,
        max_content_bytes: int,
        left_out: Callable[[BatchHeader], bool] | None,
    ) -> None:
        self._data = data
        self._choose = choose
        self._from_offset = from_offset
        self._max_bytes = max_bytes
        self._max_content_bytes = max_content_bytes
        self._left_out = left_out
        self._out = bytearray()
        self._messages = 0
        self.used_bytes = 0
        self.is_full = False
        self._next_offset = from_offset
        self._kept_offset = self._candidate_offset = -1
        """Behind the last set that is kept, and behind the one at hand."""

    @property
    def result(self) -> Selected:
        return Selected(
            self._out,
            self._messages,
            self.used_bytes,
            self._next_offset,
            self._kept_offset,
            self.is_full,
        )

    def add_piece(self, start: int, piece: Walk) -> Steps[None]:
        """Add the sets that `piece` walked over, the first at `start`."""
        for begin, end, codec in runs(self._data, start, piece.end):
            if codec is None:
                yield from self._add_batch(begin, end)
            elif codec is Codec.NONE:
                self._add_messages(begin, end)
            else:
                yield from self._add_wrapper(begin, end)
            self.used_bytes = end
            last_offset = walk(self._data, begin, end, check_crc=False).last_offset
            self._next_offset = max(self._next_offset, last_offset + 1)

    def _rows(self, offsets: bytearray, timestamps: bytearray) -> tuple[Buffer, int] | None:
        """Which messages are kept; `None` for none."""
        if not offsets:
            return None
        marks, count = self._choose(offsets, timestamps)
        if not count:
            return None
        last_kept = bytes(marks).rfind(1)
        offset = memoryview(offsets).cast("q")[last_kept]
        if offset < self._from_offset:
            return None
        self._candidate_offset = offset + 1
        return marks, count

    def _keep(self, made: Buffer, count: int) -> None:
        if self._out and len(self._out) + len(made) > self._max_bytes:
            raise _BytesSpent
        self._out += made
        self._messages += count
        self._kept_offset = self._candidate_offset

    def _add_batch(self, position: int, end: int) -> Steps[None]:
        data = self._data
        header = read_header(data, position)
        if header.is_control or (self._left_out is not None and self._left_out(header)):
            return
        if header.last_offset < self._from_offset or not header.record_count:
            return
        opened = partial(
            batch_content, data, position, header, max_decompressed_bytes=self._max_content_bytes
        )
        content = (yield opened) if header.codec else opened()
        assert content is not None
        where = f"the batch with offset {header.base_offset}"
        try:
            found, _ = gather_records(
                content,
                base_offset=header.base_offset,
                base_timestamp_ms=header.base_timestamp_ms,
                append_time_ms=header.max_timestamp_ms if header.is_append_time else NO_TIMESTAMP,
                with_keys=False,
                with_values=False,
                with_headers=False,
            )
        except ValueError as error:
            raise CorruptMessage(f"{where}: {error}") from None
        rows = self._rows(found.offsets, found.timestamps)
        if rows is None:
            return
        marks, count = rows
        if count == found.count:
            self._candidate_offset = header.last_offset + 1
            self._keep(memoryview(data)[position:end], count)
            return
        records = bytearray()
        kept = keep_records(records, content, marks, base_timestamp_ms=header.base_timestamp_ms)
        body: Buffer | None = records
        if header.codec:
            body = yield partial(compress, header.codec, records, magic=BATCH_MAGIC)
        assert body is not None
        self._keep(_batch(header, body, kept), count)

    def _add_messages(self, start: int, end: int) -> None:
        """Add plain messages, as many as there is room for."""
        data = self._data
        size = walk(data, start, end, check_crc=False).count
        try:
            found = gather(data, start, end, size, with_keys=False, with_values=False)
        except ValueError as error:  # An offset that no log has.
            raise CorruptMessage(str(error)) from error
        rows = self._rows(found.offsets, found.timestamps)
        if rows is None:
            return
        marks = bytearray(rows[0])
        # Each is a set by itself, so none is there for the sake of another one.
        below = bisect_left(memoryview(found.offsets).cast("q"), self._from_offset)
        marks[:below] = bytes(below)
        made = bytearray()
        kept = keep_messages(made, data, start, end, marks)
        room = self._max_bytes - len(self._out)
        if len(made) <= room:
            self._keep(made, kept.messages)
            return
        stop = _some_end(made, room, first=not self._out)
        if stop:
            some = walk(made, 0, stop, check_crc=False)
            self._candidate_offset = some.last_offset + 1
            self._keep(memoryview(made)[:stop], some.count)
            self._next_offset = max(self._next_offset, self._candidate_offset)
        if stop < len(made):
            raise _BytesSpent

    def _add_wrapper(self, start: int, end: int) -> Steps[None]:
        data = self._data
        (wrapper,) = entries(data, start, end, verify_crc=False)
        if wrapper.offset < self._from_offset:
            return
        opened: list[tuple[Buffer, Walk]] = []

        def open_now() -> Buffer:
            opened.append(open_set(wrapper, max_decompressed_bytes=self._max_content_bytes))
            return b""

        yield open_now
        ((content, inner),) = opened
        shift = wrapper.offset - inner.last_offset if wrapper.magic else 0
        try:
            found = gather(
                *(content, 0, inner.end, inner.count),
                offset_shift=shift,
                timestamp_type=int(wrapper.is_append_time) if wrapper.magic else OWN,
                timestamp_ms=wrapper.timestamp_ms,
                with_keys=False,
                with_values=False,
            )
        except ValueError as error:
            raise CorruptMessage(str(error)) from None
        rows = self._rows(found.offsets, found.timestamps)
        if rows is None:
            return
        marks, count = rows
        if count == found.count:
            self._keep(memoryview(data)[start:end], count)
            return
        messages = bytearray()
        kept = keep_messages(messages, content, 0, inner.end, marks)
        made = yield partial(_wrapper, wrapper, messages, kept, kept.last_offset + shift)
        assert made is not None
        self._keep(made, count)


def _batch(header: BatchHeader, body: Buffer, kept: KeptRows) -> bytearray:
    """The batch with only these records."""
    made = bytearray(BATCH_OVERHEAD) + body
    max_ms = header.max_timestamp_ms if header.is_append_time else kept.max_timestamp_ms
    changed = header._replace(
        size=len(made) - ENTRY_OVERHEAD,
        last_offset_delta=kept.last_offset,
        max_timestamp_ms=max_ms,
        record_count=kept.messages,
        crc=0,
    )
    write_header(made, changed)
    return made


def _wrapper(wrapper: Entry, messages: bytearray, kept: KeptRows, offset: int) -> Buffer:
    """The wrapper with only these messages."""
    time_ms = wrapper.timestamp_ms if wrapper.is_append_time else kept.max_timestamp_ms
    return build_wrapper(
        messages,
        offset=offset,
        timestamp_ms=max(time_ms, NO_TIMESTAMP) if wrapper.magic else NO_TIMESTAMP,
        magic=wrapper.magic,
        codec=wrapper.codec,
        append_time=wrapper.is_append_time,
    )


def _some_end(made: bytearray, room: int, *, first: bool) -> int:
    """Where those of plain messages end that have room; the `first` of all has, whatever it
    takes."""
    stop = 0
    while stop < len(made):
        end = _entry_end(made, stop)
        if end > room and (stop or not first):
            break
        stop = end
    return stop


def _piece_end(data: Buffer, position: int) -> int:
    """Where one walk ends that begins at `position`: behind one set, or some of them."""
    if len(data) - position <= MAGIC_AT:
        return len(data) + 1
    end = _entry_end(data, position)
    return end if end > len(data) else max(end, min(position + PIECE_BYTES, len(data)))


def _entry_end(data: Buffer, position: int) -> int:
    at = position + SIZE_AT
    size = int.from_bytes(data[at : at + 4], "big", signed=True)
    return position + ENTRY_OVERHEAD + max(size, 0)
