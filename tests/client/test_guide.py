"""Every example of docs/client.md runs, in order, against one broker."""

import logging
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from horolog.testing.program import ServerProcess, serving
from horolog.tests.pages.python import examples, run_example

GUIDE = Path(__file__).parents[2] / "docs" / "client.md"
EXAMPLES = examples(GUIDE)
COMMANDS = re.findall(r"^\$ horolog (.*)$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    """An example sets that of the logger `horolog`, for its own program."""
    logger = logging.getLogger("horolog")
    before = logger.level
    yield
    logger.setLevel(before)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    kafka = ("--kafka-listen", "127.0.0.1:0")
    with serving(tmp_path_factory.mktemp("guide") / "data", *kafka) as started:
        for command in COMMANDS:
            started.program.ok(*shlex.split(command))
        yield started


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
async def test_an_example_runs(
    server: ServerProcess, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert server.kafka is not None
    addresses = {"127.0.0.1:7070": server.native, "127.0.0.1:9092": server.kafka}
    await run_example(EXAMPLES[number], addresses)
    if "print" in EXAMPLES[number]:
        assert capsys.readouterr().out
    assert "messages_past_retention" not in server.log.read_text(), "a reader would lose it"


def test_there_are_examples_of_everything() -> None:
    text = "".join(EXAMPLES)
    for name in (
        "send(",
        "enqueue(",
        "send_batch(",
        "fetch_columns(",
        "lag(",
        "subscribe(",
        "blocking.Consumer",
    ):
        assert name in text
