"""Repair of stored files: what `horolog repair DIR` does.

`DIR` is a data directory, the metadata log in one, or the folder of one partition. The lock of the
data directory is held from before the plan is made until all is done, so that what was shown is
what is repaired.

Whatever may stop the repair of a partition, a crash at any point included, everything good is in
place afterwards, and everything else beside it: the repair can be planned and run again. A log file
is replaced at once by one that was built and synced beside it.

The metadata log ends where it is damaged: its records build on each other. The topics file keeps in
mind how far it reached. So a cluster member is in doubt until it has copied the rest from its
leader, and a single broker makes the log anew of the topics file.
"""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final

from ...clock import Clock
from ...config.topic import TopicSettings, topic_settings
from ...protocol.errors import InvalidConfig, StorageError
from ..directory.checkpoints import (
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    MalformedCheckpoint,
    Offsets,
    decode_checkpoint,
    write_checkpoint,
)
from ..directory.clean_shutdown import leave_marker, read_marker, take_marker
from ..directory.deletion import DeletionQueue
from ..directory.journal import Cause, Removal
from ..directory.known_files import CLEAN_SHUTDOWN, KNOWN_FILES, is_of_partition
from ..directory.lock import LOCK_FILE, DirectoryLock
from ..directory.topics import (
    TOPICS_FILE,
    MalformedTopics,
    NewerTopics,
    TopicEntry,
    read_metadata_offset,
    read_topics,
    write_topics,
)
from ..directory.truncations import Truncations
from ..entries.log_survey import LogRun
from ..events import Observer
from ..files import File, Files, replace_file
from ..index.index_checksums import FILE_NAME as INDEX_CHECKSUMS
from ..index.index_checksums import SegmentChecksums, format_checksums, parse_checksums
from ..metadata.folder import METADATA_PARTITION, STATE_FILE
from ..names import METADATA_FOLDER, folder_name, parse_folder_name, segment_bases
from ..open_files import OpenFiles
from ..producers.producer_snapshots import newest_first
from ..quarantine import quarantine_bytes, quarantine_file
from ..seams import ProducerBudget, Seams
from ..segment.index_loading import apply_scan, checksums_of, scan_segment
from ..segment.segment import Segment
from .repair_plan import FOUND, KEPT, PartitionPlan, RepairStep, SegmentPlan, plan_partition
from .verify import STATE_LOST, check_state, is_metadata_folder

_BUILT_SUFFIX: Final = ".repair"
_CHUNK_BYTES: Final = 1 << 20
_OPEN_FILES: Final = 16

Partition = tuple[str, int]

_STOP: Final = "stop that broker first"


class PartitionRepair:
    """The repair of the partition in `plan.folder`."""

    def __init__(
        self,
        plan: PartitionPlan,
        settings: TopicSettings,
        *,
        recovery_point: int | None,
        files: Files,
        clock: Clock,
        observe: Observer,
    ) -> None:
        """`settings` are the topic's. Append times are certain only below `recovery_point`."""
        self._plan = plan
        self._settings = settings
        self._recovery_point = recovery_point or 0
        self._files = files
        deletions = DeletionQueue(files, clock, observe)
        open_files = OpenFiles(files, _OPEN_FILES)
        room = ProducerBudget(clock)
        self._seams = Seams(clock, files, observe, deletions, open_files, Random(), room)
        self._checksums: dict[int, SegmentChecksums] = {}

    def run(self) -> None:
        """Run the repair. Raises `OSError`, `HorologError`."""
        try:
            self._take_checksums_out()
            # First of all, so that an interrupted repair does not forget where the log ended.
            self._add_segment()
            for segment in self._plan.segments:
                if segment.good and segment.bad:
                    self._rewrite(segment)
            for path in self._plan.aside:
                if self._files.exists(path):
                    quarantine_file(self._files, path)
            for segment in self._plan.segments:
                if not segment.stays:
                    self._take_away(segment)
            # From the end, so that no segment gets the name of one that still has to be moved.
            for segment in reversed(self._plan.segments):
                if segment.stays and segment.new_base_offset != segment.base_offset:
                    self._rename(segment)
            self._add_segment()
            self._files.sync_directory(self._plan.folder)
            if self._plan.segments:
                self._drop_snapshots()
            self._rebuild()
            self._write_checksums()
        finally:
            self._seams.open_files.close()

    def _drop_snapshots(self) -> None:
        """Remove producer snapshots: states will be derived only from the messages
        that are left."""
        for _, path in newest_first(self._files, self._plan.folder):
            self._files.unlink(path)
        self._files.sync_directory(self._plan.folder)

    def _add_segment(self) -> None:
        base_offset = self._plan.new_segment
        if base_offset is None or self._files.exists(self._log_path(base_offset)):
            return
        Segment.create(self._plan.folder, base_offset, self._settings, self._seams)
        self._files.sync_directory(self._plan.folder)

    def _log_path(self, base_offset: int) -> Path:
        return self._plan.folder / f"{base_offset:020d}.log"

    def _take_checksums_out(self) -> None:
        """Remove the checksums of indexes that will not match their log any more."""
        path = self._plan.folder / INDEX_CHECKSUMS
        if not self._files.exists(path) or self._files.is_directory(path):
            return
        self._checksums = parse_checksums(self._files.read_bytes(path))
        changed = {segment.base_offset for segment in self._plan.segments if segment.bad}
        changed |= self._plan.rebuild
        left = {
            base: checksums for base, checksums in self._checksums.items() if base not in changed
        }
        if path not in self._plan.aside and left != self._checksums:
            replace_file(self._files, path, format_checksums(left))

    def _rewrite(self, segment: SegmentPlan) -> None:
        """Replace a log file by its valid runs, and keep the bad ones beside it."""
        path = self._log_path(segment.base_offset)
        for stretch in segment.bad:
            quarantine_bytes(self._files, path, stretch.start, stretch.end)
        built = path.with_name(path.name + _BUILT_SUFFIX)
        with (
            closing(self._files.open(path, read_only=True)) as source,
            closing(self._files.open(built, create=True)) as target,
        ):
            target.truncate(0)
            position = 0
            for stretch in segment.good:
                position = _copy(source, stretch, target, position)
            target.sync()
        # Retention uses the file's time if messages have no timestamps.
        self._files.set_modified_ms(built, self._files.modified_ms(path))
        self._files.rename(built, path)
        self._files.sync_directory(path.parent)

    def _take_away(self, segment: SegmentPlan) -> None:
        """Set a whole segment aside, and remove its derived files."""
        path = self._log_path(segment.base_offset)
        self._drop_derived(path)
        quarantine_file(self._files, path)

    def _rename(self, segment: SegmentPlan) -> None:
        path = self._log_path(segment.base_offset)
        self._drop_derived(path)
        self._files.rename(path, self._log_path(segment.new_base_offset))

    def _drop_derived(self, log_path: Path) -> None:
        for suffix in (".index", ".timeindex", ".timemap"):
            path = log_path.with_suffix(suffix)
            if self._files.exists(path):
                self._files.unlink(path)
        append_times = log_path.with_suffix(".appendtime")
        if self._files.exists(append_times):
            quarantine_file(self._files, append_times)

    def _rebuild(self) -> None:
        """Rebuild the indexes that may not match any more."""
        plan = self._plan
        renamed = {segment.base_offset: segment.new_base_offset for segment in plan.segments}
        wanted = {renamed.get(base, base) for base in plan.rebuild}
        for base_offset, following in pairwise([*self._bases(), None]):
            assert base_offset is not None
            closed = following is not None
            if base_offset in wanted or (not closed and plan.segments):
                segment = Segment.existing(plan.folder, base_offset, self._settings, self._seams)
                segment.next_offset = base_offset if following is None else following
                self._rebuild_segment(segment, closed)

    def _rebuild_segment(self, segment: Segment, closed: bool) -> None:
        base_offset = segment.base_offset
        scan = scan_segment(segment, gaps=True)
        if not closed:
            segment.next_offset = scan.next_offset
        apply_scan(segment, scan, closed=True)
        old = self._checksums.pop(base_offset, None)
        append_times = None if old is None else old.append_times
        segment.append_times.recover(append_times, self._recovery_point, segment.next_offset)
        if segment.size_bytes:
            self._checksums[base_offset] = checksums_of(segment)
        for path in segment.paths[1:]:
            if self._files.exists(path):
                with closing(self._files.open(path)) as file:
                    file.sync()

    def _bases(self) -> list[int]:
        return segment_bases(self._files.names(self._plan.folder))

    def _write_checksums(self) -> None:
        bases = set(self._bases())
        checksums = {
            base: checksums for base, checksums in self._checksums.items() if base in bases
        }
        replace_file(self._files, self._plan.folder / INDEX_CHECKSUMS, format_checksums(checksums))


def _copy(source: File, stretch: LogRun, target: File, position: int) -> int:
    """Copy valid bytes to `position` of the new log. Return the position after them."""
    for start in range(stretch.start, stretch.end, _CHUNK_BYTES):
        data = source.pread(min(_CHUNK_BYTES, stretch.end - start), start)
        target.pwrite(data, position)
        position += len(data)
    return position


@dataclass(slots=True)
class RepairPlan:
    """All that a repair would do."""

    directory_steps: list[RepairStep] = field(default_factory=list)
    """Steps for the files of the data directory itself."""
    partitions: list[PartitionPlan] = field(default_factory=list)
    aside: list[Path] = field(default_factory=list)
    missing: list[Path] = field(default_factory=list)
    """Partition folders to be created."""
    metadata: "RepairPlan | None" = None
    """Plan for the metadata log, if there is one."""

    @property
    def steps(self) -> Iterator[RepairStep]:
        """Yield every step, in the order of the files."""
        yield from self.directory_steps
        if self.metadata is not None:
            yield from self.metadata.steps
        for partition in self.partitions:
            yield from partition.steps

    @property
    def possible(self) -> bool:
        """Whether anything can be done."""
        own = any(step.done for step in self.directory_steps)
        own = own or (self.metadata is not None and self.metadata.possible)
        return own or any(partition.possible for partition in self.partitions)


class Repair:
    """The repair of a data directory, or of one partition. Holds the lock until `release`."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        *,
        clock: Clock,
        observe: Observer,
        metadata_of: Path | None = None,
    ) -> None:
        """With `metadata_of`, `directory` is the metadata log of that data directory, whose lock is
        held already. Raises `ValueError` if `directory` is none of the allowed kinds,
        `StorageError` if a broker holds it or a later version wrote it, `OSError`."""
        self._files = files
        self._clock = clock
        self._observe = observe
        self._alone: Path | None = None
        """The folder to be repaired, if it is a single partition's."""
        self._root: Path | None = directory
        self._is_metadata = metadata_of is not None or is_metadata_folder(files, directory)
        if not self._is_metadata and is_of_partition(files, directory):
            self._alone = directory
            parent = directory.resolve().parent
            self._root = parent if not KNOWN_FILES.isdisjoint(files.names(parent)) else None
            self._is_metadata = is_metadata_folder(files, parent)
        self._data_path = metadata_of or self._root
        """The data directory that contains the folder, if there is one."""
        if metadata_of is None and self._root is not None and self._is_metadata:
            parent = self._root.resolve().parent
            if any(files.exists(parent / name) for name in (LOCK_FILE, TOPICS_FILE)):
                self._data_path = parent
        self._lock: DirectoryLock | None = None
        if self._data_path is not None and metadata_of is None:
            self._lock = DirectoryLock(files, self._data_path, advice=_STOP)
        self._metadata: Repair | None = None
        inner = directory / METADATA_FOLDER
        if self._alone is None and not self._is_metadata and files.is_directory(inner):
            self._metadata = Repair(
                files, inner, clock=clock, observe=observe, metadata_of=directory
            )
        self._topics: dict[str, TopicEntry] = {}
        self._recovery_points: Offsets | None = None
        self._log_starts: Offsets | None = None
        self._unclean: frozenset[Partition] | None = None

    def release(self) -> None:
        """Release the lock, so that a broker can start."""
        if self._lock is not None:
            self._lock.release()

    def plan(self) -> RepairPlan:
        """Return the plan of the repair. Only reads. Raises `OSError`, `StorageError`."""
        plan = RepairPlan()
        self._read_directory(plan)
        if self._metadata is not None:
            plan.metadata = self._metadata.plan()
        for folder, key in self._folders():
            entry = self._topics.get(key[0]) if key is not None else None
            point = self._recovery_point(key)
            of_metadata = self._is_metadata and key == METADATA_PARTITION
            partition = plan_partition(
                self._files,
                folder,
                key,
                gaps=not of_metadata and (entry is None or entry.gaps),
                recovery_point=point,
                clean=point is not None and self._unclean is not None and key not in self._unclean,
                ends_at_damage=of_metadata,
            )
            self._tell_past_end(plan, partition)
            if partition.steps:
                plan.partitions.append(partition)
        return plan

    def _folders(self) -> Iterator[tuple[Path, Partition | None]]:
        if self._alone is not None:
            yield self._alone, parse_folder_name(self._alone.resolve().name)
            return
        assert self._root is not None
        for name in self._files.names(self._root):
            key = parse_folder_name(name)
            if key is not None and self._files.is_directory(self._root / name):
                yield self._root / name, key

    def _read_directory(self, plan: RepairPlan) -> None:
        root = self._root
        if root is None:
            return
        path = root / TOPICS_FILE
        try:
            self._topics = read_topics(self._files, path)
        except NewerTopics as error:
            raise StorageError(f"{path}: {error}; use the version that wrote it") from error
        except MalformedTopics as error:
            action = "the next start adopts every folder, with settings that keep all messages"
            self._set_aside(plan, path, str(error), action)
        self._recovery_points = self._checkpoint(plan, RECOVERY_POINTS)
        self._log_starts = self._checkpoint(plan, LOG_START_OFFSETS)
        self._unclean = read_marker(self._files, root)
        if self._unclean is None and self._files.exists(root / CLEAN_SHUTDOWN):
            rule = "it is neither empty nor a list of partitions"
            self._set_aside(plan, root / CLEAN_SHUTDOWN, rule, "the next start recovers every log")
        if self._alone is None and self._is_metadata:
            self._look_at_metadata(plan, root)
        elif self._alone is None:
            self._look_for_missing(plan, root)

    def _set_aside(self, plan: RepairPlan, path: Path, wrong: str, consequence: str) -> None:
        if self._alone is None:
            plan.aside.append(path)
            action = f"set it aside ({KEPT}); {consequence}"
            plan.directory_steps.append(
                RepairStep(path, None, wrong, action, self._files.size(path))
            )

    def _checkpoint(self, plan: RepairPlan, name: str) -> Offsets | None:
        assert self._root is not None
        path = self._root / name
        if not self._files.exists(path):
            return {}
        try:
            return decode_checkpoint(self._files.read_bytes(path))
        except MalformedCheckpoint as error:
            self._set_aside(plan, path, str(error), "the next start recovers every log in full")
            return None

    def _look_at_metadata(self, plan: RepairPlan, root: Path) -> None:
        path = root / STATE_FILE
        for finding in check_state(self._files, path):
            if finding.error:
                self._set_aside(plan, path, finding.rule, STATE_LOST)
        folder = root / folder_name(*METADATA_PARTITION)
        if not self._files.exists(folder):
            plan.missing.append(folder)
            action = "make an empty one; the next start asks the leader for what was in it"
            step = RepairStep(folder, None, "the metadata log has no folder", action)
            plan.directory_steps.append(step)

    def _look_for_missing(self, plan: RepairPlan, root: Path) -> None:
        for entry in self._topics.values():
            for partition in range(0 if entry.deleting else entry.partitions):
                path = root / folder_name(entry.name, partition)
                if self._files.exists(path) and not self._files.is_directory(path):
                    self._set_aside(plan, path, "it is not a folder", "a partition belongs there")
                if path in plan.aside or not self._files.exists(path):
                    plan.missing.append(path)
                    wrong = f"{TOPICS_FILE} has this partition, but its folder is not there"
                    action = "make an empty one; its messages, if it had any, are gone"
                    plan.directory_steps.append(RepairStep(path, None, wrong, action))

    def _tell_past_end(self, plan: RepairPlan, partition: PartitionPlan) -> None:
        key, end_offset = partition.key, partition.end_offset
        if self._root is None or key is None or end_offset is None:
            return
        for name, offsets in self._checkpoints():
            if offsets is not None and offsets.get(key, 0) > end_offset:
                wrong = f"{key[0]} {key[1]} has offset {offsets[key]}, the log ends at {end_offset}"
                action = f"lower it to {end_offset}"
                if name == LOG_START_OFFSETS:
                    action = "take it out: the log begins with its first segment"
                partition.steps.append(RepairStep(self._root / name, None, wrong, action))

    def _checkpoints(self) -> Iterator[tuple[str, Offsets | None]]:
        """Yield the checkpoint files by name; `None` in place of invalid offsets."""
        yield RECOVERY_POINTS, self._recovery_points
        yield LOG_START_OFFSETS, self._log_starts

    def carry_out(self, plan: RepairPlan) -> None:
        """Carry out the possible steps of `plan`. Raises `OSError`, `HorologError`. After an error
        or a crash, the repair can be planned and carried out again."""
        todo = [partition for partition in plan.partitions if partition.possible]
        root = self._root
        if self._metadata is not None and plan.metadata is not None and plan.metadata.possible:
            self._metadata.carry_out(plan.metadata)
        if self._is_metadata:
            self._keep_reach(todo)
        if root is not None:
            self._record_removed(root, todo)
            # As at the start of a broker: a crash from here on is an unclean stop.
            take_marker(self._files, root)
            for path in plan.aside:
                if self._files.exists(path):
                    quarantine_file(self._files, path)
            self._allow_gaps(todo)
            for path in plan.missing:
                self._files.make_directory(path)
            self._files.sync_directory(root)
        for partition in todo:
            self._repair(partition)
        if root is not None:
            self._finish(root, todo)

    def _record_removed(self, root: Path, todo: list[PartitionPlan]) -> None:
        """Record in the journal what is removed, before it is. A start gives an id to a topic that
        has none, and to its entries."""
        truncations = Truncations(root, self._files)
        now_ms = self._clock.now_ms()
        for partition in todo:
            if partition.key is None:
                continue
            topic, number = partition.key
            entry = self._topics.get(topic)
            topic_id = "" if entry is None else entry.topic_id
            # Those of a repair that was interrupted.
            known = [
                (each.first_offset, each.end_offset)
                for each in truncations.of(topic)
                if (each.topic_id, each.partition) == (topic_id, number)
                and each.rule.startswith(FOUND)
            ]
            log_start = (self._log_starts or {}).get(partition.key, 0)
            for each in partition.removed:
                first, end = max(each.first_offset, log_start), each.end_offset
                if end < first or first == end != each.first_offset:
                    continue  # It had left the log before.
                if any(begin <= first < end <= stop for begin, stop in known):
                    continue
                messages = end - first if each.messages >= 0 else -1
                removed = each._replace(first_offset=first, messages=messages)
                truncations.add(
                    Removal(
                        *(Cause.TRUNCATION, removed.rule, topic, topic_id, number),
                        *(*removed[1:], now_ms, now_ms),
                    )
                )

    def _keep_reach(self, todo: list[PartitionPlan]) -> None:
        """Record in the topics file how far a metadata log reached that will end earlier."""
        assert self._data_path is not None
        path = self._data_path / TOPICS_FILE
        reached = self._recovery_point(METADATA_PARTITION) or 0
        for partition in todo:
            shorter = partition.end_offset is not None and partition.end_offset < reached
            if not (shorter and self._files.exists(path)):
                continue
            # A start without topics is in doubt anyway.
            with suppress(MalformedTopics, NewerTopics):
                topics = read_topics(self._files, path)
                if read_metadata_offset(self._files, path) < reached:
                    write_topics(self._files, path, topics, reached)

    def _allow_gaps(self, todo: list[PartitionPlan]) -> None:
        """Mark topics as having gaps before anything is removed. Otherwise an interrupted repair
        could leave offsets that jump where they must not."""
        assert self._root is not None
        topics = dict(self._topics)
        for partition in todo:
            name = partition.key[0] if partition.key is not None else ""
            if partition.gaps and name in topics:
                topics[name] = replace(topics[name], gaps=True)
        if topics != self._topics:
            path = self._root / TOPICS_FILE
            offset = read_metadata_offset(self._files, path) or None
            write_topics(self._files, path, topics, offset)

    def _repair(self, partition: PartitionPlan) -> None:
        PartitionRepair(
            partition,
            self._settings(partition.key),
            recovery_point=self._recovery_point(partition.key),
            files=self._files,
            clock=self._clock,
            observe=self._observe,
        ).run()

    def _recovery_point(self, key: Partition | None) -> int | None:
        if key is None or self._recovery_points is None:
            return None
        return self._recovery_points.get(key)

    def _settings(self, key: Partition | None) -> TopicSettings:
        entry = self._topics.get(key[0]) if key is not None else None
        with suppress(InvalidConfig):
            if entry is not None:
                return topic_settings({}, entry.overrides)
        return topic_settings({}, {})

    def _finish(self, root: Path, todo: list[PartitionPlan]) -> None:
        """Update the checkpoints; everything repaired is synced. Then restore the marker of a clean
        stop."""
        for name, offsets in self._checkpoints():
            if offsets is not None:
                changed = _changed(offsets, todo, synced=name == RECOVERY_POINTS)
                if changed != offsets:
                    write_checkpoint(self._files, root / name, changed)
        if self._unclean is not None:
            leave_marker(self._files, root, self._unclean)


def _changed(offsets: Offsets, repaired: list[PartitionPlan], *, synced: bool) -> Offsets:
    """Return the offsets of a checkpoint after the repair. `synced` is set for recovery points."""
    changed = dict(offsets)
    for partition in repaired:
        key, end_offset = partition.key, partition.end_offset
        if key is None or key not in offsets or end_offset is None:
            continue
        if synced:
            changed[key] = end_offset
        elif offsets[key] > end_offset:
            del changed[key]
    return changed
