"""Errors for the entry that stopped a walk, or for the record that stopped a check."""

from typing import Final

from ..errors import (
    CodedError,
    CorruptMessage,
    InvalidRecord,
    MessageTooLarge,
    UnsupportedForMessageFormat,
)
from .kernel import Walk, crc32, crc32c
from .kernel.terms import (
    BAD_END,
    BAD_FIELD,
    BAD_LENGTH,
    BAD_RECORD_OFFSET,
    BAD_TIME,
    NO_KEY,
    Problem,
)
from .layout import (
    ATTRIBUTES_AT,
    BATCH_ATTRIBUTES_AT,
    BATCH_CRC_AT,
    BATCH_MAGIC,
    BATCH_OVERHEAD,
    CODEC_MASK,
    CRC_AT,
    ENTRY_OVERHEAD,
    LAST_DELTA_AT,
    MAGIC_AT,
    MESSAGE_CODECS,
    MESSAGE_OVERHEAD,
    RECORD_COUNT_AT,
    SIZE_AT,
    Buffer,
    Codec,
)


def problem_error(buffer: Buffer, walked: Walk, end: int) -> CodedError:
    """Return the error for `walked.problem`, which must not be `Problem.NONE`; the caller raises
    it.

    `end` is the end of the bytes that were to be walked. Positions in the text count from the start
    of `buffer`.
    """
    view = memoryview(buffer)
    at = walked.problem_position
    is_batch = len(view) - at > MAGIC_AT and view[at + MAGIC_AT] == BATCH_MAGIC
    where = f"the {'batch' if is_batch else 'message'} at byte {at}"

    match walked.problem:
        case Problem.PARTIAL:
            return CorruptMessage(f"{where} is incomplete: {end - at} bytes of it are there")
        case Problem.MAGIC:
            return unsupported_magic(view[at + MAGIC_AT], where)
        case Problem.SIZE:
            size = _signed(view, at + SIZE_AT)
            return CorruptMessage(
                f"{where} says that it has {size} bytes; the smallest message has"
                f" {MESSAGE_OVERHEAD[0]} (magic 0) or {MESSAGE_OVERHEAD[1]} (magic 1), the smallest"
                f" batch {BATCH_OVERHEAD - ENTRY_OVERHEAD}"
            )
        case Problem.CRC:
            return _crc_error(view, at, where, is_batch=is_batch)
        case Problem.LENGTHS:
            return CorruptMessage(
                f"{where}: key and value do not add up to its {_unsigned(view, at + SIZE_AT)} bytes"
            )
        case Problem.CODEC:
            place = BATCH_ATTRIBUTES_AT + 1 if is_batch else ATTRIBUTES_AT
            codec = view[at + place] & CODEC_MASK
            highest = max(Codec) if is_batch else max(MESSAGE_CODECS)
            return CorruptMessage(
                f"{where} is compressed with codec {codec}; known are 1 to {highest:d}"
            )
        case Problem.COUNT:
            records, delta = _signed(view, at + RECORD_COUNT_AT), _signed(view, at + LAST_DELTA_AT)
            return CorruptMessage(
                f"{where} says that it has {records} records, and that the last one's offset delta"
                f" is {delta}"
            )
        case Problem.KEY:
            return without_key(where)
        case _:
            offset = _signed(view, at, 8)
            return CorruptMessage(
                f"{where} has offset {offset}, which does not follow {walked.last_offset}"
            )


def _crc_error(view: memoryview, at: int, where: str, *, is_batch: bool) -> CorruptMessage:
    stop = at + ENTRY_OVERHEAD + _unsigned(view, at + SIZE_AT)
    if is_batch:
        stored = _unsigned(view, at + BATCH_CRC_AT)
        computed = crc32c(view, at + BATCH_ATTRIBUTES_AT, stop)
    else:
        stored = _unsigned(view, at + CRC_AT)
        computed = crc32(view[at + MAGIC_AT : stop])
    return CorruptMessage(f"{where} has CRC {stored:08x}, but its content gives {computed:08x}")


def _unsigned(view: memoryview, at: int) -> int:
    return int.from_bytes(view[at : at + 4], "big")


def _signed(view: memoryview, at: int, width: int = 4) -> int:
    return int.from_bytes(view[at : at + width], "big", signed=True)


def unsupported_magic(magic: int, where: str) -> UnsupportedForMessageFormat:
    """Return the error for an unknown message format."""
    return UnsupportedForMessageFormat(
        f"{where} has magic {magic}; this version reads and writes magic 0, 1 and 2"
    )


def without_key(where: str) -> InvalidRecord:
    """Return the error for a message without a key in a compacted topic."""
    return InvalidRecord(
        f"{where} has no key; the topic is compacted (cleanup.policy), and there each message needs"
        " one: send a key, or set cleanup.policy=delete"
    )


def decompressed_too_large(max_bytes: int) -> MessageTooLarge:
    """Return the error for compressed content above the limit."""
    return MessageTooLarge(
        f"a compressed message holds more than {max_bytes} bytes;"
        " the limit is max.decompressed.bytes"
    )


BLOCKS_MAX: Final = 1024
LEAST_BLOCK_BYTES: Final = 1024
"""A frame may have `BLOCKS_MAX` blocks, and one more for each `LEAST_BLOCK_BYTES` of content.
Compressors write blocks of at least 32 KiB, and smaller ones only at a flush. The limit bounds the
work that empty blocks of five bytes can cause."""


def check_blocks(blocks: int, content_bytes: int, codec: str) -> None:
    """Raise `CorruptMessage` if a frame has more blocks than its content can need."""
    if blocks > BLOCKS_MAX + content_bytes // LEAST_BLOCK_BYTES:
        raise CorruptMessage(
            f"{codec}: the frame has {blocks} blocks with {content_bytes} bytes of content in them;"
            f" it may have {BLOCKS_MAX}, and one more for every {LEAST_BLOCK_BYTES} bytes"
        )


_RECORD_PROBLEMS: Final = {
    BAD_LENGTH: "its length is none, or goes behind the batch's end",
    BAD_FIELD: "its key, value or a header goes behind its end",
    BAD_END: "it is longer than what is in it",
    BAD_RECORD_OFFSET: "its offset is not the one after that of the record before it",
    BAD_TIME: "its timestamp does not fit into 64 bits",
}


def record_error(problem: int, number: int, at: int, position: int) -> CodedError:
    """Return the error for record `number` (counted from 0) of the batch at byte `position`.

    `problem` is a result of `RecordCursor.step` or `check_records`; `at` is the position of the
    record in the decompressed records.
    """
    if problem == NO_KEY:
        return without_key(f"the batch at byte {position}: record {number}")
    return CorruptMessage(
        f"the batch at byte {position}: record {number}, at byte {at} of its content, is not"
        f" good: {_RECORD_PROBLEMS[problem]}"
    )
