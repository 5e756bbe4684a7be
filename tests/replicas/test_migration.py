"""From format v0 to v1 in a running cluster, one broker at a time (replication.md, section 8.4; the
plan of KIP-32, MG-1 to MG-7).

Producers of both generations write in every phase, librdkafka as of 0.9 and as of today read all
the time, and after each phase both brokers have equal files.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from horolog.protocol.errors import UnsupportedForMessageFormat
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import NewRecord, build_set, entries
from horolog.testing.ports import free_port
from horolog.testing.requests import list_offsets, produce, result
from horolog.testing.wire import Wire

from .brokers import DEADLINE_S, Broker, Brokers, brokers

TOPIC: Final = "events"
OLD_FORMAT, NEW_FORMAT = "0.9.0", "0.10.0"
FIRST_MS: Final = 1_600_000_000_000
AS_OF_09: Final = {"api.version.request": False, "broker.version.fallback": "0.9.0"}


class Reader:
    """librdkafka, that knows the addresses of all brokers, from the start on."""

    def __init__(self, addresses: str, **options: object) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": addresses,
                "broker.address.family": "v4",
                "group.id": "r",
                "log_level": 0,
                "enable.auto.commit": False,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 300,
                **options,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])
        self.values: list[bytes] = []
        self.times: list[int] = []

    def read_to(self, count: int) -> None:
        """Read until it has so many messages."""
        polls = 0
        while len(self.values) < count:
            polls += 1
            assert polls < DEADLINE_S * 5, (len(self.values), count)
            for one in self._consumer.consume(1000, 0.2):
                if one.error() is not None:
                    continue  # such as a broker that is being restarted
                self.values.append(one.value() or b"")
                kind, timestamp_ms = one.timestamp()
                self.times.append(timestamp_ms if kind else -1)

    def close(self) -> None:
        self._consumer.close()


@dataclass
class Migration:
    """What was produced so far, and the readers of both generations."""

    old: Reader
    new: Reader
    values: list[bytes] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    """As they have to be stored: -1 where the format has none."""

    async def write(self, leader: Broker, magic: int) -> None:
        """A plain and a compressed set of each format; `magic` is the one that is stored."""
        wire = await Wire.open(leader.address)
        for version, sent_as, codec in (
            *((0, 0, Codec.NONE), (1, 0, Codec.GZIP)),
            *((2, 1, Codec.NONE), (2, 1, Codec.SNAPPY)),
        ):
            first = len(self.values)
            times = [FIRST_MS + first * 1000 - each * 500 if sent_as else -1 for each in range(3)]
            new = [NewRecord(b"%d" % (first + at), timestamp_ms=ms) for at, ms in enumerate(times)]
            sent = bytes(build_set(new, magic=sent_as, codec=codec))
            got = result(await wire.call(produce(TOPIC, sent, acks=-1), version))
            assert (got.error_code, got.base_offset) == (0, first)
            self.values += [b"%d" % (first + at) for at in range(3)]
            self.times += times if magic else [-1] * 3
        wire.close()

    async def check(self, all_: Brokers, leader: Broker, *, searches: bool) -> None:
        """Every reader has everything, both brokers have the same, and times are found."""
        await asyncio.to_thread(all_.in_sync, leader)
        for reader in (self.old, self.new):
            await asyncio.to_thread(reader.read_to, len(self.values))
            assert reader.values == self.values
        assert self.old.times == [-1] * len(self.times), "V-11"
        assert self.new.times == self.times
        files = all_[1].files()
        assert all_[2].files() == files
        assert sum(map(len, files.values()))
        wire = await Wire.open(leader.address)
        for target in sorted({FIRST_MS, *self.times, max(self.times) + 1} - {-1}):
            found = result(await wire.call(list_offsets(TOPIC, (0, target)), 1))
            expected = next((at for at, ms in enumerate(self.times) if ms >= target), -1)
            if searches:
                assert (found.error_code, found.offset) == (0, expected)
            else:
                assert found.error_code == UnsupportedForMessageFormat.code, "L-22"
        wire.close()


def stored(broker: Broker) -> list[int]:
    """The formats of what is on its disk, in order, each change once."""
    found: list[int] = []
    for data in broker.files().values():
        for entry in entries(data):
            if found[-1:] != [entry.magic]:
                found.append(entry.magic)
    return found


def restart(broker: Broker, version: str, leader: Broker) -> None:
    broker.stop()
    broker.settings["message.format.version"] = version
    broker.start(follow=leader)


@contextmanager
def migrating(place: Path, **of_topic: object) -> Iterator[tuple[Brokers, Migration]]:
    with brokers(place, message_format_version=OLD_FORMAT, retention_ms=-1) as all_:
        for broker in all_.all.values():
            broker.settings = dict(broker.settings)
            broker.kafka_address = f"127.0.0.1:{free_port()}"
        all_.start()
        made = [f"{name.replace('_', '.')}={value}" for name, value in of_topic.items()]
        all_[1].program.ok("topic", "create", TOPIC, *(it for one in made for it in ("--set", one)))
        addresses = ",".join(one.kafka_address for one in all_.all.values())
        old, new = Reader(addresses, **AS_OF_09), Reader(addresses)
        try:
            yield all_, Migration(old, new)
        finally:
            old.close()
            new.close()


def test_one_broker_at_a_time(place: Path) -> None:
    with migrating(place, segment_bytes=700, index_interval_bytes=100) as (all_, migration):
        asyncio.run(_one_at_a_time(all_, migration))


async def _one_at_a_time(all_: Brokers, migration: Migration) -> None:
    first, second = all_[1], all_[2]

    async def phase(leader: Broker, magic: int, formats: list[int]) -> None:
        await migration.write(leader, magic)
        await migration.check(all_, leader, searches=magic > 0)
        assert stored(first) == formats

    await phase(first, 0, [0])
    # A follower of the new format takes what the leader stored (FO-1): v0.
    await asyncio.to_thread(restart, second, NEW_FORMAT, first)
    await phase(first, 0, [0])
    # It leads: v1, and the follower of the old format takes that too.
    await asyncio.to_thread(all_.hand_over, first, second, "2")
    await phase(second, 1, [0, 1])
    await asyncio.to_thread(restart, first, NEW_FORMAT, second)
    await phase(second, 1, [0, 1])
    await asyncio.to_thread(all_.hand_over, second, first, "1")
    await phase(first, 1, [0, 1])


def test_rolling_one_broker_back_mg7(place: Path) -> None:
    with migrating(place, segment_bytes=700) as (all_, migration):
        asyncio.run(_rolled_back(all_, migration))


async def _rolled_back(all_: Brokers, migration: Migration) -> None:
    first, second = all_[1], all_[2]
    await migration.write(first, 0)
    await asyncio.to_thread(restart, second, NEW_FORMAT, first)
    await migration.write(first, 0)
    await migration.check(all_, first, searches=False)
    # Stopped, its data deleted, the old format set, copied again from the leader.
    await asyncio.to_thread(second.stop)
    await asyncio.to_thread(second.forget)
    second.settings["message.format.version"] = OLD_FORMAT
    await asyncio.to_thread(second.start, follow=first)
    await migration.write(first, 0)
    await migration.check(all_, first, searches=False)
    await asyncio.to_thread(all_.hand_over, first, second, "2")
    await migration.write(second, 0)
    await migration.check(all_, second, searches=False)
    assert stored(second) == [0]
