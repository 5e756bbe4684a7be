"""Spark's own source and sink for Kafka, at the broker of the fixture `kafka_bootstrap`."""

from collections import Counter
from pathlib import Path

import pytest

from horolog.bench.apache_kafka import Unavailable, jars

from .installing import PROGRAMS, not_installed, python_of
from .messages import WORDS, Messages
from .running import run

_LIMIT_SECONDS = 900
"""The first run installs Spark."""

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(_LIMIT_SECONDS)]


@pytest.fixture
def address(kafka_bootstrap: str) -> str:
    """The address of the fixture's broker, in place of that of a process of its own."""
    return kafka_bootstrap


@pytest.fixture
def command(address: str) -> list[object]:
    """The command of the program, up to what it shall do."""
    try:
        class_path = jars(PROGRAMS / "spark" / "pom.xml")
    except Unavailable as error:
        not_installed(str(error))
        raise
    return [python_of("spark"), PROGRAMS / "spark" / "words.py", address, class_path]


def test_a_stream_goes_on_from_its_checkpoint_and_writes_to_a_compacted_topic(
    command: list[object], messages: Messages, tmp_path: Path
) -> None:
    words = Counter(WORDS)
    messages.create("counts", {"cleanup.policy": "compact"})
    for number in (1, 2):
        messages.send("words", WORDS)
        run([*command, "count", tmp_path / "checkpoint"], tmp_path / f"{number}.log", seconds=300)
        found = messages.read("counts", number * len(words))[-len(words) :]
        counts = {key.decode(): int(value) for key, value in found if key and value}
        assert counts == {word: number * count for word, count in words.items()}
    assert messages.compacted() == {"counts"}


def test_a_batch_has_the_messages_between_two_times(
    command: list[object], messages: Messages, tmp_path: Path
) -> None:
    """The start belongs to it, the end does not."""
    _, *times_ms = messages.send_minutes("words", ["before"], WORDS, ["after"])
    run([*command, "copy", *times_ms], tmp_path / "log", seconds=300)
    copied = [value for _, value in messages.read("copied", messages.end("copied"))]
    assert copied == [word.encode() for word in WORDS]
