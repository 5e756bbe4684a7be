"""Topics are known by ids: the same one for as long as their offsets mean the same messages."""

import errno
import json
import re
import shutil
from pathlib import Path
from random import Random

import pytest

from horolog.protocol.errors import StorageError
from horolog.storage.files import SystemFiles
from horolog.storage.names import is_id, random_id
from horolog.testing.directories import DataDirectory
from horolog.testing.files import FaultyFiles


def ids(data: DataDirectory) -> dict[str, str]:
    return {name: entry.topic_id for name, entry in data.directory.topics().items()}


def forget_ids(data: DataDirectory) -> None:
    """Make the topics file what a version without ids wrote."""
    topics = data.topics_file()
    for topic in topics.values():
        del topic["id"]
    (data.path / "topics.json").write_text(json.dumps({"version": 1, "topics": topics}))


def test_an_id_is_128_random_bits() -> None:
    made = [random_id(Random(seed)) for seed in range(1000)]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{22}", one) for one in made)
    assert len(set(made)) == 1000
    assert random_id(Random(7)) == made[7]
    assert is_id(made[0])
    assert not is_id(made[0][:-1])


def test_a_topic_keeps_its_id_whatever_is_changed_of_it(data: DataDirectory) -> None:
    directory = data.open()
    made = directory.create_topic("a", 1, {}).topic_id
    assert is_id(made)
    directory.create_topic("b", 1, {})
    assert len(set(ids(data).values())) == 2
    directory.alter_topic("a", {"retention.ms": "5"})
    directory.create_partitions("a", 3)
    assert ids(data)["a"] == made
    before = ids(data)
    data.restart()
    assert ids(data) == before
    data.close()


def test_a_topic_made_again_has_another_id(data: DataDirectory) -> None:
    directory = data.open()
    made = directory.create_topic("a", 1, {}).topic_id
    directory.delete_topic("a")
    assert directory.create_topic("a", 1, {}).topic_id != made
    data.close()


def test_topics_of_an_older_file_get_ids_at_the_start_and_keep_them(
    data: DataDirectory, tmp_path: Path
) -> None:
    data.open()
    data.directory.create_topic("a", 1, {"retention.ms": "9"})
    data.directory.create_topic("b", 2, {})
    data.append("a", 1, 2)
    data.close()
    forget_ids(data)
    data.open()
    given = ids(data)
    assert all(is_id(one) for one in given.values())
    assert len(set(given.values())) == 2
    assert data.directory.topics()["a"].overrides == {"retention.ms": "9"}
    killed = data.copy(tmp_path / "killed")
    killed.open()
    assert ids(killed) == given
    assert killed.times("a") == [1, 2]
    killed.close()
    data.close()


def test_an_adopted_folder_gets_an_id_and_joins_the_one_of_its_topic(data: DataDirectory) -> None:
    data.open()
    made = data.directory.create_topic("a", 1, {}).topic_id
    data.append("a", 5)
    data.close()
    shutil.copytree(data.path / "a-0", data.path / "a-1")
    shutil.copytree(data.path / "a-0", data.path / "b-0")
    data.open()
    found = ids(data)
    assert found["a"] == made
    assert is_id(found["b"])
    assert found["b"] != made
    data.restart()
    assert ids(data) == found
    data.close()


def test_a_topic_that_begins_anew_in_a_partition_gets_another_id(data: DataDirectory) -> None:
    data.open()
    made = data.directory.create_topic("a", 2, {}).topic_id
    kept = data.directory.create_topic("b", 1, {}).topic_id
    data.append("a", 1, 2, 3)
    data.close()
    shutil.rmtree(data.path / "a-0")
    data.open()
    found = ids(data)
    assert found["a"] != made
    assert found["b"] == kept
    assert data.topics_file()["a"]["id"] == found["a"]
    data.close()


@pytest.mark.parametrize(
    "stops_at", [("make_directory", "a-0"), ("rename", "topics.json.tmp")], ids=lambda at: at[0]
)
def test_a_start_that_fails_half_way_does_not_hide_that_messages_are_gone(
    data: DataDirectory, stops_at: tuple[str, str]
) -> None:
    data.open()
    made = data.directory.create_topic("a", 1, {}).topic_id
    data.append("a", 1, 2, 3)
    data.close()
    shutil.rmtree(data.path / "a-0")
    data.files = files = FaultyFiles(SystemFiles())
    kind, name = stops_at
    files.fail(kind, errno.EIO, name=name)
    with pytest.raises(StorageError):
        data.open()
    data.files = SystemFiles()
    data.open()
    assert ids(data)["a"] != made
    assert len(data.events.named("partition_folder_missing")) == 1
    data.close()


def test_a_start_that_cannot_store_ids_is_refused(data: DataDirectory) -> None:
    data.open()
    data.directory.create_topic("a", 1, {})
    data.close()
    forget_ids(data)
    before = (data.path / "topics.json").read_bytes()
    data.files = files = FaultyFiles(SystemFiles())
    files.fail("rename", errno.EIO, name="topics.json.tmp")
    with pytest.raises(StorageError):
        data.open()
    assert (data.path / "topics.json").read_bytes() == before
    data.files = SystemFiles()
    data.open()
    assert is_id(ids(data)["a"])
    data.close()
