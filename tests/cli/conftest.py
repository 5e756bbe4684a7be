"""Commands against a broker: both in this process, with real sockets and a real data directory.

What tests a process (signals, pipes that close, the ready line) starts the program itself.
"""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult, Program
from horolog.tests.in_process import run_in_process


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    """One broker for all tests of a module; each test takes topics of its own."""
    data = tmp_path_factory.mktemp("server") / "data"
    settings: dict[str, object] = dict.fromkeys(("http.listen", "kafka.listen"), "127.0.0.1:0")
    # Tests read again what they sent with times of 2016, which is past retention.
    settings["log.initial.task.delay.ms"] = 3_600_000
    with BrokerThread(data, settings) as running:
        yield running


@pytest.fixture
def horolog(server: BrokerThread) -> Program:
    """The program, asking the module's broker."""
    return Program(server.address)


@pytest.fixture
def run() -> Callable[..., CommandResult]:
    """`run(*arguments, code=0)` is a command in the environment of the test, without input. Fails
    when the exit code is another; None takes any.
    """

    def run(*arguments: str | Path, code: int | None = 0) -> CommandResult:
        result = run_in_process([*map(str, arguments)], b"", os.environ)
        assert code is None or result.code == code, result
        return result

    return run


@pytest.fixture
def ask(
    run: Callable[..., CommandResult], server: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., CommandResult]:
    """As `run`, asking the module's broker."""
    monkeypatch.setenv("HOROLOG_SERVER", server.address)
    return run


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of the test's own."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name)[:100]
