"""Clocks that step, and the latency that they are measured with: fault 39, decisions 13 and 34."""

import pytest

from horolog.protocol.records.messages.sets import records
from horolog.server.broker import Broker
from horolog.testing.clock import ManualClock
from horolog.testing.requests import create_topic, fetch, message_set, produce, result
from horolog.testing.wire import Wire

NOW = ManualClock().now_ms()
HOUR_MS = 3_600_000


@pytest.fixture
async def stamped(client: Wire) -> Wire:
    """A client of a broker with a LogAppendTime topic `a`."""
    await client.call(create_topic("a", message_timestamp_type="LogAppendTime"))
    return client


async def times(client: Wire) -> list[int]:
    got = result(await client.call(fetch("a", (0, 0))))
    return [record.timestamp_ms for record in records(got.records, max_decompressed_bytes=1 << 20)]


async def append(client: Wire, *created_ms: int, topic: str = "a") -> int:
    got = result(await client.call(produce(topic, message_set(*created_ms))))
    assert got.error_code == 0
    time: int = got.log_append_time_ms
    return time


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([-HOUR_MS], id="fault39-back-an-hour"),
        pytest.param([HOUR_MS, -2 * HOUR_MS], id="fault39-forward-and-back"),
        pytest.param([-1] * 10, id="fault39-back-1-ms-each"),
        pytest.param([-NOW], id="fault39-1970"),
    ],
)
async def test_append_times_never_fall(
    broker: Broker, stamped: Wire, clock: ManualClock, steps: list[int]
) -> None:
    """P-3F."""
    answered = [await append(stamped, 0)]
    for step in steps:
        clock.step(step)
        answered.append(await append(stamped, 0))
    assert answered == sorted(answered)
    assert await times(stamped) == answered
    backward = sum(step < 0 for step in steps)
    assert broker.figures.topic("a").clock_behind == backward


async def test_a_step_forward_and_back_deletes_nothing_by_append_time(
    broker: Broker, stamped: Wire, clock: ManualClock
) -> None:
    """fault39: the newest message keeps its segment, whatever the clock does meanwhile."""
    await append(stamped, 0)
    clock.step(-5 * HOUR_MS)
    await broker.maintenance.tasks["retention"].run_now()
    clock.step(5 * HOUR_MS)
    await broker.maintenance.tasks["retention"].run_now()
    assert broker.directory.log("a", 0).log_start_offset == 0


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
async def test_latency_is_append_time_minus_create_time_on_both_kinds_of_topic(
    broker: Broker, client: Wire, clock: ManualClock, kind: str
) -> None:
    """Decision 34: measured before the create time is overwritten."""
    await client.call(create_topic("a", message_timestamp_type=kind))
    clock.advance(1000)
    await append(client, NOW, NOW + 600, NOW + 999)
    figures = broker.figures.topic("a")
    assert sum(figures.latency.counts) == 3
    assert figures.latency.sum_ms == 1000 + 400 + 1
    assert figures.largest_latency.largest() == 1000
    assert figures.messages == 3


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
async def test_times_from_the_future_and_no_times(broker: Broker, client: Wire, kind: str) -> None:
    """Decision 34: never negative; counted apart."""
    await client.call(create_topic("a", message_timestamp_type=kind))
    await append(client, NOW + 5000, NOW + HOUR_MS, -1, -1, -1)
    figures = broker.figures.topic("a")
    assert (figures.latency.skewed, figures.latency.untimed) == (2, 3)
    assert figures.latency.counts[0] == sum(figures.latency.counts) == 2
    assert figures.latency.sum_ms == 0
    assert figures.largest_latency.largest() == 0


async def test_refused_messages_have_no_latency(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("a", max_message_time_difference_ms=1000))
    await client.call(produce("a", message_set(NOW, NOW, NOW - 5000)))
    figures = broker.figures.topic("a")
    assert figures.messages == 0
    assert sum(figures.latency.counts) == 0
    assert figures.rejected == {"timestamp": 3}


async def test_the_window_of_the_largest_latency_does_not_mind_steps(
    broker: Broker, client: Wire, clock: ManualClock
) -> None:
    await append(client, NOW - 700)
    clock.step(-HOUR_MS)
    await append(client, NOW)
    assert broker.figures.topic("a").largest_latency.largest() == 700
    clock.advance(2 * broker.settings.max_latency_window_ms)
    assert broker.figures.topic("a").largest_latency.largest() is None
