"""Fewer messages from the processes of `pytest -n` to the one that shares out the tests.

For each test a process sends six: the start, the reports of setup, call and teardown, the end, and
that the test is complete. To write and read them took longer than a short test. The terminal shows
one character for a test that passes, and the report of the call is enough for that.
"""

from collections.abc import Callable
from typing import Any, Final

import pytest

_SHOWN_FROM_S: Final = 0.005
"""`--durations` names setups and teardowns that took longer."""

_SENDER: Final = "sendevent"
"""Method of xdist's plugin in a process that runs tests."""


def pytest_sessionstart(session: pytest.Session) -> None:
    """Put the filter between xdist's plugin and the connection."""
    config = session.config
    # Other reporters may want all of it: of JUnit's format, or of verbose runs.
    if not hasattr(config, "workerinput") or config.option.xmlpath or config.option.verbose > 0:
        return
    for plugin in config.pluginmanager.get_plugins():
        if send := getattr(plugin, _SENDER, None):
            setattr(plugin, _SENDER, without_what_is_not_shown(send))


def without_what_is_not_shown(send: Callable[..., None]) -> Callable[..., None]:
    """`send`, except for messages that change nothing in what a run prints."""

    def send_some(name: str, **content: Any) -> None:
        if name in ("logstart", "logfinish"):
            return
        if name == "testreport" and content["data"]["outcome"] == "passed":
            report = content["data"]
            if report["when"] != "call" and not _is_shown(report):
                return
            report["keywords"] = {}
        send(name, **content)

    return send_some


def _is_shown(report: dict[str, Any]) -> bool:
    """Whether the end of a run may name this setup or teardown."""
    return bool(report["sections"]) or report["duration"] >= _SHOWN_FROM_S
