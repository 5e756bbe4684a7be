"""What the processes of a run leave out of what they tell, and what not."""

from typing import Any

import pytest

from horolog.tests.fewer_messages import without_what_is_not_shown


def report(**changed: object) -> dict[str, Any]:
    """A report as xdist sends it."""
    data: dict[str, Any] = {"outcome": "passed", "when": "call", "duration": 0.001}
    return {"data": {**data, "sections": [], "keywords": {"a name": 1}, **changed}}


def sent(name: str, content: dict[str, Any]) -> list[dict[str, Any]]:
    """What of a message reaches the process that shares out the tests."""
    messages: list[dict[str, Any]] = []

    def send(name: str, **content: Any) -> None:
        messages.append(content)

    without_what_is_not_shown(send)(name, **content)
    return messages


def test_a_test_that_passes_is_one_report() -> None:
    [message] = sent("testreport", report())
    assert message["data"]["when"] == "call"
    assert not sent("testreport", report(when="setup"))
    assert not sent("testreport", report(when="teardown"))
    assert not sent("logstart", {"nodeid": "a"})
    assert not sent("logfinish", {"nodeid": "a"})


@pytest.mark.parametrize("when", ["setup", "call", "teardown"])
@pytest.mark.parametrize("outcome", ["failed", "skipped"])
def test_what_does_not_pass_is_sent_whole(when: str, outcome: str) -> None:
    message = report(when=when, outcome=outcome)
    assert sent("testreport", message) == [message]


@pytest.mark.parametrize("shown", [{"duration": 0.1}, {"sections": [["Captured stdout", "a"]]}])
def test_what_a_run_may_show_is_sent(shown: dict[str, object]) -> None:
    assert sent("testreport", report(when="setup", **shown))


def test_other_messages_are_sent_as_they_are() -> None:
    message = {"item_index": 3, "duration": 0.5}
    assert sent("runtest_protocol_complete", message) == [message]
