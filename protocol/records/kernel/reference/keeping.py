"""A set with some of its messages left out: what is kept is copied as it is."""

from array import array

from ...layout import NO_TIMESTAMP, Buffer
from ..terms import RECORD, KeptRows
from .bytes import flat, wrapped
from .messages import PlainMessage
from .records import RecordCursor
from .spans import int64s


def rows_between(
    timestamps: "Buffer | array[int]", *, from_ms: int, last_ms: int
) -> tuple[bytearray, int]:
    """A byte for each of these times (int64): 1 for one from `from_ms` to `last_ms`, both in it,
    else 0, as for a negative one, which is no time. And how many are 1."""
    marks = bytearray(
        time_ms >= 0 and from_ms <= time_ms <= last_ms for time_ms in int64s(timestamps)
    )
    return marks, sum(marks)


def _other_rows(rows: int) -> ValueError:
    return ValueError(f"{rows} marks are not one for each message")


def keep_records(
    target: bytearray, content: Buffer, keep: Buffer, *, base_timestamp_ms: int
) -> KeptRows:
    """Append to `target` the uncompressed records in `content` whose byte in `keep` is not 0.

    `ValueError`, and nothing appended, for a record that is not good, and where there are more or
    fewer bytes than records.
    """
    view, marks = flat(content), flat(keep)
    cursor = RecordCursor(view, 0, len(view))
    written = bytearray()
    row, kept, last_delta, max_ms = 0, 0, -1, NO_TIMESTAMP
    while cursor.step() == RECORD:
        if row >= len(marks):
            raise _other_rows(len(marks))
        if marks[row]:
            written += view[cursor.position : cursor.following]
            kept += 1
            last_delta = cursor.offset_delta
            max_ms = max(max_ms, wrapped(base_timestamp_ms + cursor.timestamp_delta_ms))
        row += 1
    if cursor.following != len(view):
        raise ValueError(f"record {row}, at byte {cursor.position} of its batch, is not good")
    if row != len(marks):
        raise _other_rows(len(marks))
    target += written
    return KeptRows(kept, last_delta, max_ms)


def keep_messages(
    target: bytearray, buffer: Buffer, start: int, end: int, keep: Buffer
) -> KeptRows:
    """Append to `target` the plain entries of `buffer[start:end]` whose byte in `keep` is not 0.

    Times are those that the entries have, none in v0. `ValueError` as `keep_records`.
    """
    view, marks = flat(buffer), flat(keep)
    if not 0 <= start <= end <= len(view):
        raise IndexError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    written = bytearray()
    row, kept, last_offset, max_ms = 0, 0, -1, NO_TIMESTAMP
    position = start
    while position < end:
        message = PlainMessage(view, position, end)
        if row >= len(marks):
            raise _other_rows(len(marks))
        if marks[row]:
            written += view[position : message.stop]
            kept += 1
            last_offset = message.offset
            max_ms = max(max_ms, message.time_ms)
        row += 1
        position = message.stop
    if row != len(marks):
        raise _other_rows(len(marks))
    target += written
    return KeptRows(kept, last_offset, max_ms)
