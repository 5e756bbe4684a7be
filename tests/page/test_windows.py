"""The histogram behind the page, and the messages of one bar: exact, and in bounded pieces."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from horolog.protocol.api.log.count_by_time import CountByTimeRequest
from horolog.protocol.api.log.list_offsets import BY_APPEND
from horolog.protocol.records.layout import Codec
from horolog.server.broker import Broker
from horolog.server.handlers.counting import counted
from horolog.server.page.messages import OPENED_BYTES
from horolog.testing.clock import ManualClock
from horolog.testing.requests import create_topic, message_set, produce
from horolog.testing.waiting import until
from horolog.testing.wire import Wire
from horolog.times import INT64_MAX

from .conftest import Get

NOW = ManualClock().now_ms()
BEGIN = NOW - 3_600_000
MESSAGE_BYTES = len(message_set(NOW))

Stored = list[tuple[int, int, int]]
"""Partition, offset and time of each message; -1 for one without a time."""


def counts_of(stored: Stored, from_ms: int, until_ms: int, every_ms: int) -> list[int]:
    counts = [0] * -(-(until_ms - from_ms) // every_ms)
    for _, _, time_ms in stored:
        if from_ms <= time_ms < until_ms:
            counts[(time_ms - from_ms) // every_ms] += 1
    return counts


async def all_parts(get: Get, path: str, **query: object) -> AsyncIterator[Any]:
    """The answers, each asked for with what the one before said comes next."""
    going_on: dict[str, int] | None = {}
    while going_on is not None:
        answer = await get(path, **query, **going_on)
        assert answer.status == 200, answer.text
        yield answer.body
        assert answer.body["next"] != going_on, "it must get further"
        going_on = answer.body["next"]


async def opened(get: Get, **query: object) -> Stored:
    found: Stored = []
    async for part in all_parts(get, "/page/window", topic="a", **query):
        assert part["problem"] == ""
        found += [
            (one["partition"], one["offset"], one["timestamp_ms"]) for one in part["messages"]
        ]
    return found


@pytest.fixture(params=[Codec.NONE, Codec.GZIP], ids=["plain", "gzip"])
async def stored(client: Wire, request: pytest.FixtureRequest) -> Stored:
    """An hour in two partitions of several segments, out of order, with some times from far away
    and some missing."""
    random = Random(5)
    await client.call(
        create_topic("a", partitions=2, segment_bytes=100 * MESSAGE_BYTES, retention_ms=-1)
    )
    found: Stored = []
    offsets = [0, 0]
    for number in range(60):
        times = [BEGIN + random.randrange(3_600_000) for _ in range(10)]
        times[3] = -1
        times[7] += random.choice([-1, 0, 1]) * 86_400_000
        partition = number % 2
        sent = message_set(*times, codec=request.param)
        response = await client.call(produce("a", sent, partition=partition))
        assert response.topics[0].partitions[0].error_code == 0
        for time_ms in times:
            found.append((partition, offsets[partition], time_ms))
            offsets[partition] += 1
    return sorted(found)


async def test_bars_are_what_a_plain_count_gives(get: Get, stored: Stored) -> None:
    timed = [time_ms for _, _, time_ms in stored if time_ms >= 0]
    whole = (await get("/page/histogram", topic="a")).body
    assert whole["counts"] == [len(timed)]
    assert (whole["first_ms"], whole["last_ms"]) == (min(timed), max(timed))
    assert (whole["untimed"], whole["next"]) == (60, None)
    assert whole["now_ms"] == NOW
    for from_ms, until_ms, bars in (
        (BEGIN, NOW, 60),
        (BEGIN + 1234, NOW - 777, 200),
        (min(timed), max(timed) + 1, 7),
        (BEGIN, BEGIN + 3, 200),
    ):
        query = {"from": from_ms, "until": until_ms, "bars": bars}
        found = (await get("/page/histogram", topic="a", **query)).body
        every_ms = found["every_ms"]
        assert every_ms == max(-(-(until_ms - from_ms) // bars), 1)
        assert found["counts"] == counts_of(stored, from_ms, until_ms, every_ms)


async def test_a_bar_opens_to_its_messages_and_no_others(get: Get, stored: Stored) -> None:
    for from_ms, until_ms in (
        (BEGIN + 600_000, BEGIN + 900_000),
        (BEGIN - 86_400_000, BEGIN),
        (NOW, 2**63 - 1),
        (BEGIN, BEGIN),
    ):
        wanted = [one for one in stored if from_ms <= one[2] < until_ms]
        assert wanted or from_ms == until_ms
        for limit in (3, 50):
            query = {"from": from_ms, "until": until_ms, "limit": limit}
            assert await opened(get, **query) == wanted


async def test_the_messages_of_a_bar_come_in_the_numbers_asked_for(
    get: Get, stored: Stored
) -> None:
    query = {"from": BEGIN, "until": NOW, "limit": 7}
    first = (await get("/page/window", topic="a", **query)).body
    assert len(first["messages"]) == 7
    assert first["messages"][0]["value"] == {"text": "hello", "bytes": 5, "cut": False}
    seventh = first["messages"][-1]
    assert first["next"] == {"partition": 0, "offset": seventh["offset"] + 1}


async def test_an_answer_is_bounded_and_the_next_one_goes_on(
    get: Get, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("histogram", "window"):
        monkeypatch.setattr(f"horolog.server.page.{name}.SECONDS", 1e-9)
    query = {"from": BEGIN, "until": NOW, "bars": 12}
    parts = [part async for part in all_parts(get, "/page/histogram", topic="a", **query)]
    assert len(parts) > 2, "a part for each segment"
    sums = [sum(counts) for counts in zip(*(part["counts"] for part in parts), strict=True)]
    assert sums == counts_of(stored, BEGIN, NOW, 300_000)
    assert sum(part["untimed"] for part in parts) == 60
    windows = [part async for part in all_parts(get, "/page/window", topic="a", **query)]
    assert len(windows) > 2
    offsets = [(one["partition"], one["offset"]) for part in windows for one in part["messages"]]
    assert offsets == [one[:2] for one in stored if BEGIN <= one[2] < NOW]


async def test_partitions_are_counted_some_at_a_time(
    client: Wire, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horolog.server.page.histogram.PARTITIONS_AT_ONCE", 3)
    await client.call(create_topic("a", partitions=7))
    for partition in range(7):
        await client.call(produce("a", message_set(NOW), partition=partition))
    parts = [part async for part in all_parts(get, "/page/histogram", topic="a")]
    assert [part["counts"] for part in parts] == [[3], [3], [1]]
    assert [part["next"] for part in parts] == [{"partition": 3}, {"partition": 6}, None]


async def test_what_came_since_the_first_answer_is_not_in_the_next(
    client: Wire, get: Get, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horolog.server.page.histogram.SECONDS", 1e-9)
    total = 0
    async for part in all_parts(get, "/page/histogram", topic="a"):
        total += part["counts"][0]
        if part["next"] is not None and part["next"]["partition"] == 0:
            await client.call(produce("a", message_set(NOW), partition=0))
    assert total == sum(time_ms >= 0 for _, _, time_ms in stored)


async def test_a_count_by_append_times_ends_when_its_time_is_up(
    broker: Broker, stored: Stored
) -> None:
    counts, answers, offset, end_offset = 0, 0, -1, -1
    while offset >= 0 or not answers:
        request = CountByTimeRequest(
            topic="a",
            partition=0,
            from_ms=NOW,
            until_ms=NOW + 1,
            by=BY_APPEND,
            from_offset=offset,
            end_offset=end_offset,
        )
        answer = await counted(broker.services, request, 0.0)
        counts += sum(answer.counts)
        answers += 1
        offset, end_offset = answer.next_offset, answer.end_offset
    assert counts == sum(partition == 0 for partition, _, _ in stored)
    assert answers > 1, "one for each segment"


async def test_where_retention_begins(client: Wire, get: Get) -> None:
    await client.call(create_topic("a", retention_ms=60_000))
    await client.call(create_topic("b", retention_ms=-1))
    await client.call(create_topic("c", retention_ms=2**63 - 1))
    for topic, start_ms in (("a", NOW - 60_000), ("b", None), ("c", None)):
        answer = (await get("/page/histogram", topic=topic)).body
        assert answer["retention_start_ms"] == start_ms
        assert (answer["counts"], answer["first_ms"], answer["last_ms"]) == ([0], None, None)


async def test_a_set_that_is_too_large_to_be_opened_is_told_and_passed_over(
    client: Wire, get: Get
) -> None:
    await client.call(create_topic("a", max_message_bytes=10 * OPENED_BYTES))
    unfolding = message_set(NOW, NOW, value=bytes(OPENED_BYTES), codec=Codec.GZIP, magic=2)
    for record_set in (message_set(NOW), unfolding, message_set(NOW)):
        await client.call(produce("a", record_set))
    query = {"from": NOW, "until": NOW + 1}
    parts = [part async for part in all_parts(get, "/page/window", topic="a", **query)]
    offsets = [[one["offset"] for one in part["messages"]] for part in parts]
    assert offsets == [[0], [3]]
    assert "more than 4 MiB" in parts[0]["problem"]
    assert (parts[0]["next"], parts[1]["problem"]) == ({"partition": 0, "offset": 3}, "")


async def test_a_damaged_message_is_no_gap(broker: Broker, client: Wire, get: Get) -> None:
    await client.call(create_topic("a", partitions=2))
    for _ in range(3):
        await client.call(produce("a", message_set(NOW)))
    path = broker.directory.log("a", 0).segments[0].log_path
    data = bytearray(path.read_bytes())
    data[2 * MESSAGE_BYTES - 1] ^= 1
    path.write_bytes(data)
    answer = (await get("/page/window", topic="a")).body
    assert [one["offset"] for one in answer["messages"]] == [0]
    assert "CRC" in answer["problem"]
    assert answer["next"] == {"partition": 1, "offset": 0}


@pytest.mark.parametrize(
    ("path", "query", "said"),
    [
        ("histogram", {"bars": 0}, "bars is '0'; it must be a number from 1 to 200"),
        ("histogram", {"bars": 201}, "bars is '201'; it must be a number from 1 to 200"),
        ("histogram", {"from_": "x"}, f"from is 'x'; it must be a number from 0 to {2**63 - 1}"),
        ("histogram", {"from_": 9, "until": 8}, "until is '8'; it must be a number from 9 to"),
        ("histogram", {"offset": -1}, "offset is '-1'"),
        ("histogram", {"offset": 2**63 - 1}, "is behind 0, the end of a-0"),
        ("histogram", {"topic": "a..20161114T1724Z..1h"}, "window"),
        ("window", {"from_": 9, "until": 8}, "until is '8'; it must be a number from 9 to"),
        ("window", {"limit": 0}, "limit is '0'; it must be a number from 1 to 50"),
        ("window", {"limit": 51}, "limit is '51'; it must be a number from 1 to 50"),
        ("window", {"partition": "a"}, "partition is 'a'"),
    ],
)
async def test_what_makes_no_sense_is_refused(
    client: Wire, get: Get, path: str, query: dict[str, object], said: str
) -> None:
    await client.call(create_topic("a"))
    answer = await get(f"/page/{path}", **{"topic": "a", **query})
    assert answer.status == 400
    assert said in answer.body["error"]


@pytest.mark.parametrize("name", ["histogram", "window"])
async def test_what_does_not_exist(client: Wire, get: Get, name: str) -> None:
    await client.call(create_topic("a"))
    for query, said in (({"topic": "b"}, "'b'"), ({"topic": "a", "partition": 1}, "has 0 to 0")):
        answer = await get(f"/page/{name}", **query)
        assert (answer.status, said in answer.body["error"]) == (404, True)
    assert (await get(f"/page/{name}")).status == 400


@pytest.mark.parametrize("bars", [1, 2, 7, 200])
@pytest.mark.parametrize("begin_ms", [0, 5, INT64_MAX - 3, INT64_MAX - 1])
async def test_the_last_time_that_there_is(
    get: Get, client: Wire, bars: int, begin_ms: int
) -> None:
    """It is counted and shown where no end is given; no `until` is behind it."""
    await client.call(create_topic("a", retention_ms=-1))
    times = [0, 5, INT64_MAX - 2, INT64_MAX - 1, INT64_MAX, INT64_MAX]
    await client.call(produce("a", message_set(*times)))
    asked = {"topic": "a", "from": begin_ms}
    later = [time_ms for time_ms in times if time_ms >= begin_ms]
    whole = (await get("/page/histogram", **asked, bars=bars)).body
    assert (sum(whole["counts"]), whole["first_ms"]) == (len(later), later[0])
    assert len(whole["counts"]) == -(-(INT64_MAX - begin_ms) // whole["every_ms"]) <= bars
    assert (whole["last_ms"], whole["counts"][-1] >= 2) == (INT64_MAX, True)
    ended = (await get("/page/histogram", **asked, until=INT64_MAX, bars=bars)).body
    assert sum(ended["counts"]) == len(later) - 2
    assert len((await get("/page/window", **asked)).body["messages"]) == len(later)
    shown = (await get("/page/window", **asked, until=INT64_MAX)).body["messages"]
    assert len(shown) == len(later) - 2


async def test_search_finds_what_a_plain_list_has(
    get: Get, client: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces of few messages, and past messages of other times."""
    monkeypatch.setattr("horolog.server.page.window.EXAMINED", 7)
    monkeypatch.setattr("horolog.server.page.window.SEARCHED_BYTES", 3000)
    random = Random(11)
    await client.call(create_topic("a", partitions=2))
    every: list[tuple[int, int, int, str]] = []
    for partition in range(2):
        for offset in range(60):
            time_ms = BEGIN + random.randrange(1000)
            text = random.choice(["Ape", "bear", "cat"])
            await client.call(
                produce("a", message_set(time_ms, value=text.encode()), partition=partition)
            )
            every.append((partition, offset, time_ms, text))
    query = {"topic": "a", "from_": BEGIN + 100, "until": BEGIN + 700}
    found, looked, parts = [], 0, 0
    async for part in all_parts(get, "/page/window", **query, text="aPE", in_="value", limit=50):
        found += [(one["partition"], one["offset"]) for one in part["messages"]]
        looked += part["looked"]
        parts += 1
    inside = [one for one in every if BEGIN + 100 <= one[2] < BEGIN + 700]
    assert found == [one[:2] for one in inside if one[3] == "Ape"]
    assert looked == len(inside)
    assert parts > 1
    refused = await get("/page/window", **query, text="a", in_="offset")
    assert (refused.status, refused.body["error"]) == (
        400,
        "in is 'offset'; it must be one of anywhere, key, value, header",
    )


async def test_a_search_ends_with_its_connection(
    broker: Broker, client: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.call(create_topic("a"))
    await client.call(produce("a", message_set(BEGIN)))
    never: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(broker.services.work, "in_reading_thread", lambda call: never)
    host, port = str(broker.addresses.http).rsplit(":", 1)
    _, writer = await asyncio.open_connection(host, int(port))
    asked = f"GET /page/window?topic=a&text=b HTTP/1.1\r\nHost: {broker.addresses.http}\r\n\r\n"
    writer.write(asked.encode())
    await until(lambda: never._callbacks)
    writer.close()
    await until(never.cancelled)
