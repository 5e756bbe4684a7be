"""Reading messages."""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ..protocol.api.fetch import (
    FETCH,
    AppendTime,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from ..protocol.api.list_offsets import EARLIEST, LATEST
from ..protocol.errors import CorruptMessage, HorologError, MessageTooLarge
from ..protocol.records.layout import NO_TIMESTAMP
from ..protocol.records.message import Record, records
from .client import DEFAULT_ADDRESS, Client
from .cluster import Cluster
from .instants import epoch_ms
from .responses import partition_result
from .results import AfterEnd, ConsumerRecord, FindResult, Found
from .searching import By, find_offset, offsets_at

_MIB: Final = 1024 * 1024

TopicPartition = tuple[str, int]


@dataclass(slots=True)
class _Assigned:
    """A partition that is read, and the offset of the next message to give out."""

    topic: str
    partition: int
    position: int | None = None
    """None: the first one stored, whichever that is when reading begins."""

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition


class Consumer(Client):
    """Reads the partitions assigned to it, from positions that it can move by offset or time."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        partition_max_bytes: int = _MIB,
        max_bytes: int = 16 * _MIB,
        max_decompressed_bytes: int = 64 * _MIB,
        client_id: str | None = "horolog",
        request_timeout_ms: int = 30_000,
        check_units: bool = True,
        append_times: bool = False,
    ) -> None:
        """A fetch waits up to `max_wait_ms` at the broker until `min_bytes` are there, and brings
        at most `partition_max_bytes` of a partition and `max_bytes` in all; one message larger
        than that comes anyway. A compressed message may hold `max_decompressed_bytes`.
        `append_times` asks for when each message was appended.
        """
        super().__init__(
            address,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            check_units=check_units,
        )
        # A broker answers in order, so a question must not stand behind a fetch that waits.
        self._questions = Cluster(
            address, client_id=client_id, request_timeout_ms=request_timeout_ms
        )
        self._max_wait_ms = max_wait_ms
        self._min_bytes = min_bytes
        self._partition_max_bytes = partition_max_bytes
        self._max_bytes = max_bytes
        self._max_decompressed_bytes = max_decompressed_bytes
        self._append_times = append_times
        self._assigned: dict[TopicPartition, _Assigned] = {}
        self._ready: deque[ConsumerRecord] = deque()
        self._filling = asyncio.Lock()

    async def close(self) -> None:
        """Close the connections."""
        await self._questions.close()
        await super().close()

    def assign(self, topic: str, partition: int = 0, *, offset: int | None = None) -> None:
        """Read a partition too, from `offset` or from the first message stored."""
        key = (topic, partition)
        if key in self._assigned:
            raise ValueError(f"{topic}-{partition} is assigned already; move it with seek()")
        self._assigned[key] = _Assigned(topic, partition)
        if offset is not None:
            self.seek(topic, partition, offset)

    def unassign(self, topic: str, partition: int = 0) -> None:
        """Stop reading a partition."""
        del self._assigned[self._find(topic, partition).key]
        self._drop_ready((topic, partition))

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return list(self._assigned)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on from `offset`."""
        if not isinstance(offset, int) or offset < 0:
            raise ValueError(f"an offset is an integer from 0 on, not {offset!r}")
        self._move(self._find(topic, partition), offset)

    async def seek_to_beginning(self) -> None:
        """Go to the first message stored, in every partition."""
        await self._seek_to(EARLIEST)

    async def seek_to_end(self) -> None:
        """Go behind the last message there is now, in every partition."""
        await self._seek_to(LATEST)

    async def seek_to_time(
        self,
        when: datetime | None = None,
        *,
        timestamp_ms: int | None = None,
        by: By = "timestamp",
    ) -> dict[TopicPartition, FindResult]:
        """Go to the first message at or after a time, in every partition; says what was found.

        Where every message is older (`AfterEnd`), that is the end. A partition in which no
        message has a time (`NoTimestamps`) stays where it is. `by="append"` goes by the times at
        which the broker appended the messages.
        """
        target_ms = epoch_ms(when, timestamp_ms, check_units=self._check_units)
        if target_ms is None:
            raise TypeError("seek_to_time needs a datetime or timestamp_ms")
        results: dict[TopicPartition, FindResult] = {}
        for assigned in list(self._assigned.values()):
            found = await find_offset(self._questions, *assigned.key, target_ms, by=by)
            results[assigned.key] = found
            match found:
                case Found(offset=offset) | AfterEnd(end_offset=offset):
                    self._move(assigned, offset)
        return results

    def position(self, topic: str, partition: int = 0) -> int | None:
        """Offset of the next message to be given out; None until reading has begun."""
        return self._find(topic, partition).position

    async def fetch(self, *, max_wait_ms: int | None = None) -> list[ConsumerRecord]:
        """The next messages there are, of any partition; empty when none came in time.

        Raises what the broker reports of a partition (OffsetOutOfRange, ...), CorruptMessage for
        a message that is damaged, MessageTooLarge; the positions stay then as they are.
        """
        if not self._ready:
            await self._fill(self._max_wait_ms if max_wait_ms is None else max_wait_ms)
        batch = list(self._ready)
        self._ready.clear()
        for record in batch:
            self._assigned[record.topic, record.partition].position = record.offset + 1
        return batch

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next message; waits for it as long as it takes."""
        while not self._ready:
            await self._fill(self._max_wait_ms)
        record = self._ready.popleft()
        self._assigned[record.topic, record.partition].position = record.offset + 1
        return record

    def _find(self, topic: str, partition: int) -> _Assigned:
        assigned = self._assigned.get((topic, partition))
        if assigned is None:
            raise ValueError(f"{topic}-{partition} is not assigned; call assign() first")
        return assigned

    def _move(self, assigned: _Assigned, offset: int) -> None:
        assigned.position = offset
        self._drop_ready(assigned.key)

    def _drop_ready(self, key: TopicPartition) -> None:
        kept = [record for record in self._ready if (record.topic, record.partition) != key]
        self._ready = deque(kept)

    async def _seek_to(self, sentinel: int) -> None:
        for assigned in list(self._assigned.values()):
            (found,) = await offsets_at(self._questions, *assigned.key, [sentinel])
            self._move(assigned, found.offset or 0)

    async def _fill(self, max_wait_ms: int) -> None:
        """One fetch; what it brings is ready to be given out.

        One at a time: a second caller gets its share of what the first one's fetch brings.
        """
        async with self._filling:
            if not self._ready:
                await self._fetch_once(max_wait_ms)

    async def _fetch_once(self, max_wait_ms: int) -> None:
        if not self._assigned:
            raise ValueError("nothing is assigned; call assign() first")
        await self._find_beginnings()
        asked = {key: assigned.position or 0 for key, assigned in self._assigned.items()}
        response: FetchResponse = await self._cluster.request(
            FETCH, self._request(asked, max_wait_ms), wait_ms=max_wait_ms
        )
        ready: list[ConsumerRecord] = []
        for (topic, partition), offset in asked.items():
            result = partition_result(response.topics, topic, partition)
            ready += self._read(topic, result, offset)
        # A partition that was moved or dropped meanwhile is read again from where it is now.
        self._ready.extend(
            record
            for record in ready
            if (assigned := self._assigned.get((record.topic, record.partition)))
            and assigned.position == asked[assigned.key]
        )
        self._take_turns()

    async def _find_beginnings(self) -> None:
        for assigned in list(self._assigned.values()):
            if assigned.position is None:
                (found,) = await offsets_at(self._questions, *assigned.key, [EARLIEST])
                if assigned.position is None:
                    assigned.position = found.offset or 0

    def _request(self, offsets: dict[TopicPartition, int], max_wait_ms: int) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            include_append_times=self._append_times,
            topics=[
                FetchTopic(
                    name=topic,
                    partitions=[
                        FetchPartition(
                            partition=partition,
                            fetch_offset=offset,
                            partition_max_bytes=self._partition_max_bytes,
                        )
                    ],
                )
                for (topic, partition), offset in offsets.items()
            ],
        )

    def _take_turns(self) -> None:
        """The broker fills a response in order: next time another partition is the first."""
        for first in list(self._assigned)[:1]:
            self._assigned[first] = self._assigned.pop(first)

    def _read(self, topic: str, result: FetchPartitionResult, offset: int) -> list[ConsumerRecord]:
        """The messages of one partition from `offset` on.

        Those before a damaged one are given out first: the next fetch begins at the damaged one,
        and raises.
        """
        read: list[ConsumerRecord] = []
        data = result.records or b""
        append_times = _AppendTimes(result.append_times)
        try:
            read.extend(  # keeps what came before an error
                _consumer_record(topic, result.partition, record, append_times.of(record.offset))
                for record in self._decoded(data, offset)
            )
        except CorruptMessage as error:
            if not read:
                raise CorruptMessage(
                    f"{topic}-{result.partition} cannot be read at offset {offset} or soon after "
                    f"it: {error.message}. If that stays so, what the broker stores is damaged: "
                    "`horolog verify` on its data directory tells where"
                ) from error
        except HorologError:
            if not read:
                raise
        if data and not read:
            raise MessageTooLarge(
                f"the message at offset {offset} of {topic}-{result.partition} is larger than "
                f"partition_max_bytes={self._partition_max_bytes}"
            )
        return read

    def _decoded(self, data: bytes, offset: int) -> Iterator[Record]:
        return records(
            data, max_decompressed_bytes=self._max_decompressed_bytes, from_offset=offset
        )


class _AppendTimes:
    """What a response tells of when messages were appended."""

    def __init__(self, told: Sequence[AppendTime]) -> None:
        self._offsets = [item.offset for item in told]
        self._times_ms = [item.append_time_ms for item in told]

    def of(self, offset: int) -> int | None:
        number = bisect_right(self._offsets, offset) - 1
        if number < 0 or self._times_ms[number] == NO_TIMESTAMP:
            return None
        return self._times_ms[number]


def _consumer_record(
    topic: str, partition: int, record: Record, append_time_ms: int | None
) -> ConsumerRecord:
    return ConsumerRecord(
        topic,
        partition,
        record.offset,
        None if record.timestamp_ms == NO_TIMESTAMP else record.timestamp_ms,
        record.timestamp_type,
        record.key,
        record.value,
        record.headers,
        append_time_ms,
    )
