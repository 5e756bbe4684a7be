"""A follower of one leader in one epoch: it copies, truncates where its log diverged, and
confirms."""

from collections.abc import Callable

from ..protocol.api.cluster.replicate import (
    ReplicaPosition,
    ReplicatedPart,
    ReplicateRequest,
    ReplicateResponse,
    Says,
)
from ..protocol.limits import MAX_LEADER_EPOCHS
from ..storage.log.epoch_history import NO_EPOCH, EpochEnd
from .divergence import cut_to
from .effects import Close, Connect, Connection, Effect, Send, SyncLog
from .epoch_owners import cut_before, first_conflict, merged, owners_of
from .messages import hello_of, partition_of
from .partition_log import Directory, Partition, PartitionLog
from .settings import Member, ReplicationSettings


class Follower:
    """A follower, from its creation until it is dropped. It reconnects by itself."""

    def __init__(
        self,
        directory: Directory,
        leader_id: int,
        epoch: int,
        settings: ReplicationSettings,
        effects: list[Effect],
        begins_anew: Callable[[], None],
    ) -> None:
        """`begins_anew` is called before a log is emptied to be copied again from its start."""
        self.leader_id = leader_id
        self.epoch = epoch
        """Epoch that is followed; `NO_EPOCH` until the leader reports it, where an operator chose
        the leader."""
        self.connection: Connection | None = None
        self._directory = directory
        self._settings = settings
        self._effects = effects
        self._begins_anew = begins_anew
        self._asked_s: float | None = None
        """When the pending request (a connection, a hello or a fetch) was sent; `None` without
        one."""
        self._welcomed = self._ever_welcomed = False
        self._fetching = False
        self._ahead = False
        """Whether the next fetch was sent before the pending answer was appended."""
        self._stumbled = False
        """Whether the last answer had messages that could not be appended."""
        self._damaged: set[Partition] = set()
        """Partitions whose last messages arrived damaged."""
        self._checks: set[Partition] = set()
        """Those of the damaged partitions that the leader was asked to check on this connection."""
        self._changed: set[Partition] = set()
        self._not_reached: set[Partition] = set()
        self._reported: set[Partition] = set()
        """Partitions whose position was sent on this connection."""
        self._was_cut = False
        """Whether a log was truncated on this connection, so that topics may have been removed with
        it."""

    @property
    def member(self) -> Member:
        return Member(self._directory.broker_id, self._directory.identity.nonce)

    @property
    def has_everything(self) -> bool:
        """Whether this follower, on this connection, has received everything committed in every
        partition."""
        directory = self._directory
        reached = self._welcomed and self._not_reached.isdisjoint(directory.logs)
        return reached and directory.complete

    def has_reached(self, partition: Partition) -> bool:
        """Whether this follower has received everything that this leader had committed in a
        partition. It stays true while the leader is gone."""
        return self._ever_welcomed and partition not in self._not_reached

    def tick(self, now_s: float) -> None:
        """Connect, or drop the connection if no answer came in time."""
        if self._asked_s is None:
            if self.connection is None:
                self._asked_s = now_s
                self._effects.append(Connect(self.leader_id))
        elif now_s - self._asked_s >= self._settings.leader_within_s + self._settings.fetch_wait_s:
            self.drop()

    def connected(self, now_s: float, connection: Connection) -> None:
        """Handle the opened connection: send the hello."""
        if self.connection is not None:
            self._effects.append(Close(connection))
            return
        self.connection = connection
        self._asked_s = now_s
        directory = self._directory
        highest_epoch, owners = directory.identity.highest_epoch, directory.owners
        hello = hello_of(self.member, self.epoch, highest_epoch, owners)
        self._effects.append(Send(connection, hello))

    def leave(self) -> bool:
        """Tell the leader that this broker stops. Returns whether there is a leader to tell."""
        if not self._welcomed or self.connection is None:
            return False
        self._say(Says.CONFIRM, [], leaving=True)
        return True

    def drop(self) -> None:
        """Close the connection. Unanswered requests are repeated on the next one."""
        if self.connection is not None:
            self._effects.append(Close(self.connection))
        self.closed()

    def closed(self) -> None:
        """Handle the closed connection."""
        self.connection = None
        self._asked_s = None
        self._welcomed = self._fetching = self._ahead = self._stumbled = False
        self._checks.clear()

    def welcomed(self, now_s: float, message: ReplicateResponse) -> None:
        """Handle the leader's welcome. The directory already knows its epoch; see `Node.learn`."""
        self.epoch = message.epoch
        for log in list(self._directory.logs.values()):
            if log.history_lost:
                # Not earlier: until a leader is there, these may be the only copies.
                self._begins_anew()
                log.truncate_fully(log.log_start_offset, None)
        self._give_up_damaged(message)
        self._use_owners(message)
        self._welcomed = self._ever_welcomed = True
        self._changed = set(self._directory.logs)
        self._not_reached = set(self._directory.logs)
        self._reported = set(self._directory.logs)
        self._was_cut = False
        self._fetch(now_s)

    def _give_up_damaged(self, message: ReplicateResponse) -> None:
        """Truncate damaged logs before their damage, to copy the rest from the leader. If the
        leader's log is damaged too, this log may have the only good copy of some messages, and is
        kept."""
        damaged = set(map(partition_of, message.damaged))
        for partition, log in list(self._directory.logs.items()):
            if log.damaged_from is not None and partition not in damaged:
                self._begins_anew()
                log.truncate(log.damaged_from)

    def _use_owners(self, message: ReplicateResponse) -> None:
        """Remove the messages of epochs in which, by the leader's knowledge, another member led: an
        operator has decided for the leader's messages."""
        directory = self._directory
        leaders = owners_of(message.owners)
        owners = merged(directory.owners, leaders, MAX_LEADER_EPOCHS)
        lost = first_conflict(directory.owners, leaders, NO_EPOCH)
        if lost is not None:
            self._begins_anew()
            for log in list(directory.logs.values()):
                cut_before(log, lost)
        if owners != directory.owners:
            directory.keep_owners(owners)

    def add_partition(self, partition: Partition) -> None:
        """Handle a new partition that the leader's metadata name."""
        if self._was_cut and partition in self._reported:
            # The partition was removed with metadata that the leader never had. The leader does not
            # know of the removal, and what it has sent continues messages that are gone.
            self.drop()
        elif self._directory.logs[partition].history_lost:
            self.drop()  # `welcomed` empties the log.
        self._reported.add(partition)
        self._not_reached.add(partition)
        self._position_changed(partition)

    def remove_partition(self, partition: Partition) -> None:
        """Handle the removal of a partition that the leader's metadata no longer name."""
        self._not_reached.discard(partition)
        self._changed.discard(partition)
        self._damaged.discard(partition)

    def ask_ahead(self, now_s: float, message: ReplicateResponse) -> None:
        """Request the messages after an answer before it is appended, if the answer is large."""
        if message.epoch != self.epoch or not self._fetching or self._ahead or self._stumbled:
            return
        size_bytes = sum(part.stored.size_bytes for part in message.parts if part.stored)
        if size_bytes * 2 >= self._settings.fetch_max_bytes:
            self._ahead = True
            self._fetch(now_s)

    def extend_wait(self, now_s: float) -> None:
        """Restart the wait for an answer, because the last answer is still being worked on."""
        if self._asked_s is not None:
            self._asked_s = now_s

    def fetched(self, now_s: float, message: ReplicateResponse) -> None:
        """Handle an answer to a fetch."""
        if message.epoch != self.epoch or not self._fetching:
            return
        ahead, self._ahead = self._ahead, False
        self._fetching = ahead
        self._stumbled = False
        for part in message.parts:
            if not self._welcomed:
                return  # An earlier part made the follower drop the connection.
            # A partition that the metadata do not name yet is fetched once they do.
            log = self._directory.logs.get(partition_of(part))
            if log is not None:
                self._take(log, part)
        if not ahead:
            self._fetch(now_s)
        elif self._changed and self.connection is not None:
            positions = self._positions(self._changed)
            self._changed = set()
            self._say(Says.CONFIRM, positions)

    def _take(self, log: PartitionLog, part: ReplicatedPart) -> None:
        before, partition = log.log_end_offset, partition_of(part)
        if part.diverging:
            self._was_cut = True
            diverging = EpochEnd(part.diverging[0].epoch, part.diverging[0].offset)
            self.cut(log, diverging, part)
            self._changed.add(partition)
        elif part.log_start_offset > before:
            self._was_cut = True
            self._begin_anew(log, part)
            self._changed.add(partition)
        else:
            self._append(log, part, before)
        end = log.log_end_offset
        if end != before:
            self._changed.add(partition)
            self._damaged.discard(partition)
        if part.log_start_offset > log.log_start_offset:
            log.raise_log_start(min(part.log_start_offset, end))
            self._changed.add(partition)
        watermark = min(part.high_watermark, end)
        if not part.diverging and watermark > log.high_watermark:
            log.set_high_watermark(watermark)
        if 0 <= part.high_watermark <= end:
            self._not_reached.discard(partition)
        wanted = min(part.sync_to, end)
        if wanted and wanted > log.synced_offset:
            self._effects.append(SyncLog(partition))

    def _append(self, log: PartitionLog, part: ReplicatedPart, first: int) -> None:
        """Append an answer's messages to a log that ends at `first`."""
        if part.stored is None:
            return
        for one in part.epochs:
            if one.epoch > log.epochs.last_epoch:
                log.begin_epoch(one.epoch, max(one.offset, first))
        if not log.append_stored(part.stored):
            self._damaged.add(partition_of(part))
        if part.stored.size_bytes and log.log_end_offset == first:
            self._stumbled = True

    def cut(self, log: PartitionLog, answer: EpochEnd, part: ReplicatedPart) -> None:
        """Remove what the leader does not have, or everything if the logs have nothing in common.

        Nothing in common means that the leader has no epoch as early as the follower's, or that the
        logs diverge below the follower's log start. If they diverge exactly there, the log becomes
        empty and keeps its start: copied anew it would lack, for a while, what a member of the ISR
        must have.
        """
        offset = cut_to(log.epochs, log.log_end_offset, answer)
        if answer.epoch == NO_EPOCH or offset < log.log_start_offset:
            self._begin_anew(log, part)
        else:
            log.truncate(offset)

    def _begin_anew(self, log: PartitionLog, part: ReplicatedPart) -> None:
        """Empty a log. Its messages may have been acknowledged, and are missing here until they are
        copied."""
        self._not_reached.add(partition_of(part))
        self._begins_anew()
        log.truncate_fully(part.log_start_offset, part.producer_state)

    def synced(self, partition: Partition) -> None:
        """Handle the completed sync of a log."""
        self._position_changed(partition)

    def _position_changed(self, partition: Partition) -> None:
        """Confirm the position at once if a fetch is pending; otherwise the next fetch carries
        it."""
        if not self._welcomed or self.connection is None:
            return
        if self._fetching:
            self._say(Says.CONFIRM, self._positions({partition}))
        else:
            self._changed.add(partition)

    def _fetch(self, now_s: float) -> None:
        if self.connection is None:
            return
        # One check per connection: if the leader finds no damage, it sends the same messages again.
        checks = set() if self._ahead else self._damaged - self._checks
        self._checks |= checks
        positions = self._positions(self._changed | checks)
        for one in positions:
            one.check = partition_of(one) in checks
        self._changed = set()
        self._fetching = True
        self._asked_s = now_s
        self._say(Says.FETCH, positions, ahead=self._ahead)

    def _say(
        self,
        says: Says,
        positions: list[ReplicaPosition],
        *,
        ahead: bool = False,
        leaving: bool = False,
    ) -> None:
        assert self.connection is not None
        request = ReplicateRequest(
            says=says,
            connection=0,
            epoch=self.epoch,
            positions=positions,
            ahead=ahead,
            leaving=leaving,
        )
        self._effects.append(Send(self.connection, request))

    def _positions(self, partitions: set[Partition]) -> list[ReplicaPosition]:
        found = []
        for partition in sorted(partitions):
            log = self._directory.logs.get(partition)
            # Nothing is confirmed of a damaged log: a broker that lacks what was once stored is not
            # in sync.
            if log is not None and log.damaged_from is None:
                found.append(
                    ReplicaPosition(
                        topic=partition[0],
                        partition=partition[1],
                        end_offset=log.log_end_offset,
                        last_epoch=log.epochs.last_epoch,
                        synced_offset=log.synced_offset,
                        log_start_offset=log.log_start_offset,
                    )
                )
        return found
