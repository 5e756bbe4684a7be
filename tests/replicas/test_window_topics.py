"""Windows at a follower, and through a change of the leader."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import TopicPartition

from horolog import NewRecord, Producer
from horolog.protocol.api.schema import replaced
from horolog.protocol.api.topics.metadata import MetadataRequest, MetadataTopic
from horolog.protocol.window_topics import WindowName, window_name
from horolog.testing.ports import free_port
from horolog.testing.requests import create_topic, fetch, list_offsets, result
from horolog.testing.wire import Wire

from .members import DEADLINE_S, Member, Members, eventually, members
from .test_copying import NOW_MS, PARTITIONS, SEED
from .test_reading import TOPIC, allowed, filled, plain

NAMES = [
    window_name(WindowName(TOPIC, NOW_MS // 2, NOW_MS)),
    window_name(WindowName(TOPIC, NOW_MS - 86_400_000, None)),
    window_name(WindowName(TOPIC, 0, None, by_append=True)),
]


async def test_a_follower_that_has_everything_answers_as_the_leader(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        await filled(all_, Random(SEED), 60)
        leader, follower = await Wire.open(all_[1].address), await Wire.open(all_[2].address)
        asked: list[Any] = []
        for name in NAMES:
            for partition in range(PARTITIONS):
                end = all_[1].log(TOPIC, partition).log_end_offset
                asked += [fetch(name, (partition, offset)) for offset in range(0, end + 1, 7)]
                asked += [
                    list_offsets(name, (partition, time_ms))
                    for time_ms in (-1, -2, -3, NOW_MS // 2, NOW_MS - 1)
                ]
        for request in asked:
            ours = await follower.call(allowed(request))
            theirs = await leader.call(allowed(request))
            assert ours.follower_heard_ms >= 0
            assert plain(ours) == plain(theirs), request
        found = await follower.call(
            replaced(
                MetadataRequest(topics=[MetadataTopic(name=name) for name in NAMES]),
                allow_auto_topic_creation=True,
            )
        )
        assert [topic.error_code for topic in found.topics] == [0, 0, 0]
        assert {topic.name for topic in found.topics} == set(NAMES)
        assert all_[1].broker is not None
        assert set(all_[1].broker.services.directory.topics()) == {TOPIC}
        leader.close()
        follower.close()


FROM_MS, UNTIL_MS = NOW_MS, NOW_MS + 1_000
WINDOW = window_name(WindowName("w", FROM_MS, UNTIL_MS))
OUTSIDE_MS = (FROM_MS - 1, UNTIL_MS)


class Leaders:
    """Members that take Kafka's clients, one of which leads; and the window of their topic."""

    def __init__(self, all_: Members) -> None:
        self.all = all_
        self.leader, self.follower = all_[1], all_[2]
        self._ports = {number: f"127.0.0.1:{free_port()}" for number in all_.all}
        self.inside: list[str] = []
        """Values that were sent into the window."""

    @property
    def servers(self) -> str:
        return ",".join(self._ports.values())

    async def start(self, member: Member, **how: Any) -> None:
        await member.start(kafka_listen=self._ports[member.broker_id], **how)

    async def send(self, count: int, at: Member | None = None) -> None:
        """Messages of the window between others, of which each set is of another codec."""
        for number in range(count):
            codec: Any = ("none", "gzip", "zstd")[number % 3]
            value = str(len(self.inside))
            address = (at or self.leader).address
            async with Producer(address, compression=codec, idempotent=False) as producer:
                times = [OUTSIDE_MS[0], FROM_MS + number % 1_000, OUTSIDE_MS[1]]
                records = [NewRecord(value.encode(), timestamp_ms=time_ms) for time_ms in times]
                await producer.send_many("w", records)
            self.inside.append(value)

    async def hand_over(self) -> None:
        await self.all.in_sync(self.leader)
        await self.leader.promote(self.follower.broker_id)
        self.leader, self.follower = self.follower, self.leader
        await self.all.in_sync(self.leader)


@asynccontextmanager
async def leaders(place: Path) -> AsyncIterator[Leaders]:
    async with members(place) as all_:
        made = Leaders(all_)
        await made.start(all_[1], cluster_create=True)
        await made.start(all_[2], follow=all_[1])
        await all_.in_sync(all_[1])
        await all_[1].call(create_topic("w", retention_ms=-1, segment_bytes=2_000))
        yield made


class WindowConsumer:
    """A consumer of librdkafka that reads the window, in a thread."""

    def __init__(self, servers: str, reset: str = "error") -> None:
        """`reset` is what it does at an offset that is not there."""
        self._consumer = LibrdkafkaConsumer(
            {
                "bootstrap.servers": servers,
                "group.id": "g",
                "auto.offset.reset": reset,
                "enable.auto.commit": False,
                "log_level": 0,
                "topic.metadata.refresh.interval.ms": 500,
                "fetch.wait.max.ms": 100,
            }
        )
        self._consumer.assign([TopicPartition(WINDOW, 0, 0)])

    async def __aenter__(self) -> "WindowConsumer":
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._consumer.close)

    async def take(self, count: int) -> list[str]:
        """The values of the next messages; more, if more come at once."""
        return await asyncio.to_thread(self._take, count)

    def _take(self, count: int) -> list[str]:
        found: list[str] = []
        while len(found) < count or (message := self._consumer.poll(0.3)) is not None:
            if len(found) < count:
                message = self._consumer.poll(DEADLINE_S)
            assert message is not None, f"{len(found)} of {count}"
            assert message.error() is None, message.error()
            found.append((message.value() or b"").decode())
        return found


async def bounds(member: Member) -> tuple[int, int]:
    """*earliest* and *latest*."""
    found = [
        result(await member.call(allowed(list_offsets(WINDOW, (0, target))))).offset
        for target in (-2, -1)
    ]
    return found[0], found[1]


async def test_a_reader_goes_on_at_the_next_leader(place: Path) -> None:
    """No message twice, none lost, whoever leads."""
    async with leaders(place) as all_, WindowConsumer(all_.servers) as consumer:
        read: list[str] = []
        for _ in range(4):
            await all_.send(7)
            read += await consumer.take(7)
            await all_.hand_over()
            await all_.send(3)
            read += await consumer.take(3)
            assert read == all_.inside
        end = all_.leader.log("w").log_end_offset
        assert await bounds(all_.leader) == (0, end - 1)
        await eventually(lambda: all_.follower.log("w").high_watermark == end)
        assert await bounds(all_.follower) == (0, end - 1)


async def test_a_reader_of_messages_that_were_lost(place: Path) -> None:
    """The next leader does not have the last messages, and others come at their offsets. The reader
    learns it, as one of the topic does: here it begins anew."""
    async with leaders(place) as all_, WindowConsumer(all_.servers, "earliest") as consumer:
        first, second = all_.leader, all_.follower
        await all_.send(6)
        await all_.all.in_sync(first)
        assert await consumer.take(6) == all_.inside
        before = await bounds(first)
        await second.stop()
        with first.impatient():
            await eventually(lambda: first.cluster.admin.describe().in_sync == [1])
        await all_.send(5)
        assert await consumer.take(5) == all_.inside[6:]
        assert await bounds(first) == (0, before[1] + 15)
        del all_.inside[6:]
        await first.stop()
        await all_.start(second, follow=first)
        await second.promote(accept_loss=True)
        assert await bounds(second) == before
        all_.leader, all_.follower = second, first
        await all_.start(first, follow=second)
        await all_.all.in_sync(second)
        assert await bounds(first) == before
        await all_.send(3)
        assert await consumer.take(9) == all_.inside
        assert await bounds(second) == (0, before[1] + 9)
        end = second.log("w").log_end_offset
        await eventually(lambda: first.log("w").high_watermark == end)
        assert await bounds(first) == (0, before[1] + 9)
