"""The plugin in pytest runs of other projects: loaded by itself, cheap, and without warnings."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
EXAMPLES = re.findall(r"^## (.*?)\n.*?^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M)

SYNCHRONOUS = """
import socket

def test_it_listens(horolog_broker):
    host, _, port = horolog_broker.address.partition(":")
    socket.create_connection((host, int(port))).close()

def test_another_has_another_directory(horolog_broker):
    assert not list(horolog_broker.data_dir.glob("*-0"))
"""

LOADED = """
import json, sys
import horolog.testing.plugin
print(json.dumps(sorted(sys.modules)))
"""


@pytest.fixture(scope="module")
def passed(run_pytest: Callable[..., str]) -> Counter[str]:
    """How many tests of each module passed, in one run of all: a start takes a second and more."""
    modules = {f"test_example_{number}": source for number, (_, source) in enumerate(EXAMPLES)}
    told = run_pytest(modules | {"test_plain": SYNCHRONOUS}, "--verbose")
    return Counter(re.findall(r"^(\w+)\.py::\S.* PASSED", told, re.MULTILINE))


@pytest.mark.parametrize("number", range(3), ids=[title for title, _ in EXAMPLES])
def test_the_examples_of_the_page(passed: Counter[str], number: int) -> None:
    assert passed[f"test_example_{number}"] == 1


def test_the_page_has_three_examples() -> None:
    assert len(EXAMPLES) == 3


def test_plain_tests_with_warnings_as_errors(passed: Counter[str]) -> None:
    assert passed["test_plain"] == 2


def test_the_fixtures_are_listed_with_their_meaning(run_pytest: Callable[..., str]) -> None:
    listed = run_pytest({"test_it": SYNCHRONOUS}, "--fixtures")
    assert "horolog_broker" in listed
    assert "A broker on a free port" in listed


def test_a_run_without_a_broker_loads_next_to_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(done.stdout))
    parts = {name.split(".")[1] for name in loaded if name.startswith("horolog.")}
    assert not parts & {"client", "config", "protocol", "server", "storage"}
    assert not loaded & {"uvloop", "msgpack", "aiohttp", "structlog"}
