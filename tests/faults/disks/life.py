"""The life of a data directory: what is done to it, and what it has promised by then."""

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from horolog.protocol.errors import StorageError
from horolog.protocol.records.batch import finish_batch
from horolog.protocol.records.kernel import RecordEncoder
from horolog.protocol.records.messages.sets import NewRecord, build_set
from horolog.storage.directory.position_records import StoredPosition
from horolog.storage.log.flush import FlushWork
from horolog.storage.log.log import Log
from horolog.testing.directories import DataDirectory, read_messages
from horolog.testing.files import FaultyFiles, QuickFiles
from horolog.testing.logs import delete_due
from horolog.testing.recording import RecordingFiles
from horolog.tests.followers.appending import append_copy

from .promises import LogPromise, Message, Partition, Promise, Promises, TopicState

START_MS = 1_000_000

DATA = "data"
"""The name of the data directory."""


class Life:
    """A data directory in the folder `path`, whose every change is recorded.

    The sync that `without` names is left out. `promise` holds at the beginning, for a directory
    that has been used before.
    """

    def __init__(
        self,
        path: Path,
        *,
        without: str | None = None,
        promise: Promise | None = None,
    ) -> None:
        path.mkdir(exist_ok=True)
        self.data = DataDirectory(path / DATA, file_delete_delay_ms=0)
        self.data.clock.step(START_MS - self.data.clock.now_ms())
        self.files = FaultyFiles(QuickFiles())
        self.recording = RecordingFiles(self.files, path, without=without)
        self.data.files = self.recording
        self.promises = Promises(promise)
        self._now.recovered = promise is not None
        self.written: dict[Partition, dict[int, Message]] = {}
        self._batch_starts: dict[Message, int] = {}
        """The first offset of the batch that a message is in; sets are cut between messages."""
        self.opened = False
        self._sent = 0
        self._note()

    @property
    def _now(self) -> Promise:
        return self.promises.now

    def _note(self) -> None:
        self.promises.note(len(self.recording.operations))

    @contextmanager
    def _changing(self, key: str, new: TopicState | None) -> Iterator[None]:
        """A topic is old or new while it is being changed, and new afterwards."""
        self._now.topics[key] = [*self._now.topics.get(key, [None]), new]
        self._note()
        yield
        self._now.topics[key] = [new]
        self._note()

    def open(self) -> None:
        self._now.clean = False
        self._note()
        self.data.open()
        self.opened = True
        for topic, partition in self.data.directory.partitions():
            log = self.data.directory.log(topic, partition)
            found = read_messages(log)
            self.written[topic, partition] = {offset: (ms, value) for offset, ms, _, value in found}
            promise = self._now.logs[topic, partition]
            promise.sealed_below = min(promise.sealed_below, log.segments[-1].base_offset)

    def close(self) -> None:
        self._now.stopped = True
        self._note()
        self.opened = False
        self.data.close()
        for key in self.written:
            self._all_safe(key)
            if not self.data.events.named("checksums_not_written"):
                self._now.logs[key].sealed_below = self._now.logs[key].end_offset
        self._now.clean = True
        self._note()

    def close_without(self, topic: str) -> None:
        """Stop while the log of `topic` cannot be synced: all but that one stops cleanly."""
        self._now.stopped = self._now.recovered = True
        self._note()
        self.files.fail("sync", errno.EIO, name=f"{self.log(topic).segments[-1].log_path.name}")
        # The logs are closed in the order in which they were opened.
        assert next(iter(self.data.directory.open_logs())) is self.log(topic)
        self.opened = False
        with suppress(StorageError):
            self.data.close()
        for key in self.written:
            if key[0] != topic:
                self._all_safe(key)
        self._note()

    def create(self, name: str, partitions: int = 1, **overrides: object) -> None:
        texts = {key.replace("_", "."): str(value) for key, value in overrides.items()}
        for partition in range(partitions):
            self._now.logs.setdefault((name, partition), LogPromise())
        with self._changing(name, TopicState(partitions, texts)):
            self.data.directory.create_topic(name, partitions, texts)
        self.written |= {(name, partition): {} for partition in range(partitions)}

    def create_partitions(self, name: str, partitions: int) -> None:
        entry = self.data.directory.topics()[name]
        new = [(name, partition) for partition in range(entry.partitions, partitions)]
        for key in new:
            self._now.logs.setdefault(key, LogPromise())
        with self._changing(name, TopicState(partitions, dict(entry.overrides))):
            self.data.directory.create_partitions(name, partitions)
        self.written |= {key: {} for key in new}

    def alter(self, name: str, overrides: Mapping[str, str]) -> None:
        partitions = sum(topic == name for topic, _ in self.data.directory.partitions())
        with self._changing(name, TopicState(partitions, dict(overrides))):
            self.data.directory.alter_topic(name, overrides)

    def delete(self, name: str) -> None:
        for key, values in self._now.positions.items():
            if key[1] == name:
                values.append(None)
        with self._changing(name, None):
            self.data.directory.delete_topic(name)
        self._now.logs = {key: log for key, log in self._now.logs.items() if key[0] != name}
        self.written = {key: log for key, log in self.written.items() if key[0] != name}
        for key in self._now.positions:
            if key[1] == name:
                self._now.positions[key] = [None]
        self._note()

    def write_state(self) -> None:
        """Rewrite the state of the metadata log, which begins behind it then."""
        self.data.directory.metadata.write_state()

    def commit(self, name: str, topic: str, *offsets: int, metadata: str = "") -> None:
        """Commit a position in each of the topic's partitions, from the first one on."""
        positions = []
        for partition, offset in enumerate(offsets):
            self._now.positions.setdefault((name, topic, partition), [None]).append(offset)
            positions.append(StoredPosition(topic, partition, offset, -1, START_MS, metadata))
        self._note()
        self.data.commit(name, *positions)
        for partition, offset in enumerate(offsets):
            self._now.positions[name, topic, partition] = [offset]
        self._note()

    def log(self, topic: str, partition: int = 0) -> Log:
        return self.data.directory.log(topic, partition)

    def append(
        self, topic: str, *timestamps_ms: int, partition: int = 0, value_bytes: int = 20
    ) -> None:
        """Append one set: a message of its own for each timestamp."""
        self._append(topic, partition, timestamps_ms, value_bytes, None)

    def append_numbered(self, topic: str, *timestamps_ms: int, producer_id: int = 1) -> None:
        """Append one batch of an idempotent producer."""
        self._append(topic, 0, timestamps_ms, 20, producer_id)

    def _append(
        self,
        topic: str,
        partition: int,
        timestamps_ms: Sequence[int],
        value_bytes: int,
        producer_id: int | None,
    ) -> None:
        log = self.log(topic, partition)
        promise = self._now.logs[topic, partition]
        messages: list[Message] = []
        for timestamp_ms in timestamps_ms:
            self._sent += 1
            value = f"{topic} {self._sent} ".encode()
            messages.append((timestamp_ms, value + b"." * (value_bytes - len(value))))
        self.data.clock.advance(1)
        for offset, message in enumerate(messages, log.log_end_offset):
            promise.sent.setdefault(offset, set()).add(message)
            promise.append_times[message] = self.data.clock.now_ms()
        self._note()
        if producer_id is None:
            appended = log.appender.append(_message_set(messages))
        else:
            known = log.producers.states.get(producer_id)
            sequence = known.batches[-1].next_sequence if known is not None else 0
            appended = log.appender.append(_numbered_batch(messages, producer_id, sequence))
            assert not appended.repeated
            self._batch_starts |= dict.fromkeys(messages, appended.first_offset)
        self.written[topic, partition] |= dict(enumerate(messages, appended.first_offset))

    def append_stored(self, topic: str, offset: int, *timestamps_ms: int) -> None:
        """Append a set as another log stored it, from `offset` on, at or behind the log end."""
        [old] = self._now.topics[topic]
        assert old is not None
        gaps = replace(old, gaps=True)
        self._now.topics[topic].append(gaps)
        messages: list[Message] = [(ms, f"{topic} stored {ms}".encode()) for ms in timestamps_ms]
        promise = self._now.logs[topic, 0]
        for at, message in enumerate(messages, offset):
            promise.sent.setdefault(at, set()).add(message)
        self._note()
        append_copy(self.log(topic), _message_set(messages, offset))
        self._now.topics[topic] = [gaps]
        self._note()
        self.written[topic, 0] |= dict(enumerate(messages, offset))

    def flush(self, topic: str, partition: int = 0) -> None:
        log = self.log(topic, partition)
        log.flusher.flush()
        self._all_safe((topic, partition))
        if not self.data.events.named("checksums_not_written"):
            self._now.logs[topic, partition].sealed_below = log.segments[-1].base_offset
        self._note()

    def begin_flush(self, topic: str) -> FlushWork:
        """Have a sync of the log as it is now, to be run later."""
        work = self.log(topic).flusher.begin_flush()
        assert work is not None
        return work

    def end_flush(self, topic: str, work: FlushWork) -> None:
        work.run()
        self.log(topic).flusher.end_flush(work)
        self._all_safe((topic, 0), work.target_offset)
        self._note()

    def _all_safe(self, key: Partition, below: int | None = None) -> None:
        promise = self._now.logs[key]
        written = self.written[key]
        if below is not None:
            written = {offset: m for offset, m in written.items() if offset < below}
        promise.safe = dict(written)
        promise.end_offset = max([promise.end_offset, *(offset + 1 for offset in written)])

    def checkpoint(self) -> None:
        self.data.directory.write_checkpoints()

    def maintain(self, topic: str, partition: int = 0, *, now_ms: int) -> None:
        """Let retention drop what may go."""
        log = self.log(topic, partition)
        plan = log.expiry.plan_retention(now_ms)
        bases = [*(segment.base_offset for segment in log.segments), log.log_end_offset]
        start = bases[plan.delete_count]
        promise = self._now.logs[topic, partition]
        promise.safe = {offset: m for offset, m in promise.safe.items() if offset >= start}
        promise.doomed_below = start
        self._note()
        plan = log.expiry.expire(now_ms)
        kept = {o: m for o, m in self.written[topic, partition].items() if o >= start}
        self.written[topic, partition] = kept
        self.data.directory.secure_log_starts([log])
        promise.start_offset = log.log_start_offset
        self._know_producers(log, promise)
        self._note()
        log.expiry.drop_expired(plan)

    def _know_producers(self, log: Log, promise: LogPromise) -> None:
        ends = ((one, known.batches[-1].last_offset) for one, known in log.producers.states.items())
        promise.producers = {one: end for one, end in ends if end < log.log_start_offset}

    def trim(self, topic: str, offset: int, partition: int = 0) -> None:
        """Drop what is below `offset`, in the steps of the request for it."""
        log = self.log(topic, partition)
        log.expiry.roll_before(offset)
        if log.recovery_point < offset:
            self.flush(topic, partition)
        promise = self._now.logs[topic, partition]
        promise.safe = {at: m for at, m in promise.safe.items() if at >= offset}
        promise.doomed_below = max(promise.doomed_below, offset)
        self._note()
        log.expiry.trim(offset)
        kept = {at: m for at, m in self.written[topic, partition].items() if at >= offset}
        self.written[topic, partition] = kept
        self.data.directory.secure_log_starts([log])
        promise.start_offset = offset
        self._know_producers(log, promise)
        self._note()
        log.expiry.drop_expired()

    def batch_starts(self, topic: str) -> list[int]:
        """Offsets of messages with no other one before them in their batch."""
        written = self.written[topic, 0]
        return [at for at, message in written.items() if self._first_with(at, message) == at]

    def _first_with(self, offset: int, message: Message) -> int:
        return self._batch_starts.get(message, offset)

    def first_cut(self, topic: str, offset: int, partition: int = 0) -> int:
        """The first offset that a cut at `offset` takes: a batch that holds it goes as a whole."""
        message = self.written[topic, partition].get(offset)
        return offset if message is None else self._first_with(offset, message)

    def remove_deleted(self) -> None:
        delete_due(self.data.directory.deletions)

    def truncate(self, topic: str, offset: int, partition: int = 0) -> None:
        promise = self._now.logs[topic, partition]
        written = self.written[topic, partition]
        first = self.first_cut(topic, offset, partition)
        promise.safe = {at: m for at, m in promise.safe.items() if at < first}
        log = self.log(topic, partition)
        # A start knows where messages end, and not that the log went on at a later offset.
        ends = [log.segments[0].base_offset, *(at + 1 for at in written if at < first)]
        promise.end_offset = min(promise.end_offset, first, ends[-1])
        promise.start_offset = min(promise.start_offset, first)
        promise.producers = {one: end for one, end in promise.producers.items() if end < first}
        promise.cut_into_batch |= first < offset
        promise.was_cut = True
        becomes_active = [s.base_offset for s in log.segments if s.base_offset <= offset]
        promise.sealed_below = min([promise.sealed_below, *becomes_active[-1:]])
        states = [state for state in self._now.topics[topic] if state is not None]
        # A batch that holds the offset goes as a whole, and then there is a gap.
        self._now.topics[topic] = [*states, *(replace(state, gaps=True) for state in states)]
        self._note()
        log.truncate(offset)
        self._now.topics[topic] = [*(replace(state, gaps=log.gaps) for state in states)]
        self.written[topic, partition] = {at: m for at, m in written.items() if at < first}


def _numbered_batch(messages: list[Message], producer_id: int, sequence: int) -> bytearray:
    encoder = RecordEncoder()
    for timestamp_ms, value in messages:
        encoder.add(value, None, timestamp_ms)
    return finish_batch(encoder, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def _message_set(messages: list[Message], base_offset: int = 0) -> bytearray:
    new = [NewRecord(value, timestamp_ms=timestamp_ms) for timestamp_ms, value in messages]
    return build_set(new, base_offset=base_offset)
