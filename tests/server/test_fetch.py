"""fetch: where it begins and ends, and how it waits."""

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from horolog.protocol.api.log.fetch import FETCH, FetchRequest, FetchTopic
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.protocol.errors import OffsetOutOfRange, UnknownTopicOrPartition
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import records
from horolog.server.broker import Broker
from horolog.server.handlers.fetch import handle_many
from horolog.server.parking import ParkingLot, Wait
from horolog.server.requests import PendingAnswer
from horolog.storage.read.slices import Slice
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.requests import (
    create_topic,
    fetch,
    message_set,
    produce,
    produce_to,
    result,
    results,
)
from horolog.testing.wire import Wire, wire

NOW = ManualClock().now_ms()
ENTRY_BYTES = 39
FOREVER_MS = 50_000


@pytest.fixture
async def other(broker: Broker) -> AsyncIterator[Wire]:
    """A second connection."""
    async with wire(broker.addresses.native) as connected:
        yield connected


async def fill(client: Wire, topic: str = "a", messages: int = 10, partition: int = 0) -> None:
    """Append messages of 39 bytes each, one a set."""
    for _ in range(messages):
        await client.call(produce(topic, message_set(NOW), partition=partition))


async def turn_around(client: Wire) -> None:
    """Return when the broker has handled everything that was sent before."""
    await client.call(MetadataRequest())


def offsets(record_set: bytes) -> list[int]:
    return [record.offset for record in records(record_set, max_decompressed_bytes=1 << 20)]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_from_the_offset_asked_for_to_the_end(client: Wire, version: int) -> None:
    for _ in range(10):
        await client.call(produce("a", message_set(-1, magic=0)))
    got = result(await client.call(fetch("a", (0, 4)), version))
    assert (got.error_code, got.high_watermark) == (0, 10)
    assert offsets(got.records) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("offset", "code", "watermark"),
    [
        pytest.param(10, 0, 10, id="tc64-F-10-log-end"),
        pytest.param(11, OffsetOutOfRange.code, -1, id="tc64-F-10-above-the-end"),
        pytest.param(-1, OffsetOutOfRange.code, -1, id="tc64-F-10-below-the-start"),
    ],
)
async def test_offsets_at_and_outside_the_ends(
    client: Wire, offset: int, code: int, watermark: int
) -> None:
    await fill(client)
    got = result(await client.call(fetch("a", (0, offset))))
    assert (got.error_code, got.high_watermark, got.records) == (code, watermark, b"")


async def test_below_the_log_start_after_retention(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("a", segment_bytes=ENTRY_BYTES, retention_bytes=0))
    await fill(client)
    await broker.maintenance.tasks["retention"].run_now()
    start = broker.directory.log("a", 0).log_start_offset
    assert start > 0
    got = result(await client.call(fetch("a", (0, start - 1))))
    assert (got.error_code, got.high_watermark) == (OffsetOutOfRange.code, -1)


async def test_nothing_between_the_watermark_and_the_log_end(broker: Broker, client: Wire) -> None:
    """tc65, F-10, F-3."""
    await fill(client)
    broker.directory.log("a", 0).hold_high_watermark(6)
    for offset in (6, 8, 10):
        got = result(await client.call(fetch("a", (0, offset))))
        assert (got.error_code, got.high_watermark, got.records) == (0, 6, b"")
    assert offsets(result(await client.call(fetch("a", (0, 4)))).records) == [4, 5]


@pytest.mark.parametrize("version", [0, 1, 2], ids=lambda version: f"tc66-F-13-v{version}")
@pytest.mark.parametrize("limit", [0, 5, ENTRY_BYTES - 8])
async def test_before_version_3_messages_are_cut(client: Wire, version: int, limit: int) -> None:
    await client.call(produce("a", message_set(-1, magic=0)))
    got = result(await client.call(fetch("a", (0, 0), partition_max_bytes=limit), version))
    assert len(got.records) == min(limit, ENTRY_BYTES - 8)


@pytest.mark.parametrize("limit", [-5, 0, 5])
async def test_version_3_gives_the_first_message_whole(client: Wire, limit: int) -> None:
    """tc67, F-14."""
    await fill(client)
    for request in (
        fetch("a", (0, 0), partition_max_bytes=limit),
        fetch("a", (0, 0), max_bytes=limit),
    ):
        got = result(await client.call(request))
        assert got.error_code == 0
        assert offsets(got.records) == [0]
        assert len(got.records) == ENTRY_BYTES


async def test_version_3_gives_it_to_the_first_partition_that_has_something(
    client: Wire,
) -> None:
    """tc68, F-14."""
    await client.call(create_topic("a", partitions=4))
    for partition in (1, 2, 3):
        await fill(client, partition=partition)
    places = [(0, 0), (2, 0), (1, 0), (3, 0)]
    got = results(await client.call(fetch("a", *places, partition_max_bytes=5)))
    assert [each.partition for each in got] == [0, 2, 1, 3]
    assert [offsets(each.records) for each in got] == [[], [0], [], []]
    assert [each.high_watermark for each in got] == [0, 10, 10, 10]


async def test_version_3_shares_the_responses_bytes_in_order(client: Wire) -> None:
    await client.call(create_topic("a", partitions=3))
    for partition in range(3):
        await fill(client, partition=partition)
    limit = 10 * ENTRY_BYTES + 5 * ENTRY_BYTES + 3
    places = [(2, 0), (0, 0), (1, 0)]
    got = results(await client.call(fetch("a", *places, max_bytes=limit)))
    assert [offsets(each.records) for each in got] == [list(range(10)), list(range(5)), []]
    assert sum(len(each.records) for each in got) <= limit


@pytest.mark.parametrize("version", [2, 3])
async def test_the_brokers_own_limit_bounds_every_version(tmp_path: Path, version: int) -> None:
    async with (
        running_broker(tmp_path, http_listen="off", max_response_bytes=1024) as broker,
        wire(broker.addresses.native) as client,
    ):
        await client.call(create_topic("a", partitions=3))
        for partition in range(3):
            await client.call(produce("a", message_set(*[NOW] * 20), partition=partition))
        places = [(0, 0), (1, 0), (2, 0)]
        got = results(await client.call(fetch("a", *places), version))
        assert sum(len(each.records) for each in got) <= 1024
        assert len(got[0].records) == 20 * ENTRY_BYTES


async def test_a_compressed_set_comes_from_its_beginning(client: Wire) -> None:
    """tc71, F-11."""
    await client.call(produce("a", message_set(NOW, NOW, NOW, codec=Codec.GZIP)))
    got = result(await client.call(fetch("a", (0, 2))))
    assert offsets(got.records) == [0, 1, 2]


async def test_a_read_does_not_span_segments(client: Wire) -> None:
    """F-12."""
    await client.call(create_topic("a", segment_bytes=3 * ENTRY_BYTES))
    await fill(client)
    assert offsets(result(await client.call(fetch("a", (0, 1)))).records) == [1, 2]


async def test_formats_do_not_mix_in_an_answer(client: Wire) -> None:
    """Decision 26."""
    for magic in (0, 0, 1, 0):
        time = NOW if magic else -1
        await client.call(produce("a", message_set(time, magic=magic)))
    seen = []
    for offset in range(4):
        got = result(await client.call(fetch("a", (0, offset))))
        seen.append(offsets(got.records))
    assert seen == [[0, 1], [1], [2], [3]]


@pytest.mark.parametrize(
    ("topic", "partition"), [("nowhere", 0), ("a", 1), ("a", -1)], ids=["F-15"] * 3
)
async def test_unknown_partitions(client: Wire, topic: str, partition: int) -> None:
    await fill(client)
    request = fetch(topic, (partition, 0), max_wait_ms=FOREVER_MS, min_bytes=1)
    got = result(await client.call(request))
    assert (got.error_code, got.high_watermark) == (UnknownTopicOrPartition.code, -1)


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(fetch("a", (0, 10), max_wait_ms=0, min_bytes=1), id="F-20-no-wait"),
        pytest.param(fetch("a", (0, 10), max_wait_ms=-1, min_bytes=1), id="F-20-negative-wait"),
        pytest.param(fetch("a", (0, 10), max_wait_ms=FOREVER_MS, min_bytes=0), id="F-20-0-bytes"),
        pytest.param(fetch("a", (0, 9), max_wait_ms=FOREVER_MS, min_bytes=1), id="F-20-enough"),
        pytest.param(fetch("a", (0, 11), max_wait_ms=FOREVER_MS, min_bytes=1), id="F-20-error"),
        pytest.param(
            fetch("a", (0, 9), (3, 0), max_wait_ms=FOREVER_MS, min_bytes=10**6), id="F-20-an-error"
        ),
        pytest.param(
            FetchRequest(max_wait_ms=FOREVER_MS, min_bytes=1, topics=[]), id="F-20-no-topics"
        ),
        pytest.param(
            FetchRequest(
                max_wait_ms=FOREVER_MS, min_bytes=1, topics=[FetchTopic(name="a", partitions=[])]
            ),
            id="F-20-no-partitions",
        ),
    ],
)
async def test_answered_at_once(client: Wire, request_: FetchRequest) -> None:
    await fill(client)
    await asyncio.wait_for(client.call(request_), 30)


@pytest.mark.both_loops
async def test_the_time_is_up(
    broker: Broker, client: Wire, other: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tc69, F-21: what there is is answered, although it is not enough."""
    waits: dict[int, Wait] = {}
    park = ParkingLot.park

    def noted(lot: ParkingLot, awaited: Any, satisfied: Any, wait_ms: int, **more: Any) -> Wait:
        waits[wait_ms] = park(lot, awaited, satisfied, wait_ms, **more)
        return waits[wait_ms]

    monkeypatch.setattr(ParkingLot, "park", noted)
    await fill(client)
    request = fetch("a", (0, 0), max_wait_ms=FOREVER_MS, min_bytes=1000)
    await parked(broker, client, other, request)
    waits[FOREVER_MS].set_result(None)
    _, got = await client.receive()
    assert len(result(got).records) == 10 * ENTRY_BYTES


@pytest.mark.both_loops
async def test_an_append_wakes(broker: Broker, client: Wire, other: Wire) -> None:
    """tc70, F-21."""
    await fill(other)
    number = client.send(FETCH, 3, fetch("a", (0, 10), max_wait_ms=FOREVER_MS, min_bytes=1))
    await turn_around(other)
    while not len(broker.services.fetches):
        await turn_around(other)
    await fill(other, messages=1)
    received, response = await client.receive()
    assert received == number
    assert offsets(result(response).records) == [10]
    assert not len(broker.services.fetches)


async def parked(broker: Broker, client: Wire, other: Wire, request: FetchRequest) -> None:
    """Send a fetch and return when it waits."""
    waiting = len(broker.services.fetches)
    client.send(FETCH, 3, request)
    while len(broker.services.fetches) == waiting:
        await turn_around(other)


async def test_not_every_append_is_enough(broker: Broker, client: Wire, other: Wire) -> None:
    await fill(other)
    request = fetch("a", (0, 10), max_wait_ms=FOREVER_MS, min_bytes=3 * ENTRY_BYTES)
    await parked(broker, client, other, request)
    for count in (1, 1):
        await fill(other, messages=count)
        await turn_around(other)
        assert len(broker.services.fetches) == 1
    await fill(other, messages=1)
    _, response = await client.receive()
    assert offsets(result(response).records) == [10, 11, 12]


async def test_min_bytes_counts_all_partitions_within_their_limits(
    broker: Broker, client: Wire, other: Wire
) -> None:
    await other.call(create_topic("a", partitions=2))
    request = fetch(
        "a",
        (0, 0),
        (1, 0),
        max_wait_ms=FOREVER_MS,
        min_bytes=ENTRY_BYTES + 11,
        partition_max_bytes=ENTRY_BYTES + 10,
    )
    await parked(broker, client, other, request)
    await fill(other, messages=5)
    await turn_around(other)
    assert len(broker.services.fetches) == 1
    await fill(other, messages=1, partition=1)
    _, response = await client.receive()
    assert [len(each.records) for each in results(response)] == [ENTRY_BYTES + 10, ENTRY_BYTES]


async def test_data_of_a_closed_segment_does_not_wait_for_more(client: Wire) -> None:
    """F-21: a read ends with its segment, so waiting would add nothing."""
    await client.call(create_topic("a", segment_bytes=2 * ENTRY_BYTES))
    await fill(client, messages=3)
    request = fetch("a", (0, 1), max_wait_ms=FOREVER_MS, min_bytes=10**6)
    got = result(await asyncio.wait_for(client.call(request), 30))
    assert offsets(got.records) == [1]


async def test_a_partition_named_twice_counts_as_it_was_named_last(
    broker: Broker, client: Wire, other: Wire
) -> None:
    await fill(other)
    request = fetch("a", (0, 0), (0, 10), max_wait_ms=FOREVER_MS, min_bytes=1)
    await parked(broker, client, other, request)
    await fill(other, messages=1)
    _, response = await client.receive()
    assert [len(offsets(each.records)) for each in results(response)] == [11, 1]


async def test_a_fetch_that_waits_holds_nothing_of_what_it_found(
    broker: Broker, client: Wire, other: Wire
) -> None:
    await fill(other)
    await parked(broker, client, other, fetch("a", (0, 0), max_wait_ms=FOREVER_MS, min_bytes=10**6))
    slices = [each for each in gc.get_referrers(Slice) if isinstance(each, Slice)]
    places = [each.segment.log_path for each in slices if each.segment is not None]
    # Other brokers of this process may be in the middle of a read.
    folder = broker.directory.log("a", 0).path
    assert not [path for path in places if path.parent == folder]


async def test_each_request_of_many_has_its_own_outcome(broker: Broker, client: Wire) -> None:
    await fill(client)
    broken = FetchRequest(topics=cast(list[FetchTopic], None))
    requests = [
        fetch("a", (0, 4)),
        broken,
        fetch("a", (0, 10), max_wait_ms=FOREVER_MS, min_bytes=1),
        fetch("missing", (0, 0)),
        fetch("a", (0, 8)),
    ]
    first, failed, waiting, unknown, last = handle_many(broker.services, 3, requests)
    assert offsets(result(first).records) == [4, 5, 6, 7, 8, 9]
    assert isinstance(failed, TypeError)
    assert isinstance(waiting, PendingAnswer)
    waiting.ready.cancel()
    assert result(unknown).error_code == UnknownTopicOrPartition.code
    assert offsets(result(last).records) == [8, 9]


async def test_appends_above_the_watermark_do_not_wake(
    broker: Broker, client: Wire, other: Wire
) -> None:
    await fill(other)
    log = broker.directory.log("a", 0)
    log.hold_high_watermark(10)
    await parked(broker, client, other, fetch("a", (0, 10), max_wait_ms=FOREVER_MS, min_bytes=1))
    await fill(other, messages=3)
    await turn_around(other)
    assert len(broker.services.fetches) == 1
    log.hold_high_watermark(12)
    _, response = await client.receive()
    assert offsets(result(response).records) == [10, 11]


async def test_deleting_the_topic_wakes(broker: Broker, client: Wire, other: Wire) -> None:
    await fill(other)
    await parked(broker, client, other, fetch("a", (0, 10), max_wait_ms=FOREVER_MS, min_bytes=1))
    await other.call(DeleteTopicsRequest(topic_names=["a"]))
    _, response = await client.receive()
    assert result(response).error_code == UnknownTopicOrPartition.code


async def test_a_truncation_below_the_offset_wakes(
    broker: Broker, client: Wire, other: Wire
) -> None:
    await fill(other)
    await parked(broker, client, other, fetch("a", (0, 10), max_wait_ms=FOREVER_MS, min_bytes=1))
    broker.directory.log("a", 0).truncate(5)
    await fill(other, messages=1)
    _, response = await client.receive()
    assert result(response).error_code == OffsetOutOfRange.code


async def test_a_client_that_leaves_takes_its_fetch_along(
    broker: Broker, client: Wire, other: Wire
) -> None:
    await fill(other)
    await parked(broker, client, other, fetch("a", (0, 10), max_wait_ms=FOREVER_MS, min_bytes=1))
    client.writer.transport.abort()
    while len(broker.services.fetches):
        await turn_around(other)


async def test_waiting_is_bounded_by_the_broker(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, http_listen="off", fetch_max_wait_ms=20) as broker,
        wire(broker.addresses.native) as client,
    ):
        await client.call(create_topic("a"))
        request = fetch("a", (0, 0), max_wait_ms=2**31 - 1, min_bytes=1)
        got = result(await asyncio.wait_for(client.call(request), 30))
        assert (got.error_code, got.records) == (0, b"")


async def test_without_a_place_to_wait_the_answer_comes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horolog.server.services.MAX_PARKED_FETCHES", 1)
    request = fetch("a", (0, 1), max_wait_ms=FOREVER_MS, min_bytes=1)
    async with (
        running_broker(tmp_path, http_listen="off") as broker,
        wire(broker.addresses.native) as waiting,
        wire(broker.addresses.native) as client,
    ):
        await fill(client, messages=1)
        await parked(broker, waiting, client, request)
        await asyncio.wait_for(client.call(request), 30)
        assert broker.figures.parked_refused == 1


async def test_many_fetches_on_one_partition_wake_together(
    broker: Broker, client: Wire, other: Wire
) -> None:
    await fill(other)
    for _ in range(100):
        client.send(FETCH, 3, fetch("a", (0, 10), max_wait_ms=FOREVER_MS, min_bytes=1))
    while len(broker.services.fetches) < 100:
        await turn_around(other)
    await other.call(produce_to("a", [(0, message_set(NOW))]))
    for _ in range(100):
        _, response = await client.receive()
        assert offsets(result(response).records) == [10]


@pytest.mark.both_loops
async def test_logs_are_prepared_before_they_are_read(tmp_path: Path) -> None:
    """After a clean start the indexes of closed segments are loaded when they are needed."""
    async with (
        running_broker(
            tmp_path, http_listen="off", segment_bytes=2 * ENTRY_BYTES, retention_ms=-1
        ) as broker,
        wire(broker.addresses.native) as client,
    ):
        await fill(client)
    async with running_broker(tmp_path, http_listen="off", retention_ms=-1) as broker:
        assert not broker.directory.log("a", 0).prepared
        async with wire(broker.addresses.native) as client, wire(broker.addresses.native) as also:
            for connected in (client, also):
                connected.send(FETCH, 3, fetch("a", (0, 1), (7, 0)))
            for connected in (client, also):
                _, response = await connected.receive()
                first, unknown = results(response)
                assert offsets(first.records) == [1]
                assert unknown.error_code == UnknownTopicOrPartition.code
        assert broker.directory.log("a", 0).prepared


async def test_an_offset_far_from_every_index_entry_is_looked_for_while_others_are_served(
    client: Wire, other: Wire
) -> None:
    await client.call(create_topic("far", index_interval_bytes=1 << 30))
    sent = message_set(*[NOW] * 500, value=b"x" * 1000)
    for _ in range(8):
        await client.call(produce("far", sent))
    for offset in (3999, 2000, 0):
        got = result(await client.call(fetch("far", (0, offset), partition_max_bytes=2000)))
        assert (got.error_code, offsets(got.records)[0]) == (0, offset)
    searching = asyncio.create_task(client.call(fetch("far", (0, 3000), partition_max_bytes=2000)))
    await turn_around(other)
    assert offsets(result(await searching).records)[0] == 3000
