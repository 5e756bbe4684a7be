"""What is kept in memory of the entries of an `.appendtime` file: a little of every block.

There is an entry for each set, so that they are not mirrored as those of the indexes are. Of each
`BLOCK_ENTRIES` entries the first offset is kept, the largest time up to their end, and the smallest
of theirs that is known.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from ...protocol.records.layout import NO_TIMESTAMP
from ...times import INT64_MAX

ENTRY: Final = struct.Struct(">iq")
"""Relative offset, append time in ms."""

BLOCK_ENTRIES: Final = 512


class Blocks:
    """The blocks of the first `count` entries of a file, which were looked at one by one."""

    __slots__ = ("_last_relative", "_max_ms", "_min_ms", "_offsets", "count", "crc")

    def __init__(self) -> None:
        self.count = 0
        self.crc = 0
        self._last_relative = -1
        self._offsets = array("i")
        self._max_ms = array("q")
        self._min_ms = array("q")

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self._offsets)

    @property
    def largest_ms(self) -> int:
        """The largest time of all, -1 when none is known."""
        return self._max_ms[-1] if self._max_ms else NO_TIMESTAMP

    @property
    def smallest_ms(self) -> int:
        """The smallest time that is known, behind all times when none is."""
        return min(self._min_ms, default=INT64_MAX)

    def take(self, data: bytes, limit: int) -> bool:
        """Go on through the entries in `data`.

        `False` if there are none, or when one makes no sense or its relative offset is `limit` or
        more: it and those behind it are not taken.
        """
        last_relative, largest_ms, count = self._last_relative, self.largest_ms, self.count
        whole = len(data) - len(data) % ENTRY.size
        for relative, append_time_ms in ENTRY.iter_unpack(memoryview(data)[:whole]):
            if not last_relative < relative < limit or append_time_ms < NO_TIMESTAMP:
                break
            last_relative = relative
            if append_time_ms > largest_ms:
                largest_ms = append_time_ms
            known_ms = append_time_ms if append_time_ms >= 0 else INT64_MAX
            if count % BLOCK_ENTRIES:
                self._max_ms[-1] = largest_ms
                if known_ms < self._min_ms[-1]:
                    self._min_ms[-1] = known_ms
            else:
                self._offsets.append(relative)
                self._max_ms.append(largest_ms)
                self._min_ms.append(known_ms)
            count += 1
        taken_bytes = (count - self.count) * ENTRY.size
        self.crc = crc32(memoryview(data)[:taken_bytes], self.crc)
        self._last_relative, self.count = last_relative, count
        return 0 < taken_bytes == len(data)

    def add(self, offsets: Sequence[int], base_offset: int, append_time_ms: int, crc: int) -> None:
        """Go on with entries of one time that are right; `crc` is that of all entries then."""
        count, first_begun = len(offsets), -self.count % BLOCK_ENTRIES
        known_ms = append_time_ms if append_time_ms >= 0 else INT64_MAX
        if first_begun:
            if append_time_ms > self._max_ms[-1]:
                self._max_ms[-1] = append_time_ms
            if known_ms < self._min_ms[-1]:
                self._min_ms[-1] = known_ms
        if first_begun < count:
            for begun in range(first_begun, count, BLOCK_ENTRIES):
                self._max_ms.append(max(self.largest_ms, append_time_ms))
                self._min_ms.append(known_ms)
                self._offsets.append(offsets[begun] - base_offset)
        self.count += count
        self.crc, self._last_relative = crc, offsets[-1] - base_offset

    def start(self, block: int) -> int:
        """The relative offset that a block begins with."""
        return self._offsets[block]

    def holding(self, relative: int) -> int:
        """The last block that begins at or below a relative offset; -1 when there is none."""
        return bisect_right(self._offsets, relative) - 1

    def first_reaching(self, target_ms: int) -> int:
        """The first block with a time of `target_ms` or later; their number when there is none."""
        return bisect_left(self._max_ms, target_ms)

    def first_below(self, block: int, limit_ms: int) -> int:
        """The first block from this one on with a known time of `limit_ms` or earlier; their number
        when there is none."""
        for number in range(block, len(self._min_ms)):
            if self._min_ms[number] <= limit_ms:
                return number
        return len(self._min_ms)
