"""Scrubbing: reading a segment again to find bytes that changed on the disk.

Entries are checked as at a start: CRCs, sizes and offsets. A thread reads a segment in pieces, and
the segment may change meanwhile: a result counts only if the segment is still the same.
"""

from collections.abc import Iterator
from contextlib import suppress
from errno import EIO
from typing import Final
from zlib import crc32

from ...protocol.errors import HorologError, UnknownTopicOrPartition
from ...protocol.records.kernel.terms import Problem
from ..entries.damage import Damage, damage_of
from ..entries.entry_check import EntryCheck
from ..entries.segment_scan import LogScan, SegmentScan
from ..files import File
from ..log.log import Log
from ..log.recovery import check_end
from ..read.slices import visible_end
from ..segment.segment import Segment

OPENED_BYTES_MAX: Final = 16 << 20
"""A wrapper message (formats 0 and 1) with larger content is trusted if its CRC is correct."""

UNREADABLE_RULE: Final = "the disk cannot read it"


class SegmentScrub:
    """A check of one segment. Created and ended in the event loop's thread."""

    def __init__(self, log: Log, segment: Segment, *, unsynced: bool = False) -> None:
        """With `unsynced`, bytes that are not synced are read too, although the disk may not have
        them."""
        self.log = log
        self.segment = segment
        self.read_bytes = 0
        """Number of bytes read so far."""
        self._files = log.seams.files
        self._cuts = segment.cuts
        self.end = segment.readable_bytes if unsynced else _safe_end(log, segment)
        """The segment is read up to this position."""
        # A closed segment whose last messages are not synced yet is read only in part.
        self._closed = (
            segment is not log.segment_list.active
            and segment.damaged is None
            and self.end == segment.readable_bytes
        )
        self._file: File | None = None
        self._scan: LogScan | None = None
        self._pieces: Iterator[tuple[bytes, int]] = iter(())
        self._unreadable: Damage | None = None
        self._checksums = log.segment_list.known_checksums(segment) if self._closed else None
        self.indexes_differ = False
        """Whether the indexes differ from those at the time when the segment was closed."""

    def read(self) -> bool:
        """Read the next piece: 1 MiB, or one message. Return false if nothing is left. For a
        thread.

        Raises `OSError` if the file cannot be opened, `UnknownTopicOrPartition` if the log was
        deleted.
        """
        if not self.end:
            return False
        scan = self._scan or self._begin()
        try:
            next(self._pieces)
        except StopIteration:
            self.read_bytes = self.end
            self._check_indexes()
            return False
        except OSError as error:
            if error.errno != EIO:
                raise
            offset = max(scan.found.next_offset, self.segment.base_offset)
            self._unreadable = Damage(scan.found.good_bytes, offset, UNREADABLE_RULE)
            return False
        self.read_bytes = max(scan.found.good_bytes, self.read_bytes)
        return True

    def _begin(self) -> LogScan:
        segment = self.segment
        self._file = self._files.open(segment.log_path, read_only=True)
        following = segment.next_offset
        check = EntryCheck(
            segment.base_offset,
            gaps=self.log.gaps,
            limit_offset=following,
            max_decompressed_bytes=OPENED_BYTES_MAX,
        )
        base_offset = segment.base_offset
        self._scan = LogScan(
            *(self._file, 0, self.end, check), next_offset=base_offset, gaps=self.log.gaps
        )
        self._pieces = self._scan.pieces()
        return self._scan

    def _check_indexes(self) -> None:
        known, segment = self._checksums, self.segment
        if known is None:
            return
        sides = (
            (segment.offset_index.path, known.offset_index),
            (segment.time_index.path, known.time_index),
        )
        for path, expected in sides:
            with suppress(OSError):
                data = self._files.read_bytes(path)
                self.indexes_differ |= (len(data), crc32(data)) != expected

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()

    def damage(self) -> Damage | None:
        """Return what is wrong with the segment, after all was read. Also `None` if the segment has
        changed since the check began."""
        segment, scan = self.segment, self._scan
        if segment not in self.log.segments or segment.cuts != self._cuts:
            return None
        if self._unreadable is not None or scan is None:
            return self._unreadable
        found = scan.found
        if self._closed:
            check_end(segment, found, gaps=self.log.gaps)
        return None if found.problem is Problem.NONE else self._damage_of(found)

    def _damage_of(self, found: SegmentScan) -> Damage:
        damage = damage_of(found)
        ends = None
        with suppress(OSError, UnknownTopicOrPartition):
            ends = self._files.size(self.segment.log_path)
        if ends is not None and ends < self.end:
            return damage.cut_short(ends, self.end)
        return damage


def _safe_end(log: Log, segment: Segment) -> int:
    """Return the end of the entries of a segment that are on stable storage and not known as
    damaged."""
    synced = log.flusher.synced_offset
    if synced <= segment.base_offset and segment.next_offset > synced:
        return 0
    if synced >= segment.next_offset:
        return segment.readable_bytes
    try:
        return visible_end(segment, synced)
    except (HorologError, OSError):
        return 0  # The segment is damaged, which is recorded now.
