"""Processes that end with a test, and the summary of what the fault tests tried."""

from collections.abc import Callable, Iterator

import pytest

from horolog.testing.files import ending_process

TOLD = "told"
"""Reports carry what tests tell, also from another process."""


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """What was cut off keeps no files open, or there are thousands by the end of the run."""
    with ending_process():
        yield


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """`tell(text)` puts a line into the summary at the end of the run."""
    return lambda text: request.node.user_properties.append((TOLD, text))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            name = report.nodeid.rpartition("::")[2]
            for key, text in report.user_properties if report.when == "call" else ():
                if key == TOLD:
                    terminalreporter.write_line(f"faults: {name}: {text}")
