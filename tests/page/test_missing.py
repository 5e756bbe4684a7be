"""What downloads, windows and searches of the page say of messages that are gone."""

import json
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import pytest

from horolog.protocol.api.topics.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.server.broker import Broker
from horolog.server.page import download
from horolog.server.page.access import Everything, Query, Viewer
from horolog.testing.clock import ManualClock
from horolog.testing.requests import create_topic, message_set, produce, result
from horolog.testing.wire import Wire
from horolog.times import format_time

from .conftest import Get

NOW = ManualClock().now_ms()
MESSAGES = 60
EVERYWHERE = {"partition": None, "offset": None}


async def trim(client: Wire, partition: int, offset: int) -> None:
    wanted = DeleteRecordsPartition(partition=partition, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="a", partitions=[wanted])])
    assert result(await client.call(request)).error_code == 0


async def store(client: Wire) -> None:
    """Store messages of one second after the other in two partitions."""
    await client.call(create_topic("a", partitions=2, retention_ms=-1))
    for partition in range(2):
        for number in range(MESSAGES):
            time_ms = NOW + 1000 * (number - MESSAGES)
            await client.call(produce("a", message_set(time_ms), partition=partition))


@pytest.fixture(autouse=True)
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "AT_ONCE", 10)


def downloaded(broker: Broker, **asked: object) -> AsyncIterator[bytes]:
    given = {name.rstrip("_"): str(value) for name, value in {"topic": "a", **asked}.items()}
    return download.lines(broker.services, Query(given, Everything(), Viewer(None, False)))


def rows_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


@pytest.mark.parametrize("seed", range(4))
async def test_messages_that_are_deleted_during_a_download_are_no_silent_gap(
    broker: Broker, client: Wire, seed: int
) -> None:
    """Every message is in the file, or in a range of offsets that a problem names."""
    random = Random(seed)
    await store(client)
    data, starts = b"", [0, 0]
    async for piece in downloaded(broker):
        data += piece
        if random.random() < 0.5:
            partition = random.randrange(2)
            start = min(starts[partition] + random.randrange(1, 30), MESSAGES)
            await trim(client, partition, start)
            starts[partition] = start
    found = rows_of(data)
    said = found.pop() if "complete_from_ms" in found[-1] else None
    expected, lost = [0, 0], 0
    for row in found:
        partition = row["partition"]
        if "problem" not in row:
            if not expected[partition] and row["offset"]:
                expected[partition] = lost = row["offset"]  # before this partition was begun
            assert row["offset"] == expected[partition]
            expected[partition] += 1
            continue
        last = int(row["problem"].split(" to ")[1].split()[0])
        assert row["problem"] == (
            f"messages from offset {expected[partition]} to {last} of partition {partition} were "
            "deleted before they were read"
        )
        assert row["offset"] == expected[partition]
        expected[partition] = lost = last + 1
    assert all(end in (0, MESSAGES) for end in expected)
    assert bool(said) == bool(lost or 0 in expected)
    if said is not None:
        check_said(said, max(starts))


def check_said(said: dict[str, Any], start: int) -> None:
    """Check the last line of a download from a topic that was trimmed up to an offset."""
    complete_ms = said["complete_from_ms"]
    assert NOW - 1000 * MESSAGES < complete_ms <= NOW + 1000 * (start - 1 - MESSAGES) + 1
    assert said["problem"] == (
        f"complete only from {format_time(complete_ms)} on: earlier messages are gone"
    )
    assert {each["cause"] for each in said["removed"]} == {"trim"}
    assert not any("rule" in each for each in said["removed"])


async def test_a_download_says_what_went_before_it(get: Get, client: Wire) -> None:
    await store(client)
    whole = (await get("/page/download", topic="a")).text
    assert len(whole.splitlines()) == 2 * MESSAGES
    assert "problem" not in whole
    await trim(client, 1, 3)
    *kept, last = rows_of((await get("/page/download", topic="a")).text.encode())
    assert len(kept) == 2 * MESSAGES - 3
    complete_ms = NOW + 1000 * (2 - MESSAGES) + 1
    assert last == {
        **EVERYWHERE,
        "problem": f"complete only from {format_time(complete_ms)} on: earlier messages are gone",
        "complete_from_ms": complete_ms,
        "removed": [
            {
                "partition": 1,
                "cause": "trim",
                "first_offset": 0,
                "end_offset": 3,
                "messages": 3,
                "first_timestamp_ms": NOW - 1000 * MESSAGES,
                "largest_timestamp_ms": complete_ms - 1,
                "began_ms": NOW,
                "at_ms": NOW,
                "times": 1,
            }
        ],
    }
    later = (await get("/page/download", topic="a", from_=complete_ms)).text
    assert "problem" not in later


async def test_a_download_says_that_it_is_not_known_what_went(
    broker: Broker, get: Get, client: Wire
) -> None:
    await store(client)
    broker.directory.log("a", 0).expiry.trim(1)  # as a log that came from elsewhere
    *_, last = rows_of((await get("/page/download", topic="a")).text.encode())
    problem = "it is not known what left the topic"
    assert last == {**EVERYWHERE, "problem": problem, "complete_from_ms": None, "removed": []}


async def test_what_left_before_the_window_is_no_problem(broker: Broker, client: Wire) -> None:
    await store(client)
    data = b""
    async for piece in downloaded(broker, from_=NOW - 30_000):
        if not data:
            await trim(client, 0, 30)
            await trim(client, 1, 30)
        data += piece
    assert [row["offset"] for row in rows_of(data)] == [*range(30, MESSAGES)] * 2


async def delete(client: Wire) -> None:
    await client.call(DeleteTopicsRequest(topic_names=["a"]))


async def replace(client: Wire) -> None:
    await delete(client)
    await store(client)


@pytest.mark.parametrize("change", [delete, replace])
async def test_a_download_ends_when_its_topic_is_deleted(
    broker: Broker, client: Wire, change: Callable[[Wire], Any]
) -> None:
    await store(client)
    data = b""
    async for piece in downloaded(broker):
        if not data:
            await change(client)
        data += piece
    *read, last = rows_of(data)
    assert [row["offset"] for row in read] == [*range(10)]
    problem = "topic 'a' was deleted before all of it was read"
    assert last == {**EVERYWHERE, "problem": problem}


async def test_a_window_that_goes_on_behind_deleted_messages_says_so(
    get: Get, client: Wire
) -> None:
    await store(client)
    first = (await get("/page/window", topic="a", limit=5)).body
    assert first["next"] == {"partition": 0, "offset": 5}
    await trim(client, 0, 9)
    second = (await get("/page/window", topic="a", limit=5, **first["next"])).body
    assert second["problem"] == (
        "messages from offset 5 to 8 of partition 0 were deleted before they were read"
    )
    assert second["next"] == {"partition": 0, "offset": 9}
    third = (await get("/page/window", topic="a", limit=5, **second["next"])).body
    assert ([one["offset"] for one in third["messages"]], third["problem"]) == ([*range(9, 14)], "")
    later = {"from": NOW - 10_000, **first["next"]}
    assert (await get("/page/window", topic="a", **later)).body["problem"] == ""
