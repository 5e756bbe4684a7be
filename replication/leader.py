"""The leader of one epoch: it commits, decides who is in sync, and answers followers."""

from collections.abc import Mapping

from ..protocol.api.cluster.replicate import (
    Answers,
    DamagedPartition,
    ReplicaPosition,
    ReplicateRequest,
    ReplicateResponse,
)
from ..storage.log.epoch_history import NO_EPOCH, EpochEnd
from .answering import next_parts
from .cluster_state import ClusterState
from .divergence import agrees
from .effects import Answer, Close, Connection, Effect, Outcome, Send, SyncLog, Token, Transact
from .epoch_owners import Owners, listed
from .in_sync import InSyncReplicas
from .led_partition import LedPartition
from .messages import member_of, partition_of, refusal
from .partition_log import Partition, PartitionLog
from .reminders import Reminders
from .session import Session
from .settings import Member, ReplicationSettings


class Leader:
    """The leader of every partition of a directory, from an election to `stop`."""

    def __init__(
        self,
        me: Member,
        epoch: int,
        isr: InSyncReplicas,
        logs: Mapping[Partition, PartitionLog],
        settings: ReplicationSettings,
        now_s: float,
        effects: list[Effect],
    ) -> None:
        self.me = me
        self.epoch = epoch
        self.isr = isr
        self.partitions: dict[Partition, LedPartition] = {}
        self.sessions: dict[Connection, Session] = {}
        self._settings = settings
        self._effects = effects
        self._at_end_s = dict.fromkeys(isr.members, now_s)
        """When each member was last at the log end. A new leader grants each member the full
        time."""
        self.absent: frozenset[Member] = frozenset()
        """Members of the ISR that are no longer registered in etcd."""
        self._in_sync: list[Session | None] = []
        self._recount()
        self._logs = logs
        self._reminders = Reminders(self.sessions, effects)

    def start(self) -> None:
        """Start with the logs as they are; nothing else appends to them now."""
        for partition, log in self._logs.items():
            self._lead(partition, log)

    def _lead(self, partition: Partition, log: PartitionLog) -> None:
        log.lead(self.epoch)
        part = LedPartition(log, self._settings.sync_for_acks_all)
        self.partitions[partition] = part
        if part.sync_to > log.synced_offset:
            self._effects.append(SyncLog(partition))
        self._advance(partition, part)

    def add_partition(self, partition: Partition, log: PartitionLog) -> None:
        """Lead a partition that was created, by this leader or by an earlier one."""
        self._lead(partition, log)
        for session in self.sessions.values():
            session.behind.add(partition)
            position = session.unplaced.pop(partition, None)
            if position is not None:
                self._take(session, position)
        self._answer_followers()

    def remove_partition(self, partition: Partition) -> None:
        """Stop leading a deleted partition. Waiting producers are answered that it has no
        leader."""
        part = self.partitions.pop(partition, None)
        if part is None:
            return
        for session in self.sessions.values():
            session.forget(partition)
        for token in part.abandon():
            self._effects.append(Answer(token, Outcome.NOT_LEADER))

    @property
    def readable(self) -> bool:
        """Whether clients may read the logs; see `LedPartition.readable`."""
        return all(part.readable for part in self.partitions.values())

    # Client requests.

    def refusal(self, acks_all: bool, partition: Partition | None = None) -> Outcome | None:
        """Return why nothing may be appended now; `None` if it may. Without `partition`, the answer
        is for a partition that has no log."""
        if acks_all and len(self.isr.members) < self.min_insync(partition):
            return Outcome.NOT_ENOUGH_REPLICAS
        return None

    def min_insync(self, partition: Partition | None) -> int:
        """Return how many members must be in sync for `acks=all`; the broker's value for a
        partition without a log."""
        part = None if partition is None else self.partitions.get(partition)
        own = None if part is None else part.log.min_insync
        if own is None:
            return self._settings.min_insync
        return max(own, self._settings.least_min_insync)

    def begin_append(self, partition: Partition) -> None:
        """Start this leader's epoch in the log if needed. Must be called before every append."""
        log = self.partitions[partition].log
        if log.epochs.last_epoch != self.epoch:
            log.begin_epoch(self.epoch, log.log_end_offset)

    def appended(
        self, partition: Partition, first_offset: int, next_offset: int, token: Token | None
    ) -> None:
        """Handle an appended set. `token`: its producer waits until the set is committed."""
        for session in self.sessions.values():
            session.behind.add(partition)
            session.changed.add(partition)
        self.await_commit(partition, first_offset, next_offset, token)

    def await_commit(
        self, partition: Partition, first_offset: int, next_offset: int, token: Token | None
    ) -> None:
        """Like `appended`, for a set that was appended before and that a producer sent again."""
        part = self.partitions[partition]
        if token is not None:
            part.await_commit(first_offset, next_offset, token)
            if part.sync_to:
                for session in self.sessions.values():
                    if session.synced.get(partition, -1) < part.sync_to:
                        session.unsynced.add(partition)
                if part.sync_to > part.log.synced_offset:
                    self._effects.append(SyncLog(partition))
        self._advance(partition, part)
        self._answer_followers()

    def trimmed(self, partition: Partition, token: Token | None) -> None:
        """Handle a raised log start, which is never above the high watermark. `token`: a client
        waits until all of the ISR have raised theirs."""
        part = self.partitions[partition]
        for session in self.sessions.values():
            session.changed.add(partition)
        if token is not None:
            part.await_trim(token)
            self._advance(partition, part)
        self._answer_followers()

    def synced(self, partition: Partition) -> None:
        """Handle the completed sync of the leader's own log."""
        part = self.partitions.get(partition)
        if part is not None:  # The partition may have been deleted meanwhile.
            self._advance(partition, part)
            self._answer_followers()

    def _advance(self, partition: Partition, part: LedPartition) -> None:
        end, synced = part.log.log_end_offset, part.synced_offset
        for session in self._in_sync:
            if session is None:
                return
            of_session = session.ends.get(partition, -1)
            if of_session < end:
                end = of_session
            of_session = session.synced.get(partition, -1)
            if of_session < synced:
                synced = of_session
        if part.advance(end, synced) and self.sessions:
            # The watermark goes with the next messages. An answer with the watermark alone costs as
            # much as one with messages, and no client waits for a follower to know the watermark.
            for session in self.sessions.values():
                session.moved.add(partition)
            self._reminders.want()
        done = part.committed()
        if part.awaits_trim:
            starts = [it.starts.get(partition, -1) for it in self._in_sync if it]
            done += part.trimmed(min([part.log.log_start_offset, *starts]))
        if done:
            self._answer_clients(partition, done)

    def _answer_clients(self, partition: Partition, tokens: list[Token]) -> None:
        enough = len(self.isr.members) >= self.min_insync(partition)
        outcome = Outcome.DONE if enough else Outcome.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        for token in tokens:
            self._effects.append(Answer(token, outcome))

    # Messages from followers.

    def greeted(self, connection: Connection, hello: ReplicateRequest, owners: Owners) -> None:
        """Handle a follower's hello: drop its earlier session, and send it the owners of all
        epochs."""
        for session in list(self.sessions.values()):
            if session.member.broker_id == hello.broker_id:
                self._effects.append(Close(session.connection))
                del self.sessions[session.connection]
        self.sessions[connection] = Session(connection, member_of(hello), set(self.partitions))
        self._recount()
        damaged = [
            DamagedPartition(topic=topic, partition=number)
            for (topic, number), part in sorted(self.partitions.items())
            if part.log.damaged_from is not None
        ]
        welcome = self._response(Answers.WELCOME)
        welcome.owners, welcome.damaged = listed(owners), damaged
        self._effects.append(Send(connection, welcome))

    def _response(self, answers: Answers) -> ReplicateResponse:
        return ReplicateResponse(answers=answers, epoch=self.epoch, broker_id=self.me.broker_id)

    def closed(self, connection: Connection) -> None:
        """Handle a closed connection."""
        if self.sessions.pop(connection, None) is not None:
            self._recount()

    def fetched(self, now_s: float, connection: Connection, request: ReplicateRequest) -> None:
        """Handle a follower's request for the messages after its positions."""
        session = self._confirmed(connection, request)
        if session is None:
            return
        if session.waits:
            self._answer(session)
        if request.ahead:
            session.changed |= session.more
        else:
            session.sent.clear()
            session.unsure.clear()
        session.more = set()
        session.waits = True
        partitions = self.partitions
        ends = {name: partitions[name].log.log_end_offset for name in session.behind}
        syncs = {name: partitions[name].sync_to for name in session.unsynced}
        at_end_s = session.measure(now_s, ends, syncs)
        member = session.member
        if at_end_s is not None and at_end_s > self._at_end_s.get(member, float("-inf")):
            self._at_end_s[member] = at_end_s
        self._answer_followers()
        if session.waits and session.moved:
            self._reminders.want()

    def confirmed(self, connection: Connection, request: ReplicateRequest) -> None:
        """Handle a follower's changed positions."""
        session = self._confirmed(connection, request)
        if session is not None:
            session.leaving = session.leaving or request.leaving
            self._answer_followers()

    def _confirmed(self, connection: Connection, request: ReplicateRequest) -> Session | None:
        session = self.sessions.get(connection)
        if session is None or request.epoch != self.epoch:
            return None
        for position in request.positions:
            partition = partition_of(position)
            part = self.partitions.get(partition)
            if part is None:
                session.unplaced[partition] = position
            else:
                self._take(session, position)
                self._advance(partition, part)
        return session

    def _take(self, session: Session, position: ReplicaPosition) -> None:
        """Accept a position as confirmed if the follower's log is a prefix of this one."""
        partition, end = partition_of(position), position.end_offset
        part = self.partitions[partition]
        log = part.log
        start = log.log_start_offset
        # The follower's last epoch may be gone with messages that this log has deleted since.
        continues = end <= start and session.gets_to(partition, start)
        diverging = None if continues else self.divergence(log, end, position.last_epoch)
        if diverging is not None or end > session.unsure.get(partition, end):
            session.unsure.pop(partition, None)
        # A divergence found for an earlier position no longer applies.
        session.diverging.pop(partition, None)
        if diverging is None and (continues or end >= start):
            if partition not in session.ends:
                session.changed.add(partition)  # The follower may not know the watermark.
            session.ends[partition] = end
            session.synced[partition] = min(position.synced_offset, end)
            session.starts[partition] = position.log_start_offset
            if session.synced[partition] < part.sync_to:
                session.unsynced.add(partition)
            else:
                session.unsynced.discard(partition)
            if end >= log.log_end_offset:
                session.behind.discard(partition)
            else:
                session.behind.add(partition)
                session.changed.add(partition)
            return
        session.ends.pop(partition, None)
        session.synced.pop(partition, None)
        session.starts.pop(partition, None)
        session.behind.add(partition)
        session.changed.add(partition)
        if diverging is not None:
            session.diverging[partition] = diverging
            session.sent.pop(partition, None)

    def divergence(self, log: PartitionLog, end: int, last_epoch: int) -> EpochEnd | None:
        """Return where a follower with this log end diverges from this log; `None` if it does not,
        or ends below the log start."""
        if end < log.log_start_offset:
            return None
        if last_epoch == NO_EPOCH:
            if end <= log.log_end_offset:
                return None
            return EpochEnd(NO_EPOCH, log.log_start_offset)
        if agrees(log.epochs, log.log_end_offset, end, last_epoch):
            return None
        return log.epochs.end_of(last_epoch, log.log_start_offset, log.log_end_offset)

    # Answers to followers.

    def reminded(self) -> None:
        """Handle the completed `Remind`."""
        for session in self._reminders.due():
            self._answer(session)

    def _answer_followers(self) -> None:
        for session in self.sessions.values():
            if session.waits and session.changed:
                self._answer(session)

    def answer(self, broker_id: int) -> None:
        """Answer a follower's waiting fetch, so that it fetches again."""
        for session in self.sessions.values():
            if session.member.broker_id == broker_id and session.waits:
                self._answer(session)

    def _answer(self, session: Session) -> None:
        parts = next_parts(
            session,
            self.partitions,
            self._settings.fetch_max_bytes,
            counted=session.member in self.isr.counted,
        )
        session.waits = False
        session.was_answered = True
        response = self._response(Answers.FETCHED)
        response.parts = parts
        self._effects.append(Send(session.connection, response))

    # The in-sync replicas.

    def _recount(self) -> None:
        by_member = {it.member: it for it in self.sessions.values()}
        self._in_sync = [
            by_member.get(member) for member in sorted(self.isr.counted) if member != self.me
        ]

    def tick(self, now_s: float) -> None:
        """Answer fetches that waited long enough, and propose a changed ISR."""
        for session in self.sessions.values():
            asked_s = session.fetched_s if session.waits else None
            if asked_s is not None and now_s - asked_s >= self._settings.fetch_wait_s:
                self._answer(session)
        isr = self.isr
        if isr.change is None:
            wanted = self.wanted_isr(now_s)
            if wanted != isr.members or isr.state.kept:
                self._propose(wanted, now_s)
        elif now_s - isr.changed_s >= self._settings.answer_within_s:
            isr.changed_s = now_s
            self._effects.append(Transact(isr.revision, isr.change))

    def _propose(self, wanted: frozenset[Member], now_s: float) -> None:
        change = self.isr.propose(wanted, now_s)
        self._effects.append(Transact(self.isr.revision, change))
        self._recount()

    def wanted_isr(self, now_s: float) -> frozenset[Member]:
        """Return the members that are in sync now."""
        members = self.isr.members
        there = {session.member.broker_id: session.member for session in self.sessions.values()}
        leaving = {session.member for session in self.sessions.values() if session.leaving}
        wanted = {
            member
            for member in members - leaving
            if member == self.me
            or (
                now_s - self._at_end_s.get(member, 0.0) <= self._settings.lag_max_s
                and there.get(member.broker_id, member) == member
                and (member not in self.absent or member.broker_id in there)
            )
        }
        names = {member.broker_id for member in wanted}
        for session in self.sessions.values():
            # A silent follower may be gone without a close, and one that cannot keep up would leave
            # again at once; while either is in the ISR, nothing is committed that it lacks.
            last_seen_s = min(session.fetched_s or 0.0, self._at_end_s.get(session.member, 0.0))
            keeps_up = (
                session.fetched_s is not None and now_s - last_seen_s <= self._settings.lag_max_s
            )
            if session.leaving or session.member.broker_id in names:
                continue
            if keeps_up and self.may_join(session):
                wanted.add(session.member)
        return frozenset(wanted)

    def may_join(self, session: Session) -> bool:
        """Whether a follower has everything that this or an earlier leader acknowledged."""
        for partition, part in self.partitions.items():
            least = max(part.election_end, part.log.high_watermark)
            if session.ends.get(partition, -1) < least:
                return False
            if session.starts[partition] < part.log.log_start_offset:
                return False
            if session.synced.get(partition, -1) < part.sync_to_join(least):
                return False
        return True

    def state_read(self, state: ClusterState, revision: int) -> None:
        """Adopt the cluster's state, which names this leader."""
        if revision == self.isr.revision:
            return
        self.isr.read(state, revision)
        self._recount()
        for partition, part in self.partitions.items():
            self._advance(partition, part)
        self._answer_followers()
        for session in self.sessions.values():
            if session.leaving and session.waits and session.member not in self.isr.counted:
                self._answer(session)  # The follower waits for its removal, and then stops.

    def stop(self) -> None:
        """Stop leading. All waiting clients and followers are answered."""
        for part in self.partitions.values():
            for token in part.abandon():
                self._effects.append(Answer(token, Outcome.NOT_LEADER))
        for session in self.sessions.values():
            if session.waits:
                self._effects.append(
                    Send(session.connection, refusal(self.epoch, self.me.broker_id))
                )
            self._effects.append(Close(session.connection))
        self.sessions.clear()
