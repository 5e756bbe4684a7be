"""The real program, as a user runs it: subprocesses, real sockets, a real data directory."""

import io
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from horolog.cli.main import run as run_command
from horolog.testing.program import Program, Result, ServerProcess, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests of a module; each test takes topics of its own."""
    with serving(tmp_path_factory.mktemp("server") / "data") as running:
        yield running
        assert running.stop() == 0, running.log.read_text()


@pytest.fixture
def horolog(server: ServerProcess) -> Program:
    """The program, asking the module's server."""
    return server.program


@pytest.fixture
def run() -> Callable[..., Result]:
    """`run(*arguments, code=0)` is a command in this process: for tables of many commands, which
    a process each would make slow. Fails when the exit code is another; None takes any.
    """

    def run(*arguments: str | Path, code: int | None = 0) -> Result:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            got = run_command([str(argument) for argument in arguments])
        result = Result(got, out.getvalue(), err.getvalue())
        assert code is None or result.code == code, result
        return result

    return run


@pytest.fixture
def ask(
    run: Callable[..., Result], server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """As `run`, asking the module's server."""
    monkeypatch.setenv("HOROLOG_SERVER", server.native)
    return run


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of the test's own."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name)[:100]
