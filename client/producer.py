"""Sending messages."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

from ..clock import Clock, SystemClock
from ..protocol.api.produce import (
    PRODUCE,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from ..protocol.errors import UnknownTopicOrPartition
from ..protocol.partitioner import partition_of
from ..protocol.records.layout import NO_TIMESTAMP, Codec
from ..protocol.records.sets import NewRecord, build_set
from .client import DEFAULT_ADDRESS, Client
from .instants import epoch_ms
from .responses import partition_result
from .results import SentRecord

Acks = Literal["all", -1, 0, 1]
Compression = Literal["none", "gzip", "snappy", "lz4"]

_ACKS: Final[dict[str | int, int]] = {"all": -1, -1: -1, 0: 0, 1: 1}
_CODECS: Final = {codec.label: codec for codec in Codec}


class Producer(Client):
    """Appends messages to topics.

    A send that raises ConnectionFailed or RequestTimedOut may have been carried out; any other
    error means that nothing was appended.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        acks: Acks = "all",
        compression: Compression = "none",
        client_id: str | None = "horolog",
        request_timeout_ms: int = 30_000,
        check_units: bool = True,
        stamp_missing: bool = True,
        clock: Clock | None = None,
    ) -> None:
        """`acks`: "all" as durable as the topic asks for, 1 in the log, 0 no answer at all:
        what the broker refuses is then lost unseen.

        `stamp_missing=False` sends a message that is given no time without one.
        """
        super().__init__(
            address,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            check_units=check_units,
        )
        self._acks = _acks(acks)
        self._codec = _codec(compression)
        self._ack_timeout_ms = request_timeout_ms
        self._stamp_missing = stamp_missing
        self._clock = clock or SystemClock()
        self._turn = -1

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp_ms: int | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
    ) -> SentRecord:
        """Append one message. Its time is now when none is given.

        Without a partition, the key chooses it; messages without a key take turns.
        """
        given_ms = epoch_ms(timestamp, timestamp_ms, check_units=self._check_units)
        record = NewRecord(value, key, NO_TIMESTAMP if given_ms is None else given_ms)
        records = self._stamped([record])
        if partition is None:
            partition = await self.partition_for(topic, key)
        sent = await self._append(topic, partition, records, self._codec, self._acks)
        return sent[0]

    async def send_many(
        self,
        topic: str,
        records: Sequence[NewRecord],
        *,
        partition: int = 0,
        compression: Compression | None = None,
        acks: Acks | None = None,
    ) -> list[SentRecord]:
        """Append messages to one partition as one set: all of them or none.

        A record without a timestamp gets the time of now.
        """
        if not records:
            return []
        codec = self._codec if compression is None else _codec(compression)
        acks_wanted = self._acks if acks is None else _acks(acks)
        return await self._append(topic, partition, self._stamped(records), codec, acks_wanted)

    async def partition_for(self, topic: str, key: bytes | None) -> int:
        """The partition that `send` would choose."""
        count = await self._cluster.partition_count(topic)
        if key is not None:
            return partition_of(key, count)
        self._turn += 1
        return self._turn % count

    def _stamped(self, records: Sequence[NewRecord]) -> list[NewRecord]:
        """The records, checked, each with a time unless it is to have none."""
        now_ms = self._clock.now_ms()
        stamped = []
        for record in records:
            for name, content in (("value", record.value), ("key", record.key)):
                if content is not None and not isinstance(content, bytes):
                    raise TypeError(f"a {name} is bytes or None, not {type(content).__name__}")
            if record.timestamp_ms != NO_TIMESTAMP:
                epoch_ms(None, record.timestamp_ms, check_units=self._check_units)
                stamped.append(record)
            elif self._stamp_missing:
                stamped.append(NewRecord(record.value, record.key, now_ms))
            else:
                stamped.append(record)
        return stamped

    async def _append(
        self, topic: str, partition: int, records: list[NewRecord], codec: Codec, acks: int
    ) -> list[SentRecord]:
        """The one way to the broker: every set goes through here."""
        request = ProduceRequest(
            acks=acks,
            timeout_ms=self._ack_timeout_ms,
            topics=[
                ProduceTopic(
                    name=topic,
                    partitions=[
                        ProducePartition(
                            partition=partition, records=bytes(build_set(records, codec=codec))
                        )
                    ],
                )
            ],
        )
        own_times = [_known(record.timestamp_ms) for record in records]
        if acks == 0:
            (await self._cluster.connection()).submit_unanswered(PRODUCE, request)
            return [SentRecord(topic, partition, -1, time_ms) for time_ms in own_times]
        wait_ms = self._ack_timeout_ms if acks == -1 else 0
        response: ProduceResponse = await self._cluster.request(PRODUCE, request, wait_ms=wait_ms)
        try:
            result = partition_result(response.topics, topic, partition)
        except UnknownTopicOrPartition:
            self._cluster.forget(topic)
            raise
        append_ms = _known(result.log_append_time_ms)
        return [
            SentRecord(topic, partition, offset, time_ms if append_ms is None else append_ms)
            for offset, time_ms in enumerate(own_times, result.base_offset)
        ]


def _known(timestamp_ms: int) -> int | None:
    return None if timestamp_ms == NO_TIMESTAMP else timestamp_ms


def _acks(acks: Acks) -> int:
    if acks not in _ACKS:
        raise ValueError(f"acks is 'all', 0 or 1, not {acks!r}")
    return _ACKS[acks]


def _codec(compression: str) -> Codec:
    if compression not in _CODECS:
        raise ValueError(f"compression is one of {', '.join(_CODECS)}, not {compression!r}")
    return _CODECS[compression]
