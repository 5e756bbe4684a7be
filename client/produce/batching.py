"""Columns given to `send_batch`: checks on all rows at once, and the division by partition and
size."""

from collections.abc import Iterator, Sequence
from itertools import compress

from ...protocol.partitioner import partition_of
from ...protocol.records.kernel import only_bytes, only_times, rows_within
from ...protocol.records.layout import ENTRY_OVERHEAD, MESSAGE_OVERHEAD
from ...times import EPOCH_MS_MAXIMUM, EPOCH_MS_MINIMUM
from ...values import value_class
from ..arguments import epoch_ms
from .encoding import Headers, checked_headers, headers_bytes, wrong_type

RECORD_OVERHEAD = ENTRY_OVERHEAD + MESSAGE_OVERHEAD[1]
"""Bytes of a stored message in addition to its key and value."""

_TIMES = "timestamps_ms is milliseconds since 1970, an int or a sequence of ints"

Times = int | Sequence[int] | None


@value_class
class MessageColumns:
    """Messages as columns of one length."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    times_ms: Sequence[int]
    headers: Sequence[Headers] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def headers_by_row(self) -> dict[int, Headers] | None:
        """Return the headers of each row that has headers; None if no row has any."""
        return {row: one for row, one in enumerate(self.headers or ()) if one} or None


def checked_columns(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    timestamps_ms: Times,
    headers: Sequence[Headers | None] | None = None,
    *,
    missing_ms: int,
    check_units: bool,
) -> MessageColumns:
    """Return the columns, with `missing_ms` as the time of every message if no times are given.

    Raises TypeError, ValueError for columns of different lengths, and `TimeError`.
    """
    _check_bytes("value", values)
    if keys is not None:
        _check_bytes("key", keys)
        _check_length("keys", keys, len(values))
    times_ms: Sequence[int]
    if timestamps_ms is None:
        times_ms = [missing_ms] * len(values)
    elif isinstance(timestamps_ms, int):
        epoch_ms(None, timestamps_ms, check_units=check_units)
        times_ms = [timestamps_ms] * len(values)
    else:
        times_ms = timestamps_ms
        _check_column(times_ms, _TIMES)
        _check_length("timestamps_ms", times_ms, len(values))
        _check_times(times_ms, check_units)
    if headers is None:
        return MessageColumns(values, keys, times_ms)
    _check_column(headers, "headers is a sequence with one of headers, or None, for each message")
    _check_length("headers", headers, len(values))
    return MessageColumns(values, keys, times_ms, [checked_headers(one or ()) for one in headers])


def _check_bytes(name: str, column: Sequence[bytes | None]) -> None:
    if isinstance(column, bytes | str):
        raise TypeError(f"{name}s is a sequence of bytes, not one {type(column).__name__}")
    _check_column(column, f"{name}s is a sequence of bytes or None, such as a list")
    if not only_bytes(column):
        wrong = next(item for item in column if item is not None and type(item) is not bytes)
        raise wrong_type(name, wrong)


def _check_column(column: object, what_it_is: str) -> None:
    """Raise TypeError unless the column has a length and can be sliced. A generator has neither."""
    if not (hasattr(column, "__len__") and hasattr(column, "__getitem__")):
        raise TypeError(f"{what_it_is}, not {type(column).__name__}")


def _check_length(name: str, column: Sequence[object], wanted: int) -> None:
    if len(column) != wanted:
        raise ValueError(f"{name} has {len(column)} items, and there are {wanted} values")


def _check_times(times_ms: Sequence[int], check_units: bool) -> None:
    if only_times(times_ms, EPOCH_MS_MINIMUM, EPOCH_MS_MAXIMUM):
        return
    for time_ms in times_ms:
        if not isinstance(time_ms, int):
            raise TypeError(f"{_TIMES}, not {type(time_ms).__name__}")
        epoch_ms(None, time_ms, check_units=check_units)


def message_bytes(value: bytes | None, key: bytes | None, headers: Headers) -> int:
    """Return the size of a message in bytes. Raises TypeError for a value or key of another
    type."""
    size_bytes = RECORD_OVERHEAD + headers_bytes(headers)
    for name, content in (("value", value), ("key", key)):
        if content is not None:
            if type(content) is not bytes:
                raise wrong_type(name, content)
            size_bytes += len(content)
    return size_bytes


def by_partition(
    columns: MessageColumns, count: int, without_key: int
) -> dict[int, MessageColumns]:
    """Return the rows for each of `count` partitions. A row's key chooses its partition; rows
    without a key go to the partition `without_key`."""
    if count == 1 or columns.keys is None:
        return {without_key: columns}
    chosen = [without_key if key is None else partition_of(key, count) for key in columns.keys]
    parts = {}
    for partition in sorted(set(chosen)):
        mask = [number == partition for number in chosen]
        parts[partition] = MessageColumns(
            list(compress(columns.values, mask)),
            list(compress(columns.keys, mask)),
            list(compress(columns.times_ms, mask)),
            None if columns.headers is None else list(compress(columns.headers, mask)),
        )
    return parts


def pieces(columns: MessageColumns, limit_bytes: int) -> Iterator[tuple[MessageColumns, int]]:
    """Yield runs of rows with their size in bytes. A run takes up to `limit_bytes` in a plain set;
    only a run of one row may exceed that."""
    for start, end, size_bytes in _runs(columns, limit_bytes):
        keys = None if columns.keys is None else columns.keys[start:end]
        headers = None if columns.headers is None else columns.headers[start:end]
        piece = MessageColumns(
            columns.values[start:end], keys, columns.times_ms[start:end], headers
        )
        yield piece, size_bytes


def largest_run_bytes(columns: MessageColumns, limit_bytes: int) -> int:
    """Return the size in bytes of the largest run that `pieces` yields: above `limit_bytes` if a
    single row exceeds that."""
    return max(size_bytes for _, _, size_bytes in _runs(columns, limit_bytes))


def _runs(columns: MessageColumns, limit_bytes: int) -> Iterator[tuple[int, int, int]]:
    headers_sizes = None
    if columns.headers is not None:
        headers_sizes = list(map(headers_bytes, columns.headers))
    end = 0
    while end < len(columns):
        start = end
        end, size_bytes = rows_within(
            columns.values, columns.keys, headers_sizes, start, RECORD_OVERHEAD, limit_bytes
        )
        yield start, end, size_bytes
