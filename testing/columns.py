"""Builds columns from lists."""

from array import array
from collections.abc import Sequence
from itertools import accumulate

from ..protocol.records.binary import BinaryColumn


def binary_column(contents: Sequence[bytes | None]) -> BinaryColumn:
    """Return a column of these strings. A null has bytes in the data too, as Arrow allows."""
    data = [b"null" if content is None else content for content in contents]
    valid = bytearray((len(data) + 7) // 8)
    for row, content in enumerate(contents):
        valid[row >> 3] |= (content is not None) << (row & 7)
    ends = array("i", [0, *accumulate(map(len, data))])
    return BinaryColumn(ends.tobytes(), b"".join(data), valid, list(contents).count(None))
