"""Where the messages of a closed segment are, by the files beside it, and tasks made of that.

Indexes are believed where they fit the line of their segment in `index-checksums`, and nothing is
left out because of others.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

from ..protocol.records.kernel import time_map_runs
from ..storage.directory.checkpoints import (
    LOG_START_OFFSETS,
    MalformedCheckpoint,
    decode_checkpoint,
)
from ..storage.index.index_checksums import FILE_NAME, SegmentChecksums, parse_checksums
from ..storage.index.index_reader import OFFSET_ENTRY, TIME_ENTRY
from ..times import INT64_MAX
from .option_values import OptionError
from .windows import Window

Stretch = tuple[int, int]
"""Bytes of a log, from the first up to the second, which is exclusive."""


@dataclass(frozen=True, slots=True)
class SegmentSpan:
    """A stretch of a segment's log."""

    place: tuple[str, int]
    """Topic and partition."""
    path: str
    """Of the log."""
    start: int
    end: int
    log_start_offset: int
    """Messages before it were trimmed."""
    cuts: Callable[[], Sequence[int]]
    """Where entries of the whole log begin, ascending: it can be cut there."""

    @property
    def size(self) -> int:
        """In bytes."""
        return self.end - self.start

    def nearest_cut(self, position: int) -> int:
        """The place nearest to `position` where the stretch can be cut, its ends among them."""
        cuts = self.cuts()
        inside = cuts[bisect_right(cuts, self.start) : bisect_left(cuts, self.end)]
        at = bisect_left(inside, position)
        places = (self.start, *inside[max(at - 1, 0) : at + 1], self.end)
        return min(places, key=lambda place: abs(place - position))


def pack(parts: Iterable[SegmentSpan], tasks: int) -> list[list[SegmentSpan]]:
    """The parts in their order, cut for up to `tasks` tasks of about equal bytes."""
    found = list(parts)
    total = sum(part.size for part in found)
    ends = [total * number // tasks for number in range(1, tasks)]
    packed: list[list[SegmentSpan]] = [[]]
    before = 0
    for part in found:
        behind = before + part.size
        wanted = ends[bisect_left(ends, before) : bisect_left(ends, behind)]
        cuts = sorted({part.nearest_cut(part.start + end - before) for end in wanted})
        start = part.start
        for cut in cuts:
            if cut > start:
                packed[-1].append(replace(part, start=start, end=cut))
                start = cut
            packed.append([])
        if start < part.end:
            packed[-1].append(replace(part, start=start))
        before = behind
    return [task for task in packed if task]


class SegmentFiles:
    """The files of one closed segment."""

    def __init__(self, folder: Path, base_offset: int, checksums: SegmentChecksums | None) -> None:
        """`checksums` is its line, if there is one."""
        self._base_offset = base_offset
        self.log = folder / f"{base_offset:020d}.log"
        self._size = self.log.stat().st_size
        fits = checksums is not None and checksums.log_bytes == self._size
        self._known = checksums if fits else None
        self._cuts: Sequence[int] | None = None

    def stretches(self, window: Window | None) -> list[Stretch]:
        """Where messages of the window may be, in order; all of the log without a window."""
        whole = [(0, self._size)] if self._size else []
        if window is None or self._known is None or not whole:
            return whole
        last_ms = INT64_MAX if window.until_ms is None else window.until_ms - 1
        mapped = self._known.time_map
        if mapped is not None:
            if mapped.first_ms > last_ms or mapped.last_ms < window.from_ms:
                return []
            time_map = self._read(".timemap", (mapped.size_bytes, mapped.crc))
            if time_map:
                runs = time_map_runs(
                    time_map, base_offset=self._base_offset, from_ms=window.from_ms, last_ms=last_ms
                )
                return [(position, end) for position, end, _, _ in runs]
        return whole if self._may_reach(window.from_ms) else []

    def cuts(self) -> Sequence[int]:
        """Where entries of the log begin, by its offset index; none where that has nothing."""
        if self._cuts is None:
            self._cuts = self._read_cuts()
        return self._cuts

    def _read_cuts(self) -> Sequence[int]:
        data = None if self._known is None else self._read(".index", self._known.offset_index)
        if not data:
            return ()
        entries = data[: len(data) - len(data) % OFFSET_ENTRY.size]
        return sorted({position for _, position in OFFSET_ENTRY.iter_unpack(entries)})

    def _may_reach(self, start_ms: int) -> bool:
        """Whether there may be a message from `start_ms` on, by the time index: the last entry has
        the largest timestamp."""
        assert self._known is not None
        data = self._read(".timeindex", self._known.time_index)
        if data is None:
            return True
        entries = data.rstrip(b"\0")
        last = TIME_ENTRY.size * (-(-len(entries) // TIME_ENTRY.size) - 1)
        latest_ms: int = TIME_ENTRY.unpack_from(data, last)[0] if last >= 0 else start_ms
        return latest_ms >= start_ms

    def _read(self, suffix: str, known: tuple[int, int]) -> bytes | None:
        """A file of this length and CRC-32; None where there is no such file."""
        try:
            data = self.log.with_suffix(suffix).read_bytes()
        except FileNotFoundError:
            return None
        return data if (len(data), crc32(data)) == known else None


def read_log_start(folder: Path, place: tuple[str, int]) -> int:
    """Where the log in a folder begins: what was trimmed of its first segment is in the file.

    By the data directory, if the folder lies in one; 0 where it does not. Raises OptionError.
    """
    checkpoint = folder.parent / LOG_START_OFFSETS
    try:
        return decode_checkpoint(checkpoint.read_bytes()).get(place, 0)
    except FileNotFoundError:
        return 0
    except MalformedCheckpoint as error:
        raise OptionError(
            f"segments.path: {checkpoint} tells which messages of {folder} were trimmed, and "
            f"cannot be read ({error}); start the broker on that data directory, which makes the "
            "file anew"
        ) from None


def read_checksums(folder: Path) -> Mapping[int, SegmentChecksums]:
    """What is noted of the indexes of a folder, by base offset."""
    try:
        return parse_checksums((folder / FILE_NAME).read_bytes())
    except FileNotFoundError:
        return {}
