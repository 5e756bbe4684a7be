"""Directories that a real Kafka 0.10.2 wrote: opened as they are, with Kafka's own answers."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from horolog.protocol.records.layout import MESSAGE_CODECS
from horolog.protocol.records.message import records
from horolog.storage.files import SystemFiles
from horolog.storage.log import Log
from horolog.storage.verify import verify
from horolog.testing.directories import DataDirectory
from horolog.testing.logs import LogFolder, timed_set

GOLDEN = Path(__file__).parent / "kafka-0.10.2"
EARLIEST, LATEST = -2, -1
NOT_BEFORE_0_10 = 43
"""What Kafka answers where the topic's format knows no times."""
NOTHING_FOUND = (-1, -1)


@dataclass(frozen=True)
class Topic:
    """One topic, and what Kafka said of it."""

    name: str
    state: str
    """`clean` after a clean stop, `killed` while the broker ran."""

    @property
    def files(self) -> Path:
        return GOLDEN / self.name / self.state

    @property
    def expected(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((GOLDEN / self.name / "expected.json").read_text())
        return content

    @property
    def timestamp_type(self) -> str:
        kind: str = self.expected["settings"].get("message.timestamp.type", "CreateTime")
        return kind

    @property
    def messages(self) -> list[tuple[int, int, bytes | None, bytes | None]]:
        """Offset, timestamp, key, value."""
        return [
            (offset, timestamp_ms, key and key.encode(), value and value.encode())
            for offset, timestamp_ms, key, value in self.expected["messages"]
        ]

    @property
    def answers(self) -> list[tuple[int, tuple[int, int]]]:
        """Target, and the timestamp and offset found for it.

        Without a message format set for the topic, messages without times are just not found.
        """
        return [
            (target, NOTHING_FOUND if error == NOT_BEFORE_0_10 else (timestamp_ms, offset))
            for target, error, timestamp_ms, offset in self.expected["list_offsets_v1"]
        ]

    def logs(self) -> dict[str, bytes]:
        """Kafka's log files."""
        return {path.name: path.read_bytes() for path in self.files.glob("*.log")}


TOPICS = [
    Topic(expected.parent.name, state)
    for expected in sorted(GOLDEN.glob("*/expected.json"))
    for state in ("clean", "killed")
    if (expected.parent / state).is_dir()
]
CLEAN = [topic for topic in TOPICS if topic.state == "clean"]

every_topic = pytest.mark.parametrize(
    "topic", TOPICS, ids=[f"{topic.name}-{topic.state}" for topic in TOPICS]
)


def test_the_data_is_there() -> None:
    assert len(CLEAN) == 15
    assert len(TOPICS) - len(CLEAN) == 4


def read_all(log: Log) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
    """What a consumer reads, slice by slice."""
    offset = log.log_start_offset
    while offset < log.high_watermark:
        data = log.read(offset, 2_000, whole_first=True).read()
        for record in records(data, max_decompressed_bytes=1 << 24, from_offset=offset):
            yield record.offset, record.timestamp_ms, record.key, record.value
            offset = record.offset + 1


def answer(log: Log, target: int) -> tuple[int, int]:
    """Timestamp and offset, as list-offsets version 1 answers."""
    if target == LATEST:
        return -1, log.high_watermark
    if target == EARLIEST:
        return -1, log.log_start_offset
    found = log.find_time(target).run()
    return (found.timestamp_ms, found.offset) if found else NOTHING_FOUND


def assert_equals_kafka(log: Log, topic: Topic) -> None:
    messages = topic.messages
    log.prepare()
    assert list(read_all(log)) == messages
    assert [(target, answer(log, target)) for target, _ in topic.answers] == topic.answers


def assert_every_time_found(log: Log, topic: Topic) -> None:
    """Each timestamp, one before it and one after it, against a look at every message."""
    messages = topic.messages
    for target in sorted({message[1] + delta for message in messages for delta in (-1, 0, 1)}):
        if target >= 0:
            first = next(((at, offset) for offset, at, *_ in messages if at >= target), None)
            assert answer(log, target) == (first or NOTHING_FOUND), target
    largest_ms = max(message[1] for message in messages)
    found = log.find_largest().run()
    assert (found and found.timestamp_ms) == (largest_ms if largest_ms >= 0 else None)


def assert_goes_on(log: Log, topic: Topic) -> None:
    """New messages come behind Kafka's, and change nothing before them."""
    following = len(topic.messages)
    for number, codec in enumerate(MESSAGE_CODECS):
        appended = log.append(timed_set(5_000_000_000_000 + number, codec=codec))
        assert appended.first_offset == appended.last_offset == following + number
    read = list(read_all(log))
    assert read[:following] == topic.messages
    assert [offset for offset, *_ in read[following:]] == list(range(following, following + 4))


def assert_kafka_bytes_kept(path: Path, topic: Topic) -> None:
    """Every log file of Kafka is as it was; where appends went on, up to where it ended."""
    for name, data in topic.logs().items():
        assert (path / name).read_bytes()[: len(data)] == data
    assert not list(path.glob("*.broken"))


@every_topic
def test_opened_after_a_kill(topic: Topic, tmp_path: Path) -> None:
    path = tmp_path / f"{topic.name}-0"
    shutil.copytree(topic.files, path)
    folder = LogFolder(path)
    log = folder.open(clean=False, gaps=True, message_timestamp_type=topic.timestamp_type)
    assert_equals_kafka(log, topic)
    assert_every_time_found(log, topic)
    assert folder.content((".log",)) == topic.logs()
    assert_goes_on(log, topic)
    assert list(read_all(folder.kill_and_restart())) == list(read_all(log))
    folder.restart()
    assert_kafka_bytes_kept(path, topic)
    folder.log.close()
    folder.let_go()
    assert not [found for found in verify(SystemFiles(), path) if found.error]


@pytest.fixture
def kafka_directory(tmp_path: Path) -> DataDirectory:
    """Kafka's data directory after a clean stop, with its checkpoints and its marker."""
    path = tmp_path / "data"
    shutil.copytree(GOLDEN / "log-directory", path)
    for topic in CLEAN:
        shutil.copytree(topic.files, path / f"{topic.name}-0")
    return DataDirectory(path)


def test_a_whole_directory_after_a_clean_stop(kafka_directory: DataDirectory) -> None:
    directory = kafka_directory.open()
    assert set(directory.topics()) == {topic.name for topic in CLEAN}
    assert not list(directory.open_logs())  # Nothing has to be recovered.
    for topic in CLEAN:
        directory.alter_topic(topic.name, {"message.timestamp.type": topic.timestamp_type})
        log = directory.log(topic.name, 0)
        assert_equals_kafka(log, topic)
        assert_goes_on(log, topic)
    kafka_directory.close()
    assert not [found for found in verify(SystemFiles(), kafka_directory.path) if found.error]
    directory = kafka_directory.open()
    for topic in CLEAN:
        assert_kafka_bytes_kept(kafka_directory.path / f"{topic.name}-0", topic)
        assert list(read_all(directory.log(topic.name, 0)))[:-4] == topic.messages
    kafka_directory.close()


def test_a_whole_directory_without_marker(kafka_directory: DataDirectory) -> None:
    (kafka_directory.path / ".kafka_cleanshutdown").unlink()
    directory = kafka_directory.open()
    for topic in CLEAN:
        assert_equals_kafka(directory.log(topic.name, 0), topic)
        assert_kafka_bytes_kept(kafka_directory.path / f"{topic.name}-0", topic)
    kafka_directory.close()
