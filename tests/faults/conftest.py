"""The summary of what the fault tests tried."""

from collections.abc import Callable

import pytest

TOLD = pytest.StashKey[list[str]]()


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """`tell(text)` puts a line into the summary at the end of the run."""
    lines = request.config.stash.setdefault(TOLD, [])
    return lambda text: lines.append(f"{request.node.name}: {text}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in terminalreporter.config.stash.get(TOLD, []):
        terminalreporter.write_line(f"faults: {line}")
