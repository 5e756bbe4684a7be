"""Wrong rules, each in the place of the right one. The simulation has to notice every one of them.

The first eleven are those that `docs/replication/model.md` promises; the others are rules that the
simulation itself asked for.
"""

from collections.abc import Callable

from horolog.protocol.api.cluster.replicate import (
    ReplicaPosition,
    ReplicatedPart,
    ReplicateRequest,
    ReplicateResponse,
)
from horolog.protocol.api.schema import replaced
from horolog.replication.cluster_node import ClusterNode
from horolog.replication.cluster_state import ClusterState, ClusterView, RequestState
from horolog.replication.effects import Answer, Connection, Outcome, Token, Transact
from horolog.replication.epoch_owners import Owners
from horolog.replication.follower import Follower
from horolog.replication.leader import Leader
from horolog.replication.lease import Lease
from horolog.replication.messages import partition_of
from horolog.replication.partition_log import Directory, Identity, Partition, PartitionLog
from horolog.replication.session import Session
from horolog.replication.settings import Incarnation, Member, ReplicationSettings
from horolog.storage.log.epoch_history import NO_EPOCH, EpochEnd, EpochHistory
from horolog.testing.simulation.disk import METADATA, SentStretch, SimulatedLog
from horolog.testing.simulation.options import ScheduleOptions

_ANY_EPOCH = 2**30


class _CutsToWatermark(Follower):
    """Kafka before KIP-101: what is above the watermark goes, and nobody asks for epochs."""

    def welcomed(self, now_s: float, message: ReplicateResponse) -> None:
        for log in list(self._directory.logs.values()):
            if log.log_end_offset > log.high_watermark:
                log.truncate(log.high_watermark)
        super().welcomed(now_s, message)

    def _positions(self, partitions: set[Partition]) -> list[ReplicaPosition]:
        return [replaced(it, last_epoch=NO_EPOCH) for it in super()._positions(partitions)]


class CutsToWatermark(ClusterNode):
    follower_class = _CutsToWatermark


class _CutsOnce(Follower):
    """Kafka before KIP-279: the answer is an offset to cut to, and that settles it."""

    def connected(self, now_s: float, connection: Connection) -> None:
        self.settled: set[Partition] = set()
        super().connected(now_s, connection)

    def cut(self, log: PartitionLog, answer: EpochEnd, part: ReplicatedPart) -> None:
        if log.log_start_offset < answer.end_offset:
            log.truncate(min(answer.end_offset, log.log_end_offset))
        else:
            super().cut(log, answer, part)
        self.settled.add(partition_of(part))

    def _positions(self, partitions: set[Partition]) -> list[ReplicaPosition]:
        return [
            replaced(it, last_epoch=NO_EPOCH) if partition_of(it) in self.settled else it
            for it in super()._positions(partitions)
        ]


class CutsOnce(ClusterNode):
    follower_class = _CutsOnce


class SameEpoch(ClusterNode):
    """Who led before goes on in its epoch after a restart or a lost lease."""

    def _campaign(self, now_s: float, view: ClusterView, state: ClusterState) -> None:
        before = view.state.leader
        if before is not None and before.broker_id == self.broker_id:
            state = state._replace(epoch=view.state.epoch)
            self._led_epoch = view.state.epoch - 1
        super()._campaign(now_s, view, state)


class _CountsAtOnce(Leader):
    """An ISR change counts as soon as it is sent."""

    def _propose(self, wanted: frozenset[Member], now_s: float) -> None:
        super()._propose(wanted, now_s)
        self.isr.counted = self.isr.members = wanted
        self._recount()
        for partition, part in self.partitions.items():
            self._advance(partition, part)


class CountsAtOnce(ClusterNode):
    leader_class = _CountsAtOnce


class _Remembers(Leader):
    """What a follower once confirmed is confirmed on its next connections too."""

    def greeted(self, connection: Connection, hello: ReplicateRequest, owners: Owners) -> None:
        before = getattr(self, "known", {}).get(hello.broker_id)
        super().greeted(connection, hello, owners)
        session = self.sessions[connection]
        if before is not None:
            session.ends |= before.ends
            session.synced |= before.synced
            session.starts |= before.starts
            for partition, part in self.partitions.items():
                self._advance(partition, part)
        self.known: dict[int, Session] = {
            **getattr(self, "known", {}),
            hello.broker_id: session,
        }


class Remembers(ClusterNode):
    leader_class = _Remembers


class _TrustsWhatItSent(Leader):
    """What a follower was sent is taken for confirmed: it asks ahead, so it will have it."""

    def _answer(self, session: Session) -> None:
        super()._answer(session)
        for partition, end in session.sent.items():
            if partition in session.ends:
                session.ends[partition] = end
                self._advance(partition, self.partitions[partition])


class TrustsWhatItSent(ClusterNode):
    leader_class = _TrustsWhatItSent


class OpensAtItsEnd(SimulatedLog):
    """Everything that a log has when it is opened is taken for committed."""

    __slots__ = ()

    def opened_watermark(self) -> int:
        return len(self.entries)


class ElectsAnybody(ClusterNode):
    """Whoever is there may lead."""

    def _outwait_isr(self, now_s: float, view: ClusterView) -> bool:
        return True


class _ByLength(Leader):
    """Topics and positions are equal where they are equally long."""

    def divergence(self, log: PartitionLog, end: int, last_epoch: int) -> EpochEnd | None:
        if log is not self.partitions[METADATA].log:
            return super().divergence(log, end, last_epoch)
        if end <= log.log_end_offset:
            return None
        return EpochEnd(_ANY_EPOCH, log.log_end_offset)


class ByLength(ClusterNode):
    leader_class = _ByLength


class _AnswersAtOnce(Leader):
    """Positions and topics are answered when the leader has them."""

    def appended(
        self, partition: Partition, first_offset: int, next_offset: int, token: Token | None
    ) -> None:
        if partition == METADATA and token is not None:
            self._effects.append(Answer(token, Outcome.DONE))
            token = None
        super().appended(partition, first_offset, next_offset, token)


class AnswersAtOnce(ClusterNode):
    leader_class = _AnswersAtOnce


class ExpiresByItself(ClusterNode):
    """A follower whose clock has jumped lets everything go that it may show."""

    def tick(self, now_s: float) -> None:
        super().tick(now_s)
        if self.follower is not None and self._new_number() % 50 == 0:
            for log in self.directory.logs.values():
                log.raise_log_start(log.high_watermark)


class _JoinsAtElection(Leader):
    """A follower joins that has what the leader had at its election."""

    def may_join(self, session: Session) -> bool:
        return all(
            session.ends.get(partition, -1) >= part.election_end
            for partition, part in self.partitions.items()
        )


class JoinsAtElection(ClusterNode):
    leader_class = _JoinsAtElection


class _TakesAnyRead(Leader):
    """A change that is not there when the state is read is taken for one that failed."""

    def state_read(self, state: ClusterState, revision: int) -> None:
        self.isr.revision = -1
        super().state_read(state, revision)


class TakesAnyRead(ClusterNode):
    leader_class = _TakesAnyRead


class _LetsGoAtOnce(Leader):
    """Who goes out of the ISR is not kept."""

    def _propose(self, wanted: frozenset[Member], now_s: float) -> None:
        super()._propose(wanted, now_s)
        if self.isr.change is not None:
            self.isr.change = self.isr.change._replace(kept=frozenset())
            self._effects[-1] = Transact(self.isr.revision, self.isr.change)


class LetsGoAtOnce(ClusterNode):
    leader_class = _LetsGoAtOnce


class CutsUnsynced(SimulatedLog):
    """A power cut undoes what was cut."""

    __slots__ = ()
    cuts_are_synced = False


class ForgetsProducers(SimulatedLog):
    """A copy that begins at a log start knows nothing of producers from before."""

    __slots__ = ()

    def producers_at_start(self) -> dict[object, tuple[int, int]]:
        return {}


class LeadsWithoutEpochs(SimulatedLog):
    """Messages of which nobody knows the epochs stay in front of the first one, as at a broker that
    was alone."""

    __slots__ = ()

    def lead(self, epoch: int) -> None:
        if self.history_lost:
            super().lead(epoch)
            self.epochs = EpochHistory()


class EmptiedAtStart(SimulatedLog):
    """A log of which the epochs are lost is emptied before there is anybody to copy it from."""

    __slots__ = ()

    def open(self) -> None:
        if self.history_lost:
            self.truncate_fully(self.log_start_offset, None)
        super().open()


class NeverInDoubt(ClusterNode):
    """A broker whose machine lost power goes on as a member of the ISR."""

    def remember(self, identity: Identity) -> None:
        super().remember(identity._replace(in_doubt=False))


class _ShowsAtOnce(Leader):
    """A new leader shows what is below its watermark, and does not wait for the rest."""

    @property
    def readable(self) -> bool:
        return True


class ShowsAtOnce(ClusterNode):
    leader_class = _ShowsAtOnce


class _ForEver(Lease):
    """A lease that never ends by a clock."""

    def holds(self, now_s: float) -> bool:
        return True


class WithoutLease(ClusterNode):
    """Leads until etcd or another broker says that it does not: it may answer with old reads."""

    lease_class = _ForEver


class _OneForAll(Leader):
    """The broker's `min.insync.replicas` counts for every topic."""

    def min_insync(self, partition: Partition | None) -> int:
        return self._settings.min_insync


class OneForAll(ClusterNode):
    leader_class = _OneForAll


class GoesByCopies(ClusterNode):
    """A copy of a directory is taken for the directory."""

    def __init__(
        self,
        directory: Directory,
        incarnation: Incarnation,
        settings: ReplicationSettings,
        new_number: Callable[[], int],
        *,
        may_have_lost: bool,
        copied: bool = False,
    ) -> None:
        super().__init__(
            *(directory, incarnation, settings, new_number), may_have_lost=may_have_lost
        )


class BelievesOldState(ClusterNode):
    """A state that is older than one that was read is gone by."""

    def is_set_back(self, view: ClusterView, sent: RequestState) -> bool:
        return False


class _KeepsItsMessages(Follower):
    """Who led in an epoch is not looked at."""

    def _use_owners(self, message: ReplicateResponse) -> None:
        pass


class TakesOwnersForOne(ClusterNode):
    """Two leaders of one epoch pass for one."""

    follower_class = _KeepsItsMessages

    def conflict(self, owners: Owners) -> int | None:
        return None

    def contest(self, epoch: int) -> None:
        pass


class RaisesNoEpoch(ClusterNode):
    """That etcd went back is said, and not which epochs there were."""

    def _transact(self, now_s: float, view: ClusterView, state: ClusterState) -> None:
        super()._transact(now_s, view, state._replace(least_epoch=0))


class CutsTheOnlyCopy(ClusterNode):
    """A damaged log is cut wherever the damage is met."""

    def damaged(self) -> None:
        super().damaged()
        for log in self.directory.logs.values():
            if log.damaged_from is not None and self.leader is not None:
                log.truncate(log.damaged_from)


class _CountsDamaged(Follower):
    """What is damaged was stored once, so it is confirmed as before."""

    def _give_up_damaged(self, message: ReplicateResponse) -> None:
        pass

    def _positions(self, partitions: set[Partition]) -> list[ReplicaPosition]:
        logs = self._directory.logs
        hurt = {name for name in partitions if name in logs and logs[name].damaged_from is not None}
        own = super()._positions(partitions - hurt)
        return own + [
            ReplicaPosition(
                topic=name[0],
                partition=name[1],
                end_offset=logs[name].log_end_offset,
                last_epoch=logs[name].epochs.last_epoch,
                synced_offset=logs[name].synced_offset,
                log_start_offset=logs[name].log_start_offset,
            )
            for name in sorted(hurt)
        ]


class CountsDamaged(ClusterNode):
    """A damaged follower stays in the ISR."""

    follower_class = _CountsDamaged

    def damaged(self) -> None:
        if self.leader is not None:
            super().damaged()


class LeadsDamaged(ClusterNode):
    """A damaged leader goes on beside members that have everything."""

    def log_failed(self) -> None:
        pass


class KeepsItsNonce(ClusterNode):
    """A follower that met damage out of the ISR enters it under the nonce that is in doubt."""

    def _leave_damaged(self) -> None:
        self.unfollow()


class LeadsInDoubt(ClusterNode):
    """A broker that is elected leads, whatever it has found since it stood."""

    def _begin(self, now_s: float, view: ClusterView) -> None:
        self._bids_in_doubt = True
        super()._begin(now_s, view)


class StampsByItself(SimulatedLog):
    """A follower gives messages the time at which they come to it."""

    __slots__ = ()

    def take_times(self, first: int, stretch: SentStretch) -> None:
        later = [time_ms + self.directory.broker_id for time_ms in stretch.times_ms]
        super().take_times(first, stretch._replace(times_ms=later))


class LosesIndexEntries(SimulatedLog):
    """The index of a follower has an entry for the first message of what comes alone."""

    __slots__ = ()

    def take_times(self, first: int, stretch: SentStretch) -> None:
        super().take_times(first, stretch)
        times = self.times
        before = times.of[times.bases[-1] : first + 1]
        if first >= times.bases[-1]:
            times.largest_ms[-1] = max(before)


class RollsByItself(SimulatedLog):
    """A follower begins its segments where it would as a leader."""

    __slots__ = ()

    def take_times(self, first: int, stretch: SentStretch) -> None:
        for time_ms in stretch.times_ms:
            self.times.append(time_ms)


class CountsTrimmedTimes(SimulatedLog):
    """Messages that were trimmed keep the segment in which they lay, where it is not a copy."""

    __slots__ = ()

    def raise_log_start(self, offset: int) -> None:
        largest_ms = self.times.largest_ms[:]
        super().raise_log_start(offset)
        self.times.largest_ms[:] = largest_ms[len(largest_ms) - len(self.times.largest_ms) :]


class StampsByTheClock(SimulatedLog):
    """A leader stamps by its clock, whatever an earlier one has stamped."""

    __slots__ = ()

    def next_stamp_ms(self, now_ms: int) -> int:
        return now_ms


CANARIES: dict[str, Callable[[], ScheduleOptions]] = {
    "truncation to the watermark": lambda: ScheduleOptions(node_class=CutsToWatermark),
    "the single answer 'truncate to'": lambda: ScheduleOptions(node_class=CutsOnce),
    "the same epoch after a restart": lambda: ScheduleOptions(node_class=SameEpoch),
    "an ISR change counted before its outcome": lambda: ScheduleOptions(node_class=CountsAtOnce),
    "confirmations that outlive a connection": lambda: ScheduleOptions(node_class=Remembers),
    "what was sent taken for confirmed": lambda: ScheduleOptions(node_class=TrustsWhatItSent),
    "a log opened at its end": lambda: ScheduleOptions(log_class=OpensAtItsEnd),
    "election out of the ISR": lambda: ScheduleOptions(node_class=ElectsAnybody),
    "a swapped disk under an old id": lambda: ScheduleOptions(one_nonce=True),
    "journals compared by length": lambda: ScheduleOptions(node_class=ByLength),
    "positions not waited for": lambda: ScheduleOptions(node_class=AnswersAtOnce),
    "followers that expire by their own clock": lambda: ScheduleOptions(node_class=ExpiresByItself),
    "joining at the end at election": lambda: ScheduleOptions(node_class=JoinsAtElection),
    "an outcome read at the same revision": lambda: ScheduleOptions(node_class=TakesAnyRead),
    "members that are let go at once": lambda: ScheduleOptions(node_class=LetsGoAtOnce),
    "cuts that are not synced": lambda: ScheduleOptions(
        log_class=CutsUnsynced, steps=1000, brokers=4
    ),
    "producers forgotten below the log start": lambda: ScheduleOptions(
        log_class=ForgetsProducers, steps=1000, brokers=2
    ),
    "lost epochs taken for none": lambda: ScheduleOptions(
        log_class=LeadsWithoutEpochs, loses_histories=True, steps=1000
    ),
    "a log emptied because its epochs are lost": lambda: ScheduleOptions(
        log_class=EmptiedAtStart, loses_histories=True
    ),
    "no doubt after a power cut": lambda: ScheduleOptions(node_class=NeverInDoubt),
    "a new leader that shows what it has": lambda: ScheduleOptions(node_class=ShowsAtOnce),
    "a leader that does not look at its lease": lambda: ScheduleOptions(node_class=WithoutLease),
    "one min.insync.replicas for all topics": lambda: ScheduleOptions(
        node_class=OneForAll, own_min_insync=True
    ),
    "a copy of a directory taken for itself": lambda: ScheduleOptions(node_class=GoesByCopies),
    "an older state of etcd gone by": lambda: ScheduleOptions(
        node_class=BelievesOldState, sets_back=True
    ),
    "two leaders of one epoch taken for one": lambda: ScheduleOptions(
        node_class=TakesOwnersForOne, sets_back=True
    ),
    "epochs that were known begin again": lambda: ScheduleOptions(
        node_class=RaisesNoEpoch, sets_back=True
    ),
    "the only copy in sync is cut where it is damaged": lambda: ScheduleOptions(
        node_class=CutsTheOnlyCopy, damages=True
    ),
    "a damaged follower counts as in sync": lambda: ScheduleOptions(
        node_class=CountsDamaged, damages=True
    ),
    "a damaged leader goes on": lambda: ScheduleOptions(node_class=LeadsDamaged, damages=True),
    "a damaged follower under its old nonce": lambda: ScheduleOptions(
        node_class=KeepsItsNonce, damages=True
    ),
    "a broker in doubt that leads once it is elected": lambda: ScheduleOptions(
        node_class=LeadsInDoubt, damages=True
    ),
    "a follower that stamps messages": lambda: ScheduleOptions(log_class=StampsByItself),
    "a copy that lacks entries of the time index": lambda: ScheduleOptions(
        log_class=LosesIndexEntries
    ),
    "a follower that rolls by its own measure": lambda: ScheduleOptions(log_class=RollsByItself),
    "times of trimmed messages that keep a segment": lambda: ScheduleOptions(
        log_class=CountsTrimmedTimes
    ),
    "a leader that stamps by its clock alone": lambda: ScheduleOptions(
        log_class=StampsByTheClock, clocks_jump=True
    ),
}
"""By the words of the contract, the options that put the wrong rule in."""
