"""Logs of the simulation that are on disk as well: what is done to the model is done to both."""

from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from horolog.protocol.records.batch import finish_batch
from horolog.protocol.records.kernel import RecordEncoder
from horolog.protocol.records.messages.sets import NewRecord, build_set, records
from horolog.replication.partition_log import Partition
from horolog.storage.log.log import Log
from horolog.storage.log.retention import plan_retention
from horolog.storage.log.trimmed import read_at_once
from horolog.storage.read import reader
from horolog.storage.replica.copy_facts import CopyFacts, ReceivedSets, Stored
from horolog.storage.replica.replica_log import ReplicaLog
from horolog.testing.logs import LogFolder
from horolog.testing.simulation.disk import Entry, SimulatedDirectory, SimulatedLog
from horolog.testing.simulation.times import Judged, TimeAnswers, true_answers
from horolog.times import later

SEGMENT_BYTES = 700
MAX_BYTES = 1 << 20


class Drops:
    """A directory of which only this is needed."""

    damage_met = False

    def __init__(self) -> None:
        self.failing: dict[Partition, str] = {}

    def secure_log_start(self, log: Log) -> None:
        log.expiry.drop_expired()

    def failed(self, log: Log, error: Exception) -> None:
        raise error


def encoded(entry: Entry, time_ms: int = 0) -> bytes:
    """A set of one message; its format depends on the message, and its size on no time."""
    value = repr(entry).encode()
    if entry[2] % 3 == 0:
        encoder = RecordEncoder()
        encoder.add(value, None, time_ms, ())
        return bytes(finish_batch(encoder))
    return bytes(build_set([NewRecord(value, timestamp_ms=time_ms)], magic=1))


def decoded(data: bytes) -> list[Any]:
    return [
        eval(bytes(record.value or b""), {}, {})
        for record in records(data, max_decompressed_bytes=MAX_BYTES)
    ]


class StoredToo(SimulatedLog):
    """Compares after each step."""

    __slots__ = ("folder", "stored")

    place: Path
    """Where the folders of one schedule are; of the class that a test makes."""
    made: int
    folders: list[LogFolder]
    """All of them: those of a disk that was swapped are of no machine any more."""

    def __init__(self, partition: Partition, directory: SimulatedDirectory) -> None:
        super().__init__(partition, directory)
        self.make(self.new_place())

    def new_place(self) -> Path:
        cls = type(self)
        cls.made += 1
        return cls.place / f"{cls.made}-{self.directory.broker_id}"

    def make(self, place: Path) -> None:
        self.folder = LogFolder(place)
        type(self).folders.append(self.folder)
        self.folder.open(high_watermark=0, follows=True, segment_bytes=SEGMENT_BYTES)
        self._adopt()

    def _adopt(self) -> None:
        self.stored = ReplicaLog(self.folder.log, Drops())
        self.stored.follow()

    def check(self) -> None:
        stored = self.stored
        end, start = len(self.entries), self.log_start_offset
        assert (stored.log_start_offset, stored.log_end_offset) == (start, end)
        assert stored.high_watermark == self.high_watermark
        assert stored.synced_offset <= end
        for offset in {start, (start + end) // 2, end - 1}:
            if start <= offset < end:
                ours = stored.epochs.epoch_at(offset)
                assert ours == self.epochs.epoch_at(offset), f"epoch at {offset}"
        if end > start:
            assert stored.epochs.last_epoch == self.epochs.last_epoch

    def check_bytes(self) -> None:
        """All messages are there."""
        found, offset = [], self.log_start_offset
        while offset < self.stored.log_end_offset:
            copied = self.stored.read_stored(offset, MAX_BYTES)
            some = self.decoded(copied.data.found.read())
            found += some
            offset += len(some)
        assert found == self.entries[self.log_start_offset :]

    def set_high_watermark(self, offset: int) -> None:
        super().set_high_watermark(offset)
        self.stored.set_high_watermark(offset)
        self.check()

    def append(self, entry: Entry, time_ms: int) -> None:
        log = self.stored.log
        if log.epochs.history.last_epoch != entry[0]:
            self.stored.lead(entry[0])
            self.stored.begin_epoch(entry[0], log.log_end_offset)
        self.store(entry, time_ms)
        super().append(entry, time_ms)
        self.check()

    def store(self, entry: Entry, time_ms: int) -> None:
        self.stored.log.appender.append(bytearray(encoded(entry, time_ms)))

    def answers(self) -> TimeAnswers:
        """What the log on the disk says of the times of its messages."""
        log, targets_ms = self.folder.log, self.targets_ms()
        self.read_trimmed(log)
        found = self.folder.found(*targets_ms)
        largest = reader.find_largest(log).run()
        plans = [
            log.expiry.plan_retention(later(target_ms, log.settings.retention_ms + 1))
            for target_ms in targets_ms
        ]
        bases = [*self.folder.bases(), log.log_end_offset]
        return TimeAnswers(
            tuple(-1 if one is None else one[1] for one in found),
            (),
            (-1, -1) if largest is None else (largest.timestamp_ms, largest.offset),
            tuple(max(bases[plan.delete_count], log.log_start_offset) for plan in plans),
        )

    def read_trimmed(self, log: Log) -> None:
        read_at_once(log)

    def right_answers(self) -> TimeAnswers:
        """What it has to say, by the messages from the log start on."""
        log, targets_ms = self.folder.log, self.targets_ms()
        start, end = self.log_start_offset, len(self.entries)
        shown = self.times.of[: self.high_watermark]
        firsts, _, largest, _ = true_answers(shown, [], start, targets_ms)
        if start == end:
            return TimeAnswers((), (), largest, ())
        begins = sorted({start, *(base for base in self.folder.bases() if start < base < end)})
        segments = [
            Judged(base, behind, behind - base, max(self.times.of[base:behind]))
            for base, behind in pairwise([*begins, end])
        ]
        kept = (
            plan_retention(
                segments,
                log.settings,
                now_ms=later(target_ms, log.settings.retention_ms + 1),
                high_watermark=self.high_watermark,
            ).delete_count
            for target_ms in targets_ms
        )
        return TimeAnswers(firsts, (), largest, tuple([*begins, end][count] for count in kept))

    def targets_ms(self) -> list[int]:
        return sorted(set(self.times.of[self.log_start_offset :]))

    def decoded(self, data: bytes) -> list[Any]:
        return decoded(data)

    def size_bytes(self, offset: int, count: int) -> int:
        """Of so many messages."""
        wanted = self.entries[offset : offset + count]
        return sum(len(encoded(one)) for one in wanted if one is not None)

    def read_stored(self, offset: int, max_bytes: int) -> Stored:
        wanted = self.entries[offset : offset + max(1, max_bytes)]
        copied = self.stored.read_stored(offset, self.size_bytes(offset, len(wanted)))
        data, facts = copied.data.found.read(), copied.data.facts.encode()
        some = self.decoded(data)
        assert some == wanted[: len(some)]
        if copied.exact:
            assert copied.next_offset == offset + len(some)
        stretch = self.stretch(offset, offset + len(some))
        return Stored((stretch, data, facts), offset + len(some), max(len(some), 1))

    def append_stored(self, stored: Stored) -> bool:
        simulated, data, facts = stored.data
        self.stored.follow()
        stretch = ReceivedSets(data, CopyFacts.decode(facts))
        self.stored.append_stored(Stored(stretch, stored.next_offset, len(data)))
        count = len(simulated.entries)
        appended = super().append_stored(Stored(simulated, stored.next_offset, count))
        self.check()
        return appended

    def truncate(self, offset: int) -> None:
        super().truncate(offset)
        self.stored.truncate(offset)
        self.check()

    def truncate_fully(self, offset: int, producers: Any) -> None:
        super().truncate_fully(offset, producers)
        self.stored.truncate_fully(offset, None)
        self.check()

    def raise_log_start(self, offset: int) -> None:
        super().raise_log_start(offset)
        self.stored.raise_log_start(offset)
        self.check()

    def sync(self) -> None:
        super().sync()
        self.stored.log.flusher.flush()
        assert self.stored.synced_offset == len(self.entries)

    def lose(self, random: Random) -> None:
        super().lose(random)
        self.stored.truncate(len(self.entries))

    def open(self) -> None:
        super().open()
        self.folder.log.hold_high_watermark(None)
        self.folder.kill_and_restart()
        self.folder.log.hold_high_watermark(self.high_watermark)
        self._adopt()
        log = self.folder.log
        if log.high_watermark != self.high_watermark:
            log.watermark.hold(None)
            log.watermark.offset = self.high_watermark
            log.hold_high_watermark(self.high_watermark)
        self.check()
        self.check_bytes()
