"""Filling a log, fetching its bytes, appending them elsewhere, comparing the two."""

from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from horolog.protocol.api.topics.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import Entry, Record, entries, records
from horolog.server.broker import Broker
from horolog.storage.log.log import Log
from horolog.testing.clock import ManualClock
from horolog.testing.requests import (
    create_topic,
    fetch,
    list_offsets,
    message_set,
    produce,
    result,
)
from horolog.testing.wire import Wire, wire
from horolog.tests.followers.appending import append_copy

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
TOPIC = "carried"
SEGMENTS = {"segment_bytes": 1200, "index_interval_bytes": 150, "segment_ms": DAY_MS}
"""Small ones, so that a few hundred messages make many."""

LATEST, EARLIEST, LARGEST = -1, -2, -3


@dataclass
class Side:
    """A broker, and a client of it."""

    broker: Broker
    client: Wire

    @classmethod
    @asynccontextmanager
    async def connected(cls, broker: Broker) -> AsyncIterator["Side"]:
        async with wire(broker.addresses.native) as client:
            yield cls(broker, client)

    @property
    def log(self) -> Log:
        return self.broker.directory.log(TOPIC, 0)

    async def create(self, **settings: Any) -> None:
        answer = await self.client.call(create_topic(TOPIC, **settings))
        assert [topic.error_code for topic in answer.topics] == [0]

    async def alter(self, **settings: object) -> None:
        configs = [
            AlterableConfig(name=name.replace("_", "."), value=str(value))
            for name, value in settings.items()
        ]
        resource = AlterConfigsResource(resource_name=TOPIC, configs=configs)
        request = AlterConfigsRequest(resources=[resource], incremental=True)
        answer = await self.client.call(request)
        assert [each.error_code for each in answer.responses] == [0], answer

    async def send(self, record_set: bytes) -> int:
        """Append a set; the offset of its first message."""
        sent = result(await self.client.call(produce(TOPIC, record_set)))
        assert sent.error_code == 0, sent
        offset: int = sent.base_offset
        return offset

    async def fetch(self, offset: int, max_bytes: int = 1 << 20) -> bytes:
        """What is stored from `offset` on, cut anywhere behind its first entry."""
        asked = fetch(TOPIC, (0, offset), partition_max_bytes=max_bytes)
        got = result(await self.client.call(asked))
        assert got.error_code == 0
        data: bytes = got.records
        return data

    async def stored(self) -> bytes:
        """Every byte, as a client gets it."""
        parts = []
        offset = self.log.log_start_offset
        while offset < self.log.high_watermark:
            chunk = await self.fetch(offset)
            parts.append(chunk)
            offset = list(entries(chunk))[-1].offset + 1
        return b"".join(parts)

    async def records(self) -> list[Record]:
        return list(records(await self.stored(), max_decompressed_bytes=1 << 20))

    async def entries(self) -> list[Entry]:
        return list(entries(await self.stored()))

    async def found(self, *targets: int) -> list[tuple[int, int]]:
        """Timestamp and offset that a search by time gives for each target."""
        answers: list[Any] = [
            result(await self.client.call(list_offsets(TOPIC, (0, target)), 1))
            for target in targets
        ]
        assert not any(answer.error_code for answer in answers)
        return [(answer.timestamp, answer.offset) for answer in answers]

    async def retain(self) -> None:
        await self.broker.maintenance.tasks["retention"].run_now()

    def bases(self) -> list[int]:
        return [segment.base_offset for segment in self.log.segments]


async def fill(side: Side, clock: ManualClock) -> list[int]:
    """Ten days of sets of every kind, with times that are late, early, equal and missing.

    Returns the offset at which each set begins.
    """
    await side.create(retention_ms=-1, **SEGMENTS)
    begin = []
    for number in range(60):
        await side.alter(message_timestamp_type="LogAppendTime" if number % 8 > 5 else "CreateTime")
        now = clock.now_ms()
        late, early = now - number * 60_000, now + (number % 7) * 1000
        codec = Codec(number % 4)
        if number % 5 == 4:
            begin.append(await side.send(message_set(-1, -1, magic=0, codec=codec)))
        elif number % 5 == 3:
            times = (late, -1, early, now)
            begin.append(await side.send(message_set(*times, value=b"x" * number, codec=codec)))
        else:
            begin.append(await side.send(message_set(now, late, late)))
            begin.append(await side.send(message_set(early, now, codec=codec)))
        clock.advance(4 * HOUR_MS)
    return begin


async def carry(source: Side, target: Side, chunks: int | Sequence[int]) -> int:
    """Append what `target` does not have yet, as a follower does; returns how often it had to.

    `chunks` is how many bytes to fetch at a time, or the offsets at which to begin anew.
    """
    count = 0
    while target.log.log_end_offset < source.log.log_end_offset:
        before = target.log.log_end_offset
        if isinstance(chunks, int):
            chunk = await source.fetch(before, chunks)
        else:
            following = bisect_right(chunks, before)
            end = chunks[following] if following < len(chunks) else source.log.log_end_offset
            fetched = await source.fetch(before)
            chunk = fetched[: sum(12 + e.size for e in entries(fetched) if e.offset < end)]
        appended = append_copy(target.log, chunk)
        assert appended.append_time_ms == -1
        assert appended.latency is None
        assert target.log.log_end_offset > before
        count += 1
    return count


def targets_of(stored: list[Record]) -> list[int]:
    """Every time that occurs, and those beside it."""
    times = {record.timestamp_ms for record in stored if record.timestamp_ms >= 0}
    return sorted(
        {target for time in times for target in (time - 1, time, time + 1) if target >= 0}
    )


def first_at_or_after(stored: list[Record], target_ms: int) -> tuple[int, int]:
    """What a search has to find, by reading everything."""
    hits = (
        (record.timestamp_ms, record.offset)
        for record in stored
        if record.timestamp_ms >= target_ms
    )
    return next(hits, (-1, -1))
