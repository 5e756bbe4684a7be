"""Checkpoints, topics, markers and checksums that make no sense (fault 31; S-2, tc144)."""

import json
from pathlib import Path

import pytest

from horolog.storage.check.verify import verify
from horolog.storage.directory.position_records import StoredPosition
from horolog.storage.files import SystemFiles
from horolog.storage.read import reader
from horolog.testing.directories import DataDirectory

RECOVERY = "recovery-point-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
TOPICS = "topics.json"
MARKER = ".kafka_cleanshutdown"
CHECKSUMS = "t-0/index-checksums"
STATE = "metadata-log/state"

CONTENTS = {
    "empty": b"",
    "zeros": bytes(100),
    "garbage": b"\xa5\x00\xff" * 50,
    "text": b"hello\n",
    "one line": b"0\n",
    "negative count": b"0\n-1\nt 0 5\n",
    "wrong count": b"0\n9\nt 0 5\n",
    "huge count": b"0\n" + b"9" * 400 + b"\nt 0 5\n",
    "negative offset": b"0\n1\nt 0 -5\n",
    "too large an offset": b"0\n1\nt 0 9223372036854775808\n",
    "past the end": b"0\n1\nt 0 4611686018427387904\n",
    "a little past the end": b"0\n1\nt 0 7\n",
    "of another partition": b"0\n1\nu 7 3\n",
    "twice": b"0\n2\nt 0 5\nt 0 5\n",
    "no number": b"0\n1\nt 0 five\n",
    "later version": b"1\n1\nt 0 5\n",
    "spaces": b"0\n1\nt  0  5\n",
    "deep json": b"[" * 100_000,
    "a list": b"[]",
    "no topics": b'{"version": 1}',
    "wrong topics": b'{"version": 1, "topics": {"t": {"partitions": -3}}}',
    "other topics": b'{"version": 1, "topics": {"t": 7}}',
}
TIMES = [10, 30, 20, 50, 40]


def fill(data: DataDirectory, clean: bool) -> None:
    directory = data.open()
    directory.create_topic("t", 1, {"segment.bytes": "90", "index.interval.bytes": "0"})
    for ms in TIMES:
        data.append("t", ms)
    data.commit("job", StoredPosition("t", 0, 3, -1, 5, ""))
    directory.log("t", 0).flusher.flush()
    directory.write_checkpoints()
    if clean:
        data.close()


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("name", [RECOVERY, LOG_START, TOPICS, MARKER, CHECKSUMS, STATE])
def test_31_every_content_of_every_file(
    data: DataDirectory, place: Path, name: str, clean: bool
) -> None:
    fill(data, clean)
    json_file = name == TOPICS
    for number, (what, content) in enumerate(CONTENTS.items()):
        if number > 3 and ("json" in what or "topics" in what or "list" in what) != json_file:
            continue
        copy = data.copy(place / f"copy-{number}")
        (copy.path / name).write_bytes(content)
        directory = copy.open()
        assert copy.times("t") == TIMES, content
        log = directory.log("t", 0)
        assert (log.log_start_offset, log.log_end_offset) == (0, 5)
        found = reader.find_time(log, 45).run()
        assert found is not None
        assert found.offset == 3
        copy.append("t", 60)
        copy.restart()
        assert copy.times("t") == [*TIMES, 60]
        copy.close()
        errors = [f for f in verify(SystemFiles(), copy.path) if f.error]
        assert errors == [], (content, errors)
    if not clean:
        data.close()


@pytest.mark.parametrize("name", [RECOVERY, LOG_START])
@pytest.mark.parametrize("content", ["garbage", "negative offset", "past the end"])
def test_31_a_checkpoint_that_is_not_believed_is_told(
    data: DataDirectory, name: str, content: str
) -> None:
    fill(data, clean=True)
    (data.path / name).write_bytes(CONTENTS[content])
    data.open()
    data.times("t")
    told = data.events.named("checkpoint_ignored")
    assert len(told) == 1
    assert told[0]["path"] in {str(data.path / name), str(data.path / "t-0")}
    data.close()


def test_31_a_topics_file_that_is_not_believed_is_kept(data: DataDirectory) -> None:
    fill(data, clean=True)
    (data.path / TOPICS).write_bytes(b"{")
    directory = data.open()
    assert (data.path / f"{TOPICS}.broken").read_bytes() == b"{"
    assert dict(directory.topics()["t"].overrides) == {
        "index.interval.bytes": "0",
        "segment.bytes": "90",
    }
    assert data.times("t") == TIMES
    data.close()
    assert json.loads((data.path / TOPICS).read_bytes())["topics"]["t"]["gaps"] is True


@pytest.mark.parametrize("name", [TOPICS, MARKER, STATE, "t-0/index-checksums"])
def test_31_a_folder_in_the_place_of_a_file_is_refused_by_name(
    data: DataDirectory, name: str
) -> None:
    fill(data, clean=True)
    path = data.path / name
    path.unlink()
    path.mkdir()
    with pytest.raises(Exception, match=path.name):
        data.open().log("t", 0)
