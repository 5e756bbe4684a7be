"""Directories that Kafka left when it was killed, damaged in every way there is."""

import json
import shutil
from pathlib import Path
from random import Random

import pytest

from horolog.storage.check.verify import verify
from horolog.storage.files import SystemFiles
from horolog.testing.directories import DataDirectory, read_messages
from horolog.testing.files import QuickFiles

from .damaging import GOLDEN
from .repairing import Place, places, repair

TOPICS = sorted(GOLDEN.parent.glob("*/*/killed"))
LEADER_EPOCH = range(12, 16)
"""Bytes of a batch that no CRC covers, and that nobody looks at."""


def test_the_data_is_there() -> None:
    assert len(TOPICS) == 6


@pytest.fixture(params=TOPICS, ids=lambda path: path.parent.name)
def killed(request: pytest.FixtureRequest, place: Path) -> tuple[DataDirectory, str]:
    """A data directory with one topic of Kafka's, and the topic's name."""
    files: Path = request.param
    topic = files.parent.name
    data = DataDirectory(place / "data")
    data.files = QuickFiles()
    data.path.mkdir()
    shutil.copytree(files, data.path / f"{topic}-0")
    return data, topic


def expected(topic: str) -> list[tuple[int, int]]:
    (path,) = (files.parent for files in TOPICS if files.parent.name == topic)
    messages = json.loads((path / "expected.json").read_text())["messages"]
    return [(message[0], message[1]) for message in messages]


def read(data: DataDirectory, topic: str) -> list[tuple[int, int]]:
    return [message[:2] for message in read_messages(data.directory.log(topic, 0))]


def left(found: list[Place], path: Path, size: int) -> list[tuple[int, int]]:
    """What there is up to byte `size` of one log file."""
    return [
        message[:2]
        for one in found
        if one.path.name < path.name or (one.path.name == path.name and one.end <= size)
        for message in one.messages
    ]


def test_verify_and_recovery_agree_on_it(killed: tuple[DataDirectory, str]) -> None:
    data, topic = killed
    data.open()
    assert read(data, topic) == expected(topic)
    assert data.events.named("torn_tail_cut") == []
    data.close()
    assert [f for f in verify(SystemFiles(), data.path) if f.error] == []
    assert repair(data.path) == []


def test_27_the_last_file_cut(killed: tuple[DataDirectory, str], place: Path) -> None:
    data, topic = killed
    found = places(data.path / f"{topic}-0")
    last = found[-1].path
    random = Random(topic)
    for size in random.sample(range(last.stat().st_size), 2):
        copy = data.copy(place / "copy")
        path = copy.path / f"{topic}-0" / last.name
        path.write_bytes(last.read_bytes()[:size])
        copy.files = QuickFiles()
        copy.open()
        assert read(copy, topic) == left(found, last, size)
        copy.append(topic, 9)
        assert read(copy, topic)[-1] == (copy.directory.log(topic, 0).log_end_offset - 1, 9)
        copy.close()
        shutil.rmtree(copy.path)


def test_29_a_bit_anywhere(killed: tuple[DataDirectory, str], place: Path) -> None:
    """Nothing is known to be safe, so the log ends there; repaired, it loses one entry."""
    data, topic = killed
    found = places(data.path / f"{topic}-0")
    random = Random(topic)
    for one in random.sample(found[:-1], 1):
        within = [at for at in range(8, one.end - one.start) if at not in LEADER_EPOCH]
        at, bit = one.start + random.choice(within), random.randrange(8)
        for repaired in (False, True):
            copy = data.copy(place / "copy")
            path = copy.path / f"{topic}-0" / one.path.name
            content = bytearray(path.read_bytes())
            content[at] ^= 1 << bit
            path.write_bytes(content)
            if repaired:
                repair(copy.path)
                assert [f for f in verify(SystemFiles(), copy.path) if f.error] == []
            copy.files = QuickFiles()
            copy.open()
            if repaired:
                gone = {message[0] for message in one.messages}
                assert read(copy, topic) == [m for m in expected(topic) if m[0] not in gone]
                assert copy.events.named("torn_tail_cut") == []
            else:
                assert read(copy, topic) == left(found, one.path, one.start)
            copy.close()
            shutil.rmtree(copy.path)


def test_29_a_repair_leaves_no_snapshot_of_what_was(place: Path) -> None:
    """Producers are known by the batches that are left."""
    folder = place / "data" / "v2-plain-0"
    shutil.copytree(GOLDEN.parent / "kafka-2.1" / "v2-plain" / "killed", folder)
    one = places(folder)[3]
    content = bytearray(one.path.read_bytes())
    content[one.start + 70] ^= 1
    one.path.write_bytes(content)
    assert list(folder.glob("*.snapshot"))
    repair(place / "data")
    assert not list(folder.glob("*.snapshot"))
