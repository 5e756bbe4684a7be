"""`horolog explain gone`: what left a topic, by which rule or user, also after its deletion."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import horolog
from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult

Run = Callable[..., CommandResult]

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.fixture
def ask(
    run: Run, horolog_broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., CommandResult]:
    """As `run`, asking a broker of the test's own."""
    monkeypatch.setenv("HOROLOG_SERVER", horolog_broker.address)
    return run


@pytest.fixture
def horolog_settings() -> Mapping[str, object]:
    return {"retention.ms": DAY_MS, "segment.ms": HOUR_MS}


def append(broker: BrokerThread, *ages_ms: int) -> int:
    """Append messages that are so old, a set each, and return the time from which ages count."""

    async def run() -> int:
        async with horolog.Producer(broker.address) as producer:
            now_ms = broker.clock.now_ms()
            for age_ms in ages_ms:
                await producer.send("clicks", b"value", timestamp_ms=now_ms - age_ms)
            return now_ms

    return asyncio.run(run())


def gone(ask: Run, *more: str) -> list[dict[str, Any]]:
    return ask("explain", "gone", "clicks", "--json", *more).objects


def test_retention_is_one_entry_that_grows(horolog_broker: BrokerThread, ask: Run) -> None:
    horolog_broker.clock.freeze()
    now_ms = append(horolog_broker, 20 * HOUR_MS, 20 * HOUR_MS - 5, 10 * HOUR_MS, 0)
    assert gone(ask) == []
    horolog_broker.clock.step(5 * HOUR_MS / 1000)
    (first,) = gone(ask)
    assert (first["cause"], first["rule"]) == ("retention", f"retention.ms={DAY_MS}")
    assert (first["first_offset"], first["end_offset"], first["messages"]) == (0, 2, 2)
    assert first["first_timestamp_ms"] == now_ms - 20 * HOUR_MS
    assert first["largest_timestamp_ms"] == now_ms - 20 * HOUR_MS + 5
    assert (first["earlier_topic"], first["times"]) == (False, 1)
    horolog_broker.clock.step(10 * HOUR_MS / 1000)
    (both,) = gone(ask)
    assert (both["first_offset"], both["end_offset"], both["times"]) == (0, 3, 2)
    assert both["began_ms"] == first["at_ms"] < both["at_ms"]
    assert gone(ask, "--at", str(now_ms - 15 * HOUR_MS)) == [both]
    assert gone(ask, "--at", str(now_ms)) == []
    told = ask("explain", "gone", "clicks").out
    assert "clicks-0: offsets 0 to 2 (3 messages, first time " in told
    assert "clicks-0 begins at offset 3, and is complete from " in told


def test_a_trim_and_a_deletion_name_who_did_it(horolog_broker: BrokerThread, ask: Run) -> None:
    now_ms = append(horolog_broker, 3, 2, 1, 0)
    ask("topic", "trim", "clicks", "--before", "offset:2", "--partition", "0")
    (trim,) = gone(ask)
    assert (trim["cause"], trim["rule"]) == ("trim", "User:ANONYMOUS")
    assert (trim["first_offset"], trim["end_offset"], trim["messages"]) == (0, 2, 2)
    assert (trim["first_timestamp_ms"], trim["largest_timestamp_ms"]) == (now_ms - 3, now_ms - 2)
    ask("topic", "delete", "clicks")
    _, deletion = gone(ask)
    assert (deletion["cause"], deletion["rule"]) == ("deletion", "User:ANONYMOUS")
    assert (deletion["first_offset"], deletion["end_offset"]) == (2, 4)
    assert deletion["largest_timestamp_ms"] == now_ms
    append(horolog_broker, 0)
    both = gone(ask)
    assert [each["earlier_topic"] for each in both] == [True, True]
    assert "clicks-0 of the deleted topic" in ask("explain", "gone", "clicks").out


def test_a_time_before_that_of_the_first_message_is_not_denied(
    horolog_broker: BrokerThread, ask: Run
) -> None:
    """Messages of a log that is out of order may have any time up to the largest one."""
    now_ms = append(horolog_broker, 300, 100, 500, 200)
    ask("topic", "trim", "clicks", "--before", "latest", "--partition", "0")
    (trim,) = gone(ask)
    assert (trim["first_timestamp_ms"], trim["largest_timestamp_ms"]) == (
        now_ms - 300,
        now_ms - 100,
    )
    for at_ms in (now_ms - 500, now_ms - 301, now_ms - 300, now_ms - 200, now_ms - 100):
        assert gone(ask, "--at", str(at_ms)) == [trim]
        told = ask("explain", "gone", "clicks", "--at", str(at_ms)).out
        assert "(4 messages, first time " in told
        assert "Nothing" not in told
        assert ("may have followed out of order" in told) == (at_ms < now_ms - 300)
    assert gone(ask, "--at", str(now_ms - 99)) == []


def test_a_topic_of_which_nothing_is_known(ask: Run) -> None:
    refused = ask("explain", "gone", "never", code=1)
    assert "topic 'never' does not exist, and nothing is known to have left it" in refused.err


def test_the_journal_outlives_a_restart(horolog_broker: BrokerThread, ask: Run) -> None:
    append(horolog_broker, 0, 0)
    ask("topic", "trim", "clicks", "--before", "offset:1", "--partition", "0")
    before = gone(ask)
    horolog_broker.restart()
    assert gone(ask) == before != []
