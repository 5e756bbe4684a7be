"""The JSON behind the page: true, bounded, and only for the page."""

import asyncio
import json
from bisect import bisect_left
from random import Random

import pytest

from horolog.protocol.api.groups.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from horolog.protocol.api.log.describe_log import DescribeLogRequest, DescribeLogTopic
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.protocol.records.latency import LATENCY_BUCKETS_MS
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import NewRecord, build_set
from horolog.server.broker import Broker
from horolog.server.handlers.base import Services
from horolog.server.page import messages
from horolog.server.page.messages import (
    LARGEST_READ_BYTES,
    OPENED_BYTES,
    SHOWN_CHARACTERS,
    SHOWN_HEADERS,
    show_bytes,
    stored_bytes,
)
from horolog.server.page.routes import ANSWERS, AT_WORK
from horolog.server.page.topics import TOPICS_AT_ONCE
from horolog.server.work import Turns
from horolog.storage.files import Buffer
from horolog.storage.log.log import Log
from horolog.storage.read import reader
from horolog.storage.read.slices import Slice
from horolog.testing.clock import ManualClock
from horolog.testing.requests import create_topic, list_offsets, message_set, produce, result
from horolog.testing.wire import Wire

from .conftest import Get

NOW = ManualClock().now_ms()
MESSAGE_BYTES = len(message_set(NOW))


async def test_topics_are_what_the_broker_counts(
    broker: Broker, client: Wire, get: Get, clock: ManualClock
) -> None:
    await client.call(create_topic("a", partitions=2, retention_ms=1000, segment_bytes=100))
    for partition, latency in ((0, 3), (0, 700), (1, 700)):
        record_set = message_set(NOW - latency)
        await client.call(produce("a", record_set, partition=partition))
    answer = (await get("/page/topics")).body
    assert answer["now_ms"] == NOW
    (topic,) = answer["topics"]
    assert (topic["name"], topic["partitions"], topic["messages"]) == ("a", 2, 3)
    assert (topic["size_bytes"], topic["segments"]) == (3 * MESSAGE_BYTES, 2)
    assert (topic["timestamp_type"], topic["retention_ms"]) == ("CreateTime", 1000)
    assert (topic["appended"], topic["largest_latency_ms"], topic["problem"]) == (3, 700, "")
    counts = [0] * (len(answer["latency_buckets_ms"]) + 1)
    counts[bisect_left(LATENCY_BUCKETS_MS, 3)] = 1
    counts[bisect_left(LATENCY_BUCKETS_MS, 700)] = 2
    assert topic["latency_counts"] == counts


async def test_many_topics_come_page_by_page(
    broker: Broker, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horolog.server.page.topics.TOPICS_AT_ONCE", 10)
    wanted = [f"t{number:02}" for number in range(23)]
    for name in wanted:
        broker.directory.create_topic(name, 1, {})
    names: list[str] = []
    sizes = []
    after = ""
    while after is not None:
        answer = (await get("/page/topics", after=after)).body
        sizes.append(len(answer["topics"]))
        names += [topic["name"] for topic in answer["topics"]]
        after = answer["next"]
    assert (names, sizes) == (wanted, [10, 10, 3])
    some = (await get("/page/topics", like="2", limit=3)).body
    assert [topic["name"] for topic in some["topics"]] == ["t02", "t12", "t20"]
    assert (some["matching"], some["topic_count"], some["next"]) == (5, 23, "t20")


async def test_one_topic_by_its_name(client: Wire, get: Get) -> None:
    for number in range(TOPICS_AT_ONCE + 5):
        await client.call(create_topic(f"a-zz-{number:03}"))
    await client.call(create_topic("zz"))
    first = (await get("/page/topics", like="zz")).body
    assert "zz" not in [topic["name"] for topic in first["topics"]]
    named = (await get("/page/topics", name="zz")).body
    assert [topic["name"] for topic in named["topics"]] == ["zz"]
    assert (named["topic_count"], named["next"]) == (TOPICS_AT_ONCE + 6, None)
    assert (await get("/page/topics", name="z")).body["topics"] == []


async def test_a_topic_of_many_partitions_ends_an_answer(
    broker: Broker, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horolog.server.page.topics.PARTITIONS_AT_ONCE", 3)
    for name in ("a", "b"):
        broker.directory.create_topic(name, 3, {})
    answer = (await get("/page/topics")).body
    assert [topic["name"] for topic in answer["topics"]] == ["a"]
    assert answer["next"] == "a"


async def test_a_log_that_takes_no_appends_is_told(get: Get, broker: Broker, client: Wire) -> None:
    await client.call(create_topic("a"))
    await client.call(produce("a", message_set(NOW)))
    path = broker.directory.log("a", 0).segments[0].log_path
    path.rename(path.with_suffix(".elsewhere"))
    await client.call(produce("a", message_set(NOW), acks=-1))
    (topic,) = (await get("/page/topics")).body["topics"]
    assert "somebody removed the log's files" in topic["problem"]
    await client.call(DeleteTopicsRequest(topic_names=["a"]))


async def test_segments_are_those_of_describe_log(client: Wire, get: Get) -> None:
    await client.call(create_topic("a", segment_bytes=MESSAGE_BYTES, retention_ms=10_000))
    times = [NOW - 9000, NOW - 5000, NOW + 5000]
    for time in times:
        await client.call(produce("a", message_set(time)))
    answer = (await get("/page/segments", topic="a", partition=0)).body
    request = DescribeLogRequest(topics=[DescribeLogTopic(name="a", partitions=[0])])
    described = result(await client.call(request)).segments
    assert len(described) == 3
    for shown, segment in zip(answer["segments"], described, strict=True):
        for name in ("base_offset", "next_offset", "verdict", "reason", "expires_ms", "active"):
            assert shown[name] == getattr(segment, name)
    assert [shown["largest_ms"] for shown in answer["segments"]] == times
    assert [shown["first_ms"] for shown in answer["segments"]] == times


async def test_segments_come_by_the_hundred(client: Wire, get: Get) -> None:
    await client.call(create_topic("a", segment_bytes=MESSAGE_BYTES, retention_ms=-1))
    for number in range(130):
        await client.call(produce("a", message_set(NOW + number)))
    newest = (await get("/page/segments", topic="a")).body
    assert (newest["segment_count"], newest["older"], newest["newer"]) == (130, 30, 0)
    assert [one["base_offset"] for one in newest["segments"]] == list(range(30, 130))
    older = (await get("/page/segments", topic="a", before=30)).body
    assert [one["base_offset"] for one in older["segments"]] == list(range(30))
    assert (older["older"], older["newer"]) == (0, 100)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_messages_from_an_offset_and_the_latest(client: Wire, get: Get, codec: Codec) -> None:
    await client.call(create_topic("a"))
    await client.call(produce("a", message_set(*range(NOW - 30, NOW), codec=codec)))
    latest = (await get("/page/messages", topic="a", limit=3)).body
    assert [one["offset"] for one in latest["messages"]] == [27, 28, 29]
    assert latest["messages"][0] == {
        "offset": 27,
        "timestamp_ms": NOW - 3,
        "timestamp_type": "CreateTime",
        "append_time_ms": NOW,
        "key": None,
        "value": {"text": "hello", "bytes": 5, "cut": False},
        "headers": [],
        "headers_left_out": 0,
    }
    assert (latest["next_offset"], latest["end_offset"]) == (30, 30)
    some = (await get("/page/messages", topic="a", from_=4, limit=2)).body
    assert [one["offset"] for one in some["messages"]] == [4, 5]
    assert some["next_offset"] == 6
    assert (await get("/page/messages", topic="a", from_=10**9)).body["messages"] == []


async def test_headers_of_messages(client: Wire, get: Get) -> None:
    headers = [("from", b"guide"), ("from", b"\x00"), ("x" * 3000, None), *[("n", b"")] * 20]
    record = NewRecord(b"hello", headers=tuple(headers))
    await client.call(produce("a", bytes(build_set([record], magic=2))))
    ((shown,),) = [(await get("/page/messages", topic="a")).body["messages"]]
    assert shown["headers"][:3] == [
        {"name": "from", "value": {"text": "guide", "bytes": 5, "cut": False}},
        {"name": "from", "value": {"hex": "00", "bytes": 1, "cut": False}},
        {"name": "x" * SHOWN_CHARACTERS, "value": None},
    ]
    assert (len(shown["headers"]), shown["headers_left_out"]) == (SHOWN_HEADERS, 3)


async def test_messages_of_many_segments(client: Wire, get: Get) -> None:
    await client.call(create_topic("a", segment_bytes=2 * MESSAGE_BYTES))
    for number in range(25):
        await client.call(produce("a", message_set(NOW + number)))
    latest = (await get("/page/messages", topic="a")).body
    assert [one["offset"] for one in latest["messages"]] == list(range(5, 25))


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("seed", range(3))
async def test_the_latest_are_the_newest_that_fit(
    client: Wire, get: Get, magic: int, codec: Codec, seed: int
) -> None:
    """Whatever the sizes of the sets are, and where segments end."""
    random = Random(seed)
    await client.call(create_topic("a", max_message_bytes=4 << 20, segment_bytes=3 << 20))
    sets: list[tuple[int, int, int]] = []
    offset = 0
    for _ in range(14):
        size, count = random.choice([10, 3_000, 90_000, 400_000]), random.choice([1, 1, 2, 9])
        size = random.choice([size, size, LARGEST_READ_BYTES])
        value = random.randbytes(size // count)
        sent = message_set(*[NOW] * count, value=value, codec=codec, magic=magic)
        response = await client.call(produce("a", sent))
        assert response.topics[0].partitions[0].error_code == 0
        # Without a codec, each message of format v1 is stored as one entry.
        entries = count if codec is Codec.NONE and magic == 1 else 1
        for _ in range(entries):
            sets.append((offset, count // entries, len(sent) // entries))
            offset += count // entries
        await check_latest(get, sets)


async def check_latest(get: Get, sets: list[tuple[int, int, int]]) -> None:
    """Compare with a plain list of the sets: first offset, number of messages and bytes."""
    end, left = sets[-1][0] + sets[-1][1], LARGEST_READ_BYTES
    expected: list[int] = []
    for first, count, size in reversed(sets):
        if first + count <= end - 20 or left < size <= LARGEST_READ_BYTES:
            break
        if size <= LARGEST_READ_BYTES:
            left -= size
            expected[:0] = range(max(first, end - 20), first + count)
    answer = (await get("/page/messages", topic="a")).body
    assert [one["offset"] for one in answer["messages"]] == expected
    assert (answer["next_offset"], answer["end_offset"]) == (end, end)
    reached = [size for first, count, size in sets if first + count > answer["from"]]
    assert ("too many to be shown" in answer["problem"]) == (max(reached) > LARGEST_READ_BYTES)


async def test_the_latest_of_a_trimmed_and_a_damaged_log(
    broker: Broker, client: Wire, get: Get
) -> None:
    await client.call(create_topic("a"))
    for _ in range(9):
        await client.call(produce("a", message_set(NOW)))
    log = broker.directory.log("a", 0)
    log.expiry.trim(3)
    latest = (await get("/page/messages", topic="a")).body
    assert ([one["offset"] for one in latest["messages"]], latest["from"]) == ([*range(3, 9)], 3)
    path = log.segments[0].log_path
    data = bytearray(path.read_bytes())
    data[7 * MESSAGE_BYTES - 1] ^= 1
    path.write_bytes(data)
    latest = (await get("/page/messages", topic="a")).body
    assert [one["offset"] for one in latest["messages"]] == [3, 4, 5, 7, 8]
    assert "CRC" in latest["problem"]
    log.segments[0].damage(6 * MESSAGE_BYTES)
    latest = (await get("/page/messages", topic="a")).body
    assert [one["offset"] for one in latest["messages"]] == [3, 4, 5]
    assert latest["problem"] != ""


async def test_the_latest_of_a_log_that_is_trimmed_meanwhile(
    broker: Broker, client: Wire, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.call(create_topic("a"))
    for _ in range(9):
        await client.call(produce("a", message_set(NOW)))
    give_way, turns = Turns.give_way, 0

    async def trimmed(self: Turns) -> None:
        nonlocal turns
        turns += 1
        if turns == 3:
            broker.directory.log("a", 0).expiry.trim(9)
        await give_way(self)

    monkeypatch.setattr(Turns, "give_way", trimmed)
    answer = await get("/page/messages", topic="a")
    assert answer.status == 200
    assert [one["offset"] for one in answer.body["messages"]] == [8]


async def test_messages_that_are_trimmed_between_two_reads(
    broker: Broker, client: Wire, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.call(create_topic("a"))
    for _ in range(9):
        await client.call(produce("a", message_set(NOW, value=bytes(40_000))))
    log = broker.directory.log("a", 0)

    async def trimmed(services: Services, found: Slice) -> Buffer | None:
        log.expiry.trim(9)
        return await stored_bytes(services, found)

    monkeypatch.setattr(messages, "stored_bytes", trimmed)
    answer = await get("/page/messages", topic="a", from_=0)
    assert answer.status == 200
    assert [one["offset"] for one in answer.body["messages"]] == [0]
    assert answer.body["next_offset"] == 1


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "created again"])
async def test_messages_of_a_topic_that_is_deleted_meanwhile(
    client: Wire, get: Get, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.call(create_topic("a"))
    await client.call(produce("a", message_set(NOW)))

    async def deleted(services: Services, found: Slice) -> Buffer | None:
        await client.call(DeleteTopicsRequest(topic_names=["a"]))
        if again:
            await client.call(create_topic("a"))
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(messages, "stored_bytes", deleted)
    answer = await get("/page/messages", topic="a")
    assert (answer.status, answer.body) == (404, {"error": "topic 'a' was deleted meanwhile"})


async def test_what_is_too_large_is_passed_over(client: Wire, get: Get) -> None:
    await client.call(create_topic("a", max_message_bytes=10 * OPENED_BYTES))
    large = message_set(NOW, value=bytes(LARGEST_READ_BYTES))
    unfolding = message_set(NOW, value=bytes(OPENED_BYTES), codec=Codec.GZIP)
    for record_set in (large, unfolding, message_set(NOW)):
        await client.call(produce("a", record_set))
    first = (await get("/page/messages", topic="a", from_=0)).body
    assert (first["messages"], first["next_offset"]) == ([], 1)
    assert "too many to be shown" in first["problem"]
    second = (await get("/page/messages", topic="a", from_=1)).body
    assert (second["messages"], second["next_offset"]) == ([], 2)
    assert "more than 4 MiB" in second["problem"]
    third = (await get("/page/messages", topic="a", from_=2)).body
    assert [one["offset"] for one in third["messages"]] == [2]


async def test_a_damaged_message_stops_the_page_there(
    broker: Broker, client: Wire, get: Get
) -> None:
    await client.call(create_topic("a"))
    for _ in range(3):
        await client.call(produce("a", message_set(NOW)))
    path = broker.directory.log("a", 0).segments[0].log_path
    data = bytearray(path.read_bytes())
    data[2 * MESSAGE_BYTES - 1] ^= 1
    path.write_bytes(data)
    answer = (await get("/page/messages", topic="a", from_=0)).body
    assert ([one["offset"] for one in answer["messages"]], answer["next_offset"]) == ([0], None)
    assert "CRC" in answer["problem"]


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (None, None),
        (b"", {"text": "", "bytes": 0, "cut": False}),
        (b"a\tb\n", {"text": "a\tb\n", "bytes": 4, "cut": False}),
        ("Zürich".encode(), {"text": "Zürich", "bytes": 7, "cut": False}),
        (b"\xff\x01", {"hex": "ff 01", "bytes": 2, "cut": False}),
        (b"a\0b", {"hex": "61 00 62", "bytes": 3, "cut": False}),
        (b"a\xc3", {"hex": "61 c3", "bytes": 2, "cut": False}),
        (b"x" * 2001, {"text": "x" * 2000, "bytes": 2001, "cut": True}),
        (("é" * 5000).encode(), {"text": "é" * 2000, "bytes": 10_000, "cut": True}),
        (("€" * 5000).encode(), {"text": "€" * 2000, "bytes": 15_000, "cut": True}),
        (b"\0" * 257, {"hex": " ".join(["00"] * 256), "bytes": 257, "cut": True}),
    ],
)
def test_bytes_are_shown_as_text_or_hexadecimal(data: bytes | None, shown: object) -> None:
    assert show_bytes(data) == shown


async def test_a_time_is_found_as_by_list_offsets_and_explained(client: Wire, get: Get) -> None:
    await client.call(create_topic("a", segment_bytes=40 * MESSAGE_BYTES, index_interval_bytes=100))
    for number in range(100):
        late = 5000 if number % 7 == 0 else 0
        await client.call(produce("a", message_set(NOW + 1000 * number - late)))
    for target in (NOW - 10_000, NOW + 3, NOW + 41_500, NOW + 98_000, NOW + 99_001):
        wanted = result(await client.call(list_offsets("a", (0, target))))
        answer = (await get("/page/find", topic="a", at=target)).body
        offset = None if wanted.offset < 0 else wanted.offset
        assert (answer["offset"], answer["target_ms"]) == (offset, target)
        how = answer["how"]
        assert how["segments"] == 3
        if offset is None:
            assert (how["ruled_out"], answer["message"]) == (3, None)
            continue
        assert answer["message"]["offset"] == offset
        assert how["segment"] == offset // 40 * 40
        assert how["ruled_out"] == offset // 40
        assert how["start_offset"] <= offset
        assert how["start_byte"] == (how["start_offset"] - how["segment"]) * MESSAGE_BYTES
        assert how["read_bytes"] == (offset - how["start_offset"]) * MESSAGE_BYTES
        if how["entry"] is not None:
            assert how["entry"][0] < target
            assert how["entry"][1] == how["start_offset"]


@pytest.mark.parametrize(
    ("at", "said"), [("2016-11-14T17:24:00", "no zone"), ("1479144272", "looks like seconds")]
)
async def test_a_text_that_is_no_time(client: Wire, get: Get, at: str, said: str) -> None:
    await client.call(create_topic("a"))
    answer = await get("/page/find", topic="a", at=at)
    assert answer.status == 200
    assert said in answer.body["refused"]


async def test_a_search_by_append_time(client: Wire, get: Get, clock: ManualClock) -> None:
    await client.call(create_topic("a"))
    for _ in range(3):
        await client.call(produce("a", message_set(NOW - 10**6)))
        clock.advance(1000)
    answer = (await get("/page/find", topic="a", at=NOW + 1, by="append")).body
    assert (answer["offset"], answer["timestamp_ms"], answer["how"]) == (1, NOW + 1000, None)


async def test_consumers_with_their_lag(
    broker: Broker, client: Wire, get: Get, clock: ManualClock
) -> None:
    await client.call(create_topic("a"))
    for _ in range(4):
        await client.call(produce("a", message_set(NOW - 500)))
        clock.advance(1000)
    for name, offset in (("far", 1), ("near", 3), ("there", 4)):
        position = OffsetCommitPartition(partition=0, committed_offset=offset)
        topics = [OffsetCommitTopic(name="a", partitions=[position])]
        await client.call(OffsetCommitRequest(group_id=name, topics=topics))
    answer = (await get("/page/consumers")).body
    assert [
        (one["name"], one["offset"], one["messages"], one["seconds"], one["estimated"])
        for one in answer["consumers"]
    ] == [("far", 1, 3, 3.0, False), ("near", 3, 1, 1.0, False), ("there", 4, 0, 0.0, False)]
    assert (answer["count"], answer["left_out"]) == (3, 0)
    assert (await get("/page/consumers", topic="b")).body["consumers"] == []


@pytest.mark.parametrize(
    ("path", "query", "said"),
    [
        ("/page/find", {"topic": "a"}, "at is missing"),
        ("/page/find", {"topic": "a", "at": "now", "by": "x"}, "by is 'x'"),
        ("/page/messages", {"topic": "a", "limit": "51"}, "from 0 to 50"),
        ("/page/messages", {"topic": "a", "from_": "-1"}, "'-1'"),
        ("/page/messages", {"topic": "a", "from_": "1_0"}, "'1_0'"),
        ("/page/messages", {"topic": "a", "from_": "٣"}, "from 0"),
        ("/page/messages", {"topic": "a", "from_": str(2**63)}, "from 0"),
        ("/page/segments", {}, "topic is missing"),
        ("/page/topics", {"like": "x" * 301}, "301 characters"),
    ],
)
async def test_what_makes_no_sense_is_refused_in_words(
    client: Wire, get: Get, path: str, query: dict[str, str], said: str
) -> None:
    await client.call(create_topic("a"))
    answer = await get(path, **query)
    assert answer.status == 400
    assert said in answer.body["error"]


@pytest.mark.parametrize("name", ["segments", "messages", "find"])
async def test_what_does_not_exist(client: Wire, get: Get, name: str) -> None:
    await client.call(create_topic("a"))
    for query in ({"topic": "b"}, {"topic": "a", "partition": 1}):
        answer = await get(f"/page/{name}", at="now", **query)
        assert answer.status == 404
        assert "error" in answer.body
    assert (await get("/page/topics")).body["topic_count"] == 1


async def test_the_page_changes_nothing(get: Get) -> None:
    for path in ("/", "/static/main.js", *(f"/page/{name}" for name in ANSWERS)):
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert (await get(path, method=method)).status == 405


async def test_files_are_sent_with_strict_headers(get: Get) -> None:
    page = await get("/")
    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    for path in ("/static/main.js", "/static/style.css", "/page/topics"):
        answer = await get(path)
        assert answer.status == 200
        assert answer.headers["Content-Security-Policy"] == policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in answer.headers
    again = await get("/", headers={"If-None-Match": page.headers["ETag"]})
    assert (again.status, again.text) == (304, "")
    for missing in ("/static/none.js", "/static/..%2fhttp.py", "/static/../broker.py"):
        assert (await get(missing)).status == 404


async def test_other_sites_get_no_json(get: Get) -> None:
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200)):
        assert (await get("/page/topics", headers={"Sec-Fetch-Site": site})).status == status


async def test_few_requests_are_worked_on_at_a_time(
    broker: Broker, client: Wire, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.call(create_topic("a"))
    await client.call(produce("a", message_set(NOW)))
    gate, arrived = asyncio.Event(), asyncio.Semaphore(0)

    async def slow(self: object, call: object) -> None:
        arrived.release()
        await gate.wait()

    log = broker.directory.log("a", 0)
    monkeypatch.setattr(Log, "prepared", property(lambda self: self is not log or gate.is_set()))
    monkeypatch.setattr(broker.services.logs, "prepare", lambda logs: slow(broker, logs))
    waiting = [asyncio.ensure_future(get("/page/messages", topic="a")) for _ in range(AT_WORK)]
    for _ in waiting:
        await arrived.acquire()
    refused = await get("/page/topics")
    assert (refused.status, str(AT_WORK) in refused.body["error"]) == (503, True)
    gate.set()
    assert {answer.status for answer in await asyncio.gather(*waiting)} == {200}
    assert (await get("/page/topics")).status == 200


async def test_something_unexpected_is_told_without_its_details(
    broker: Broker, client: Wire, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.call(create_topic("a"))
    monkeypatch.setattr(reader, "find_time", lambda *_: 1 // 0)
    answer = await get("/page/find", topic="a", at="now")
    assert answer.status == 500
    assert json.loads(answer.text) == {
        "error": "the broker met something unexpected; its log says what"
    }


async def test_the_last_times_there_are(client: Wire, get: Get, clock: ManualClock) -> None:
    last_ms = 2**63 - 1
    await client.call(create_topic("a", retention_ms=last_ms))
    for at_ms in (NOW, last_ms):
        assert result(await client.call(produce("a", message_set(at_ms)))).error_code == 0
    shown = (await get("/page/segments", topic="a")).body["segments"]
    assert [one["expires_ms"] for one in shown] == [last_ms] * len(shown)
    described = result(
        await client.call(
            DescribeLogRequest(topics=[DescribeLogTopic(name="a", partitions=[0])], at_ms=last_ms)
        )
    )
    assert [one.expires_ms for one in described.segments] == [last_ms] * len(shown)
    assert described.search[0].timestamp_ms == last_ms
    listed = (await get("/page/messages", topic="a")).body["messages"]
    assert sorted(one["timestamp_ms"] for one in listed) == [NOW, last_ms]
    assert (await get("/page/topics")).status == 200
    metrics = await get("/metrics")
    assert 'horolog_clock_skew_total{topic="a"} 1.0' in metrics.text
    assert 'horolog_pinned_segments{topic="a"} 1.0' in metrics.text


async def test_a_broker_that_is_alone_has_no_others(get: Get) -> None:
    assert (await get("/page/members")).body["members"] == []
    assert (await get("/page/topics")).body["alone"] is True
