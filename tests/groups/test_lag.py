"""How far groups are behind, as `horolog lag` and the metrics tell it."""

import asyncio
import io
import json
from collections.abc import Mapping
from contextlib import redirect_stdout

import pytest

import horolog
from horolog.cli.main import run
from horolog.testing.broker import BrokerThread

from .requests import commit, kafka_client, leave, stable


@pytest.fixture
def horolog_settings() -> Mapping[str, object]:
    return {"kafka.listen": "127.0.0.1:0"}


def told(broker: BrokerThread, *arguments: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        assert run(["lag", "--server", broker.address, *arguments]) == 0
    return out.getvalue()


async def consume_some(broker: BrokerThread) -> str:
    """Five messages, of which a group has consumed two; returns the id of its member."""
    async with horolog.Producer(broker.address) as producer:
        for _ in range(5):
            await producer.send("clicks", b"value")
    async with kafka_client(broker.kafka_address) as client:
        member_id, _ = await stable(client, "group", session_ms=60_000)
        await client.call(commit("group", "clicks", 2, member_id=member_id, generation=1))
    return member_id


async def stop_consuming(broker: BrokerThread, member_id: str) -> None:
    async with kafka_client(broker.kafka_address) as client:
        assert (await client.call(leave("group", member_id))).error_code == 0


def test_the_lag_of_a_group_with_and_without_members(horolog_broker: BrokerThread) -> None:
    clock = horolog_broker.clock
    clock.freeze()
    member_id = asyncio.run(consume_some(horolog_broker))
    clock.step(30)
    found = json.loads(told(horolog_broker, "--json"))
    assert (found["lag"], found["lag_s"]) == (3, 30.0)
    assert (found["group"], found["members"]) == ("Stable", 1)
    asyncio.run(stop_consuming(horolog_broker, member_id))
    clock.step(30)
    found = json.loads(told(horolog_broker, "group", "--json"))
    assert (found["lag"], found["lag_s"]) == (3, 60.0)
    assert (found["group"], found["members"]) == ("Empty", 0)
    header, line = told(horolog_broker).splitlines()
    assert header.split()[-1] == "group"
    assert line.split()[-1] == "Empty"


def test_a_step_of_the_clock_ends_sessions(horolog_broker: BrokerThread) -> None:
    horolog_broker.clock.freeze()
    asyncio.run(consume_some(horolog_broker))
    assert "Stable, 1 member" in told(horolog_broker)
    horolog_broker.clock.step(59)
    assert "Stable, 1 member" in told(horolog_broker)
    horolog_broker.clock.step(1)
    assert "Stable" not in told(horolog_broker)
