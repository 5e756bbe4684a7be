"""Data in a format that this version cannot read is refused by name and stays as it is."""

import shutil
from pathlib import Path

import pytest

from horolog.protocol.errors import UnsupportedForMessageFormat
from horolog.storage.read import reader
from horolog.testing.directories import DataDirectory
from horolog.testing.logs import LogFolder, later_format, timed_set

GOLDEN = Path(__file__).parent / "kafka-2.1" / "v2-plain"
STATES = ["clean", "killed"]


def copy_in_a_later_format(source: Path, target: Path) -> None:
    """The batches that Kafka wrote, with a format that does not exist."""
    shutil.copytree(source, target)
    for path in target.glob("*.log"):
        path.write_bytes(later_format(path.read_bytes()))


@pytest.mark.parametrize("clean", [True, False], ids=["after-clean-stop", "after-kill"])
@pytest.mark.parametrize("state", STATES)
def test_later_formats_are_refused_by_name(state: str, clean: bool, tmp_path: Path) -> None:
    path = tmp_path / "v2-plain-0"
    copy_in_a_later_format(GOLDEN / state, path)
    folder = LogFolder(path)
    before = folder.content()
    with pytest.raises(UnsupportedForMessageFormat, match="format") as refusal:
        folder.open(clean=clean, gaps=True)
    assert refusal.value.code == 43
    assert folder.content() == before


def test_later_formats_in_closed_segments_are_found_in_time(tmp_path: Path) -> None:
    """Kafka had begun a new segment: the active one is empty, and those before it are not read."""
    path = tmp_path / "v2-plain-0"
    copy_in_a_later_format(GOLDEN / "clean", path)
    for suffix in ("log", "index", "timeindex"):
        (path / f"{500:020}.{suffix}").touch()
    folder = LogFolder(path)
    before = folder.content()
    log = folder.open(clean=True, gaps=True)
    log.prepare()
    with pytest.raises(UnsupportedForMessageFormat, match="format"):
        reader.read(log, 450, 1000)
    with pytest.raises(UnsupportedForMessageFormat, match="format"):
        reader.find_time(log, 0).run()
    folder.let_go()
    assert folder.content() == before


@pytest.mark.parametrize("state", STATES)
def test_other_topics_are_served_beside_later_formats(state: str, tmp_path: Path) -> None:
    path = tmp_path / "data" / "v2-plain-0"
    copy_in_a_later_format(GOLDEN / state, path)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    data = DataDirectory(tmp_path / "data")
    directory = data.open()
    for _ in range(2):
        with pytest.raises(UnsupportedForMessageFormat):
            directory.log("v2-plain", 0)
        directory = data.restart()
    directory.create_topic("other", 1, {})
    assert directory.log("other", 0).appender.append(timed_set(1)).first_offset == 0
    data.close()
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before
