"""Bringing the demo's messages to the broker, and reading them back."""

import asyncio
import socket
from collections.abc import Mapping, Sequence
from typing import Final

from ...client.administer.admin import Admin
from ...client.consume.consumer import Consumer
from ...client.errors import ConnectionFailed
from ...client.produce.producer import Producer
from ...client.results import ConsumerRecord
from ...protocol.errors import CodedError, TopicAlreadyExists
from ...protocol.records.messages.sets import NewRecord
from ..streams import note
from .host_load import sample

_SAMPLE_SECONDS: Final = 1.0


async def ensure_topic(admin: Admin, name: str, settings: Mapping[str, str]) -> None:
    """Create a topic unless an earlier run did."""
    try:
        await admin.create_topic(name, settings=settings)
    except TopicAlreadyExists:
        return


async def send_all(producer: Producer, topic: str, records: Sequence[NewRecord]) -> None:
    """Send messages to partition 0, in this order."""
    await producer.send_batch(
        topic,
        [record.value for record in records],
        keys=[record.key for record in records],
        timestamps_ms=[record.timestamp_ms for record in records],
        headers=[record.headers for record in records],
        partition=0,
    )


async def read_all(address: str, topic: str, start: int, end: int) -> list[ConsumerRecord]:
    """The messages of partition 0 from offset `start` up to, without, `end`."""
    read: list[ConsumerRecord] = []
    if start >= end:
        return read
    async with Consumer(address) as consumer:
        consumer.assign(topic, 0, offset=start)
        while (consumer.position(topic) or start) < end:
            read += await consumer.fetch()
    return [record for record in read if record.offset < end]


def not_yet_stored(
    found: Sequence[NewRecord], stored: Sequence[ConsumerRecord]
) -> Sequence[NewRecord]:
    """What of `found` an earlier run has not sent: what follows the last message stored.

    Nothing when the two have grown apart; a message is never sent twice.
    """
    if not stored:
        return found
    if stored[0].offset > 0 or len(found) <= len(stored):
        return ()
    last, same = stored[-1], found[len(stored) - 1]
    if (last.value, last.timestamp_ms) != (same.value, same.timestamp_ms):
        return ()
    return found[len(stored) :]


async def sample_load(producer: Producer, topic: str, first_stored: asyncio.Event) -> None:
    """Send a sample of the host's load every second, for ever."""
    host = socket.gethostname().encode("utf-8", "replace")
    while True:
        try:
            await producer.send(topic, sample(), key=host)
            first_stored.set()
        except (CodedError, ConnectionFailed) as error:
            note(f"a sample of the load was not stored: {error}")
        await asyncio.sleep(_SAMPLE_SECONDS)
