"""A record set as columns, for tables: no object per message is created.

The buffers have the layout of Apache Arrow, so that a reader can use them directly, for example
with `pyarrow.Array.from_buffers`. Integers are in the byte order of this machine.
"""

from collections.abc import Collection, Iterator
from typing import Final, Literal, get_args

from ...values import value_class
from ..errors import CorruptMessage
from .batch import batch_content, read_header
from .binary import BinaryColumn
from .kernel import Gathered, Walk, gather, gather_records, walk
from .kernel.terms import OWN, Problem, RecordHeaders
from .layout import NO_TIMESTAMP, Buffer, Codec
from .messages.downconversion import runs
from .messages.sets import entries, open_set
from .problems import problem_error

Content = Literal["keys", "values", "headers"]
"""Parts of a message that are copied into columns only on request."""

CONTENT: Final[frozenset[Content]] = frozenset(get_args(Content))
"""All parts that can be requested."""

_SOUND: Final = (Problem.NONE, Problem.PARTIAL)
"""Results of a walk over a set without damage."""


def check_content(wanted: Collection[str]) -> None:
    """Raise `ValueError` for names that are not in `CONTENT`."""
    if isinstance(wanted, str) or not CONTENT.issuperset(wanted):
        raise ValueError(f"columns {wanted!r}: it must be some of {', '.join(sorted(CONTENT))}")


@value_class
class Columns:
    """The columns of some messages, in the order of the set."""

    count: int
    offsets: bytearray
    """int64, absolute offsets."""
    timestamps: bytearray
    """int64, in milliseconds; -1 for none."""
    timestamp_types: bytearray
    """int8: 0 create time, 1 append time, -1 for v0 messages, which have no time."""
    keys: BinaryColumn
    values: BinaryColumn
    headers: list[RecordHeaders] | None = None
    """Headers of each message, as in `Record.headers`; `None` if no message has headers."""


def read_columns(
    buffer: Buffer,
    *,
    max_decompressed_bytes: int,
    from_offset: int = 0,
    content: Collection[Content] = CONTENT,
    walked: Walk | None = None,
) -> Iterator[Columns]:
    """Return, as columns, the messages that `message.records` would return.

    Each run of plain messages, each wrapper and each batch makes one `Columns`. Parts that are not
    in `content` are not copied: keys and values are then null, headers `None`. `walked` is the
    result of a walk over the whole set without CRC checks, if there was one. Raises what `records`
    raises, after the columns before the broken entry, and `CorruptMessage` for offsets near 2**63.
    """
    if walked is None:
        walked = walk(buffer, 0, len(buffer), check_crc=False)
    if walked.codecs == 1 << Codec.NONE and not walked.batches:
        # The CRC of a message is checked while the message is copied, when its bytes are in the
        # cache.
        end, count = walked.end, walked.count
        found = _gathered(buffer, 0, end, count, from_offset, content, check_crc=True)
        if found.count:
            yield _columns(found)
        if found.end < end or walked.problem not in _SOUND:
            walked = walk(buffer, 0, len(buffer))  # a wrong CRC is reported before other faults
    else:
        walked = walk(buffer, 0, len(buffer))
        for start, end, codec in runs(buffer, 0, walked.end):
            columns = _read_run(
                buffer, start, end, codec, max_decompressed_bytes, from_offset, content
            )
            if columns is not None and columns.count:
                yield columns
    if walked.problem not in _SOUND:
        raise problem_error(buffer, walked, len(buffer))


def _read_run(
    buffer: Buffer,
    start: int,
    end: int,
    codec: Codec | None,
    max_decompressed_bytes: int,
    from_offset: int,
    content: Collection[Content],
) -> Columns | None:
    if codec is None:
        return _read_batch(buffer, start, max_decompressed_bytes, from_offset, content)
    if codec is Codec.NONE:
        count = walk(buffer, start, end, check_crc=False).count
        return _columns(_gathered(buffer, start, end, count, from_offset, content))
    (wrapper,) = entries(buffer, start, end, verify_crc=False)
    if wrapper.offset < from_offset:
        return None
    opened, inner = open_set(wrapper, max_decompressed_bytes=max_decompressed_bytes)
    return _columns(
        _gathered(
            opened,
            0,
            inner.end,
            inner.count,
            from_offset,
            content,
            offset_shift=wrapper.offset - inner.last_offset if wrapper.magic else 0,
            timestamp_type=int(wrapper.is_append_time),
            timestamp_ms=wrapper.timestamp_ms,
        )
    )


def _gathered(
    buffer: Buffer,
    start: int,
    end: int,
    count: int,
    from_offset: int,
    content: Collection[Content],
    *,
    offset_shift: int = 0,
    timestamp_type: int = OWN,
    timestamp_ms: int = NO_TIMESTAMP,
    check_crc: bool = False,
) -> Gathered:
    try:
        return gather(
            buffer,
            start,
            end,
            count,
            offset_shift=offset_shift,
            from_offset=from_offset,
            timestamp_type=timestamp_type,
            timestamp_ms=timestamp_ms,
            with_keys="keys" in content,
            with_values="values" in content,
            check_crc=check_crc,
        )
    except ValueError as error:
        raise CorruptMessage(str(error)) from None


def _read_batch(
    buffer: Buffer,
    position: int,
    max_decompressed_bytes: int,
    from_offset: int,
    content: Collection[Content],
) -> Columns | None:
    header = read_header(buffer, position)
    if header.is_control or header.last_offset < from_offset:
        return None
    records = batch_content(buffer, position, header, max_decompressed_bytes=max_decompressed_bytes)
    try:
        found, headers = gather_records(
            records,
            base_offset=header.base_offset,
            base_timestamp_ms=header.base_timestamp_ms,
            append_time_ms=header.max_timestamp_ms if header.is_append_time else -1,
            from_offset=from_offset,
            with_keys="keys" in content,
            with_values="values" in content,
            with_headers="headers" in content,
        )
    except ValueError as error:
        raise CorruptMessage(f"the batch at byte {position}: {error}") from None
    return _columns(found, headers)


def _columns(found: Gathered, headers: list[RecordHeaders] | None = None) -> Columns:
    keys = BinaryColumn(
        found.key_offsets,
        found.key_data,
        found.key_valid if found.key_nulls else None,
        found.key_nulls,
    )
    values = BinaryColumn(
        found.value_offsets,
        found.value_data,
        found.value_valid if found.value_nulls else None,
        found.value_nulls,
    )
    return Columns(
        found.count, found.offsets, found.timestamps, found.timestamp_types, keys, values, headers
    )
