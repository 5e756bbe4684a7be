"""Directories that real Kafkas wrote, 0.10.2 and 2.1: opened as they are, with Kafka's own
answers."""

import shutil
from pathlib import Path
from random import Random

import pytest

from horolog.protocol.records.layout import MESSAGE_CODECS, Codec
from horolog.storage.check.dump import DumpedMessage, DumpNote, dump
from horolog.storage.check.verify import verify
from horolog.storage.files import SystemFiles
from horolog.storage.log.log import Log
from horolog.storage.read import reader
from horolog.testing.directories import DataDirectory
from horolog.testing.logs import LogFolder, timed_set

from .kafka import GOLDEN, NOTHING_FOUND, TOPICS, Topic, answer, clean_topics, read_all

every_topic = pytest.mark.parametrize("topic", TOPICS, ids=[topic.id for topic in TOPICS])
every_kafka = pytest.mark.parametrize("version", ["kafka-0.10.2", "kafka-2.1"])

NEW = [(1, codec) for codec in MESSAGE_CODECS] + [(2, codec) for codec in Codec]
"""Format and codec of what is appended behind Kafka's messages."""

TIMES_TRIED = 150
"""Of a topic, drawn with the seed of the run: each opens compressed sets."""


def test_the_data_is_there() -> None:
    assert [len(clean_topics(version)) for version in ("kafka-0.10.2", "kafka-2.1")] == [15, 8]
    assert sum(topic.state == "killed" for topic in TOPICS) == 6


def assert_equals_kafka(log: Log, topic: Topic) -> None:
    log.prepare()
    assert list(read_all(log)) == topic.messages
    assert [(target, answer(log, target)) for target, _ in topic.answers] == topic.answers


def assert_times_found(log: Log, topic: Topic, random: Random) -> None:
    """Timestamps, one before each and one after it, against a look at every message."""
    messages = topic.messages
    times = sorted({message[1] + delta for message in messages for delta in (-1, 0, 1)})
    for target in random.sample(times, min(len(times), TIMES_TRIED)):
        if target >= 0:
            first = next(((at, offset) for offset, at, *_ in messages if at >= target), None)
            assert answer(log, target) == (first or NOTHING_FOUND), target
    largest_ms = max(message[1] for message in messages)
    found = reader.find_largest(log).run()
    assert (found and found.timestamp_ms) == (largest_ms if largest_ms >= 0 else None)


def assert_goes_on(log: Log, topic: Topic) -> None:
    """New messages come behind Kafka's, and change nothing before them."""
    following = topic.end_offset
    for number, (magic, codec) in enumerate(NEW):
        sent = timed_set(5_000_000_000_000 + number, magic=magic, codec=codec)
        appended = log.appender.append(sent)
        assert appended.first_offset == appended.last_offset == following + number
    read, count = list(read_all(log)), len(topic.messages)
    assert read[:count] == topic.messages
    assert [offset for offset, *_ in read[count:]] == [following + n for n in range(len(NEW))]


def assert_kafka_bytes_kept(path: Path, topic: Topic) -> None:
    """Every log file of Kafka is as it was; where appends went on, up to where it ended."""
    for name, data in topic.logs().items():
        assert (path / name).read_bytes()[: len(data)] == data
    assert not list(path.glob("*.broken"))


@every_topic
def test_opened_after_a_kill(topic: Topic, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / f"{topic.name}-0"
    shutil.copytree(topic.files, path)
    folder = LogFolder(path)
    log = folder.open(clean=False, gaps=True, message_timestamp_type=topic.timestamp_type)
    assert_equals_kafka(log, topic)
    seed = request.config.option.hypothesis_seed
    assert_times_found(log, topic, Random(f"{seed} {topic.id}"))
    assert folder.content((".log",)) == topic.logs()
    assert_goes_on(log, topic)
    assert list(read_all(folder.kill_and_restart())) == list(read_all(log))
    folder.restart()
    assert_kafka_bytes_kept(path, topic)
    folder.log.close()
    folder.let_go()
    assert not [found for found in verify(SystemFiles(), path) if found.error]


def kafka_directory(path: Path, version: str) -> DataDirectory:
    """Kafka's data directory after a clean stop, with its checkpoints and its marker."""
    shutil.copytree(GOLDEN / version / "log-directory", path)
    (path / ".kafka_cleanshutdown").touch()
    for topic in clean_topics(version):
        shutil.copytree(topic.files, path / f"{topic.name}-0")
    return DataDirectory(path)


@every_kafka
def test_a_whole_directory_after_a_clean_stop(version: str, tmp_path: Path) -> None:
    topics = clean_topics(version)
    data = kafka_directory(tmp_path / "data", version)
    directory = data.open()
    assert set(directory.topics()) == {topic.name for topic in topics}
    assert not list(directory.open_logs())  # Nothing has to be recovered.
    for topic in topics:
        directory.alter_topic(topic.name, {"message.timestamp.type": topic.timestamp_type})
        log = directory.log(topic.name, 0)
        assert_equals_kafka(log, topic)
        assert_goes_on(log, topic)
    data.close()
    assert not [found for found in verify(SystemFiles(), data.path) if found.error]
    directory = data.open()
    for topic in topics:
        assert_kafka_bytes_kept(data.path / f"{topic.name}-0", topic)
        assert list(read_all(directory.log(topic.name, 0)))[: -len(NEW)] == topic.messages
    data.close()


@every_kafka
def test_a_whole_directory_without_marker(version: str, tmp_path: Path) -> None:
    data = kafka_directory(tmp_path / "data", version)
    (data.path / ".kafka_cleanshutdown").unlink()
    directory = data.open()
    for topic in clean_topics(version):
        assert_equals_kafka(directory.log(topic.name, 0), topic)
        assert_kafka_bytes_kept(data.path / f"{topic.name}-0", topic)
    data.close()


@every_topic
def test_dumped(topic: Topic) -> None:
    items = [
        item for path in sorted(topic.files.glob("*.log")) for item in dump(SystemFiles(), path)
    ]
    assert [
        (item.offset, item.timestamp_ms, item.key, item.value, item.headers)
        for item in items
        if isinstance(item, DumpedMessage)
    ] == topic.messages
    others = [item for item in items if not isinstance(item, DumpedMessage)]
    assert all(isinstance(item, DumpNote) and not item.error for item in others)
    assert len(others) == topic.end_offset - len(topic.messages)
