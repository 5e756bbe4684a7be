"""The plan of a repair: made by reading only, and shown before anything is changed.

Valid messages keep their offsets and their bytes. Removed bytes are kept beside the file as
`.broken`; indexes are rebuilt. A log never ends below its recovery point, so that no offset that a
consumer has seen is used for another message.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ...protocol.records.layout import NO_TIMESTAMP
from ...values import value_class
from ..entries.log_survey import LogRun
from ..entries.salvage import OFFSETS_PER_BYTE
from ..files import Files
from ..index.index_checksums import FILE_NAME as INDEX_CHECKSUMS
from ..index.index_checksums import following_base
from ..log.retention import RemovedRange
from ..names import parse_segment_file, segment_bases
from .findings import Finding, cannot_read
from .verify import PartitionCheck
from .verify_segment import NeighbourSegments, read_checksums, survey_segment

KEPT: Final = "kept beside it as .broken"

FOUND: Final = "a repair found"
"""How the rule of what a repair removes begins."""


@value_class
class RepairStep:
    """One step of a repair, for people."""

    path: Path
    position: int | None
    """Byte position; `None` if the step is about the whole file."""
    wrong: str
    """What is wrong, in words."""
    action: str
    """What is done about it."""
    removed_bytes: int = 0
    """Number of bytes that are removed from the file, and kept elsewhere."""
    done: bool = True
    """False for a problem that a repair cannot solve."""


@value_class
class SegmentPlan:
    """The plan for one segment."""

    base_offset: int
    new_base_offset: int
    """Later than `base_offset` if the segment before it has the first messages too."""
    good: tuple[LogRun, ...]
    """Runs that stay; empty if the whole segment is set aside."""
    bad: tuple[LogRun, ...]

    @property
    def stays(self) -> bool:
        """Whether anything of the segment is left. An empty segment stays as it is."""
        return bool(self.good) or not self.bad


@dataclass(slots=True)
class PartitionPlan:
    """The plan for one partition."""

    folder: Path
    key: tuple[str, int] | None
    """Topic and partition, if the folder's name shows them."""
    steps: list[RepairStep] = field(default_factory=list)
    segments: list[SegmentPlan] = field(default_factory=list)
    """All segments, if a log is damaged; empty if only derived files are."""
    aside: list[Path] = field(default_factory=list)
    """Files and folders that are set aside as a whole."""
    rebuild: set[int] = field(default_factory=set)
    """Base offsets of the segments whose indexes are rebuilt."""
    gaps: bool = False
    """Whether the repair makes offsets jump in a log without gaps."""
    end_offset: int | None = None
    """Log end offset after the repair; `None` if it could not be read."""
    new_segment: int | None = None
    """Base offset of an empty segment to be added at the end."""
    removed: list[RemovedRange] = field(default_factory=list)
    """The messages that are removed or were missing, for the journal. It has no entry for the
    metadata log. Of a log with gaps, not all of these offsets may have had messages."""

    @property
    def possible(self) -> bool:
        """Whether there is something to do, and all of it can be done."""
        return bool(self.steps) and all(step.done for step in self.steps)


def plan_partition(
    files: Files,
    folder: Path,
    key: tuple[str, int] | None,
    *,
    gaps: bool,
    recovery_point: int | None,
    clean: bool,
    ends_at_damage: bool = False,
) -> PartitionPlan:
    """Plan the repair of one partition's folder. Reads everything in it. Raises `OSError`.

    With `ends_at_damage`, a log keeps nothing behind the first bad bytes: its records build on each
    other, and the broker copies the missing ones from another broker.
    """
    return _Planning(files, folder, key, gaps, recovery_point, clean, ends_at_damage).run()


class _Planning:
    def __init__(
        self,
        files: Files,
        folder: Path,
        key: tuple[str, int] | None,
        gaps: bool,
        recovery_point: int | None,
        clean: bool,
        ends_at_damage: bool,
    ) -> None:
        self._files = files
        self._folder = folder
        self._gaps = gaps
        self._recovery_point = recovery_point
        self._clean = clean
        self._ends_at_damage = ends_at_damage
        self._ended = ""
        """Why nothing further is kept, once that is decided."""
        self._plan = PartitionPlan(folder, key)
        self._checksums, _ = read_checksums(files, folder)

    def run(self) -> PartitionPlan:
        check = PartitionCheck(
            self._files, self._folder, self._gaps, self._recovery_point, clean=self._clean
        )
        errors = [finding for finding in check.run() if finding.error]
        self._plan.end_offset = check.end_offset
        log_errors: list[Finding] = []
        for finding in errors:
            name = parse_segment_file(finding.path.name)
            if self._files.is_directory(finding.path):
                self._take_aside(finding, "set it aside")
            elif name is None or name.kind == "log":
                log_errors.append(finding)
            elif name.kind == "appendtime":
                self._take_aside(finding, "set it aside; the append times in it are unknown then")
            elif name.kind == "timemap":
                action = (
                    "remove it; it is made anew from the log when a window of time is asked for"
                )
                self._rebuild(finding, name.base_offset, action)
            else:
                self._rebuild(finding, name.base_offset, "make it anew from the log")
        self._plan_checksums([e for e in log_errors if e.path.name == INDEX_CHECKSUMS])
        log_errors = [e for e in log_errors if e.path.name != INDEX_CHECKSUMS]
        if log_errors:
            self._plan_logs(log_errors)
        if not self._ends_at_damage:
            self._find_removed()
        return self._plan

    def _take_aside(self, finding: Finding, action: str) -> None:
        if finding.path not in self._plan.aside:
            self._plan.aside.append(finding.path)
            action = f"{action} ({KEPT})"
            size_bytes = self._size(finding.path)
            self._step(finding.path, finding.position, finding.rule, action, size_bytes)

    def _size(self, path: Path) -> int:
        return 0 if self._files.is_directory(path) else self._files.size(path)

    def _rebuild(self, finding: Finding, base_offset: int, action: str) -> None:
        if base_offset not in self._plan.rebuild:
            self._plan.rebuild.add(base_offset)
            self._step(finding.path, finding.position, finding.rule, action)

    def _plan_checksums(self, errors: Sequence[Finding]) -> None:
        if errors:
            path = self._folder / INDEX_CHECKSUMS
            self._plan.aside.append(path)
            self._plan.rebuild |= set(self._bases())
            action = f"set it aside ({KEPT}), make all indexes of the partition anew"
            self._step(path, errors[0].position, errors[0].rule, action, self._size(path))

    def _step(
        self,
        path: Path,
        position: int | None,
        wrong: str,
        action: str,
        removed_bytes: int = 0,
        *,
        done: bool = True,
    ) -> None:
        self._plan.steps.append(RepairStep(path, position, wrong, action, removed_bytes, done))

    def _bases(self) -> list[int]:
        """Return the base offsets of the existing segments."""
        aside = {path.name for path in self._plan.aside}
        return segment_bases(name for name in self._files.names(self._folder) if name not in aside)

    def _plan_logs(self, errors: Sequence[Finding]) -> None:
        bases = self._bases()
        due = bases[0] if bases else 0
        torn_bytes = 0
        try:
            for number, base_offset in enumerate(bases):
                limit = bases[number + 1] if number + 1 < len(bases) else None
                segment, torn_bytes = self._plan_segment(base_offset, due, limit)
                if segment.good:
                    due = segment.good[-1].next_offset
                elif not segment.bad:
                    due = max(due, base_offset)
        except OSError as error:
            found = cannot_read(Path(error.filename or self._folder), error)
            self._step(found.path, None, found.rule, f"nothing: {found.advice}", done=False)
            return
        if not self._plan.segments and not self._plan.steps:
            for finding in errors:
                self._step(finding.path, finding.position, finding.rule, "nothing", done=False)
        if self._plan.possible:
            self._plan_end(due, torn_bytes)

    def _plan_segment(
        self, base_offset: int, due: int, limit: int | None
    ) -> tuple[SegmentPlan, int]:
        """Plan one segment. Also return the number of bad bytes at its end."""
        path = self._folder / f"{base_offset:020d}.log"
        following = following_base(self._checksums, base_offset, limit)
        around = NeighbourSegments(
            self._gaps,
            limit,
            self._recovery_point,
            self._checksums.get(base_offset),
            self._clean,
            following,
        )
        with closing(self._files.open(path, read_only=True)) as file:
            size_bytes = file.size()
            survey = survey_segment(file, size_bytes, base_offset, around, due=due)
            found = list(survey.runs())
        if self._ends_at_damage:
            found = self._up_to_damage(found, base_offset, due, size_bytes)
        good = tuple(stretch for stretch in found if stretch.good)
        bad = tuple(stretch for stretch in found if not stretch.good)
        overlaps = bool(good) and base_offset < due
        new_base = good[0].first_offset if overlaps else base_offset
        segment = SegmentPlan(base_offset, new_base, good, bad)
        self._plan.segments.append(segment)
        self._tell_segment(path, segment, size_bytes, following)
        self._tell_gaps(path, due, base_offset, good)
        torn_bytes = bad[-1].size_bytes if bad and bad[-1].end == size_bytes else 0
        return segment, torn_bytes

    def _up_to_damage(
        self, found: list[LogRun], base_offset: int, due: int, size_bytes: int
    ) -> list[LogRun]:
        """Return the runs of a segment that stay, and everything behind them as one bad run."""
        if any(run.later_format for run in found):
            return found
        if not self._ended and base_offset > due:
            self._ended = f"offsets {due} to {base_offset - 1} are not there"
        kept: list[LogRun] = []
        for run in found:
            if not run.good and not self._ended:
                self._ended = str(run.rule)
            if self._ended:
                break
            kept.append(run)
        if self._ended:
            start = kept[-1].end if kept else 0
            kept.append(LogRun(start, size_bytes, due, due, self._ended))
        return kept

    def _tell_segment(
        self, path: Path, segment: SegmentPlan, size_bytes: int, limit: int | None
    ) -> None:
        for stretch in segment.bad:
            if stretch.later_format:
                action = "nothing: use a version of Horolog that reads this format"
                self._step(path, stretch.start, str(stretch.rule), action, done=False)
                return
        if segment.bad and not segment.good:
            self._plan.rebuild.discard(segment.base_offset)
            rule = f"{segment.bad[0].rule}; there is no good message in it"
            if self._ends_at_damage:
                rule = f"the log ends before it: {segment.bad[0].rule}"
            self._step(path, 0, rule, f"set the segment aside ({KEPT})", size_bytes)
            return
        if limit is None:
            limit = self._recovery_point
        for stretch in segment.bad:
            behind = [good.first_offset for good in segment.good if good.start >= stretch.end]
            action = f"take {_amount(stretch, min(behind, default=limit))} out ({KEPT})"
            if self._ends_at_damage:
                action = f"let the log end here: {action}"
            self._step(path, stretch.start, str(stretch.rule), action, stretch.size_bytes)
        if segment.new_base_offset != segment.base_offset:
            action = f"let it begin at offset {segment.new_base_offset}"
            self._step(path, None, "the segment before it has its first messages", action)
        if segment.bad or segment.new_base_offset != segment.base_offset:
            self._plan.rebuild.add(segment.base_offset)

    def _tell_gaps(self, path: Path, due: int, base_offset: int, good: Sequence[LogRun]) -> None:
        if self._gaps:
            return
        expected = due if self._plan.segments[:-1] else base_offset
        for stretch in good:
            if stretch.first_offset > expected:
                self._plan.gaps = True
                wrong = f"offsets {expected} to {stretch.first_offset - 1} are not there"
                self._step(path, stretch.start, wrong, "mark the topic as one with gaps")
            expected = stretch.next_offset
        if not good and not self._plan.segments[-1].bad and base_offset > due:
            self._plan.gaps = True
            wrong = f"offsets {due} to {base_offset - 1} are not there"
            self._step(path, 0, wrong, "mark the topic as one with gaps")

    def _plan_end(self, good_end: int, torn_bytes: int) -> None:
        """Plan where the log continues: at its old end, if synced messages at the
        end were damaged."""
        plan = self._plan
        plan.end_offset = good_end
        if not any(segment.stays for segment in plan.segments):
            plan.new_segment = good_end
        point = None if self._ends_at_damage else self._recovery_point
        if point is None or not torn_bytes or point <= good_end:
            return
        if not self._gaps and point - good_end > OFFSETS_PER_BYTE * torn_bytes:
            return  # The file cannot have held that many messages.
        plan.end_offset = plan.new_segment = point
        plan.gaps = plan.gaps or not self._gaps
        self._step(
            self._folder,
            None,
            f"offsets {good_end} to {point - 1} are lost",
            f"let the log go on at offset {point}, in a new segment, so that no offset comes twice",
        )

    def _find_removed(self) -> None:
        """Find which messages are removed, or were missing before."""
        plan = self._plan
        if not plan.segments:
            if plan.end_offset is not None:
                self._remove_end(plan.end_offset, bad_bytes=0)
            return
        due, bad_bytes = plan.segments[0].base_offset, 0
        for segment in plan.segments:
            runs = sorted((*segment.good, *segment.bad), key=lambda run: run.start)
            if not runs:
                self._remove(due, segment.base_offset, bad_bytes)
                due, bad_bytes = max(due, segment.base_offset), 0
            for run in runs:
                if run.good:
                    self._remove(due, run.first_offset, bad_bytes)
                    due, bad_bytes = max(due, run.next_offset), 0
                else:
                    bad_bytes += run.size_bytes
        self._remove_end(due, bad_bytes)

    def _remove(self, first: int, following: int, bad_bytes: int) -> None:
        """Note what lay between two good messages."""
        end = max(first, following)
        if bad_bytes or (end > first and not self._gaps):
            is_known = not self._gaps or end == first
            self._note_removed(first, end, end - first if is_known else -1, bad_bytes)

    def _remove_end(self, first: int, bad_bytes: int) -> None:
        """Note what lay behind the last good message. A kill may have left there what was not
        synced."""
        end = max(first, self._recovery_point or 0)
        if bad_bytes:
            # The offsets at which the log does not go on; the bytes can have had that many.
            end = max(first, self._plan.end_offset or 0)
        if bad_bytes or end > first:
            is_known = self._clean and (not self._gaps or end == first)
            self._note_removed(first, end, end - first if is_known else -1, bad_bytes)

    def _note_removed(self, first: int, end: int, messages: int, bad_bytes: int) -> None:
        rule = f"{FOUND} that the bytes before offset {end} are missing"
        if bad_bytes:
            rule = (
                f"{FOUND} {bad_bytes} B incomplete or damaged before offset {end}; they are kept "
                "as .broken"
            )
        found = RemovedRange(rule, first, end, messages, NO_TIMESTAMP, NO_TIMESTAMP)
        self._plan.removed.append(found)


def _amount(bad: LogRun, following: int | None) -> str:
    """Describe bad bytes in words, with their offsets if known."""
    if following is None or following <= bad.first_offset:
        return f"{bad.size_bytes} bytes"
    return f"{bad.size_bytes} bytes, offsets {bad.first_offset} to {following - 1},"
