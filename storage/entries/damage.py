"""Damage: stored bytes that were written correctly once and are not valid any more."""

from pathlib import Path

from ...protocol.errors import CodedError, CorruptMessage, StorageError, UnsupportedForMessageFormat
from ...protocol.records.kernel import walk
from ...protocol.records.kernel.terms import Problem
from ...protocol.records.layout import BATCH_MAGIC
from ...values import value_class
from ..files import Buffer, File
from .salvage import offsets_at
from .segment_scan import SegmentScan, scan_log_file

LOOK_BACK_BYTES = 4 << 20
"""Maximum distance in bytes that a reader that met damage reads again to find its beginning."""


@value_class
class Damage:
    """The position from which a segment cannot be read, and the reason."""

    position: int
    """Position of the first bad byte in the log file."""
    offset: int
    """First offset that may be lost."""
    rule: str
    """What is wrong, in words."""
    later_format: bool = False
    """Whether the bytes are valid, but only a later version can read their format."""

    @property
    def text(self) -> str:
        """Position and reason of the damage, in words."""
        return f"damaged at byte {self.position}, offset {self.offset}: {self.rule}"

    def cut_short(self, ends: int, ended: int) -> "Damage":
        """Return the damage of a file that was truncated: it ends at byte `ends`, and ended at
        `ended` before."""
        rule = f"the file was cut short: it ends at byte {ends}, and did at {ended}"
        return Damage(self.position, self.offset, rule)

    def error(self, path: Path) -> CodedError:
        """Return the error for reads that reach the damaged part of the log file at `path`."""
        if self.later_format:
            return unreadable_format(path, self.position)
        return StorageError(
            f"{path}: damaged at byte {self.position} ({self.rule}); the rest of this segment, "
            f"from offset {self.offset} on, cannot be read: stop the broker and run 'horolog "
            "repair' on its data directory"
        )


def damage_of(scan: SegmentScan) -> Damage:
    """Return the damage that stopped `scan`."""
    return Damage(scan.good_bytes, scan.next_offset, scan.rule, scan.later_format)


def first_damage(file: File, start: int, met: int, size_bytes: int, base_offset: int) -> Damage:
    """Find the beginning of the damage that a reader met at byte `met`, after it began at byte
    `start`, where an entry begins.

    Readers check only sizes and offsets, so they notice a changed size one entry late, or later.
    Raises `OSError`.
    """
    offset = base_offset
    ends = file.size()
    if met - start <= LOOK_BACK_BYTES:
        end = min(met + 1, size_bytes)
        offsets = offsets_at(file, start, size_bytes)
        if offsets is not None:
            offset = max(offsets[0], base_offset)
        scan = scan_log_file(file, start, end, next_offset=offset, gaps=True, check_crc=True)
        if ends < size_bytes and scan.problem in (Problem.NONE, Problem.PARTIAL):
            return damage_of(scan).cut_short(ends, size_bytes)
        if scan.problem is not Problem.NONE and scan.good_bytes < met:
            return damage_of(scan)
        offset = scan.next_offset
    return Damage(met, offset, "there is no entry whose size and offset can be believed")


def unopenable_batch(
    path: Path, position: int, data: Buffer, error: CorruptMessage
) -> CorruptMessage | None:
    """Return the error if one of the batches in `data`, from byte `position` of the log file at
    `path` on, cannot be opened because of `error`; `None` if bytes are wrong, which is damage.

    The CRC of a batch covers its whole content: if it is correct, the batch is as it was written.
    """
    found = walk(data, 0, len(data))
    if found.problem is not Problem.NONE or found.magics != 1 << BATCH_MAGIC:
        return None
    return CorruptMessage(
        f"{path}: a batch at byte {position} or soon behind it cannot be opened ({error.message}); "
        "its CRC is right, so it was written like this"
    )


def unreadable_format(path: Path, position: int) -> UnsupportedForMessageFormat:
    """Return the error for a log file in which messages of a later format begin at `position`."""
    return UnsupportedForMessageFormat(
        f"{path}: at byte {position} there are messages of a format (magic byte) that this version "
        "cannot read; the partition is left as it is"
    )
