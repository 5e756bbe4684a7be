"""`message.format.version`: what it may be, what it means, whose value counts."""

from pathlib import Path

import pytest

from horolog.config.topic import check_overrides, effective, topic_settings
from horolog.protocol.errors import InvalidConfig
from horolog.storage.read import reader
from horolog.testing.logs import LogFolder, timed_set, untimed_set

NAME = "message.format.version"
V0 = ["0.8.0", "0.8.1", "0.8.2", "0.8.2.2", "0.9.0", "0.9.0.0", "0.9.0.1"]
V1 = ["0.10.0", "0.10.0.1", "0.10.0-IV0", "0.10.0-IV1", "0.10.1", "0.10.1-IV2", "0.10.2.2"]
V2 = [
    "0.11.0",
    "0.11.0.3",
    "0.11.0-IV2",
    "1.0",
    "1.1.1",
    "2.1",
    "2.1.1",
    "2.1-IV2",
    "3.0-IV1",
    "3.9",
]


@pytest.mark.parametrize(
    ("version", "magic"),
    [
        *(pytest.param(version, 0, id=f"tc161-MG-6-{version}") for version in V0),
        *(pytest.param(version, 1, id=f"tc161-MG-6-{version}") for version in V1),
        *(pytest.param(version, 2, id=f"decision-25-{version}") for version in V2),
        pytest.param("producer", None, id="decision-25-producer"),
    ],
)
def test_the_format_of_a_version(version: str, magic: int | None) -> None:
    assert topic_settings({}, {NAME: version}).format_magic == magic
    assert topic_settings({f"log.{NAME}": version}, {}).format_magic == magic


def test_a_version_is_shown_as_it_was_given() -> None:
    """Who manages settings by a program compares what was set with what is."""
    assert check_overrides({NAME: "0.9.0.1"}) == {NAME: "0.9.0.1"}
    assert (NAME, "0.9.0.1", "topic") in effective({}, {NAME: "0.9.0.1"})


@pytest.mark.parametrize(
    "version",
    [
        pytest.param("0.10", id="tc161-MG-6-two-parts"),
        *("0.9", "0", "", "0.9.1", "0.10.3", "0.9.x", "0.9.0.x", "0.9.0.", "v0.9.0", " 0.9.0"),
        *("0.11", "1", "2.1-IV3", "2.1.1-IV0", "3.10", "Producer", "0.9.0-IV0", "0.10.0-iv1"),
        pytest.param("0.9.0" + ".1" * 5000 + "x", id="long"),
    ],
)
def test_other_versions_are_refused(version: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        check_overrides({NAME: version})
    text = refused.value.message
    assert NAME in text
    assert version[:40] in text
    assert "0.9.0 or 0.10.0" in text
    assert "0.11.0 or 1.0" in text
    assert len(text) < 500


@pytest.mark.parametrize(
    ("broker", "topic", "magic"),
    [("0.9.0", {}, 0), ("0.9.0", {NAME: "0.10.0"}, 1), ("0.10.2", {NAME: "producer"}, None)],
)
def test_a_topic_s_own_version_wins_mg4(
    broker: str, topic: dict[str, str], magic: int | None
) -> None:
    assert topic_settings({NAME: broker}, topic).format_magic == magic


def test_each_topic_goes_by_its_own_format_tc162(tmp_path: Path) -> None:
    magics = {}
    for version in ("0.9.0", "0.10.0", "producer"):
        folder = LogFolder(tmp_path / version)
        log = folder.open(message_format_version=version)
        log.appender.append(timed_set(5))
        log.appender.append(untimed_set())
        magics[version] = [entry.magic for entry in folder.entries()]
        folder.let_go()
    assert magics == {"0.9.0": [0, 0], "0.10.0": [1, 1], "producer": [1, 0]}


def test_a_new_version_counts_from_the_next_append_mg4(folder: LogFolder) -> None:
    log = folder.open()
    for version in ("0.9.0", "0.10.0", "producer", "0.9.0"):
        folder.set(message_format_version=version)
        log.appender.append(timed_set(5))
    assert [reader.read(log, offset, 1 << 20).magic for offset in range(4)] == [0, 1, 1, 0]
    assert folder.restart().appender.append(timed_set(5)).first_offset == 4
    assert [reader.read(log, offset, 1 << 20).magic for offset in range(4)] == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("version", "kind", "stamps"),
    [
        ("producer", "LogAppendTime", True),
        ("0.10.0", "LogAppendTime", True),
        ("0.9.0", "LogAppendTime", False),
        ("0.10.0", "CreateTime", False),
    ],
)
def test_format_v0_has_no_room_for_append_times(version: str, kind: str, stamps: bool) -> None:
    settings = topic_settings({}, {NAME: version, "message.timestamp.type": kind})
    assert settings.stamps_append_time is stamps
