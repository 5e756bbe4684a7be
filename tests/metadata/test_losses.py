"""What may not happen, and does: records that nobody can read, elections with loss, files that are
lost, disks that refuse."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgpack
import pytest

from horolog.protocol.errors import InvalidRequest, InvalidTopic, StorageError
from horolog.protocol.records.batch import finish_batch
from horolog.protocol.records.kernel import RecordEncoder
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import NewRecord, build_set
from horolog.storage.check.verify import verify
from horolog.storage.directory import position_table
from horolog.storage.directory.known_files import IDENTITY_FILE
from horolog.storage.directory.position_records import StoredPosition
from horolog.storage.directory.topics import TopicEntry
from horolog.storage.files import SystemFiles
from horolog.storage.metadata.records import (
    MAX_RECORD_BYTES,
    VERSION,
    PositionsCommitted,
    SettingsAltered,
    TopicCreated,
    TopicDeleted,
)
from horolog.storage.metadata.snapshot import MAX_STATE_BYTES, StatePart
from horolog.storage.names import METADATA_TOPIC
from horolog.testing.directories import DataDirectory
from horolog.testing.files import FaultyFiles, QuickFiles, ending_process

from .copies import Copy, agree, begin_anew, begin_with, commit, copy_all, copy_some, tell, topic_id

A, B = topic_id(1), topic_id(2)


@pytest.fixture
def folder() -> Iterator[Path]:
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as name, ending_process():
        yield Path(name)


def created(name: str, known: str, partitions: int = 1) -> TopicCreated:
    return TopicCreated(TopicEntry(name=name, partitions=partitions, topic_id=known))


def committed(known: str, topic: str, offset: int) -> PositionsCommitted:
    return PositionsCommitted("g", ((known, StoredPosition(topic, 0, offset, -1, 5, "")),))


def alone(path: Path, *, files: object = None) -> Copy:
    """A leader that is alone in the ISR."""
    copy = Copy(path, files=files)
    lead(copy, 1)
    return copy


def lead(copy: Copy, epoch: int) -> None:
    copy.metadata.lead(epoch)
    copy.log.flusher.flush()
    copy.log.hold_high_watermark(None)


def pair(folder: Path) -> tuple[Copy, Copy]:
    """A leader of epoch 1, and a follower that agrees with it."""
    first, second = Copy(folder / "first"), Copy(folder / "second")
    first.metadata.lead(1)
    agree(first, second)
    return first, second


def replicate(leader: Copy, follower: Copy) -> None:
    """Everything is committed, and both have applied it."""
    copy_all(leader, follower)
    commit(leader, [leader, follower])
    tell(leader, follower)
    leader.apply()
    follower.apply()


def offsets(copy: Copy) -> dict[str, int]:
    return {each.topic: each.offset for each in copy.data.directory.committed.of("g")}


def message(value: bytes | None, codec: Codec = Codec.NONE) -> bytearray:
    encoder = RecordEncoder()
    encoder.add(value, None, 5, ())
    return finish_batch(encoder, codec=codec)


HOSTILE = {
    "a later version": message(msgpack.packb([VERSION + 1, "deleted", "a", A])),
    "a later kind": message(msgpack.packb([VERSION, "renamed", "a", "b"])),
    "no msgpack": message(b"\xc1" * 40),
    "nothing": message(None),
    "cut off": message(msgpack.packb([VERSION, "deleted", "a", A])[:-1]),
    "half right": message(
        msgpack.packb(
            [VERSION, "positions", "g", [["a", A, 0, 9, -1, -1, 5, "", -1, -1], ["a", A, 0]]]
        )
    ),
    "a bomb": message(b"\0" * (3 * MAX_RECORD_BYTES), Codec.GZIP),
    "of an old format": build_set([NewRecord(b"\x93", None, -1)], magic=0),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_follower_stops_at_what_it_cannot_read(folder: Path, name: str) -> None:
    first, second = pair(folder)
    first.metadata.append(created("a", A))
    first.metadata.append(committed(A, "a", 3))
    first.log.settings = replace(first.log.settings, max_decompressed_bytes=1 << 30)
    first.log.appender.append(HOSTILE[name])
    first.metadata.append(committed(A, "a", 7))
    copy_all(first, second)
    commit(first, [first, second])
    tell(first, second)
    with pytest.raises(StorageError, match="record at offset 2 cannot be applied"):
        second.apply()
    assert second.metadata.applied == 2
    assert second.metadata.failure is not None
    assert offsets(second) == {"a": 3}
    assert list(second.data.directory.topics()) == ["a"]
    assert len(second.data.events.named("metadata_unreadable")) == 1
    # So it is after a restart, and it starts.
    second.restart()
    assert (second.metadata.applied, offsets(second)) == (2, {"a": 3})
    assert second.metadata.failure is not None
    # Once a leader has something else there it goes on.
    second.metadata.truncate(2)
    assert second.metadata.failure is None
    lead(second, 2)
    second.metadata.append(committed(A, "a", 8))
    second.log.flusher.flush()
    second.apply()
    assert offsets(second) == {"a": 8}


def test_what_is_not_synced_here_is_not_applied(folder: Path) -> None:
    """A follower that is not in sync may hear of a watermark above what is safe here."""
    first, second = pair(folder)
    first.metadata.append(created("a", A))
    first.metadata.append(committed(A, "a", 3))
    commit(first, [first])
    copy_some(first, second, 1 << 20, sync=False)
    assert second.log.high_watermark == 2
    assert second.metadata.unsynced
    second.metadata.apply()
    assert (second.metadata.applied, second.data.directory.topics()) == (0, {})
    second.log.flusher.flush()
    second.metadata.apply()
    assert (second.metadata.applied, offsets(second)) == (2, {"a": 3})


def test_a_watermark_that_was_not_written_down_costs_no_topic(folder: Path) -> None:
    copy = alone(folder / "data")
    copy.metadata.append(created("a", A))
    copy.log.flusher.flush()
    copy.apply()
    copy.data.append("a", 1, 2, 3)
    copy.kill(folder / "killed")
    assert copy.log.high_watermark == 0
    copy.apply()
    assert copy.metadata.applied == 1
    assert copy.data.directory.log("a", 0).log_end_offset == 3


def test_a_leader_appends_nothing_that_cannot_be_read(folder: Path) -> None:
    copy = alone(folder / "data")
    with pytest.raises(InvalidRequest, match="partitions is 0"):
        copy.metadata.append(created("a", A, 0))
    position = StoredPosition("a", 0, 1, -1, 5, "x" * MAX_RECORD_BYTES)
    with pytest.raises(InvalidRequest, match=f"{MAX_RECORD_BYTES} is the most"):
        copy.metadata.append(PositionsCommitted("g", ((A, position),)))
    assert copy.log.log_end_offset == 0


@pytest.mark.parametrize("state", [b"", b"horolog metadata 1\n", b"x" * 100])
def test_a_state_that_is_none_changes_nothing(folder: Path, state: bytes) -> None:
    copy = alone(folder / "data")
    copy.metadata.append(created("a", A))
    copy.log.flusher.flush()
    copy.apply()
    with pytest.raises((StorageError, InvalidRequest), match=r"cannot be read|a state is of 0"):
        copy.metadata.copying_state().take(StatePart(5, len(state), 0, state))
    with pytest.raises(StorageError, match="end at 0, its log begins at 5"):
        begin_with(copy, 5, copy.metadata.reading_state())
    before = copy.plain()
    copy.restart()
    assert copy.plain() == before
    assert copy.log.log_end_offset == 1


def test_a_state_comes_in_parts(folder: Path) -> None:
    """Each is looked at; what is not the next one is refused, and the first begins it again."""
    copy = alone(folder / "data")
    whole = (folder / "data" / "metadata-log" / "state").read_bytes()
    parts = [StatePart(0, len(whole), at, whole[at : at + 7]) for at in range(0, len(whole), 7)]
    copied = copy.metadata.copying_state()
    assert copied.take(parts[0]) is None
    for wrong in (
        parts[2],
        parts[1]._replace(offset=1),
        parts[1]._replace(size_bytes=len(whole) + 1),
        parts[1]._replace(data=b""),
        parts[1]._replace(data=whole),
        parts[1]._replace(size_bytes=MAX_STATE_BYTES + 1),
    ):
        with pytest.raises(InvalidRequest):
            copied.take(wrong)
    assert copied.take(parts[0]) is None
    found = [copied.take(part) for part in parts[1:]]
    assert found[:-1] == [None] * (len(parts) - 2)
    assert found[-1] is not None
    assert found[-1].offset == 0
    copied.take(parts[0])
    for part in parts[1:-1]:
        copied.take(part)
    with pytest.raises(StorageError, match="cannot be read"):
        copied.take(parts[-1]._replace(data=bytes(len(parts[-1].data))))
    copy.restart()
    assert not (folder / "data" / "metadata-log" / "state.copy").exists()


def test_what_an_unclean_election_lost_is_taken_back(folder: Path) -> None:
    """The one election that takes back what was applied; topics come back empty."""
    first, second = pair(folder)
    first.metadata.append(created("a", A, 2))
    first.metadata.append(committed(A, "a", 3))
    replicate(first, second)
    for record in (TopicDeleted("a", A), created("a", B), created("b", B), committed(B, "b", 9)):
        first.metadata.append(record)
    commit(first, [first])
    first.apply()
    assert list(first.data.directory.topics()) == ["a", "b"]
    second.metadata.lead(2)
    second.metadata.append(SettingsAltered("a", A, {"retention.ms": "7"}))
    first.metadata.follow()
    agree(second, first)
    assert first.log.log_end_offset == 2
    replicate(second, first)
    assert first.plain() == second.plain()
    assert first.data.directory.topics()["a"].topic_id == A
    assert offsets(first) == {"a": 3}
    first.restart()
    first.apply()
    assert not first.metadata.in_doubt
    assert first.plain() == second.plain()


def test_a_lost_record_that_was_applied_in_part_is_taken_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(position_table, "PIECE", 1)
    first, second = pair(folder)
    first.metadata.append(created("a", A, 9))
    first.metadata.append(created("b", B))
    positions = [StoredPosition("a", number, 3, -1, 5, "") for number in range(9)]
    first.metadata.append(PositionsCommitted("g", [(A, each) for each in positions]))
    first.metadata.append(committed(B, "b", 4))
    replicate(first, second)
    before = first.plain()
    first.metadata.append(TopicDeleted("a", A))
    commit(first, [first])
    while len(first.data.directory.committed) == 10:
        assert first.metadata.next_change() is None
        assert first.metadata.unfinished
    second.metadata.lead(2)
    second.metadata.append(SettingsAltered("b", B, {"retention.ms": "7"}))
    first.metadata.follow()
    agree(second, first)
    replicate(second, first)
    assert first.plain() == second.plain()
    assert first.plain().held == before.held


def test_what_is_lost_below_the_stored_state_comes_from_the_leader(folder: Path) -> None:
    first, second = pair(folder)
    first.metadata.append(created("a", A))
    replicate(first, second)
    first.metadata.append(created("b", B))
    commit(first, [first])
    first.apply()
    first.metadata.write_state()
    second.metadata.lead(2)
    first.metadata.follow()
    first.metadata.truncate(1)
    assert first.metadata.next_change() is None
    assert list(first.data.directory.topics()) == ["a", "b"], "until the leader says otherwise"
    agree(second, first)
    replicate(second, first)
    assert first.plain() == second.plain()


def test_a_copy_that_begins_anew_keeps_its_topics(folder: Path) -> None:
    """Else it would have to copy all messages again."""
    first, second = pair(folder)
    for record in (created("a", A), committed(A, "a", 3)):
        first.metadata.append(record)
    replicate(first, second)
    second.data.append("a", 1, 2, 3)
    log = second.data.directory.log("a", 0)
    begin_anew(first, second)
    second.apply()
    replicate(first, second)
    assert second.data.directory.log("a", 0) is log
    assert log.log_end_offset == 3
    assert second.plain() == first.plain()


def test_topics_of_a_lost_topics_file_are_taken_over(folder: Path) -> None:
    copy = alone(folder / "data")
    copy.metadata.append(created("a", A, 2))
    copy.metadata.append(committed(A, "a", 3))
    copy.log.flusher.flush()
    copy.apply()
    copy.data.append("a", 1, 2, 3, partition=1)
    before = copy.plain()
    copy.data.close()
    (copy.data.path / "topics.json").write_text("{")
    (copy.data.path / IDENTITY_FILE).touch()
    advice = {
        one.path.name: (one.rule, one.advice) for one in verify(SystemFiles(), copy.data.path)
    }
    assert advice["topics.json"][1] == "nothing: the next start makes it again from metadata-log"
    assert advice["a-1"][0].endswith("the next start asks metadata-log")
    copy.open()
    [told] = copy.data.events.named("topics_file_broken")
    assert told["consequence"] == "topics, ids and settings are those of the metadata log"
    assert copy.metadata.in_doubt
    copy.apply()
    assert copy.plain() == before
    assert copy.data.directory.log("a", 1).log_end_offset == 3
    copy.restart()
    assert not copy.metadata.in_doubt
    assert copy.plain() == before


def test_a_missing_folder_keeps_the_topic_s_id(folder: Path) -> None:
    copy = alone(folder / "data")
    copy.metadata.append(created("a", A))
    copy.log.flusher.flush()
    copy.apply()
    copy.data.close()
    for each in (copy.data.path / "a-0").iterdir():
        each.unlink()
    (copy.data.path / "a-0").rmdir()
    copy.open()
    [told] = copy.data.events.named("partition_folder_missing")
    assert told["consequence"] == "an empty folder was made; a leader's messages are copied"
    assert copy.metadata.in_doubt
    assert copy.data.directory.topics()["a"].topic_id == A


@pytest.mark.parametrize("content", [None, b"", b"horolog metadata 1\nxxxx"])
def test_a_lost_state_leaves_the_topics(folder: Path, content: bytes | None) -> None:
    copy = alone(folder / "data")
    copy.metadata.append(created("a", A))
    copy.log.flusher.flush()
    copy.apply()
    copy.metadata.write_state()
    copy.metadata.append(committed(A, "a", 3))
    copy.log.flusher.flush()
    copy.apply()
    before = copy.plain()
    copy.data.close()
    path = copy.data.path / "metadata-log" / "state"
    path.unlink() if content is None else path.write_bytes(content)
    copy.open()
    assert copy.metadata.in_doubt
    lead(copy, 2)
    copy.apply()
    assert copy.plain() == before
    assert copy.metadata.state_due
    copy.metadata.write_state()
    copy.restart()
    assert not copy.metadata.in_doubt
    assert copy.plain() == before


def test_a_log_that_lost_its_end_deletes_nothing(folder: Path) -> None:
    copy = alone(folder / "data")
    copy.metadata.append(created("a", A))
    copy.log.flusher.flush()
    copy.apply()
    copy.data.close()
    for each in (copy.data.path / "metadata-log" / "__metadata-0").iterdir():
        each.unlink()
    copy.open()
    assert "below 1" in copy.metadata.in_doubt
    copy.apply()
    assert list(copy.data.directory.topics()) == ["a"]
    lead(copy, 5)
    copy.metadata.append(created("b", B))
    copy.log.flusher.flush()
    copy.apply()
    copy.restart()
    assert list(copy.data.directory.topics()) == ["a", "b"]


def test_a_folder_in_the_way_is_set_aside(folder: Path) -> None:
    copy = alone(folder / "data")
    stray = copy.data.path / "a-0"
    stray.mkdir()
    (stray / "note").write_text("mine")
    copy.metadata.append(created("a", A))
    copy.log.flusher.flush()
    copy.apply()
    kept = [name for name in copy.data.names() if name.endswith(".broken")]
    assert len(kept) == 1
    assert (copy.data.path / kept[0] / "note").read_text() == "mine"
    assert copy.data.directory.log("a", 0).log_end_offset == 0
    copy.restart()
    assert copy.data.directory.topics()["a"].topic_id == A


def test_folders_of_no_topic_are_not_adopted(folder: Path) -> None:
    copy = alone(folder / "data")
    copy.data.close()
    (copy.data.path / "stray-0").mkdir()
    (copy.data.path / "stray-0" / "00000000000000000000.log").write_bytes(b"")
    copy.open()
    copy.apply()
    assert list(copy.data.directory.topics()) == []
    assert "stray-0" in copy.data.names()


def test_a_disk_that_refuses_is_tried_again(folder: Path) -> None:
    files = FaultyFiles(QuickFiles())
    copy = alone(folder / "data", files=files)
    copy.metadata.append(created("a", A))
    copy.metadata.append(committed(A, "a", 3))
    copy.log.flusher.flush()
    files.fail("rename", 28)
    with pytest.raises(StorageError, match="topic 'a' cannot be made"):
        copy.apply()
    assert (copy.metadata.applied, offsets(copy)) == (0, {})
    files.heal()
    copy.apply()
    assert (copy.metadata.applied, offsets(copy)) == (2, {"a": 3})


def test_the_name_of_the_log_is_kept(folder: Path) -> None:
    data = DataDirectory(folder / "data")
    with pytest.raises(InvalidTopic, match="is kept for the log"):
        data.open().create_topic(METADATA_TOPIC, 1, {})
    data.close()
    other = data.path / f"{METADATA_TOPIC}-0"
    other.mkdir()
    (other / "00000000000000000000.log").write_bytes(b"")
    assert list(data.open().topics()) == [METADATA_TOPIC]
    data.close()
    data.member = True
    with pytest.raises(StorageError, match="copy its messages to a topic of another name"):
        data.open().open_metadata()
    data.close()
    data.member = False
    assert list(data.open().topics()) == [METADATA_TOPIC]
    data.close()


def test_a_broker_by_itself_refuses_the_directory(folder: Path) -> None:
    copy = alone(folder / "data")
    copy.data.close()
    marker = copy.data.path / ".kafka_cleanshutdown"
    assert marker.exists()
    (copy.data.path / IDENTITY_FILE).write_bytes(b"of a member")
    copy.data.member = False
    with pytest.raises(StorageError, match="is of a cluster member"):
        copy.data.open()
    assert marker.exists(), "it is still as it was stopped"
    copy.data.member = True
    copy.open()
    copy.data.close()
