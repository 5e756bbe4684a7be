"""The real program, as a user runs it: subprocesses, real sockets, a real data directory."""

import re
from collections.abc import Iterator

import pytest

from horolog.testing.program import Program, ServerProcess, serving


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
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of the test's own."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name)[:100]
