"""The same messages in another format, for clients that do not know the stored one: v0 with 8 bytes
for a time, v1 without them, and record batches as messages.

A slice of a log can be large, so the work on it is a generator, in bounded `Steps`. It pauses
between pieces, and yields compression and decompression as calls that may run in another thread.
"""

from collections.abc import Callable, Generator, Iterator
from functools import partial
from struct import Struct
from typing import Final, TypeVar

from ....values import value_class
from ...errors import CorruptMessage, MessageTooLarge, UnsupportedForMessageFormat
from ..batch import BatchHeader, batch_content, read_header
from ..codecs.codec import decompress
from ..kernel import RecordCursor, Walk, plain_end, records_to_messages, rewrite, walk
from ..kernel.terms import NO_MORE, OWN, RECORD, Problem, Rewritten
from ..layout import (
    ATTRIBUTES_AT,
    BATCH_MAGIC,
    CODEC_MASK,
    ENTRY_OVERHEAD,
    MAGIC_AT,
    NO_TIMESTAMP,
    SIZE_AT,
    Buffer,
    Codec,
)
from ..problems import problem_error, unsupported_magic
from .sets import Entry, build_wrapper, entries

PIECE_BYTES: Final = 16 * 1024
"""Bytes of messages between two pauses. Small messages of this size take the Python form of the
kernel half a millisecond."""

Call = Callable[[], Buffer]
"""Work on a whole buffer. The generator receives its result, or its exception."""

T = TypeVar("T")

Steps = Generator[Call | None, Buffer | None, T]
"""Steps of a conversion: pauses (`None`), and calls to run."""

_HEAD: Final = Struct(">qi")


@value_class
class Downconverted:
    """A slice, converted for a client that reads an older format."""

    data: Buffer
    messages: int
    """How many messages are in `data`. 0 if the slice has no complete message: `data` is then the
    slice itself, and its size tells the client to fetch more. Also 0, with empty `data`, if the
    slice has only control batches and records below the requested offset."""
    used_bytes: int
    """Bytes of the slice that were converted; the next read starts after them."""
    headers: int = 0
    """Headers of records that were dropped, because the older format has none."""


class DamagedSlice(Exception):
    """The first entry of a slice is damaged; the message says how."""


def run(steps: Steps[T]) -> T:
    """Run all steps at once."""
    try:
        call = next(steps)
        while True:
            try:
                result = call() if call is not None else None
            except Exception as error:
                call = steps.throw(error)
            else:
                call = steps.send(result)
    except StopIteration as stop:
        value: T = stop.value
        return value


def convert_entries(
    target: bytearray,
    buffer: Buffer,
    start: int,
    end: int,
    *,
    magic: int | None,
    first_offset: int | None = None,
    offset_shift: int = 0,
    stamp_ms: int | None = None,
) -> int:
    """Append the plain entries of `buffer[start:end]` to `target`, each in format `magic`.

    A walk must have passed the entries. `magic=None` keeps each entry's format. Offsets count up
    from `first_offset`, or are the entries' own plus `offset_shift`. A v1 message keeps its time,
    as a create time; a v0 message converted to v1 has none. With `stamp_ms` all messages have that
    time, as an append time. Returns how many messages changed their format.
    """
    return rewrite(
        target,
        buffer,
        start,
        end,
        OWN if magic is None else magic,
        OWN if first_offset is None else first_offset,
        offset_shift,
        OWN if stamp_ms is None else stamp_ms,
    )


def runs(buffer: Buffer, start: int, end: int) -> Iterator[tuple[int, int, Codec | None]]:
    """Yield the runs of plain entries, the wrappers and the batches of `buffer[start:end]` as
    `(start, end, codec)`.

    Consecutive plain entries are one run with `Codec.NONE`. A wrapper is a run of its own, and so
    is a batch, with `None`. A walk must have passed the entries.
    """
    position = start
    while position < end:
        run_end = plain_end(buffer, position, end)
        if run_end > position:
            yield position, run_end, Codec.NONE
            position = run_end
        else:
            size = int.from_bytes(buffer[position + SIZE_AT : position + SIZE_AT + 4], "big")
            stop = position + ENTRY_OVERHEAD + size
            if buffer[position + MAGIC_AT] == BATCH_MAGIC:
                yield position, stop, None
            else:
                yield position, stop, Codec(buffer[position + ATTRIBUTES_AT] & CODEC_MASK)
            position = stop


@value_class
class _Converted:
    """The messages that a batch was converted to."""

    data: Buffer
    messages: int
    headers: int


_NOTHING: Final = _Converted(b"", 0, 0)


def downconvert_batches(
    data: Buffer, max_bytes: int, max_content_bytes: int, magic: int, from_offset: int
) -> Steps[Downconverted]:
    """Convert the records from `from_offset` on, in the complete batches of a slice, to messages of
    format `magic` (0 or 1) with the same offsets.

    A batch is converted as a whole. The result ends early before a batch that would make it larger
    than `max_bytes`, that has more than `max_content_bytes` uncompressed, or that is damaged. If
    that is the first batch, it raises `DamagedSlice` for damaged bytes, `CorruptMessage` for
    damaged content, or `MessageTooLarge` for too much content.
    """
    result = bytearray()
    messages = headers = position = 0
    while (stop := _end_of_batch(data, position)) <= len(data):
        found = walk(data, position, stop)
        if found.problem is not Problem.NONE:
            if position:
                break
            raise DamagedSlice(problem_error(data, found, stop).message)
        header = read_header(data, position)
        if not header.is_control and header.record_count:
            if messages and len(result) + header.size_bytes // 2 > max_bytes:
                break
            try:
                made = yield from _convert(
                    data, position, header, magic, max_content_bytes, from_offset
                )
            except (CorruptMessage, MessageTooLarge):
                if position:
                    break
                raise
            if messages and len(result) + len(made.data) > max_bytes:
                break
            result += made.data
            messages += made.messages
            headers += made.headers
        position = stop
        yield None
    if not position:
        return Downconverted(data, 0, len(data))
    return Downconverted(result, messages, position, headers)


def _end_of_batch(data: Buffer, position: int) -> int:
    """Return the end of the batch at `position`; a position beyond `data` if none starts there."""
    if len(data) - position <= MAGIC_AT or data[position + MAGIC_AT] != BATCH_MAGIC:
        return len(data) + 1
    size = int.from_bytes(data[position + SIZE_AT : position + SIZE_AT + 4], "big", signed=True)
    return position + ENTRY_OVERHEAD + max(size, MAGIC_AT)


def _convert(
    data: Buffer,
    position: int,
    header: BatchHeader,
    magic: int,
    max_content_bytes: int,
    from_offset: int,
) -> Steps[_Converted]:
    """Convert the records from `from_offset` on of the batch at `position`."""
    opened = partial(
        batch_content, data, position, header, max_decompressed_bytes=max_content_bytes
    )
    content = (yield opened) if header.codec else opened()
    assert content is not None
    first = yield from _find_record(memoryview(content), from_offset - header.base_offset)
    if first is None:
        return _NOTHING
    kept = memoryview(content)[first.position :]
    append_time = header.is_append_time and magic == 1
    if not header.codec:
        stamp_ms = header.max_timestamp_ms if append_time else OWN
        return (yield from _as_messages(kept, header, magic, header.base_offset, stamp_ms))
    # In a v1 wrapper, offsets count from 0, and the wrapper's offset is that of its last message.
    base_offset = -first.offset_delta if magic else header.base_offset
    inner = yield from _as_messages(kept, header, magic, base_offset, OWN)
    last_inner = walk(inner.data, 0, len(inner.data), check_crc=False).last_offset
    codec = Codec.GZIP if header.codec is Codec.ZSTD else header.codec
    wrapper = yield partial(
        build_wrapper,
        inner.data,
        offset=last_inner + header.base_offset - base_offset,
        timestamp_ms=max(header.max_timestamp_ms, NO_TIMESTAMP) if magic else NO_TIMESTAMP,
        magic=magic,
        codec=codec,
        append_time=append_time,
    )
    assert wrapper is not None
    return _Converted(wrapper, inner.messages, inner.headers)


def _find_record(content: memoryview, from_delta: int) -> Steps[RecordCursor | None]:
    """Return a cursor at the first record with an offset delta >= `from_delta`, or at a damaged
    record before it; `None` if all records are below."""
    cursor = RecordCursor(content, 0, len(content))
    paused_at = 0
    while (step := cursor.step()) == RECORD and cursor.offset_delta < from_delta:
        if cursor.position - paused_at >= PIECE_BYTES:
            paused_at = cursor.position
            yield None
    return None if step == NO_MORE and cursor.following else cursor


def _as_messages(
    content: Buffer, header: BatchHeader, magic: int, base_offset: int, stamp_ms: int
) -> Steps[_Converted]:
    """Convert records to plain messages."""
    made = bytearray()
    done = Rewritten(0, 0, 0, -1)
    count = headers = 0
    while done.following < len(content):
        try:
            done = records_to_messages(
                made,
                content,
                done.following,
                magic=magic,
                base_offset=base_offset,
                base_timestamp_ms=header.base_timestamp_ms,
                stamp_ms=stamp_ms,
                max_bytes=PIECE_BYTES,
            )
        except ValueError as error:
            raise CorruptMessage(f"the batch with offset {header.base_offset}: {error}") from None
        count += done.messages
        headers += done.headers
        yield None
    if not count:
        raise CorruptMessage(f"the batch with offset {header.base_offset} holds no records")
    return _Converted(made, count, headers)


def downconversion(  # noqa: C901, PLR0912 - one loop over entries
    data: Buffer,
    *,
    max_bytes: int,
    max_content_bytes: int,
    magic: int = 0,
    from_offset: int = 0,
) -> Steps[Downconverted]:
    """Convert the complete messages of a slice to format v0, or with `magic=1` record batches to
    format v1; offsets stay the same. Records of batches below `from_offset` are left out.

    A slice too short to show its format is returned unchanged. Batches are converted as in
    `downconvert_batches`. For messages: if the first entry is a wrapper, all messages go into one
    wrapper with its codec; otherwise all become plain. The result ends early, after a whole entry,
    where plain messages would take more than `max_bytes`, or those of a wrapper more than
    `max_content_bytes` uncompressed, and before a damaged entry. If that is the first entry, it
    raises `DamagedSlice`; for a first entry that is a wrapper, `CorruptMessage` if its content is
    damaged, or `MessageTooLarge` if it has more than `max_content_bytes`; and
    `UnsupportedForMessageFormat` for a later format.
    """
    if len(data) <= MAGIC_AT:
        return Downconverted(data, 0, len(data))
    if data[MAGIC_AT] == BATCH_MAGIC:
        return (
            yield from downconvert_batches(data, max_bytes, max_content_bytes, magic, from_offset)
        )
    if magic > 0:
        raise _not_a_batch(data[MAGIC_AT])
    result = _ConvertedSet(max_bytes, max_content_bytes)
    try:
        for piece_start, piece in _stored_pieces(data):
            for start, end, codec in runs(data, piece_start, piece.end):
                if codec is None:
                    raise _Full  # batches stored after the messages are for the next read
                if not start:
                    result.choose(codec)
                if codec is Codec.NONE:
                    whole = end - start == piece.end - piece_start
                    result.take_plain(data, start, end, piece if whole else None)
                else:
                    (wrapper,) = entries(data, start, end, verify_crc=False)
                    yield from _take_wrapper(result, wrapper)
                result.used_bytes = end
            yield None
    except _Full:
        pass
    except (DamagedSlice, CorruptMessage, UnsupportedForMessageFormat):
        if not result.messages:
            raise
    if not result.messages:
        return Downconverted(data, 0, len(data))
    return Downconverted((yield from result.finished()), result.messages, result.used_bytes)


def _not_a_batch(magic: int) -> Exception:
    """Return the error for a first entry that is not a batch, in a slice of batches."""
    if magic > BATCH_MAGIC:
        return unsupported_magic(magic, "the entry at byte 0")
    return DamagedSlice(f"its magic is {magic}; that of record batches is 2")


class _Full(Exception):
    """The result has no room for the next entry."""


class _ConvertedSet:
    """The messages converted so far."""

    def __init__(self, max_bytes: int, max_content_bytes: int) -> None:
        self._room_bytes = max_bytes
        self._max_content_bytes = max_content_bytes
        self._codec = Codec.NONE
        self._content = bytearray()
        self._last_offset = -1
        self.messages = 0
        self.used_bytes = 0

    def choose(self, codec: Codec) -> None:
        """Choose the codec of the result, from the first entry."""
        self._codec = codec
        if codec is not Codec.NONE:
            self._room_bytes = self._max_content_bytes

    @property
    def room_bytes(self) -> int:
        """Bytes of content that still fit. A plain first entry may be larger."""
        return max(self._room_bytes, 0)

    def take_plain(self, data: Buffer, start: int, end: int, found: Walk | None) -> None:
        """Append plain entries. `found` is the walk over them, if there was one. Raises `_Full`."""
        if self.messages and end - start > self.room_bytes:
            raise _Full
        if found is None:
            found = walk(data, start, end, check_crc=False)
        self._room_bytes -= end - start
        self.add(data, start, found)

    def take_content(self, size_bytes: int) -> None:
        """Reserve room for the content of a wrapper, which `add` appends."""
        self._room_bytes -= size_bytes

    def add(self, data: Buffer, start: int, found: Walk, offset_shift: int = 0) -> None:
        """Append the entries from `start` on that the walk `found` covers."""
        convert_entries(self._content, data, start, found.end, magic=0, offset_shift=offset_shift)
        self.messages += found.count
        self._last_offset = found.last_offset + offset_shift

    def finished(self) -> Steps[Buffer]:
        """Return the bytes for the client."""
        if self._codec is Codec.NONE:
            return self._content
        wrapper = yield partial(
            build_wrapper,
            self._content,
            offset=self._last_offset,
            timestamp_ms=NO_TIMESTAMP,
            magic=0,
            codec=self._codec,
        )
        assert wrapper is not None
        return wrapper


def _take_wrapper(result: _ConvertedSet, wrapper: Entry) -> Steps[None]:
    """Append the content of a wrapper: all of it or nothing.

    Raises `_Full`, `CorruptMessage`, and `MessageTooLarge` if it is the first entry.
    """
    where = f"the compressed message with offset {wrapper.offset}"
    if wrapper.value is None:
        raise CorruptMessage(f"{where} has a null value")
    try:
        content = yield partial(
            decompress,
            wrapper.codec,
            wrapper.value,
            magic=wrapper.magic,
            max_bytes=result.room_bytes,
        )
    except MessageTooLarge:
        if result.messages:
            raise _Full from None
        raise
    assert content is not None
    pieces = []
    try:
        for start, piece in _pieces(content):
            if piece.last_codec:
                raise CorruptMessage("a message is compressed again")
            pieces.append((start, piece))
            yield None
    except CorruptMessage as error:
        raise CorruptMessage(f"in {where}, decompressed: {error.message}") from error
    if not pieces:
        raise CorruptMessage(f"{where} holds no message")
    # In v1 only the last message's offset is known (that of the wrapper), and the distances to it.
    shift = wrapper.offset - pieces[-1][1].last_offset if wrapper.magic else 0
    result.take_content(len(content))
    for start, piece in pieces:
        result.add(content, start, piece, shift)
        yield None


def _stored_pieces(data: Buffer) -> Iterator[tuple[int, Walk]]:
    """Like `_pieces`, for a slice. Raises `DamagedSlice`, `UnsupportedForMessageFormat`."""
    try:
        yield from _pieces(data)
    except CorruptMessage as error:
        raise DamagedSlice(error.message) from error


def _pieces(data: Buffer) -> Iterator[tuple[int, Walk]]:
    """Yield consecutive walks over `data`, each with its start; an incomplete end is left out.

    Raises the error of the first bad entry, after the walk over the entries before it.
    """
    start = 0
    while start < len(data):
        stop = start + PIECE_BYTES
        if start + ENTRY_OVERHEAD <= len(data):
            size: int = _HEAD.unpack_from(data, start)[1]
            stop = max(stop, start + ENTRY_OVERHEAD + size)
        stop = min(stop, len(data))
        found = walk(data, start, stop)
        if found.count:
            yield start, found
        if found.problem not in (Problem.NONE, Problem.PARTIAL):
            raise problem_error(data, found, stop)
        if not found.count:
            return
        start = found.end
