"""`horolog lag`: messages, seconds and the time to catch up, for people and for programs."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

import horolog
from horolog.cli.output import shown_span
from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult

Run = Callable[..., CommandResult]


@pytest.fixture
def ask(
    run: Run, horolog_broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., CommandResult]:
    """As `run`, asking a broker of the test's own."""
    monkeypatch.setenv("HOROLOG_SERVER", horolog_broker.address)
    return run


@pytest.fixture
def horolog_settings() -> Mapping[str, object]:
    return {"num.partitions": 2}


def append(broker: BrokerThread, count: int) -> None:
    async def run() -> None:
        async with horolog.Producer(broker.address) as producer:
            sent = (producer.send("clicks", b"value", partition=1) for _ in range(count))
            await asyncio.gather(*sent)

    asyncio.run(run())


def commit(broker: BrokerThread, name: str, offset: int) -> None:
    async def run() -> None:
        async with horolog.Admin(broker.address) as admin:
            await admin.commit_position(name, "clicks", 1, offset)

    asyncio.run(run())


def test_lag_in_messages_and_seconds_and_until_when(horolog_broker: BrokerThread, ask: Run) -> None:
    clock = horolog_broker.clock
    clock.freeze()
    append(horolog_broker, 100)
    commit(horolog_broker, "job", 0)
    clock.step(50)
    commit(horolog_broker, "job", 50)
    commit(horolog_broker, "other", 100)
    (job,) = ask("lag", "job", "--json").objects
    assert job == {
        "name": "job",
        "topic": "clicks",
        "partition": 1,
        "offset": 50,
        "lag": 50,
        "lag_s": 50.0,
        "estimated": False,
        "catch_up_s": 50.0,
        "group": None,
        "members": None,
    }
    both = ask("lag", "--json").objects
    assert [(one["name"], one["lag"], one["lag_s"]) for one in both] == [
        ("job", 50, 50.0),
        ("other", 0, 0.0),
    ]
    clock.step(61)
    assert ask("lag", "job", "--json").objects[0]["catch_up_s"] is None
    header, line, _ = ask("lag").out.splitlines()
    assert " ".join(header.split()) == "name topic partition position messages behind caught up in"
    assert " ".join(line.split()) == "job clicks 1 50 50 1 min 51 s -"


def test_nothing_is_stored(ask: Run) -> None:
    assert ask("lag").out == "no positions are stored\n"
    assert ask("lag", "--json").out == ""


def test_a_name_without_positions(ask: Run) -> None:
    assert "no position is stored under 'nobody'" in ask("lag", "nobody", code=1).err


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 ms"),
        (0.35, "350 ms"),
        (1, "1 s"),
        (65, "1 min 5 s"),
        (3600, "1 h"),
        (7 * 86_400 + 960, "7 d 16 min"),
        (90_061, "1 d 1 h"),
    ],
)
def test_spans_for_people(seconds: float, shown: str) -> None:
    assert shown_span(seconds) == shown
