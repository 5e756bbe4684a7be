"""Scrubbing at a broker that is alone: rounds, their rate, and what readers have checked."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from horolog import Consumer, StorageError
from horolog.protocol.api.log.fetch import FetchRequest
from horolog.server import scrubbing
from horolog.server.broker import Broker
from horolog.storage.segment.segment import Segment
from horolog.testing.broker import running_broker, synced
from horolog.testing.clock import ManualClock
from horolog.testing.requests import (
    create_topic,
    fetch,
    list_offsets,
    message_set,
    produce,
    result,
)
from horolog.testing.waiting import until
from horolog.testing.wire import Wire, wire

NOW = ManualClock().now_ms()
ENTRY_BYTES = 39
DAY_S = 86_400


async def with_segments(broker: Broker, client: Wire, topic: str = "a") -> tuple[Segment, ...]:
    """Three segments of two messages each, all of them synced. The second message is the one with
    the largest time."""
    await client.call(create_topic(topic, segment_bytes=2 * ENTRY_BYTES))
    for number in range(6):
        await client.call(produce(topic, message_set(NOW + (100 if number == 1 else number))))
    log = broker.directory.log(topic, 0)
    await synced(broker, log)
    return log.segments


def flip(segment: Segment) -> None:
    """Change the last byte of a segment's second message."""
    stored = bytearray(segment.log_path.read_bytes())
    stored[-1] ^= 1
    segment.log_path.write_bytes(stored)


async def run(broker: Broker) -> None:
    await broker.maintenance.tasks["scrub"].run_now()


def doubting(request: FetchRequest) -> FetchRequest:
    request.topics[0].partitions[0].check = True
    return request


async def test_a_round_reads_all_logs_and_the_next_one_begins_days_later(
    broker: Broker, client: Wire, clock: ManualClock
) -> None:
    segments = await with_segments(broker, client)
    await with_segments(broker, client, "b")
    figures = broker.figures
    await run(broker)
    assert (figures.scrub_rounds, figures.scrubbed_bytes) == (
        1,
        12 * ENTRY_BYTES + broker.directory.metadata.log.size_bytes,
    )
    flip(segments[0])
    clock.advance(7 * DAY_S * 1000 - 1)
    await run(broker)
    assert (figures.scrub_rounds, segments[0].damaged) == (1, None)
    clock.advance(1)
    await run(broker)
    assert figures.scrub_rounds == 2
    assert segments[0].damaged is not None
    assert (segments[0].damaged.position, segments[0].damaged.offset) == (ENTRY_BYTES, 1)
    assert figures.topic("a").damaged_segments == 1
    text = broker.metrics_text().decode()
    assert "\nhorolog_scrub_rounds_total 2.0\n" in text
    assert "\nhorolog_scrub_progress_ratio 1.0\n" in text


async def test_a_round_takes_as_long_as_its_rate_asks_for(
    broker: Broker, client: Wire, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes a second are bounded, also where a pass comes late."""
    monkeypatch.setattr(scrubbing, "MIN_RATE", 2 * ENTRY_BYTES)
    await with_segments(broker, client)
    figures = broker.figures
    seen = []
    for _ in range(3):
        await run(broker)
        seen.append((figures.scrub_rounds, figures.scrub_done_bytes / ENTRY_BYTES))
        clock.advance(1000)
    await run(broker)
    # A step ends behind an entry; those of the metadata log are larger.
    larger = broker.directory.metadata.log.size_bytes / ENTRY_BYTES
    for (rounds, entries), due in zip(seen, (2, 4, 6), strict=True):
        assert rounds == 0
        assert due <= entries <= due + larger
    for _ in range(3):
        clock.advance(1000)
        await run(broker)
    assert figures.scrub_rounds == 1


async def test_nothing_is_scrubbed_where_that_is_off(tmp_path: Path, clock: ManualClock) -> None:
    async with (
        running_broker(tmp_path, clock, http_listen="off", log_scrub_days=0) as broker,
        wire(broker.addresses.native) as client,
    ):
        (first, *_) = await with_segments(broker, client)
        flip(first)
        clock.advance(100 * DAY_S * 1000)
        await run(broker)
        assert (broker.figures.scrubbed_bytes, first.damaged) == (0, None)
        # A reader has it checked all the same.
        await client.call(doubting(fetch("a", (0, 1))))
        assert first.damaged is not None


async def test_what_a_topic_lost_meanwhile_is_passed_over(broker: Broker, client: Wire) -> None:
    await with_segments(broker, client)
    scrubber = broker.services.scrubber
    scrubber._due_bytes = 1.0
    await scrubber._begin_round(0.0)
    while scrubber._scrub is None:
        await scrubber._step()
    broker.directory.delete_topic("a")
    await run(broker)
    assert broker.figures.scrub_rounds == 1


@pytest.mark.parametrize("how", ["fetch", "time search", "largest time"])
async def test_damage_that_a_reader_meets_is_known_at_once(
    broker: Broker, client: Wire, how: str
) -> None:
    """Decision 20: the rest of that segment cannot be read, all else is served."""
    (first, *_) = await with_segments(broker, client)
    flip(first)
    if how == "fetch":
        # A fetch gives what is stored, unlooked at; the reader finds it, and says so.
        assert result(await client.call(fetch("a", (0, 1)))).error_code == 0
        found = result(await client.call(doubting(fetch("a", (0, 1)))))
        assert found.error_code == 56
        assert "damaged at byte 39" in found.error_message
    else:
        target = NOW + 100 if how == "time search" else -3
        assert result(await client.call(list_offsets("a", (0, target)))).error_code == 56
    assert first.damaged is not None
    assert first.damaged.position == ENTRY_BYTES
    assert broker.figures.topic("a").damaged_segments == 1
    assert result(await client.call(fetch("a", (0, 0)))).error_code == 0
    assert result(await client.call(fetch("a", (0, 2)))).error_code == 0
    assert result(await client.call(produce("a", message_set(NOW)))).error_code == 0


async def test_a_reader_has_what_is_not_synced_checked_too(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("a"))
    await client.call(produce("a", message_set(NOW)))
    (segment,) = broker.directory.log("a", 0).segments
    flip(segment)
    assert result(await client.call(doubting(fetch("a", (0, 0))))).error_code == 56
    assert result(await client.call(produce("a", message_set(NOW)))).error_code == 56


async def test_a_segment_is_checked_once_for_all_its_readers(
    broker: Broker, client: Wire, clock: ManualClock
) -> None:
    (first, *_) = await with_segments(broker, client)
    figures = broker.figures
    for _ in range(3):
        assert result(await client.call(doubting(fetch("a", (0, 0))))).error_code == 0
    assert figures.scrubbed_bytes == 2 * ENTRY_BYTES
    clock.advance(int(scrubbing.CHECK_AGAIN_S * 1000))
    flip(first)
    assert result(await client.call(doubting(fetch("a", (0, 1))))).error_code == 56
    assert figures.scrubbed_bytes == 4 * ENTRY_BYTES


async def test_damage_in_front_of_what_a_reader_met_is_looked_for(
    broker: Broker, client: Wire
) -> None:
    """A reader looks at sizes and offsets, near where it reads."""
    await client.call(create_topic("a"))
    for number in range(4):
        await client.call(produce("a", message_set(NOW + number)))
    log = broker.directory.log("a", 0)
    await synced(broker, log)
    (segment,) = log.segments
    stored = bytearray(segment.log_path.read_bytes())
    stored[ENTRY_BYTES - 1] ^= 1
    segment.log_path.write_bytes(stored)
    segment.damage(3 * ENTRY_BYTES)
    segment.damaged = segment.damaged and type(segment.damaged)(3 * ENTRY_BYTES, 3, "met")
    await run(broker)
    await until(lambda: segment.damaged and segment.damaged.position == 0)


async def test_a_broker_with_damage_is_ready_and_says_what_is_damaged(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, retention_ms=-1) as broker,
        wire(broker.addresses.native) as client,
        aiohttp.ClientSession() as session,
    ):
        (first, *_) = await with_segments(broker, client)
        flip(first)
        await run(broker)
        async with session.get(f"http://{broker.addresses.http}/readyz") as response:
            assert response.status == 200
            assert (await response.text()).startswith("ok, but a-0 is damaged at byte 39, offset 1")
        broker.directory.log("a", 0).truncate(0)
        async with session.get(f"http://{broker.addresses.http}/readyz") as response:
            assert await response.text() == "ok\n"


async def test_a_consumer_that_gets_damaged_messages_has_them_checked(
    broker: Broker, client: Wire
) -> None:
    (first, *_) = await with_segments(broker, client)
    flip(first)
    async with Consumer(broker.addresses.native) as consumer:
        consumer.assign("a", 0, offset=0)
        assert (await anext(consumer)).offset == 0
        with pytest.raises(StorageError, match="damaged at byte 39"):
            await anext(consumer)
    assert first.damaged is not None
    async with Consumer(broker.addresses.native) as consumer, asyncio.timeout(20):
        consumer.assign("a", 0, offset=2)
        assert (await anext(consumer)).offset == 2
