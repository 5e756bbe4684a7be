"""A directory that a real Kafka wrote, opened as it is and asked through the command line."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka-0.10.2"
TOPICS = ["v0-lz4", "v1-snappy", "v1-outliers", "v1-append-time-gzip", "mixed-v0-then-v1"]


@pytest.fixture(scope="module")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    data = tmp_path_factory.mktemp("kafka") / "data"
    for topic in TOPICS:
        shutil.copytree(GOLDEN / topic / "clean", data / f"{topic}-0")
    with BrokerThread(data, {"retention.ms": -1}) as broker:
        yield broker


@pytest.fixture(params=TOPICS)
def golden_topic(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def expected(golden_topic: str) -> Any:
    return json.loads((GOLDEN / golden_topic / "expected.json").read_text())


@pytest.fixture
def ask(
    run: Callable[..., CommandResult], kafka_broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., CommandResult]:
    monkeypatch.setenv("HOROLOG_SERVER", kafka_broker.address)
    return run


def test_every_message_is_read(
    ask: Callable[..., CommandResult], golden_topic: str, expected: Any
) -> None:
    read = ask("consume", golden_topic, "--json").objects
    assert [
        [
            one["offset"],
            -1 if one["timestamp_ms"] is None else one["timestamp_ms"],
            one["key"],
            one["value"],
        ]
        for one in read
    ] == expected["messages"]


def test_every_time_finds_its_offset(
    ask: Callable[..., CommandResult], golden_topic: str, expected: Any
) -> None:
    answers = [(target, time, offset) for target, _, time, offset in expected["list_offsets_v1"]]
    times = [answer for answer in answers if answer[0] >= 0]
    options = [option for target, _, _ in times for option in ("--at", str(target))]
    found = ask("offsets", golden_topic, *options, "--any-unit", "--json").objects
    assert [
        (
            int(one["at"]),
            -1 if one["timestamp_ms"] is None else one["timestamp_ms"],
            -1 if one["offset"] is None else one["offset"],
        )
        for one in found
    ] == times
