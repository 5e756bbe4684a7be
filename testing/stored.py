"""What a running broker has stored, for the assertions of a test: read from its logs, not through a
client."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar

from ..client.results import ConsumerRecord
from ..protocol.records.kernel import walk
from ..protocol.records.layout import NO_TIMESTAMP
from ..protocol.records.messages.sets import records
from ..server.broker import Broker
from ..storage.log.log import Log
from ..storage.read import reader

_SLICE_BYTES: Final = 1 << 20
_DECOMPRESSED_BYTES_MAX: Final = 1 << 30

T = TypeVar("T")
InLoop = Callable[[Callable[[Broker], Coroutine[Any, Any, T]]], T]
"""Runs a coroutine in the loop of the running broker, and returns its result."""


class StoredTopic:
    """A topic of a running broker."""

    def __init__(self, name: str, in_loop: InLoop[Any]) -> None:
        self.name = name
        self._in_loop = in_loop

    def messages(self, partition: int | None = None) -> list[ConsumerRecord]:
        """Return the messages up to the high watermark: of one partition, or of all, one after
        another, in the order of their offsets.

        Their append times are included where known. Raises `UnknownTopicOrPartition`.
        """
        found: list[ConsumerRecord] = self._in_loop(lambda broker: self._read(broker, partition))
        return found

    def values(self, partition: int | None = None) -> list[bytes | None]:
        """Return the values of `messages`."""
        return [message.value for message in self.messages(partition)]

    async def _read(self, broker: Broker, partition: int | None) -> list[ConsumerRecord]:
        logs = broker.services.logs
        partitions = range(logs.topic(self.name).partitions) if partition is None else [partition]
        found: list[ConsumerRecord] = []
        for number in partitions:
            log = logs.find(self.name, number)
            if not log.prepared:
                await logs.prepare([log])
            for slice_ in _slices(log):
                found += slice_
                await asyncio.sleep(0)
        return found


def _slices(log: Log) -> Iterator[list[ConsumerRecord]]:
    offset = log.log_start_offset
    while offset < log.high_watermark:
        data = reader.read(log, offset, _SLICE_BYTES, whole_first=True).read()
        if not data:
            return  # A log that may have gaps has one at its end.
        yield [
            ConsumerRecord(
                log.topic,
                log.partition,
                record.offset,
                None if record.timestamp_ms == NO_TIMESTAMP else record.timestamp_ms,
                record.timestamp_type,
                record.key,
                record.value,
                tuple(record.headers),
                _append_time_ms(log, record.offset),
            )
            for record in records(
                data, max_decompressed_bytes=_DECOMPRESSED_BYTES_MAX, from_offset=offset
            )
        ]
        # After the last message, or after control batches, which have none.
        offset = walk(data, 0, len(data), check_crc=False).last_offset + 1


def _append_time_ms(log: Log, offset: int) -> int | None:
    found = reader.append_time_ms(log, offset)
    return None if found == NO_TIMESTAMP else found
