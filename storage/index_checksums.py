"""`index-checksums`: what makes the indexes of closed segments believable.

Indexes have no checksum of their own. When a segment is rolled or its log closed, the length
and CRC-32 of both its indexes are noted here, with the positions where the message format
changes inside the segment. An index that does not fit its line is rebuilt from the log before
it is used. One line of text a segment, after a line with the version:

    0
    <base offset> <.index bytes> <crc> <.timeindex bytes> <crc> <position>:<magic>[,...]

The file is derived data: without it, or with lines that cannot be read, indexes are rebuilt.
"""

from collections.abc import Mapping
from dataclasses import dataclass

FILE_NAME = "index-checksums"
_VERSION = "0"


@dataclass(frozen=True, slots=True)
class Seal:
    """The line of one segment."""

    offset_index: tuple[int, int]
    """Length in bytes and CRC-32 of the `.index` file."""
    time_index: tuple[int, int]
    """The same of the `.timeindex` file."""
    magic_changes: tuple[tuple[int, int], ...]
    """`(position, magic)` where the format differs from the entry before; the first entry too."""


def parse_seals(data: bytes) -> dict[int, Seal]:
    """Seals by base offset; lines that make no sense are left out."""
    lines = data.decode("ascii", errors="replace").splitlines()
    seals: dict[int, Seal] = {}
    if not lines or lines[0] != _VERSION:
        return seals
    for line in lines[1:]:
        fields = line.split(" ")
        try:
            base, index_bytes, index_crc, time_bytes, time_crc = map(int, fields[:5])
            changes = [part.split(":") for part in fields[5].split(",") if part]
            spans = tuple((int(position), int(magic)) for position, magic in changes)
        except (ValueError, IndexError):
            continue
        seals[base] = Seal((index_bytes, index_crc), (time_bytes, time_crc), spans)
    return seals


def format_seals(seals: Mapping[int, Seal]) -> bytes:
    """The file's content for `seals`."""
    lines = [_VERSION]
    for base, seal in sorted(seals.items()):
        spans = ",".join(f"{position}:{magic}" for position, magic in seal.magic_changes)
        numbers = (base, *seal.offset_index, *seal.time_index)
        lines.append(" ".join(map(str, numbers)) + " " + spans)
    return ("\n".join(lines) + "\n").encode("ascii")
