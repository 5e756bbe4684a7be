"""The journal is bounded: in what a pass of retention writes, and when it is full, in memory and on
the disk, also after a start."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from horolog import blocking
from horolog.storage.directory.journal import (
    MAX_JOURNAL_BYTES,
    MAX_TOPIC_REMOVALS,
    Cause,
    Journal,
    Removal,
)
from horolog.storage.directory.truncations import (
    MAX_FILE_BYTES,
    MAX_LINES,
    TRUNCATIONS_FILE,
    Truncations,
)
from horolog.storage.metadata.records import MessagesRemoved
from horolog.testing.broker import BrokerThread
from horolog.testing.directories import DataDirectory
from horolog.testing.files import QuickFile, QuickFiles
from horolog.tests.weights import memory_of

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
PARTITIONS = 20


def test_a_pass_of_retention_is_one_record_and_one_entry_of_each_log(tmp_path: Path) -> None:
    limits = {"retention.ms": DAY_MS, "segment.ms": HOUR_MS}
    with BrokerThread(tmp_path / "data", limits) as broker:
        broker.clock.freeze()
        now_ms = broker.clock.now_ms()
        with blocking.Admin(broker.address) as admin, blocking.Producer(broker.address) as producer:
            admin.create_topic("clicks", partitions=PARTITIONS)
            for age_ms in (20 * HOUR_MS, 18 * HOUR_MS, 16 * HOUR_MS, 0):
                for partition in range(PARTITIONS):
                    producer.send("clicks", b"v", timestamp_ms=now_ms - age_ms, partition=partition)
        before = broker.in_loop(metadata_end)
        broker.clock.step(9 * HOUR_MS / 1000)
        assert broker.in_loop(metadata_end) == before + 1
        with blocking.Admin(broker.address) as admin:
            found = admin.describe_removals("clicks", range(PARTITIONS))
        assert sorted(each.partition for each in found.removals) == list(range(PARTITIONS))
        for each in found.removals:
            assert (each.cause, each.first_offset, each.end_offset) == ("retention", 0, 3)
            assert (each.messages, each.times) == (3, 1)
            assert each.largest_timestamp_ms == now_ms - 16 * HOUR_MS
        assert {each.complete_from_ms for each in found.partitions} == {now_ms - 16 * HOUR_MS + 1}
        broker.clock.step(HOUR_MS / 1000)
        assert broker.in_loop(metadata_end) == before + 1, "nothing left in this pass"


async def metadata_end(broker: Any) -> int:
    end: int = broker.directory.metadata.log.log_end_offset
    return end


TOPICS = 17
"""More than the journal has room for at `MAX_TOPIC_REMOVALS` each."""


def removals(topic: int, count: int = MAX_TOPIC_REMOVALS + 100) -> Iterator[Removal]:
    """Removals that are not joined, with texts of their own."""
    for number in range(count):
        yield Removal(
            Cause.TRIM,
            f"User:{topic}-{number}",
            f"topic-with-a-usual-name-{topic}",
            f"{topic:022d}",
            number,
            *(0, 7, 7, number, number + 1, number + 2, number + 3),
        )


def test_a_full_journal_takes_no_more_memory_than_it_says() -> None:
    def full() -> Journal:
        journal = Journal()
        for topic in range(TOPICS):
            for each in removals(topic):
                journal.add(each)
        return journal

    taken, journal = memory_of(full, lambda journal: journal.size_bytes)
    assert taken <= journal.size_bytes <= MAX_JOURNAL_BYTES
    assert journal.size_bytes > MAX_JOURNAL_BYTES * 0.99


def test_a_start_with_a_full_journal(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path / "data")
    data.files = QuickFiles()
    metadata = data.open().metadata
    plain = Journal()
    for topic in range(TOPICS):
        entries = tuple(removals(topic))
        for each in entries:
            plain.add(each)
        for first in range(0, len(entries), MAX_TOPIC_REMOVALS):
            metadata.append(MessagesRemoved(entries[first : first + MAX_TOPIC_REMOVALS]))
    metadata.log.flusher.flush()
    for restarted in (data.restart(), data.restart()):
        journal = restarted.metadata.state.journal
        assert list(journal) == list(plain)
        assert journal.size_bytes <= MAX_JOURNAL_BYTES
        assert max(len(journal.of(each.topic)) for each in plain) <= MAX_TOPIC_REMOVALS
    folder = tmp_path / "data" / "metadata-log"
    stored = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert stored <= MAX_JOURNAL_BYTES
    data.close()


def test_truncations_are_bounded_whatever_is_in_the_file(tmp_path: Path) -> None:
    truncations = Truncations(tmp_path, QuickFiles())
    for each in removals(1, count=5):
        truncations.add(each._replace(cause=str(Cause.TRUNCATION)))
    path = tmp_path / TRUNCATIONS_FILE
    lines = path.read_bytes()
    path.write_bytes(lines * (3 * MAX_FILE_BYTES // len(lines)))
    files = ReadBytes()
    found = Truncations(tmp_path, files)
    found.load()
    assert files.read <= MAX_FILE_BYTES
    assert [each.partition for each in found.of("topic-with-a-usual-name-1")][-1] == 4
    # The next one makes the file small again.
    found.add(next(removals(2))._replace(cause=str(Cause.TRUNCATION)))
    assert path.read_bytes().count(b"\n") <= MAX_LINES
    assert path.stat().st_size < MAX_FILE_BYTES
    assert len(Truncations(tmp_path, files).of("topic-with-a-usual-name-2")) == 1


class CountedFile(QuickFile):
    """Counts the bytes that are read."""

    __slots__ = ("count",)
    count: Callable[[int], None]

    def pread(self, size: int, position: int) -> bytes:
        data = super().pread(size, position)
        self.count(len(data))
        return data


class ReadBytes(QuickFiles):
    """Counts the bytes that are read of files."""

    read = reads = 0

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> QuickFile:
        file = super().open(path, create=create, read_only=read_only)
        counted = CountedFile(file.fileno(), path)
        counted.count = self._add
        return counted

    def _add(self, read_bytes: int) -> None:
        self.read += read_bytes
        self.reads += 1


@pytest.mark.parametrize("claimed_bytes", [100, 40_000, 1 << 24])
def test_a_start_reads_a_hostile_tail_a_few_times(tmp_path: Path, claimed_bytes: int) -> None:
    """A tail full of what looks like the beginnings of messages, which a producer may have sent."""
    data = DataDirectory(tmp_path / "data")
    data.open().create_topic("t", 1, {})
    for number in range(10):
        data.append("t", 1000 + number)
    killed = data.copy(tmp_path / "killed")
    path = killed.path / "t-0" / f"{0:020d}.log"
    head = (12).to_bytes(8, "big") + claimed_bytes.to_bytes(4, "big") + bytes(4) + b"\1" + bytes(9)
    tail = head * 40_000
    path.write_bytes(path.read_bytes() + tail)
    killed.files = files = ReadBytes()
    assert killed.open().log("t", 0).log_end_offset == 10
    assert files.read < 8 * len(tail) + (16 << 20)
    assert files.reads < 10_000
    (entry,) = killed.directory.truncations.of("t")
    assert (entry.first_offset, entry.end_offset, entry.messages) == (10, 10, -1)
    killed.close()
    data.close()


def test_a_broker_reads_truncations_when_it_starts(tmp_path: Path) -> None:
    """Requests find them in memory: none waits for the disk in the event loop."""
    data = DataDirectory(tmp_path / "data")
    data.open().truncations.add(next(removals(1))._replace(cause=str(Cause.TRUNCATION)))
    data.close()
    with BrokerThread(tmp_path / "data") as broker:

        async def loaded(broker: Any) -> bool:
            return broker.directory.truncations.loaded is not None

        assert broker.in_loop(loaded)
        with blocking.Admin(broker.address) as admin:
            (found,) = admin.describe_removals("topic-with-a-usual-name-1").removals
        assert found.cause == "truncation"
