"""A migration from format v0 to v1 and back, with clients of both generations on one topic.

Each phase is a life of the broker with another `message.format.version`; in each both clients
produce, and after each every reader sees every message that was ever produced.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from horolog.client.administer.admin import Admin
from horolog.client.consume.consumer import Consumer
from horolog.protocol.api.log.list_offsets import EARLIEST, LARGEST, LATEST
from horolog.protocol.errors import UnsupportedForMessageFormat
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import NewRecord, build_set
from horolog.server.broker import Broker
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.requests import list_offsets, produce, result
from horolog.testing.wire import Wire, wire

from .wishes import NEW, OLD, magics, read, read_all, set_format

NOW = ManualClock().now_ms()
TOPIC = "events"
PLAIN, GZIP = Codec.NONE, Codec.GZIP


@dataclass(frozen=True)
class Known:
    """A message that was produced, as it has to be read."""

    key: bytes
    value: bytes
    timestamp_ms: int
    kind: str | None


@dataclass
class Migration:
    """One topic through all phases: what is in it, and how it is looked at."""

    kind: str
    clock: ManualClock = field(default_factory=ManualClock)
    messages: list[Known] = field(default_factory=list)
    stored_magics: list[int] = field(default_factory=list)

    @asynccontextmanager
    async def phase(self, path: Path, version: str) -> AsyncIterator["Phase"]:
        """One life of the broker."""
        self.clock.advance(60_000)
        async with (
            running_broker(
                path,
                self.clock,
                http_listen="off",
                retention_ms=-1,
                message_format_version=version,
                message_timestamp_type=self.kind,
                segment_bytes=1500,
                index_interval_bytes=100,
            ) as broker,
            wire(broker.addresses.native) as old,
            wire(broker.addresses.native) as new,
        ):
            yield Phase(self, broker, old, new, version)


@dataclass
class Phase:
    """The two clients while the topic stores one format."""

    migration: Migration
    broker: Broker
    old: Wire
    new: Wire
    version: str

    @property
    def stores(self) -> int | None:
        return {"0.9.0": 0, "0.10.0": 1, "producer": None}[self.version]

    async def produce(self) -> None:
        """Both clients send a plain set and a compressed one, in every version that they speak."""
        for version, codec in ((0, PLAIN), (1, GZIP), (0, Codec.SNAPPY), (1, Codec.LZ4)):
            await self._send(self.old, version, 0, codec)
        for codec in (PLAIN, GZIP, Codec.SNAPPY, Codec.LZ4):
            await self._send(self.new, 2, 1, codec)

    async def _send(self, client: Wire, version: int, magic: int, codec: Codec) -> None:
        migration = self.migration
        first = len(migration.messages)
        self.migration.clock.advance(1000)
        now_ms = migration.clock.now_ms()
        times = [-1, -1] if magic == 0 else [now_ms - 30_000, now_ms - 40_000]
        new = [
            NewRecord(b"value %d" % (first + at), b"key %d" % (first + at), time)
            for at, time in enumerate(times)
        ]
        sent = bytes(build_set(new, magic=magic, codec=codec))
        got = result(await client.call(produce(TOPIC, sent), version))
        stamps = migration.kind == "LogAppendTime" and self.stores != 0
        assert (got.error_code, got.base_offset) == (0, first)
        if version >= 2:
            assert got.log_append_time_ms == (now_ms if stamps else -1), "P-3, P-4"
        sent_as = max(magic, 1) if codec is Codec.LZ4 else magic  # decision 25
        stored = 1 if stamps else sent_as if self.stores is None else self.stores
        for record in new:
            assert record.key is not None
            assert record.value is not None
            time = now_ms if stamps else record.timestamp_ms
            kind = migration.kind if stored else None
            migration.messages.append(Known(record.key, record.value, time if stored else -1, kind))
            migration.stored_magics.append(stored)

    async def check(self) -> None:
        """Everything that was ever produced, by every reader that there is."""
        await self._check_old_readers()
        await self._check_new_readers()
        await self._check_searches()

    async def _check_old_readers(self) -> None:
        expected = [
            (offset, known.key, known.value, -1)
            for offset, known in enumerate(self.migration.messages)
        ]
        for version in OLD:
            for limit in (1 << 20, 300):
                slices = await read_all(self.old, TOPIC, version, limit)
                assert set().union(*map(magics, slices)) == {0}, "V-11"
                assert _unique(slices) == expected

    async def _check_new_readers(self) -> None:
        expected = [
            (offset, known.key, known.value, known.timestamp_ms)
            for offset, known in enumerate(self.migration.messages)
        ]
        segments = self.broker.directory.log(TOPIC, 0).segments
        on_disk = b"".join(segment.log_path.read_bytes() for segment in segments)
        for version in NEW:
            slices = await read_all(self.new, TOPIC, version)
            assert b"".join(slices) == on_disk, "V-11: not an altered byte"
            assert _unique(slices) == expected
            found = [magic for data in slices for magic in sorted(magics(data)) * len(read(data))]
            assert found == self.migration.stored_magics, "decision 26"
        async with Consumer(self.broker.addresses.native) as consumer:
            consumer.assign(TOPIC, 0)
            await consumer.seek_to_beginning()
            for known in self.migration.messages:
                record = await anext(consumer)
                kind = record.timestamp_type and str(record.timestamp_type)
                assert (record.key, record.value, kind) == (known.key, known.value, known.kind)
                assert (record.timestamp_ms or -1) == known.timestamp_ms

    async def _check_searches(self) -> None:
        messages = self.migration.messages
        times = [known.timestamp_ms for known in messages]
        for target in sorted({0, *times, max(times) + 1} - {-1}):
            got = await self._find(target)
            if self.stores == 0:
                assert got.error_code == UnsupportedForMessageFormat.code, "L-22"
                continue
            first = next((at for at, time in enumerate(times) if time >= target), -1)
            assert (got.error_code, got.offset) == (0, first)
            assert got.timestamp == (times[first] if first >= 0 else -1)
        for sentinel, offset in ((LATEST, len(messages)), (EARLIEST, 0)):
            assert (await self._find(sentinel)).offset == offset
        largest = max(times)
        got = await self._find(LARGEST)
        assert (got.offset, got.timestamp) == (
            (times.index(largest), largest) if largest >= 0 else (-1, -1)
        )
        request = list_offsets(TOPIC, (0, LATEST), max_num_offsets=1)
        assert result(await self.old.call(request, 0)).old_style_offsets == [len(messages)]

    async def _find(self, target: int) -> Any:
        return result(await self.new.call(list_offsets(TOPIC, (0, target)), 1))


def _unique(slices: list[bytes]) -> list[tuple[int, bytes | None, bytes | None, int]]:
    """The messages as a consumer keeps them: those of a wrapper below its position left out."""
    kept: list[tuple[int, bytes | None, bytes | None, int]] = []
    for data in slices:
        for record in read(data):
            if record.offset >= len(kept):
                kept.append((record.offset, record.key, record.value, record.timestamp_ms))
    return kept


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
async def test_upgrade_and_roll_back_mg1_to_mg9(kind: str, tmp_path: Path) -> None:
    migration = Migration(kind)
    # Phase 1: the new broker stores v0, for everybody. Then the new format, then whatever comes,
    # and at last the way back: times that were stored stay, no further ones are.
    for version in ("0.9.0", "0.10.0", "producer", "0.9.0"):
        async with migration.phase(tmp_path, version) as phase:
            if migration.messages:
                await phase.check()
            await phase.produce()
            await phase.check()
    assert len(migration.messages) == 4 * 16
    later = migration.stored_magics[16:48]
    assert migration.stored_magics[:16] == migration.stored_magics[48:] == [0] * 16
    assert later == [1] * 32 if kind == "LogAppendTime" else [1] * 16 + [0] * 6 + [1] * 10
    async with migration.phase(tmp_path, "0.10.0") as phase:
        await phase.check()  # and the times can be searched again


async def test_the_topic_s_own_setting_while_clients_go_on_mg4(tmp_path: Path) -> None:
    """The same without a restart: the setting counts from the next append on."""
    migration = Migration("CreateTime")
    async with migration.phase(tmp_path, "producer") as phase:
        await phase.produce()
        for version in ("0.9.0", "0.10.0", "producer", "0.9.0", "0.10.0"):
            await set_format(phase.new, TOPIC, version)
            phase.version = version
            await phase.check()
            await phase.produce()
            await phase.check()


async def test_our_own_client_is_told_why_it_cannot_search(tmp_path: Path) -> None:
    """L-2B, B-23: "no times here" and "no such message" are not the same answer."""
    migration = Migration("CreateTime")
    async with migration.phase(tmp_path, "0.9.0") as phase:
        await phase.produce()
        async with Admin(phase.broker.addresses.native) as admin:
            with pytest.raises(UnsupportedForMessageFormat, match=r"message\.format\.version"):
                await admin.find_offset(TOPIC, 0, timestamp_ms=NOW)
