"""Directories that real Kafkas wrote get their maps when windows are asked for."""

import shutil
from pathlib import Path

import pytest

from horolog.storage.check.verify import verify
from horolog.storage.files import SystemFiles
from horolog.storage.index import time_map
from horolog.storage.log import admission
from horolog.storage.read import windows
from horolog.testing.directories import DataDirectory
from horolog.testing.logs import LogFolder
from horolog.tests.golden.kafka import TOPICS, Topic
from horolog.tests.properties.window_reading import assert_time_map_true, make_map

from .mapped import assert_windows_exact

every_topic = pytest.mark.parametrize("topic", TOPICS, ids=[topic.id for topic in TOPICS])


@pytest.fixture(autouse=True)
def small_blocks(mapped_early: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """These logs are short."""
    for module in (time_map, admission):
        monkeypatch.setattr(module, "BLOCK_BYTES", 1_000)
    monkeypatch.setattr(windows, "UNMAPPED_BYTES", 1_000)


def times_of(topic: Topic) -> list[tuple[int, int]]:
    return [(offset, time_ms) for offset, time_ms, *_ in topic.messages]


@every_topic
@pytest.mark.parametrize("clean", [True, False], ids=["as-it-is", "recovered"])
def test_windows_over_what_kafka_wrote(topic: Topic, clean: bool, tmp_path: Path) -> None:
    path = tmp_path / f"{topic.name}-0"
    shutil.copytree(topic.files, path)
    logs = topic.logs()
    folder = LogFolder(path)
    log = folder.open(clean=clean, gaps=True, message_timestamp_type=topic.timestamp_type)
    log.prepare()
    times = times_of(topic)
    if any(time_ms >= 0 for _, time_ms in times):
        assert_windows_exact(log, times)
    for segment in log.segments:
        make_map(log, segment)
        assert_time_map_true(segment)
        if segment is not log.segments[-1]:
            assert segment.time_map.log_bytes == segment.size_bytes
    log = folder.restart()
    log.prepare()
    for segment in log.segments[:-1]:
        assert not windows.is_unmapped(segment)
    if any(time_ms >= 0 for _, time_ms in times):
        assert_windows_exact(log, times)
    assert folder.events.named("time_map_dropped") == []
    assert folder.content([".log"]).items() >= logs.items()
    folder.let_go()


@every_topic
def test_verify_finds_their_maps_true(topic: Topic, tmp_path: Path) -> None:
    data = DataDirectory(tmp_path / "data")
    shutil.copytree(topic.files, data.path / f"{topic.name}-0")
    log = data.open().log(topic.name, 0)
    log.prepare()
    for segment in log.segments:
        make_map(log, segment)
    made = sum(segment.time_map.size_bytes > 0 for segment in log.segments)
    data.close()
    assert [finding for finding in verify(SystemFiles(), data.path) if finding.error] == []
    assert len(list(data.path.rglob("*.timemap"))) == made > 0
