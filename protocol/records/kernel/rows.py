"""Columns that somebody gives to be sent, looked at row by row.

It runs as it is and compiled, as `walk` does. Their rows are written by `packing` and
`record_packing`.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import add
from typing import Final

try:
    import cython
except ImportError:
    from . import uncompiled as cython

if not cython.compiled:
    from .uncompiled import int64s

FORM: Final = "compiled" if cython.compiled else "interpreted"
"""How this module runs."""

_BYTES_OR_NONE: Final = {bytes, type(None)}
_INT64_BYTES: Final = 8


def only_bytes(column: Iterable[object]) -> bool:
    """Whether all are bytes (no subclass) or None."""
    if not cython.compiled:
        return set(map(type, column)) <= _BYTES_OR_NONE
    return all(item is None or type(item) is bytes for item in column)


def only_times(column: Sequence[int], smallest_ms: int, largest_ms: int) -> bool:
    """Whether all are ints (no subclass) from `smallest_ms` to `largest_ms`, which are in 64
    bits."""
    if not cython.compiled:
        return not len(column) or (
            set(map(type, column)) == {int}
            and min(column) >= smallest_ms
            and max(column) <= largest_ms
        )
    smallest = smallest_ms
    largest = largest_ms
    try:
        for item in column:
            if type(item) is not int:
                return False
            time_ms = item
            if time_ms < smallest or time_ms > largest:
                return False
    except OverflowError:
        return False
    return True


def row_ends(
    values: Sequence[bytes | None], keys: Sequence[bytes | None] | None, overhead: int
) -> Sequence[int]:
    """How many bytes each row takes together with all before it: value, key and `overhead`.

    `ValueError` for columns of different lengths.
    """
    count = len(values)
    if keys is not None and len(keys) != count:
        raise _other_length(count)
    if not cython.compiled:
        sizes = map(overhead.__add__, _lengths(values, count))
        if keys is not None:
            sizes = map(add, sizes, _lengths(keys, count))
        return list(accumulate(sizes))
    found = bytearray(_INT64_BYTES * count)
    ends = int64s(found)
    each = overhead
    for column in (values, keys):
        if column is None:
            break
        total = row = 0
        for item in column:
            if row == count:
                raise _other_length(count)
            total += each
            if item is not None:
                total += len(item)
            ends[row] += total
            row += 1
        if row != count:
            raise _other_length(count)
        each = 0
    return memoryview(found).cast("q")


def _lengths(column: Iterable[bytes | None], count: int) -> list[int]:
    try:
        lengths = list(map(len, column))  # type: ignore[arg-type]
    except TypeError:  # there is a None
        lengths = [0 if item is None else len(item) for item in column]
    if len(lengths) != count:
        raise _other_length(count)
    return lengths


def _other_length(count: int) -> ValueError:
    return ValueError(f"a column is not as long as the values, of which there are {count}")
