"""Loading a segment's indexes from their files, and rebuilding them from its log."""

from zlib import crc32

from ...protocol.records.kernel.terms import Problem
from ..entries.segment_scan import Progress, SegmentScan, scan_log_file
from ..index.index_checksums import SegmentChecksums
from ..names import MAX_OFFSET
from .segment import Segment


def checksums_of(segment: Segment, *, open_form: bool = False) -> SegmentChecksums:
    """Return the current checksums of the segment's indexes and append times. `open_form` adds what
    `reopen` needs."""
    return SegmentChecksums(
        segment.size_bytes,
        segment.offset_index.checksum(),
        segment.time_index.checksum(),
        tuple(segment.magic_changes),
        segment.append_times.checksums(),
        segment.time_map.checksum(segment.size_bytes),
        segment.open_form if open_form else None,
    )


def load_indexes(segment: Segment, checksums: SegmentChecksums | None) -> bool:
    """Load the indexes from their files if they match `checksums`. Return whether they did.

    The append times are loaded or rejected independently of the indexes.
    """
    if checksums is not None and checksums.log_bytes != segment.size_bytes:
        checksums = None
    if not segment.append_times.settled:
        segment.append_times.adopt(None if checksums is None else checksums.append_times)
    mapped = None if checksums is None else checksums.time_map
    segment.time_map.adopt(mapped, segment.size_bytes)
    if checksums is None:
        return False
    files = segment.seams.files
    try:
        offset_data = files.read_bytes(segment.offset_index.path)
        time_data = files.read_bytes(segment.time_index.path)
    except OSError:
        return False
    read = (len(offset_data), crc32(offset_data)), (len(time_data), crc32(time_data))
    if read != (checksums.offset_index, checksums.time_index):
        return False
    segment.offset_index.load(offset_data)
    segment.time_index.load(time_data)
    segment.magic_changes = list(checksums.magic_changes)
    segment.open_form = checksums.open_form
    segment.largest = (segment.time_index.last_timestamp_ms, -1)
    offset_entries = len(segment.offset_index)
    last = segment.offset_index.entry(offset_entries - 1)[1] if offset_entries else 0
    segment.since_bytes = segment.size_bytes - last
    segment.indexed = True
    return True


def scan_segment(
    segment: Segment,
    *,
    gaps: bool,
    check_crc: bool = True,
    limit_offset: int | None = None,
    progress: Progress | None = None,
) -> SegmentScan:
    """Read the whole log file, as `scan_log_file` does. Changes nothing. Raises `OSError`.

    Without `limit_offset`, every offset up to the highest possible one is accepted. Messages too
    far from the base offset for an index entry are served without one, as in Kafka.
    """
    if limit_offset is None:
        limit_offset = MAX_OFFSET
    file = segment.seams.files.open(segment.log_path)
    try:
        return scan_log_file(
            file,
            0,
            segment.size_bytes,
            next_offset=segment.base_offset,
            interval_bytes=segment.interval_bytes,
            gaps=gaps,
            check_crc=check_crc,
            limit_offset=limit_offset,
            progress=progress,
        )
    finally:
        file.close()


def apply_scan(segment: Segment, scan: SegmentScan, *, closed: bool) -> None:
    """Make both indexes match what `scan_segment` found, in memory and on disk.

    `closed` adds the closing time entry. If messages of a later format follow, the files stay
    unchanged: the version that reads that format will need them. Raises `OSError`.
    """
    segment.offset_index.load(b"")
    segment.time_index.load(b"")
    if scan.later_format:
        segment.time_map.forget()
    else:
        segment.time_map.discard()
    segment.add_marks(scan.marks)
    segment.open_form = None
    if closed:
        # After a large jump of offsets, the next segment's base offset is beyond what an entry can
        # hold.
        whole = scan.problem is Problem.NONE and segment.fits(segment.next_offset - 1)
        end = segment.next_offset if whole else scan.next_offset
        segment.finish_time_index(scan.largest_ms, end)
    segment.first_ms = scan.first_timestamp_ms
    segment.tail_stamp_ms = scan.last_append_time_ms
    if not scan.later_format:
        segment.offset_index.replace(segment.seams.files)
        segment.time_index.replace(segment.seams.files)
        segment.keep_creation_time()
    segment.largest = (scan.largest_ms, scan.largest_offset)
    segment.magic_changes = scan.magic_changes
    segment.since_bytes = scan.since_bytes
    segment.indexed = True
