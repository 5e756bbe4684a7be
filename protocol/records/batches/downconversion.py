"""Stored record batches for a reader that knows only messages.

A batch that is not compressed becomes plain messages, a compressed one becomes a wrapper of its
codec, and of gzip where it was zstd, which such readers do not know. Headers are left out and
counted; control batches are left out, and so are records below the offset that the reader asked
for: a reader that is given only those would ask for the same offset for ever.
"""

from functools import partial
from typing import Final

from ....values import value_class
from ...errors import CorruptMessage, MessageTooLarge
from ..kernel import RecordCursor, records_to_messages, walk
from ..kernel.terms import NO_MORE, OWN, RECORD, Problem, Rewritten
from ..layout import BATCH_MAGIC, ENTRY_OVERHEAD, MAGIC_AT, NO_TIMESTAMP, SIZE_AT, Buffer, Codec
from ..messages.conversion_steps import PIECE_BYTES, DamagedSlice, Downconverted, Steps
from ..messages.sets import build_wrapper
from ..problems import problem_error
from .batch import BatchHeader, batch_content, read_header


@value_class
class _Converted:
    """What a batch has become."""

    data: Buffer
    messages: int
    headers: int


_NOTHING: Final = _Converted(b"", 0, 0)


def downconvert_batches(
    data: Buffer, max_bytes: int, max_content_bytes: int, magic: int, from_offset: int
) -> Steps[Downconverted]:
    """The records of the complete batches of a slice from `from_offset` on, as messages of format
    `magic`, 0 or 1, with their offsets.

    A batch is converted whole. The result ends early where another one would make it larger than
    `max_bytes`, before one with more than `max_content_bytes` uncompressed, and before one that is
    wrong. When that is the first one it raises `DamagedSlice` for wrong bytes, `CorruptMessage`
    for wrong content, `MessageTooLarge` for too much of it.
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
    """Where the batch ends that begins at `position`; behind the end where none does."""
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
    """What the records of the batch at `position` become that are not below `from_offset`."""
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
    # In a v1 wrapper offsets count from 0 on, and the wrapper's says what that is.
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
    """The first record with an offset delta >= `from_delta`, or what is in front of it and is no
    good record; `None` where all are below that."""
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
    """The records as plain messages."""
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
