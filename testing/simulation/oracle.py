"""Records what was promised so far, and checks that it holds. Checks only changes, when they
happen."""

from itertools import pairwise
from typing import Any

from ...replication.cluster_state import ClusterState
from ...replication.partition_log import Partition
from ...replication.settings import Incarnation, Member
from .disk import METADATA, Entry, SimulatedDirectory, SimulatedLog, name_of
from .times import true_answers
from .violation import Violation

_NEVER = 2**62


class PartitionTruth:
    """The committed messages of one partition, and what was promised about them."""

    __slots__ = (
        "bases",
        "committed",
        "durable",
        "excused",
        "known_from",
        "last",
        "lost_at_epoch",
        "shown",
        "start",
        "times_ms",
        "trimmed",
    )

    def __init__(self) -> None:
        self.committed: list[Entry | None] = []
        self.times_ms: list[int] = []
        """Times of all committed messages."""
        self.bases: list[int] = []
        """Base offsets of the segments that contain them."""
        self.known_from = 0
        """Offset below which a leader that was allowed to lose messages had none."""
        self.start = 0
        """Offset below which a leader has let messages expire."""
        self.trimmed = 0
        """Offset below which all messages are gone, as answered to a client."""
        self.shown = 0
        """The highest watermark that a client got from a leader."""
        self.durable = 0
        """Offset below which all of the ISR have synced everything, as answered to a producer."""
        self.excused = _NEVER
        """Offset from which on no member of the ISR has kept its disk."""
        self.lost_at_epoch = -1
        """Epoch of the last leader that was allowed to lose messages."""
        self.last: dict[Any, int] = {}
        """By writer, the number of its last committed message."""

    def count(self, log: SimulatedLog) -> None:
        """Take the content of this log as the truth."""
        end = max(len(self.committed), log.high_watermark)
        self.take(log, end)
        self.known_from = log.log_start_offset
        self.last = {writer: last for writer, (last, _) in log.expired.items()}
        for entry in self.committed[log.log_start_offset :]:
            if entry is not None:
                self.last[entry[1]] = entry[2]

    def take(self, log: SimulatedLog, end: int) -> None:
        """Record as committed what this log has below `end`."""
        first, times = len(self.committed), log.times
        self.committed += log.entries[first:end]
        self.times_ms += times.of[first:end]
        self.bases += times.bases_between(first, end)

    def cut(self, end: int) -> None:
        """Record that everything from `end` on is lost."""
        del self.committed[end:], self.times_ms[end:]
        self.bases = [base for base in self.bases if base < end]


class Oracle:
    """Watches all disks of a cluster."""

    def __init__(self, reads_may_be_old: bool) -> None:
        self.truths: dict[Partition, PartitionTruth] = {}
        self.leaders: dict[SimulatedDirectory, tuple[int, Incarnation]] = {}
        """Directories of current leaders: (epoch, incarnation)."""
        self.led: dict[int, Incarnation] = {}
        """By epoch, the incarnation that committed something in it."""
        self.isr: frozenset[Member] = frozenset()
        """The ISR in etcd."""
        self.counts: dict[str, int] = {}
        self.syncs: dict[Partition, bool] = {}
        """By partition, whether `acks.all.durability` of its topic is `fsync` now. All brokers
        learn of a change at once: only the leader uses the value."""
        self.goes_on = False
        """Whether the elected broker is also the one that led last."""
        self.stamped: set[Partition] = set()
        """Partitions whose times the leader assigns."""
        self.set_back = False
        """Whether etcd was restored to an older state. Earlier acknowledgements no longer count: an
        operator chooses whose messages do, and in the end all brokers have those."""
        self.halted = False
        """Whether a broker noticed the restore and told the others. Then none leads until an
        operator makes the state anew."""
        self.known_epoch = -1
        """Highest epoch known to the brokers that ran at the restore. None up to it may begin after
        the halt."""
        self._reads_may_be_old = reads_may_be_old

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def truth(self, partition: Partition) -> PartitionTruth:
        found = self.truths.get(partition)
        if found is None:
            found = self.truths[partition] = PartitionTruth()
        return found

    # Disks.

    def watermark(self, log: SimulatedLog, offset: int) -> None:
        """Check that all replicas are equal below the watermark. What a leader puts there is
        committed."""
        truth = self.truth(log.partition)
        old, committed = log.high_watermark, truth.committed
        if offset < old:
            raise Violation(f"{name_of(log)}: the watermark goes back from {old} to {offset}")
        if offset > len(log.entries):
            raise Violation(f"{name_of(log)}: the watermark {offset} is beyond the end")
        if self.set_back:
            return
        first = max(old, truth.start, log.log_start_offset)
        known = min(offset, len(committed))
        if log.entries[first:known] != committed[first:known]:
            if self._is_of_the_lost(log, truth):
                return
            raise Violation(
                f"{name_of(log)}: below the watermark {offset} it has, from {first} on, "
                f"{log.entries[first:known]}, and committed is {committed[first:known]}"
            )
        if offset > len(committed):
            self._commit(log, truth, offset)

    def _is_of_the_lost(self, log: SimulatedLog, truth: PartitionTruth) -> bool:
        """Whether the log belongs to, or follows, a leader from before an accepted loss."""
        leading = self.leaders.get(log.directory)
        epoch = leading[0] if leading else log.directory.identity.highest_epoch
        return epoch < truth.lost_at_epoch

    def _commit(self, log: SimulatedLog, truth: PartitionTruth, offset: int) -> None:
        if self._is_of_the_lost(log, truth):
            return
        leading = self.leaders.get(log.directory)
        if leading is None:
            raise Violation(
                f"{name_of(log)}: a follower's watermark {offset} is beyond its leader's"
            )
        epoch, incarnation = leading
        if self.led.setdefault(epoch, incarnation) != incarnation:
            raise Violation(
                f"two leaders commit in epoch {epoch}: {self.led[epoch]}, {incarnation}"
            )
        self.count("commits")
        first = len(truth.committed)
        truth.take(log, offset)
        for entry in truth.committed[first:]:
            if entry is not None:
                self._in_order(log, truth, entry)
        if log.partition in self.stamped:
            self._times_rise(log, truth, first)

    def _times_rise(self, log: SimulatedLog, truth: PartitionTruth, first: int) -> None:
        """Check that append times never run backwards, whichever broker leads."""
        times_ms = truth.times_ms[max(first - 1, log.log_start_offset, truth.known_from) :]
        if any(before > after for before, after in pairwise(times_ms)):
            raise Violation(f"{name_of(log)}: append times run backwards: {times_ms}")

    def _in_order(self, log: SimulatedLog, truth: PartitionTruth, entry: Entry) -> None:
        _, writer, number = entry
        last = truth.last.get(writer, -1)
        numbered = isinstance(writer, int)
        if number != last + 1 if numbered else number < last:
            raise Violation(f"{name_of(log)}: {writer} has {number} committed behind {last}")
        truth.last[writer] = number

    def cut(self, log: SimulatedLog, offset: int) -> None:
        """Check that a member of the ISR never truncates what is committed."""
        self.count("cuts")
        if self.set_back:
            return
        truth = self.truth(log.partition)
        first = max(offset, truth.start)
        last = min(len(truth.committed), len(log.entries), truth.excused)
        directory = log.directory
        if first >= last or not directory.is_in(self.isr) or directory.identity.in_doubt:
            return
        if any(log.entries[at] == truth.committed[at] for at in range(first, last)):
            raise Violation(f"{name_of(log)}: a member cuts at {offset}, committed is {last}")

    def emptied(self, log: SimulatedLog, offset: int) -> None:
        self.count("emptied")
        self.cut(log, offset)

    def started(self, log: SimulatedLog, offset: int) -> None:
        """Check that only leaders let messages expire. A broker that recovers the cluster, with an
        empty ISR, adopts the log start of others."""
        if self.set_back:
            return
        truth = self.truth(log.partition)
        if log.directory in self.leaders and self.leaders[log.directory][0] >= truth.lost_at_epoch:
            truth.start = max(truth.start, offset)
        elif offset > truth.start and self.isr and not self._is_of_the_lost(log, truth):
            raise Violation(f"{name_of(log)}: a follower lets go what is below {offset}")

    # Leaders.

    def elected(
        self, directory: SimulatedDirectory, epoch: int, who: Incarnation, may_lose: bool
    ) -> None:
        """Check that a leader has everything that is committed."""
        self.count("elections")
        self.leaders[directory] = (epoch, who)
        if self.set_back:
            self._elected_after_set_back(epoch, who)
            return
        for partition in self.truths:
            self._check_elected(directory, partition, epoch, may_lose=may_lose)

    def _check_elected(
        self, directory: SimulatedDirectory, partition: Partition, epoch: int, *, may_lose: bool
    ) -> None:
        truth = self.truths[partition]
        log = directory.logs.get(partition)
        if may_lose:
            truth.lost_at_epoch = epoch  # the former leader may lead beside it for a while
            truth.start = truth.start if log is None else log.log_start_offset
        have = 0 if log is None else _common(log, truth, self._known_damage(log))
        if log is not None and not may_lose and truth.excused == _NEVER:
            self._begins_behind_trim(log, truth)
        if log is not None and log.log_start_offset > truth.start:
            raise Violation(f"{name_of(log)}: led from {log.log_start_offset} on only")
        if have >= len(truth.committed):
            if may_lose and log is not None:
                truth.count(log)
            elif log is not None:
                self.same_answers(log)
            return
        if not may_lose and have < truth.excused:
            raise Violation(
                f"broker {directory.broker_id} leads in epoch {epoch} and has of {partition} "
                f"only what is below {have}: {truth.committed[have:]} is lost"
            )
        self._lose(truth, have, epoch)
        if log is not None:
            truth.count(log)

    def _known_damage(self, log: SimulatedLog) -> int | None:
        return None if self.goes_on else log.damaged_from

    def same_answers(self, log: SimulatedLog) -> None:
        """Check that all answers about times, and the decisions of retention, are the same as at
        the leader that committed these messages."""
        truth = self.truth(log.partition)
        start, end = log.log_start_offset, len(truth.committed)
        if log.partition == METADATA or start >= end or start < truth.known_from or self.set_back:
            return
        if _common(log, truth, None) < end:
            return  # messages were lost, as was allowed
        self.count("answers")
        times_ms = truth.times_ms[:end]
        known_ms = sorted(times_ms[start:])
        targets_ms = (known_ms[0], known_ms[len(known_ms) // 2], known_ms[-1], known_ms[-1] + 1)
        right = true_answers(times_ms, [it for it in truth.bases if it < end], start, targets_ms)
        given = log.times.answers(end, targets_ms)
        if given != right:
            raise Violation(f"{name_of(log)}: of {targets_ms} it says {given}, not {right}")

    def has_time(self, partition: Partition, offset: int, entry: Entry, created_ms: int) -> None:
        """Check the time of a message that was acknowledged to a producer with this create time,
        unless another message is there since an unclean election."""
        truth = self.truth(partition)
        if self.set_back or not truth.start <= offset < len(truth.times_ms):
            return
        if truth.committed[offset] != entry:
            return
        if truth.times_ms[offset] != created_ms:
            raise Violation(
                f"{partition}: what was sent with time {created_ms} has {truth.times_ms[offset]}"
            )

    def halt(self, known_epoch: int) -> None:
        """Check that no broker leads, as those that knew epochs up to `known_epoch` have told the
        others of the restore."""
        if self.leaders:
            raise Violation(f"{self.leaders} lead, and it is known that etcd went back")
        self.halted, self.known_epoch = True, known_epoch

    def _elected_after_set_back(self, epoch: int, who: Incarnation) -> None:
        if self.halted:
            raise Violation(f"{who} leads in epoch {epoch}, and it is known that etcd went back")
        if epoch <= self.known_epoch:
            raise Violation(f"{who} leads in epoch {epoch}, and {self.known_epoch} was known")

    def _begins_behind_trim(self, log: SimulatedLog, truth: PartitionTruth) -> None:
        if log.log_start_offset < truth.trimmed:
            raise Violation(f"{name_of(log)}: led from before {truth.trimmed}, an answered trim")

    def _lose(self, truth: PartitionTruth, have: int, epoch: int) -> None:
        self.count("losses")
        truth.cut(have)
        truth.start = min(truth.start, have)
        truth.trimmed = 0
        truth.durable = min(truth.durable, have)
        truth.shown = min(truth.shown, have)
        truth.excused = _NEVER
        truth.lost_at_epoch = epoch

    def resigned(self, directory: SimulatedDirectory) -> None:
        self.leaders.pop(directory, None)

    # Faults.

    def disks_lost(
        self, state: ClusterState, directories: list[SimulatedDirectory], *, swapped: bool
    ) -> None:
        """Record that a disk has lost something. Excused is what no member of the ISR has any more.
        Of messages acknowledged as synced, only those on a swapped disk are excused."""
        if self.set_back:
            return
        members = state.isr or _counted_last(state, directories)
        keep = [d for d in directories if d.is_in(members)]
        asked = state.isr | {kept.member for kept in state.kept}
        for partition, truth in self.truths.items():
            logs = [d.logs[partition] for d in keep if partition in d.logs]
            safe = max((_common(log, truth, log.bad_from) for log in logs), default=0)
            if not swapped:
                self._check_durable(partition, truth, [d for d in directories if d.is_in(asked)])
            if safe < len(truth.committed):
                truth.excused = min(truth.excused, safe)
                truth.durable = min(truth.durable, safe)
        metadata = self.truth(METADATA)
        kept = [entry[1:] for entry in metadata.committed[: metadata.excused] if entry]
        if ("topic", 0) not in kept and ("topic0", 0) in self.truths:
            self.truths["topic0", 0].excused = 0
        if not self._one_has_all(keep):
            for truth in self.truths.values():
                # No member leads by itself then: each has the most in some partition.
                truth.excused = min(truth.excused, len(truth.committed))

    def _check_durable(
        self, partition: Partition, truth: PartitionTruth, directories: list[SimulatedDirectory]
    ) -> None:
        """Check that no power cut takes messages acknowledged as synced from all the members that
        count."""
        logs = [d.logs[partition] for d in directories if partition in d.logs]
        has = max((_common(log, truth, log.bad_from) for log in logs), default=0)
        if has < min(truth.durable, truth.excused):
            raise Violation(
                f"{partition}: what is below {truth.durable} was answered as synced, and no member "
                f"has more than what is below {has}"
            )

    def _one_has_all(self, directories: list[SimulatedDirectory]) -> bool:
        return any(
            all(
                partition in directory.logs
                and _common(directory.logs[partition], truth, directory.logs[partition].bad_from)
                >= min(len(truth.committed), truth.excused)
                for partition, truth in self.truths.items()
            )
            for directory in directories
        )

    # Clients.

    def acknowledged(
        self, partition: Partition, offset: int, entry: Entry, *, synced: bool
    ) -> None:
        """Check that an acknowledged message is committed."""
        if self.set_back:
            return
        truth = self.truth(partition)
        if entry[0] < truth.lost_at_epoch:
            return
        there = truth.committed[offset] if offset < len(truth.committed) else None
        if there != entry and offset >= truth.start:
            raise Violation(
                f"{partition}: {entry} at {offset} is acknowledged, committed is {there}"
            )
        self.count("acknowledged")
        if synced:
            truth.durable = max(truth.durable, offset + 1)
        truth.shown = max(truth.shown, offset + 1)

    def trimmed(self, partition: Partition, offset: int) -> None:
        """Record that a trim was acknowledged."""
        truth = self.truth(partition)
        truth.trimmed = max(truth.trimmed, offset)

    def read(self, directory: SimulatedDirectory) -> None:
        """Check a client's read of all partitions at a leader: nothing that a client has seen is
        gone."""
        self.count("reads")
        if self.set_back:
            return
        for partition, truth in self.truths.items():
            log = directory.logs.get(partition)
            watermark = log.high_watermark if log is not None else 0
            if watermark < truth.shown:
                if not self._reads_may_be_old and not (log and self._is_of_the_lost(log, truth)):
                    raise Violation(
                        f"{partition}: a client saw {truth.shown}, and broker "
                        f"{directory.broker_id} says {watermark}"
                    )
            elif watermark <= len(truth.committed):
                truth.shown = watermark


def _common(log: SimulatedLog, truth: PartitionTruth, bad_from: int | None) -> int:
    """Return the offset up to which a log has what is committed, and can read it."""
    committed = truth.committed
    first = max(truth.start, log.log_start_offset)
    last = min(len(committed), len(log.entries))
    if bad_from is not None:
        last = min(last, max(bad_from, first))
    if log.entries[first:last] == committed[first:last]:
        return last
    return next(at for at in range(first, last) if log.entries[at] != committed[at])


def _counted_last(state: ClusterState, directories: list[SimulatedDirectory]) -> frozenset[Member]:
    """Return the ISR that a leader counted last, for a state with an empty ISR."""
    there = {directory.member: directory.identity.counted_revision for directory in directories}
    counted = max((there.get(kept.member, 0) for kept in state.kept), default=0)
    return frozenset(kept.member for kept in state.kept if kept.revision >= counted)
