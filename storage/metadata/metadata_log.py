"""The metadata log of one broker: reading it, applying it up to the high watermark, shortening it.

Applied records are committed and on this broker's stable storage, so no restart, and no leader
after a clean election, undoes them. The state in memory results from the file `state` and the
records after it. Topics and their folders are changed to match that state, one after another. Both
steps can be repeated from any point at which a power cut may stop them: the state is always
computed from the start, and a topic is compared with the state by its id.

Functions run in the event loop's thread, unless their docstring says otherwise.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ...protocol.api.pieces import finish
from ...protocol.errors import StorageError
from ..directory.position_table import PositionReading
from ..directory.reserve import Reserve
from ..directory.topic_changes import TopicChanges
from ..directory.topics import TopicEntry
from ..files import RETRIABLE_ERRORS
from ..log.leader_epochs import EpochWrite
from ..log.log import Log
from ..names import METADATA_TOPIC
from ..replica.replica_log import ReplicaLog
from ..seams import Seams
from ..stepped_change import SteppedChange
from .access_records import AccessState
from .current_state import CurrentState, append_record, encode_checked
from .folder import MetadataFolder, StateWrite
from .local_metadata import LocalMetadata
from .metadata_state import MetadataState, records_of
from .proposals import Proposal, TopicProposals
from .records import MetadataRecord
from .snapshot import MalformedState, Snapshot, StateCopy, StateReading, encode_state

_FIRST_OFFSETS_BITS = 40

MIN_LOG_BYTES: Final = 1 << 20
"""A smaller log is not replaced by a new state: that would not be worth its two syncs."""


class MetadataLog:
    """Topics, positions, users, rules and quotas as one cluster member knows them."""

    def __init__(
        self,
        folder: MetadataFolder,
        seams: Seams,
        log: Log,
        current: CurrentState,
        changes: TopicChanges,
        positions: PositionReading,
        reserve: Reserve,
        *,
        adopts: bool,
    ) -> None:
        """Call `follow_from` or `lead_alone` next.

        With `adopts`, an existing folder with files becomes a partition of a topic that is
        created: at a single broker, and if the topics file was lost.
        """
        self._folder = folder
        self._seams = seams
        self.log = log
        self._replica = ReplicaLog(log)
        self._changes = changes
        self.positions = positions
        """The positions as of the applied records."""
        self.gone: Callable[[str, int], None] = lambda name, partitions: None
        """Called with a topic and its number of partitions once requests no longer find it."""
        self.in_doubt = ""
        """Why confirmed records may be missing; empty if nothing suggests that."""
        self.failure: StorageError | None = None
        """Why no more records are applied, if a record cannot be read."""
        self.not_read: StorageError | None = None
        """Why the next record could not be read for now: no file handle was free, for example. The
        next call of `next_change` reads it again."""
        self.min_log_bytes = MIN_LOG_BYTES
        self._adopts = adopts
        self.topics = TopicProposals(changes, reserve, self.append, self.check_topic)
        """Makes the changes of topics at a single broker, for `finish`."""
        self._leads = False
        self._match_from = 0
        """Topics are left unchanged until the state includes all records below this offset: these
        were committed, and the leader sends them again."""
        self.began_later: Callable[[], None] = _nothing
        """Called when the log start is where `begin_at` wanted it, if a new state had to be written
        first."""
        self._wanted_start = 0
        self.state_wanted = False
        """Whether to write a new state whatever the size of the log."""
        self._current = current
        self.state_offset = 0
        """The offset of the first record that is not in the stored state."""
        self._state_bytes = 0
        self._stale: deque[str] = deque()
        """Topics that may differ from the state, beside those in `_put_off`."""
        self.matching = ""
        """The topic of the change that `next_change` returned last."""
        self._alone = False
        """Whether there is no other copy of the log."""
        self._put_off: dict[str, StorageError] = {}
        """Topics whose change failed because of the disk, with the error. Only at a single broker,
        where another change, such as a deletion, may make room."""

    @property
    def state(self) -> MetadataState:
        """The state that results from the records read so far."""
        return self._current.state

    @property
    def applied(self) -> int:
        """The offset below which all records are applied to topics and positions."""
        return self._current.offset - 1 if self._stale else self._current.offset

    @property
    def to_match(self) -> bool:
        """Whether some topics still differ from the state."""
        return bool(self._stale or self._put_off)

    # Opening

    def lead_alone(self, state_offset: int) -> None:
        """Lead the log as the only broker: all of its records are in the current state, and
        committed. `state_offset` is the first offset after the stored state."""
        self.state_offset = state_offset
        self._leads = self._alone = True
        self._go_by_state()

    def follow_from(self, noted: int) -> None:
        """Begin as a cluster member, with the records that are known to be committed.

        `noted` is the committed offset in the topics file, 0 for none. Raises `StorageError` if
        the stored state cannot be read at all.
        """
        log = self.log
        if log.recovery_point < log.log_end_offset:
            log.flusher.flush()
        committed = max(log.high_watermark, noted)
        self._rebuild(self._stored(), min(committed, log.log_end_offset))
        if noted > max(log.log_end_offset, self.state_offset):
            # The topics file is ahead of the log. No topic is deleted because of lost records.
            self.doubt(f"the log ends at {log.log_end_offset}, below {noted}")
            entries = {name: self._changes.entry(name) for name in self._changes.names()}
            self.state.topics = entries
            self._stale.clear()
            self.write_state()

    def doubt(self, reason: str) -> None:
        """Record why records may be missing."""
        self.in_doubt = reason
        self._seams.observe("metadata_in_doubt", path=str(self._folder.path), reason=reason)

    def _stored(self) -> Snapshot:
        """Return the stored state. If it is lost, return a state with the existing topics."""
        try:
            snapshot = self._folder.read_state()
            if self.log.log_start_offset <= snapshot.offset:
                return snapshot
            reason = f"it ends at {snapshot.offset}, the log begins at {self.log.log_start_offset}"
        except MalformedState as error:
            reason = str(error)
        except OSError as error:
            raise StorageError(
                f"the state in {self._folder.path} cannot be read: {error}"
            ) from error
        self.doubt(f"the stored state: {reason}")
        state = MetadataState()
        state.topics = {name: self._changes.entry(name) for name in self._changes.names()}
        self.state_wanted = True
        return Snapshot(self.log.log_start_offset, state)

    def _rebuild(self, snapshot: Snapshot, limit: int) -> None:
        """Use a stored state, and the records between it and `limit`."""
        self.failure = None
        try:
            self._current.begin(snapshot, limit)
        except StorageError as failure:
            self._fail(failure)
        self.state_offset = snapshot.offset
        self._go_by_state()

    def _go_by_state(self) -> None:
        self.positions.go_by(self.state.positions)
        topics = self.state.topics
        self._stale = deque(
            name
            for name in sorted(topics.keys() | self._changes.names())
            if not self._changes.matches(name, topics.get(name))
        )

    # Applying

    def next_change(self) -> SteppedChange[TopicEntry] | None:
        """Apply records up to the next change of a topic, and return that change, not yet begun.

        Once the change is done, the next call returns the next change, or the same again if it
        failed. `None` if all records that are committed and synced here are applied, if a record
        cannot be read, or if this has taken some time: then `unfinished` is true, and the next call
        goes on.
        """
        while self.failure is None:
            while self._stale and self._current.offset >= self._match_from:
                name = self._stale[0]
                target = self.state.topics.get(name)
                if not self._changes.matches(name, target):
                    self._changes.note_metadata(self._current.offset)
                    self.matching = name
                    steps = self._changes.match(name, target, self.gone, adopt=self._adopts)
                    return self._changes.ask(name, steps)
                self._stale.popleft()
            if not self._fold():
                break
        return None

    def apply(self) -> None:
        """Apply all records that may be applied, and wait for the changes. A single broker puts off
        changes that fail because of the disk. Raises `StorageError`."""
        while (change := self.next_change()) is not None or self.unfinished:
            if change is None:
                continue
            change.finish()
            try:
                change.result()
            except StorageError as error:
                if not self._alone:
                    raise
                self.put_off(self.matching, error)
        unread = self.failure or self.not_read
        if unread is not None:
            raise StorageError(unread.message)

    def finish(self, change: SteppedChange[TopicEntry]) -> None:
        """Carry out a change of a topic at once, at a single broker: its record is committed once
        it is synced here. Errors become the result of the change."""
        self.apply_put_off()
        change.begin()
        while not change.done:
            step = change.step
            if isinstance(change.work, Proposal):
                self._apply_now(change.work)
            change.run(step)
            change.advance(step)

    def _apply_now(self, proposal: Proposal) -> None:
        try:
            self.log.flusher.flush()
            self._changes.settle_all()
            self.apply()
            proposal.applied = True
            proposal.failure = self._put_off.get(proposal.name)
        except StorageError as error:
            proposal.failure = error

    def put_off(self, name: str, error: StorageError) -> None:
        """Leave a topic unchanged until `try_again`, because the disk refused the change."""
        if name in self._stale:
            self._stale.remove(name)
            self._put_off[name] = error
            self._seams.observe("metadata_not_applied", error=error.message)

    @property
    def puts_off(self) -> bool:
        """Whether the change of a topic was put off."""
        return bool(self._put_off)

    def try_again(self) -> None:
        """Let `next_change` return the changes that were put off."""
        self._stale.extend(self._put_off)
        self._put_off.clear()

    def apply_put_off(self) -> None:
        """Try the changes that were put off again, at once."""
        if self._put_off:
            self._changes.settle_all()
            self.try_again()
            with suppress(StorageError):
                self.apply()

    def check_topic(self, name: str) -> None:
        """Raise `StorageError` if a change of this topic was put off: a further change has to
        wait."""
        error = self._put_off.get(name)
        if error is not None:
            raise StorageError(error.message) from error

    @property
    def unsynced(self) -> bool:
        """Whether a sync of the log would allow more records to be applied."""
        return self.log.flusher.synced_offset < self.log.high_watermark

    def _fold(self) -> bool:
        """Apply one more record to the state, if one may be applied. Returns whether it did."""
        self.not_read = None
        try:
            return self._current.take(self._note_stale)
        except StorageError as failure:
            self._current.forget_reading()
            cause = failure.__cause__
            if isinstance(cause, OSError) and cause.errno in RETRIABLE_ERRORS:
                self.not_read = failure
            else:
                self._fail(failure)
            return False

    @property
    def unfinished(self) -> bool:
        """Whether the last call of `next_change` returned although there is more to apply."""
        return self.failure is None and self._current.paused

    def _note_stale(self, name: str) -> None:
        if name not in self._stale:
            self._stale.append(name)

    def _fail(self, failure: StorageError) -> None:
        self.failure = failure
        self._seams.observe("metadata_unreadable", error=failure.message)

    # Leading

    def begin_to_lead(self) -> None:
        """Begin to lead; this broker must have all records. Raises `StorageError`."""
        if self.log.log_end_offset < self.state_offset:
            self._replica.begin_anew(self.state_offset)
        self._leads = True
        self._wanted_start = 0
        self._match_from = 0

    def lead(self, epoch: int, written: EpochWrite | None = None) -> None:
        """`begin_to_lead`, then `Replica.lead`."""
        if self.log.log_end_offset < self.state_offset:
            written = None
        self.begin_to_lead()
        self._replica.begin_to_lead(epoch, written)
        self._shorten()

    def follow(self) -> None:
        """Like `Replica.follow`."""
        self._leads = False
        self._replica.follow()

    def append(self, record: MetadataRecord) -> int:
        """Append a record as the leader, and return its offset. The record holds once it is
        applied.

        Raises `InvalidRequest` for a record that could not be decoded again, `StorageError`.
        """
        return self.append_encoded(finish(encode_checked(record)))

    def append_encoded(self, data: bytes) -> int:
        """As `append`, with the bytes that `encode_checked` returns."""
        return append_record(self.log, data)

    # Shortening

    @property
    def state_due(self) -> bool:
        """Whether to write a new state, so that the records before it can be deleted."""
        if self.to_match or self._current.offset <= self.state_offset:
            return False
        grown = self._current.log_bytes >= max(self.min_log_bytes, 2 * self._state_bytes)
        return grown or self.state_wanted

    def writing_state(self) -> StateWrite:
        """Return the present state, to be written in any thread with `run`, and passed to
        `state_written` then.

        May be called only if the topics match the state (`state_due`).
        """
        self._current.log_bytes = 0
        return StateWrite(self._folder, self._current.offset, self.state)

    def state_written(self, write: StateWrite) -> None:
        """Use a state that was written: the log start may move to its end. Raises
        `StorageError`."""
        if write.size_bytes:
            self.state_offset, self._state_bytes = write.offset, write.size_bytes
            self.state_wanted = False
            self._shorten()
            if self._wanted_start > self.log.log_start_offset:
                self.begin_at(self._wanted_start)
                self.began_later()

    def write_state(self) -> None:
        """Write the state now, and shorten the log. Raises `StorageError`."""
        write = self.writing_state()
        try:
            write.run()
        except OSError as error:
            raise StorageError(f"the state cannot be written: {error}") from error
        self.state_written(write)

    def _shorten(self) -> None:
        """On the leader, move the log start to the end of the stored state."""
        log = self.log
        offset = min(self.state_offset, log.high_watermark, log.recovery_point)
        if self._leads and log.log_start_offset < offset:
            # The active segment stays: an empty log would not know its last epoch.
            log.expiry.trim(offset)
            self._drop()

    def _drop(self) -> None:
        self._folder.write_checkpoints(self.log)
        try:
            self.log.expiry.drop_expired()
        except OSError as error:
            self._seams.observe("segment_deletion_failed", path=str(self.log.path), error=error)

    # As one of the copies in a cluster

    def reading_state(self) -> StateReading:
        """Return a reader, in parts, of the state that a follower needs before the log start.

        Raises `StorageError`.
        """
        try:
            return self._folder.reading_state()
        except (OSError, MalformedState) as error:
            raise StorageError(f"the stored state cannot be read: {error}") from error

    def copying_state(self) -> StateCopy:
        """Return a `StateCopy`, which stores the parts of the leader's `reading_state` for
        `begin_anew`."""
        return self._folder.copying_state()

    def begin_at(self, log_start_offset: int) -> int:
        """Like `Replica.begin_at`, but not beyond the stored state; returns the new log start.
        Segments before it are deleted. For an offset beyond the stored state, a new state is
        requested (`state_due`), and `began_later` is called once that is written."""
        self._wanted_start = log_start_offset
        if log_start_offset > self.state_offset:
            self.state_wanted = True
        before = self.log.log_start_offset
        start = self._replica.begin_at(min(log_start_offset, self.state_offset))
        if start > before:
            self._drop()
        return start

    @property
    def was_copied(self) -> bool:
        """Whether leaders of a cluster wrote some of the log, or the log is empty."""
        log = self.log
        return log.epochs.highest_seen >= 0 or max(log.log_end_offset, self.state_offset) == 0

    def truncate(self, offset: int, *, comes_again: bool = False) -> int:
        """As `Replica.truncate`. If removed records were applied, `next_change` undoes them, as
        after an election with loss; but not if `comes_again`, because the records were committed
        and the leader sends them again."""
        self._wanted_start = 0
        if offset <= self.log.log_start_offset:
            # Files may still have messages below the log start, of an epoch that is removed.
            self._replica.begin_anew(offset)
        else:
            self._replica.cut(offset)
        end = self.log.log_end_offset
        self._match_from = min(self._match_from, end)
        known = self._changes.metadata_offset
        if end < self.state_offset:
            # The state at `end` is not known any more; at offset 0 it is empty.
            self._forget_all()
        elif end < self._current.offset or self._current.in_record or self.failure is not None:
            self._rebuild(self._stored(), min(self._current.limit, end))
        else:
            self._current.forget_reading()
        if comes_again:
            self._match_from = max(self._match_from, known)
        else:
            self._note_no_more()
        return self.log.log_end_offset

    def _note_no_more(self) -> None:
        """Lower the offset in the topics file, so that the next start does not report lost records
        as missing."""
        if self._changes.metadata_offset > self._current.offset:
            try:
                self._changes.keep_metadata(self._current.offset)
            except OSError as error:
                raise StorageError(f"the topics file cannot be written: {error}") from error

    def _forget_all(self) -> None:
        try:
            self._folder.replace_state(encode_state(0, ()))
        except OSError as error:
            raise StorageError(f"the state cannot be written: {error}") from error
        self._replica.begin_anew(0)
        self._rebuild(Snapshot(0, MetadataState()), 0)
        self._match_from = 1

    def begin_anew(self, offset: int, copied: StateCopy, snapshot: Snapshot) -> None:
        """Like `Replica.begin_anew`, with the state that the last `StateCopy.take` returned.

        Raises `StorageError` for a state that is too old; nothing has changed then.
        """
        if snapshot.offset < offset:
            raise StorageError(
                f"the leader's metadata end at {snapshot.offset}, its log begins at {offset}"
            )
        try:
            self._folder.take_over(copied)
        except OSError as error:
            raise StorageError(f"the state cannot be written: {error}") from error
        self._wanted_start = 0
        self._replica.begin_anew(offset)
        self._rebuild(snapshot, snapshot.offset)
        self._state_bytes = copied.size_bytes
        self._match_from = self._changes.metadata_offset

    # Stopping

    def write_checkpoints(self) -> None:
        """Store the log's recovery point, log start and high watermark. Any thread. Raises
        `StorageError`."""
        self._folder.write_checkpoints(self.log)

    def close(self) -> None:
        """Close the log. Raises `OSError`, `StorageError`; the next start then recovers the log."""
        self.log.close()
        self._folder.write_checkpoints(self.log)
        self._folder.leave_marker()


def _nothing() -> None:
    """Do nothing: the default of a callback."""


def leading_metadata(
    opened: LocalMetadata,
    seams: Seams,
    changes: TopicChanges,
    positions: PositionReading,
    reserve: Reserve,
) -> MetadataLog:
    """Return the metadata log of a single broker, which leads the log."""
    metadata = MetadataLog(
        opened.folder, seams, opened.log, opened.current, changes, positions, reserve, adopts=True
    )
    metadata.lead_alone(opened.state_offset)
    return metadata


def open_metadata(
    directory: Path,
    seams: Seams,
    changes: TopicChanges,
    positions: PositionReading,
    reserve: Reserve,
    *,
    noted: int,
    adopts: bool,
) -> MetadataLog:
    """Open the metadata log in the data directory of a cluster member.

    `noted` is the committed offset in the topics file, 0 for none. If there is no log yet, one is
    created, and the present topics become its first state. Raises `OSError`, `StorageError`.
    """
    folder = MetadataFolder(directory, seams)
    if not folder.exists:
        noted = _make(folder, seams, changes)
        seams.observe("metadata_log_made", topics=len(changes.names()), positions=0)
    log = folder.open()
    metadata = MetadataLog(
        folder, seams, log, CurrentState(log), changes, positions, reserve, adopts=adopts
    )
    metadata.follow_from(noted)
    if METADATA_TOPIC in metadata.state.topics:
        raise _named_as_the_log()
    return metadata


def _make(folder: MetadataFolder, seams: Seams, changes: TopicChanges) -> int:
    """Create the metadata log from the existing topics; returns its start offset.

    A log with topics begins at a random offset: if two brokers create their logs independently,
    the offsets do not match, so that neither broker continues the other's log. A log without
    topics begins at 0.
    """
    names = sorted(changes.names())
    if METADATA_TOPIC in names:
        raise _named_as_the_log()
    entries = [changes.entry(name) for name in names]
    offset = 1 + seams.random.getrandbits(_FIRST_OFFSETS_BITS) if entries else 0
    changes.keep_metadata(offset)  # Writes the topics file: a missing one would count as lost.
    folder.make(offset, encode_state(offset, records_of(entries, (), AccessState())))
    return offset


def _named_as_the_log() -> StorageError:
    return StorageError(
        f"there is a topic {METADATA_TOPIC!r}, whose name is kept for the metadata log: a "
        "broker with it cannot be a cluster member; copy its messages to a topic of another "
        "name and delete it first"
    )
