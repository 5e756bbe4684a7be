"""Whether `index-checksums` is right about the files of a segment, and what it says at all."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final
from zlib import crc32

from ..entries.log_reader import CHUNK_BYTES
from ..files import Files
from ..index.index_checksums import (
    FILE_NAME,
    AppendTimesChecksum,
    SegmentChecksums,
    TimeMapChecksum,
    is_open_form,
    parse_checksums,
)
from .findings import Finding, cannot_read
from .verify_time_map import MADE_ANEW

_REBUILT: Final = "nothing: the broker rebuilds the segment's indexes from its log"


def read_checksums(
    files: Files, folder: Path
) -> tuple[Mapping[int, SegmentChecksums], list[Finding]]:
    """The checksums of a partition's segments by base offset, and what is wrong with the file."""
    path = folder / FILE_NAME
    if not files.exists(path):
        return {}, []
    try:
        data = files.read_bytes(path)
    except OSError as error:
        return {}, [cannot_read(path, error)]
    checksums = parse_checksums(data)
    lines = data.splitlines(keepends=True)
    if lines and is_open_form(lines[-1]):
        del lines[-1]
    if len(checksums) == len(lines) - 1 and data.endswith(b"\n"):
        return checksums, []
    return checksums, [Finding(path, *_first_wrong_line(lines), _REBUILT)]


def _first_wrong_line(lines: Sequence[bytes]) -> tuple[int, str]:
    if not lines or not parse_checksums(lines[0] + b"0 0 0 0 0 0 \n"):
        return 0, "its first line is not the version that is known"
    position = len(lines[0])
    seen: set[int] = set()
    for line in lines[1:]:
        found = parse_checksums(lines[0] + line)
        if not found or not line.endswith(b"\n"):
            return position, "a line is not that of a segment"
        if not seen.isdisjoint(found):
            return position, "a segment has two lines"
        seen |= found.keys()
        position += len(line)
    return position, "it does not end as it should"


def check_checksums(
    files: Files,
    log_path: Path,
    checksums: SegmentChecksums,
    magic_changes: Sequence[tuple[int, int]],
) -> Iterator[Finding]:
    """Whether a closed segment's files are as they were closed.

    Indexes that are not are no error: their entries may all be true. `magic_changes` are those of
    its log. Raises `OSError`.
    """
    log_bytes = files.size(log_path)
    if log_bytes != checksums.log_bytes:
        rule = f"it has {log_bytes} bytes, and had {checksums.log_bytes} when it was closed"
        yield Finding(log_path, min(log_bytes, checksums.log_bytes), rule, _REBUILT, error=False)
        return
    expected = [(".index", checksums.offset_index), (".timeindex", checksums.time_index)]
    for suffix, (size_bytes, crc) in expected:
        path = log_path.with_suffix(suffix)
        if files.exists(path):
            difference = _difference(files, path, size_bytes, crc, longer=False)
            if difference is not None:
                yield Finding(path, None, difference, _REBUILT, error=False)
    if list(checksums.magic_changes) != list(magic_changes):
        rule = (
            f"for {log_path.name} it has message formats {_formats(checksums.magic_changes)}, "
            f"the log has {_formats(magic_changes)}"
        )
        advice = "stop the broker and delete this file; all indexes are rebuilt then"
        yield Finding(log_path.with_name(FILE_NAME), None, rule, advice)
    if checksums.time_map is not None and checksums.time_map.size_bytes:
        yield from _check_time_map(files, log_path.with_suffix(".timemap"), checksums.time_map)
    if checksums.append_times is not None and checksums.append_times.size_bytes:
        yield from _check_append_times(
            files, log_path.with_suffix(".appendtime"), checksums.append_times
        )


def _check_time_map(files: Files, path: Path, checksums: TimeMapChecksum) -> Iterator[Finding]:
    difference: str | None = (
        f"it is missing; it had {checksums.size_bytes} bytes when the segment was closed"
    )
    if files.exists(path):
        # What is behind is cut off before the map goes on.
        difference = _difference(files, path, checksums.size_bytes, checksums.crc, longer=True)
    if difference is not None:
        yield Finding(path, None, difference, MADE_ANEW, error=False)


def _check_append_times(
    files: Files, path: Path, checksums: AppendTimesChecksum
) -> Iterator[Finding]:
    if not files.exists(path):
        rule = f"it is missing; it had {checksums.size_bytes} bytes when the segment was closed"
        advice = "nothing: the append times of this segment are unknown"
        yield Finding(path, None, rule, advice, error=False)
        return
    # What was written after the segment was closed is not believed, but does no harm.
    difference = _difference(files, path, checksums.size_bytes, checksums.crc, longer=True)
    if difference is not None:
        advice = "stop the broker and delete this file: its append times are not believed"
        yield Finding(path, None, difference, advice)


def _formats(changes: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"v{magic} from byte {position}" for position, magic in changes) or "none"


def _difference(files: Files, path: Path, size_bytes: int, crc: int, *, longer: bool) -> str | None:
    """How the first `size_bytes` of a file differ from what its checksum says, in words; `longer`
    allows more to follow."""
    with closing(files.open(path, read_only=True)) as file:
        found_bytes = file.size()
        if found_bytes < size_bytes or (found_bytes > size_bytes and not longer):
            return f"it has {found_bytes} bytes, and had {size_bytes} when the segment was closed"
        found_crc = 0
        for position in range(0, size_bytes, CHUNK_BYTES):
            data = file.pread(min(CHUNK_BYTES, size_bytes - position), position)
            found_crc = crc32(data, found_crc)
    if found_crc == crc:
        return None
    return "its content is not that which it had when the segment was closed (CRC)"
