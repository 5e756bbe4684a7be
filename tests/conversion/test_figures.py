"""What conversion costs is counted: messages, bytes and seconds, by topic and direction."""

import threading
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from horolog.protocol.records.layout import MESSAGE_CODECS, Codec
from horolog.server.broker import Broker
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.requests import create_topic, fetch, message_set, produce
from horolog.testing.wire import Wire, wire

from .wishes import set_format

NOW = ManualClock().now_ms()


class TickingClock(ManualClock):
    """A tenth of a second passes whenever the event loop's thread looks at the stopwatch: another
    one may do so in the middle of what is measured."""

    def __init__(self, now_ms: int) -> None:
        super().__init__(now_ms)
        self._thread = threading.current_thread()

    def monotonic(self) -> float:
        if threading.current_thread() is self._thread:
            self.advance(100)
        return super().monotonic()


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path / "data", TickingClock(NOW)) as started:
        yield started


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Wire]:
    async with wire(broker.addresses.native) as connected:
        yield connected


async def samples(broker: Broker) -> dict[str, float]:
    """The lines of `/metrics` that speak of conversion."""
    url = f"http://{broker.addresses.http}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        lines = (await response.text()).splitlines()
    return {
        line.rpartition(" ")[0].removeprefix("horolog_"): float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith(("horolog_conver",)) and "_created" not in line
    }


async def test_appends_and_fetches_are_counted_apart(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("a", message_format_version="0.10.0"))
    await client.call(produce("a", message_set(-1, -1, -1, magic=0)))
    await client.call(produce("a", message_set(-1, magic=0)))
    await set_format(client, "a", "0.9.0")
    await client.call(produce("a", message_set(NOW, NOW)))
    await set_format(client, "a", "producer")
    await client.call(fetch("a", (0, 0)), 1)
    await client.call(fetch("a", (0, 1)), 0)
    found = await samples(broker)
    assert {
        name: value for name, value in found.items() if not name.startswith("conversion_seconds")
    } == {
        'converted_messages_total{direction="append_up",topic="a"}': 4,
        'converted_messages_total{direction="append_down",topic="a"}': 2,
        'converted_messages_total{direction="fetch_down",topic="a"}': 4 + 3,
        'converted_bytes_total{direction="append_up",topic="a"}': 4 * 31,
        'converted_bytes_total{direction="append_down",topic="a"}': 2 * 39,
        'converted_bytes_total{direction="fetch_down",topic="a"}': (4 + 3) * 39,
    }
    seconds = 'conversion_seconds_total{direction="%s",topic="a"}'
    assert found[seconds % "append_up"] == pytest.approx(0.2)
    assert found[seconds % "append_down"] == pytest.approx(0.1)
    assert found[seconds % "fetch_down"] > 0, "measured by the real clock"


async def test_nothing_converted_counts_nothing(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("a"))
    for codec in MESSAGE_CODECS:
        await client.call(produce("a", message_set(NOW, codec=codec)))
        if codec is not Codec.LZ4:  # decision 25
            await client.call(produce("a", message_set(-1, magic=0, codec=codec)))
    await client.call(fetch("a", (0, 0)), 3)
    await client.call(fetch("a", (0, 1)), 1)  # v0 data
    await client.call(fetch("a", (0, 0), partition_max_bytes=5), 1)  # no complete message
    assert await samples(broker) == {}


async def test_bytes_sent_are_those_after_conversion(broker: Broker, client: Wire) -> None:
    await client.call(produce("a", message_set(NOW, NOW)))
    await client.call(fetch("a", (0, 0)), 1)
    assert broker.figures.topic("a").bytes_out == 2 * 31
