"""Topics, positions, users, rules and quotas of a broker, as records of its metadata log.

A change is appended as a record, and answered once the record is applied. Records are applied up to
the high watermark, so after all in-sync replicas have them; a single broker is the only one. Other
code moves the high watermark.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, TypeVar

from ..protocol.api.pieces import finish
from ..protocol.errors import (
    CodedError,
    LeaderNotAvailable,
    NotCoordinator,
    RequestTimedOut,
    StorageError,
)
from ..storage.directory.journal import MAX_TOPIC_REMOVALS, Removal
from ..storage.directory.log_directory import LogDirectory
from ..storage.directory.topics import TopicEntry
from ..storage.events import Observer
from ..storage.log.flush import FlushWork, GroupCommit
from ..storage.log.log import Log
from ..storage.metadata.access_records import AccessRecord
from ..storage.metadata.current_state import encode_checked
from ..storage.metadata.folder import StateWrite
from ..storage.metadata.metadata_log import MetadataLog
from ..storage.metadata.proposals import Proposal, TopicProposals
from ..storage.metadata.records import (
    MessagesRemoved,
    MetadataRecord,
)
from ..storage.stepped_change import SteppedChange, Steps
from .position_changes import PositionChanges
from .security.service import SecurityService
from .work import Work

R = TypeVar("R")

TopicChange = SteppedChange[TopicEntry]

AccessPlan = Callable[[], tuple[R, Sequence[AccessRecord]]]
"""Plans a change of users, rules or quotas: returns the outcome of the request, and the records to
append, or raises a `CodedError`. Runs in a thread, while no other such change is made."""

TOPIC_SECONDS: Final = 30.0
"""How long a request waits for a change of a topic; Kafka's default request timeout."""

POSITION_SECONDS: Final = 5.0
"""How long a request waits for a commit of positions, as Kafka's `offsets.commit.timeout.ms`."""

RETRY_SECONDS: Final = 1.0
"""How long after a failure of the disk a change is tried again."""


class Leadership(Protocol):
    """What the store has to know of the broker's role as leader."""

    @property
    def alone(self) -> bool:
        """Whether this is a single broker: a record is committed once it is synced here."""
        ...

    def check_topics(self) -> None:
        """Raise a `CodedError` if this broker may not change topics now."""
        ...

    def check_coordinates(self) -> None:
        """Raise a `CodedError` if this broker may not answer requests for positions now."""
        ...

    def check_positions(self) -> None:
        """Raise a `CodedError` if this broker may not accept commits of positions now."""
        ...

    def begin_append(self) -> None:
        """Prepare the append of a record. Called after one of the checks. Raises
        `StorageError`."""
        ...

    def appended(self, offset: int, settled: Callable[[CodedError | None], None]) -> None:
        """Report a record that was appended at `offset`. `settled` is called, perhaps at once, when
        all in-sync replicas have the record; with an error if, as far as this broker knows, they
        will not get it."""
        ...

    async def trimmed(self, logs: Sequence[Log]) -> Mapping[Log, Exception]:
        """Wait until all in-sync replicas have the same log starts of `logs` as this broker.
        Returns the logs for which that failed, with the reason."""
        ...


class Waiting:
    """A wait until a record is committed, and applied here."""

    __slots__ = ("done", "offset", "settled")

    def __init__(self, offset: int, *, settled: bool = False) -> None:
        self.offset = offset
        self.settled = settled
        """Whether all in-sync replicas are known to have the record."""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(self, error: CodedError) -> None:
        if not self.done.done():
            self.done.set_exception(type(error)(error.message))


class _MetadataSync:
    """The metadata log in a group commit.

    `not_begun` is called when a sync could not begin, because no file handle was free. A sync that
    fails in another way fails the log.
    """

    def __init__(self, log: Log, not_begun: Callable[[], None]) -> None:
        self._log = log
        self._not_begun = not_begun

    def begin_flush(self, *, closed_only: bool = False) -> FlushWork | None:
        log = self._log
        work = log.flusher.begin_flush(closed_only=closed_only)
        if work is None and log.failure is None and log.flusher.synced_offset < log.log_end_offset:
            self._not_begun()
        return work

    def messages_synced(self, work: FlushWork) -> None:
        self._log.flusher.messages_synced(work)

    def end_flush(self, work: FlushWork, error: OSError | None = None) -> None:
        self._log.flusher.end_flush(work, error)
        if error is not None and self._log.failure is None:
            self._not_begun()


class MetadataStore:
    """Makes the changes of topics, positions, users, rules and quotas that requests ask for. A
    change that was answered is on stable storage, here and at all in-sync replicas."""

    def __init__(
        self,
        directory: LogDirectory,
        work: Work,
        commits: GroupCommit,
        observe: Observer,
        leadership: Leadership,
        security: SecurityService,
        gone: Callable[[str, int], None],
    ) -> None:
        """`gone` is called with the name and the number of partitions of each deleted topic."""
        self.metadata: MetadataLog = directory.metadata
        self._reserve = directory.reserve
        self._work = work
        self._commits = commits
        self._observe = observe
        self._sync = _MetadataSync(directory.metadata.log, self._sync_not_begun)
        self.leadership = leadership
        self._security = security
        self._access = self.metadata.state.access
        """The users, rules and quotas in force. They follow those of the metadata log."""
        security.open(self._access)
        self.changed: Callable[[], None] = _nothing
        """Called when topics have changed."""
        self._asked: deque[tuple[str, TopicChange]] = deque()
        """Topics with their changes that are not done, in the order of the requests."""
        self._trying_again: asyncio.Task[None] | None = None
        self._retried: set[Callable[[], None]] = set()
        """The steps that failed for now and are called again soon."""
        self._waiting: deque[Waiting] = deque()
        self._applying: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._changes_to = 0
        """The offset after the last appended record that is not about positions."""
        self._last_topic: Waiting | None = None
        self._serves_from = self.metadata.log.log_end_offset
        self._known = asyncio.Event()
        self._caught_up = False
        """Whether all records that the log had when this broker began to lead are applied."""
        self._stuck = False
        """Whether a change of a topic could not be applied, perhaps because the disk is full."""
        self.positions = PositionChanges(
            self.metadata,
            work,
            self._check_commits,
            lambda data: self._append_encoded(data).done,
            partial(self._within, POSITION_SECONDS),
        )
        self.topics = TopicProposals(
            directory.changes, directory.reserve, self._propose, self._check_topic
        )
        self.metadata.gone = gone
        self.metadata.log.on_advance = self.metadata.log.on_synced = lambda _: self.moved()

    # Leading, and not

    def leads(self) -> None:
        """Begin to answer as the leader, once all records that the log has now are applied."""
        self._serves_from = self.metadata.log.log_end_offset
        self._changes_to = 0
        self._stuck = self._caught_up = False
        self._known.clear()
        self.moved()

    def leads_no_more(self, error: CodedError) -> None:
        """Answer all waiting requests with `error`: the next leader decides about their changes."""
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            each.fail(error)
        self._known.set()

    @property
    def knows(self) -> bool:
        """Whether topics, positions, users and rules include everything that an earlier leader may
        have shown, or cannot include it because of a failure."""
        return self._caught_up or self._stuck or self.metadata.failure is not None

    async def known(self, seconds: float) -> None:
        """Wait until `knows` is true, for `seconds` at most."""
        if not self.knows:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._known.wait(), seconds)

    def _check_topics(self) -> None:
        self.leadership.check_topics()
        self._check_known(LeaderNotAvailable)

    def _check_topic(self, name: str) -> None:
        self._check_topics()
        self.metadata.check_topic(name)

    def check_coordinates(self) -> None:
        self.leadership.check_coordinates()
        self._check_known(NotCoordinator)

    def _check_commits(self) -> None:
        self.leadership.check_positions()
        self._check_known(NotCoordinator)

    def _check_known(self, unknown: type[CodedError]) -> None:
        if self.metadata.failure is not None:
            raise StorageError(self.metadata.failure.message)
        if self.metadata.applied < self._serves_from:
            raise unknown("this broker has just begun to lead, and reads what there is; try again")

    # Applying

    def moved(self) -> None:
        """Apply the records that may be applied. Called whenever the high watermark or the synced
        offset moves."""
        if self._applying is None:
            change = self.metadata.next_change()
            self._answer_waiting()
            if self.metadata.not_read is not None:
                self._read_again_later(self.metadata.not_read)
            if change is None and not self.metadata.unfinished and not self._access_changed:
                self._settle()
            else:
                self._applying = self._work.start(self._apply(change))
                self._applying.add_done_callback(self._applied)

    @property
    def _access_changed(self) -> bool:
        return self._access is not self.metadata.state.access

    async def _take_access(self) -> None:
        while self._access_changed:
            access = self.metadata.state.access
            await self._security.take(access, self._work.in_storage_thread)
            self._access = access

    async def _apply(self, change: TopicChange | None) -> None:
        """Carry out `change`, and apply the records after it."""
        await self._take_access()
        turns = self._work.turns()
        while change is not None or self.metadata.unfinished:
            if change is not None:
                await self._match(change)
                turns.begin()
            await turns.give_way()
            change = self.metadata.next_change()
            await self._take_access()
            self._answer_waiting()

    async def _match(self, change: TopicChange) -> None:
        """Carry out a change of the topic that differs from the state."""
        name = self.metadata.matching
        change.begin()
        while not change.done:
            step = change.step
            await self._work.in_topics_thread(partial(change.run, step))
            change.advance(step)
        self.changed()
        try:
            change.result()
        except StorageError as error:
            self._fail_next(error)
            if self.leadership.alone:
                self.metadata.put_off(name, error)
                self._try_again_later()
            else:
                self._stuck = True
                self._observe("metadata_not_applied", error=error.message)
                await asyncio.sleep(RETRY_SECONDS)

    def _try_again_later(self) -> None:
        if self._trying_again is None and self.metadata.puts_off:
            self._trying_again = self._work.start(self._try_again())

    async def _try_again(self) -> None:
        await asyncio.sleep(RETRY_SECONDS)
        self._trying_again = None
        self.metadata.try_again()
        self.moved()

    def _applied(self, task: asyncio.Task[None]) -> None:
        self._applying = None
        if not task.cancelled():
            task.result()
            self.moved()

    def _settle(self) -> None:
        """After all records that may be applied are: request a sync, so that more may be, and write
        the state if that is due, so that the log stays short."""
        if self.metadata.unsynced:
            self._commits.request(self._sync)
        if self._writing is None and self.metadata.state_due:
            write = self.metadata.writing_state()
            self._writing = self._work.start(self._write_state(write))

    async def _write_state(self, write: StateWrite) -> None:
        try:
            await self._work.in_storage_thread(write.run)
            self.metadata.state_written(write)
        except (OSError, StorageError) as error:
            self._observe("metadata_state_not_written", error=str(error))
        finally:
            self._writing = None

    # Waiting

    def _answer_waiting(self) -> None:
        """Complete the waits whose records are applied, or never will be."""
        waiting = self._waiting
        applied = -1 if self._access_changed else self.metadata.applied
        self._caught_up = self._caught_up or applied >= self._serves_from
        while waiting and waiting[0].settled and waiting[0].offset < applied:
            done = waiting.popleft().done
            if not done.done():
                done.set_result(None)
        failure = self.metadata.failure or self.metadata.log.failure
        if failure is not None:
            self.leads_no_more(failure)
        elif self.knows:
            self._known.set()

    def _fail_next(self, error: StorageError) -> None:
        if self._waiting and self._waiting[0].offset <= self.metadata.applied:
            self._waiting.popleft().fail(error)

    def _read_again_later(self, error: StorageError) -> None:
        """Fail the waits whose records are not applied. They are applied when they can be read."""
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            each.fail(error)
        self._again_later(self.moved)

    def _sync_not_begun(self) -> None:
        """At a single broker: fail the waits whose records are not synced, and sync them later."""
        if not self.leadership.alone:
            return
        log = self.metadata.log
        error = StorageError(
            f"{log.path}: the change is recorded, but was not synced, because no file handle is "
            "free; it is made when one is (raise the limit of open files: ulimit -n)"
        )
        while self._waiting and self._waiting[-1].offset >= log.flusher.synced_offset:
            self._waiting.pop().fail(error)
        self._again_later(self._request_sync)

    def _request_sync(self) -> None:
        self._commits.request(self._sync)

    def _again_later(self, step: Callable[[], None]) -> None:
        """Call `step` after `RETRY_SECONDS`, unless that call is pending."""
        if step not in self._retried:
            self._retried.add(step)
            self._work.start(self._retry(step))

    async def _retry(self, step: Callable[[], None]) -> None:
        await asyncio.sleep(RETRY_SECONDS)
        self._retried.discard(step)
        step()

    def _append(self, record: MetadataRecord) -> Waiting:
        """Append a record; returns the wait for it."""
        return self._append_encoded(finish(encode_checked(record)))

    def _append_encoded(self, data: bytes) -> Waiting:
        self.leadership.begin_append()
        waiting = Waiting(self.metadata.append_encoded(data))
        self._waiting.append(waiting)
        self.leadership.appended(waiting.offset, partial(self._settled, waiting))
        self._commits.request(self._sync)
        return waiting

    def _settled(self, waiting: Waiting, error: CodedError | None) -> None:
        """Complete the wait for a record: the in-sync replicas have it, or `error` says why not."""
        waiting.settled = True
        if error is not None:
            waiting.fail(error)
        self._answer_waiting()

    async def _within(self, seconds: float, done: asyncio.Future[None]) -> None:
        # The wait for a slow disk has no limit; the wait for other brokers has one.
        limit = None if self.leadership.alone else seconds
        try:
            await asyncio.wait_for(asyncio.shield(done), limit)
        except TimeoutError as late:
            raise RequestTimedOut(
                f"the brokers in sync did not all have it within {seconds:g} s; it may still come "
                "true"
            ) from late

    # Topics

    def make(
        self, asked: Iterable[tuple[str, Steps[TopicEntry]]]
    ) -> tuple[Sequence[TopicChange], asyncio.Task[None]]:
        """Begin changes of topics, each given by the topic's name and the steps. Returns the
        changes, and a task that ends when they are done. Changes are carried out one after another,
        in the order of the calls."""
        named = [(topic, SteppedChange(steps)) for topic, steps in asked]
        self._forget_done()
        self._asked += named
        changes = [change for _, change in named]
        return changes, self._work.start(self._carry_out(changes))

    def settle(self, topic: str) -> None:
        """At a single broker: finish at once the change that is under way, and all changes up to
        the last change of `topic`. For a request that cannot wait for a change."""
        self._forget_done()
        needed = 0
        for count, (name, change) in enumerate(self._asked, start=1):
            if name == topic or change.begun:
                needed = count
        self._finish(needed)

    def settle_all(self) -> None:
        """At a single broker: finish all changes at once."""
        self._finish(len(self._asked))

    def _finish(self, count: int) -> None:
        for _ in range(count if self.leadership.alone else 0):
            self.metadata.finish(self._asked.popleft()[1])

    def _forget_done(self) -> None:
        while self._asked and self._asked[0][1].done:
            self._asked.popleft()

    def create_now(self, topic: str, partitions: int) -> None:
        """Create a topic at once, for a request that cannot wait. Raises what
        `TopicProposals.create` raises, and `LeaderNotAvailable` at a cluster member."""
        if not self.leadership.alone:
            raise LeaderNotAvailable(f"topic {topic!r} is not made yet; try again")
        change = SteppedChange(self.topics.create(topic, partitions, {}))
        self.metadata.finish(change)
        change.result()

    async def _carry_out(self, changes: Sequence[TopicChange]) -> None:
        turns = self._work.turns()
        for change in changes:
            async with self._turn:
                # An earlier change that timed out may still be applied, and this change is checked
                # against its result.
                await self._changes_applied()
                self.metadata.apply_put_off()
                change.begin()
                while not change.done:
                    step = change.step
                    if isinstance(change.work, Proposal):
                        await self._proposed(change)
                        change.run(step)
                    else:
                        await self._work.in_topics_thread(partial(change.run, step))
                    change.advance(step)
            await turns.give_way()
        self._forget_done()

    async def _changes_applied(self) -> None:
        """Wait until an earlier change, whose own wait timed out, is applied."""
        if self.metadata.applied < self._changes_to:
            waiting = Waiting(self._changes_to - 1, settled=True)
            self._waiting.append(waiting)
            self._commits.request(self._sync)
            try:
                await self._within(TOPIC_SECONDS, waiting.done)
            except CodedError:
                self._changes_to = min(self._changes_to, self.metadata.log.log_end_offset)

    def _propose(self, record: MetadataRecord) -> int:
        self._last_topic = waiting = self._append(record)
        return waiting.offset

    async def _proposed(self, change: TopicChange) -> None:
        proposal, waiting = change.work, self._last_topic
        if not isinstance(proposal, Proposal) or waiting is None:
            return
        self._changes_to = proposal.offset + 1
        try:
            await self._within(TOPIC_SECONDS, waiting.done)
            proposal.applied = True
        except CodedError as error:
            proposal.failure = error

    # Users, rules and quotas

    def change_access(self, plan: AccessPlan[R]) -> asyncio.Future[R]:
        """Change users, rules or quotas as `plan` says. The future is done when the change is in
        force."""
        # Shielded: a client that disconnects must not stop a change halfway, because the next
        # change is planned upon its result.
        return asyncio.shield(self._work.start(self._change_access(plan)))

    async def _change_access(self, plan: AccessPlan[R]) -> R:
        async with self._turn:
            await self._changes_applied()
            self._check_topics()
            outcome, records = await self._work.in_storage_thread(plan)
            waits = [self._append(record) for record in records]
            if waits:
                self._changes_to = waits[-1].offset + 1
                await self._within(TOPIC_SECONDS, waits[-1].done)
            return outcome

    # Journal

    def removals(self, topic: str) -> list[Removal]:
        """Return what left the logs of a topic name, the least recently changed first."""
        return self.metadata.state.journal.of(topic)

    async def record_removed(self, removals: Sequence[Removal]) -> None:
        """Record in the journal what left logs. Raises a `CodedError` if not all is recorded; it
        may be repeated then."""
        for first in range(0, len(removals), MAX_TOPIC_REMOVALS):
            self._check_topics()
            record = MessagesRemoved(removals[first : first + MAX_TOPIC_REMOVALS])
            # A full disk must not keep retention from recording what it removes.
            waiting = self._reserve.retrying(partial(self._append, record))
            await self._within(POSITION_SECONDS, waiting.done)

    async def trimmed(self, logs: Sequence[Log]) -> Mapping[Log, Exception]:
        """Wait until all in-sync replicas have the new log starts of `logs`, which are on stable
        storage here. Returns the logs for which that failed, with the reason."""
        return await self.leadership.trimmed(logs)


def _nothing() -> None:
    """Do nothing: the default of a callback."""
