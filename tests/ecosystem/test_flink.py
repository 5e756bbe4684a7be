"""Flink with its source and sink for Kafka."""

from pathlib import Path

import pytest

from horolog.bench.apache_kafka import SMALL_JVM, Unavailable, jars

from .installing import PROGRAMS, not_installed
from .messages import COUNTS, WORDS, Messages
from .running import run, running

_LIMIT_SECONDS = 900
"""Maven fetches the programs the first time."""

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(_LIMIT_SECONDS)]


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """The command that runs the program."""
    program = PROGRAMS / "flink"
    try:
        path = jars(program / "pom.xml")
    except Unavailable as error:
        not_installed(str(error))
        raise
    # Flink loads the classes of a job by their names, so they must be files.
    classes = tmp_path_factory.mktemp("classes")
    compiler = ["javac", "-cp", path, "-d", classes, program / "CountWords.java"]
    run(compiler, classes / "log", seconds=120)
    return ["java", *SMALL_JVM, "-cp", f"{path}:{classes}", "CountWords"]


@pytest.fixture
def flink(java: list[object], address: str) -> list[object]:
    """The command up to what the program shall do."""
    return [*java, address]


def _counts(found: list[tuple[bytes | None, bytes | None]]) -> list[tuple[str, int]]:
    return [(key.decode(), int(value)) for key, value in found if key and value]


def test_a_range_of_times_is_counted(
    flink: list[object], messages: Messages, tmp_path: Path
) -> None:
    """The start belongs to it, the end does not."""
    _, *times_ms = messages.send_minutes("words", ["before"], WORDS, ["after"])
    run([*flink, "range", *times_ms], tmp_path / "log", seconds=180)
    assert _counts(messages.read("counts", messages.end("counts"))) == COUNTS[: len(WORDS)]


def test_a_stream_goes_on_from_its_checkpoint(
    flink: list[object], messages: Messages, tmp_path: Path
) -> None:
    """Its group commits what a checkpoint covers."""
    log, folder = tmp_path / "log", tmp_path / "checkpoints"
    checkpoint: list[object] = []
    for number in (1, 2):
        messages.send("words", WORDS)
        count = number * len(WORDS)
        with running([*flink, "stream", folder.as_uri(), *checkpoint], log):
            assert _counts(messages.read("counts", count)) == COUNTS[:count]
            messages.wait_committed("counting", "words", count)
        complete = folder.glob("*/chk-*/_metadata")
        checkpoint = [max(complete, key=lambda path: path.stat().st_mtime_ns).parent.as_uri()]
    assert messages.end("counts") == len(COUNTS)
