"""Every example of docs/client.md runs, in order, against one broker."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from horolog.testing.program import ServerProcess, serving

GUIDE = Path(__file__).parents[2] / "docs" / "client.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
DEFAULT_ADDRESS = "127.0.0.1:7070"
KAFKA_ADDRESS = "127.0.0.1:9092"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    keep = ("--set", "log.retention.ms=-1")  # the examples have times of long ago
    kafka = ("--kafka-listen", "127.0.0.1:0")
    with serving(tmp_path_factory.mktemp("guide") / "data", *keep, *kafka) as started:
        yield started


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
async def test_an_example_runs(
    server: ServerProcess, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert server.kafka is not None
    source = EXAMPLES[number].replace(DEFAULT_ADDRESS, server.native)
    source = source.replace(KAFKA_ADDRESS, server.kafka)
    code = compile(source, f"example {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    running = eval(code, {})
    if inspect.isawaitable(running):
        await running
    if "print" in source:
        assert capsys.readouterr().out


def test_there_are_examples_of_everything() -> None:
    text = "".join(EXAMPLES)
    for name in ("send(", "enqueue(", "send_batch(", "fetch_columns(", "lag(", "blocking.Consumer"):
        assert name in text
