"""A new follower gives the answers that its leader gave (replication.md, section 8.3)."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any

from horolog import Admin
from horolog.protocol.api.log.fetch import FetchPartition, FetchRequest, FetchTopic
from horolog.protocol.records.batch import finish_batch
from horolog.protocol.records.kernel import RecordEncoder
from horolog.protocol.records.layout import MESSAGE_CODECS, Codec
from horolog.protocol.records.messages.sets import NewRecord, build_set
from horolog.testing.requests import create_topic, produce_to
from horolog.testing.wire import Wire

from .brokers import Broker, Brokers, brokers

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000
SEED = 20
TOPIC = "t"
PARTITIONS = 2
COMPARED = (
    *("base_offset", "next_offset", "size_bytes", "largest_timestamp_ms", "first_timestamp_ms"),
    *("active", "offset_entries", "time_entries", "verdict", "reason", "expires_ms"),
)
"""Of the description of a segment."""
WINDOW = ("--from", "2013-01-01T00:00:00Z", "--until", "2023-12-01T00:00:00Z", "--every", "30d")


def some_set(random: Random) -> bytes:
    """Years old, out of order, without time, compressed, of any format."""
    magic = random.choice([0, 1, 1, 2, 2])
    codec = random.choice(list(Codec) if magic == 2 else list(MESSAGE_CODECS))
    times = [NOW_MS - random.randint(0, 3650) * DAY_MS for _ in range(random.randint(1, 6))]
    if magic == 0 or random.random() < 0.1:
        times = [-1] * len(times)
    if magic < 2:
        new = [NewRecord(b"v" * 40, timestamp_ms=ms) for ms in times]
        return bytes(build_set(new, magic=magic, codec=codec))
    encoder = RecordEncoder()
    for ms in times:
        encoder.add(b"w" * 40, b"k", ms, ())
    return bytes(finish_batch(encoder, codec=codec))


async def fill(broker: Broker, random: Random, count: int) -> None:
    wire = await Wire.open(broker.address)
    for _ in range(count):
        sets = [(random.randrange(PARTITIONS), some_set(random))]
        answer = await wire.call(produce_to(TOPIC, sets))
        assert [one.error_code for topic in answer.topics for one in topic.partitions] == [0]
    wire.close()


async def answers(broker: Broker) -> list[Any]:
    """What there is to ask about times."""
    found: list[Any] = []
    async with Admin(broker.address) as admin:
        for partition in range(PARTITIONS):
            for days in range(0, 3660, 61):
                ms = NOW_MS - days * DAY_MS
                found.append(await admin.find_offset(TOPIC, partition, timestamp_ms=ms))
            log = await admin.describe_log(TOPIC, partition, at_ms=NOW_MS + 10_000 * DAY_MS)
            found += [[getattr(one, name) for name in COMPARED] for one in log.segments]
    wire = await Wire.open(broker.address)
    for partition in range(PARTITIONS):
        for offset in range(0, 500, 20):
            found.append(await fetched(wire, partition, offset))
    wire.close()
    return found


async def fetched(wire: Wire, partition: int, offset: int) -> Any:
    """Messages from an offset on, and when they were appended."""
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(name=TOPIC, partitions=[wanted])]
    answer = await wire.call(FetchRequest(include_append_times=True, topics=topics))
    one = answer.topics[0].partitions[0]
    # A copy may know as one stretch what came in several sets at one time.
    spans = [(max(each.offset, offset), each.append_time_ms) for each in one.append_times]
    return one.error_code, bytes(one.records), spans


def test_a_follower_answers_as_its_leader_did(place: Path) -> None:
    random = Random(SEED)
    with brokers(place) as all_:
        asyncio.run(_copies(all_, random))


async def _copies(all_: Brokers, random: Random) -> None:
    first, second = all_[1], all_[2]
    first.start("--create-cluster")
    wire = await Wire.open(first.address)
    await wire.call(
        create_topic(
            TOPIC, PARTITIONS, segment_bytes=4000, index_interval_bytes=200, retention_ms=-1
        )
    )
    wire.close()
    await fill(first, random, 150)
    second.start(follow=first)
    await fill(first, random, 150)
    await asyncio.to_thread(all_.in_sync, first)
    before = await answers(first)
    counted = first.program.ok("histogram", TOPIC, *WINDOW, "--json").out
    await asyncio.to_thread(all_.hand_over, first, second)
    first.stop()
    after = await answers(second)
    for ours, theirs in zip(after, before, strict=True):
        assert ours == theirs
    assert second.program.ok("histogram", TOPIC, *WINDOW, "--json").out == counted
    second.stop()
    for kind in ("log", "index", "timeindex"):
        ours, theirs = second.files(kind), first.files(kind)
        assert ours.keys() == theirs.keys()
        assert [name for name in ours if ours[name] != theirs[name]] == []
    assert len(first.files("log")) > 4
