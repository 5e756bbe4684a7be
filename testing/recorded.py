"""Loads recordings of `horolog record` into a broker, their times moved if a test wants that."""

import asyncio
from collections import deque
from pathlib import Path
from typing import Final

from ..client.administer.admin import Admin
from ..client.produce.producer import Producer
from ..client.recordings import NoRecording, RecordingFile
from ..client.results import SentRecord
from ..protocol.records.layout import NO_TIMESTAMP
from ..times import INT64_MAX, format_time
from ..values import value_class
from .clock import Instant, instant_ms

_UNANSWERED_MAX: Final = 10_000
"""Messages that are sent before the first is answered."""


@value_class
class LoadedRecording:
    """What was loaded."""

    topic: str
    messages: int
    shifted_ms: int
    """How much later the messages are than recorded; negative if they are earlier."""


async def load_recording(
    address: str,
    file: Path,
    *,
    shift_to: Instant | None = None,
    topic: str | None = None,
    now_ms: int,
) -> LoadedRecording:
    """Send the messages of a recording to the broker at `address`.

    See `BrokerThread.load` for the arguments and errors.
    """
    recording = RecordingFile(file)
    shifted_ms = await asyncio.to_thread(_shift_ms, recording, shift_to, now_ms)
    name = topic or recording.head.topic
    async with Admin(address) as admin:
        partitions = (await admin.list_topics()).get(name)
        if partitions is None:
            await admin.create_topic(name, partitions=recording.head.partitions)
        elif partitions < recording.head.partitions:
            raise ValueError(
                f"topic {name!r} has {partitions} partitions, and the recording "
                f"{recording.head.partitions}: create it with as many"
            )
    return LoadedRecording(name, await _send(address, recording, name, shifted_ms), shifted_ms)


def _shift_ms(recording: RecordingFile, shift_to: Instant | None, now_ms: int) -> int:
    """Read the whole recording, so that nothing of a wrong one is sent, and return by how much its
    times are moved."""
    times = [INT64_MAX, NO_TIMESTAMP]
    for message in recording.messages():
        time_ms = message.record.timestamp_ms
        if time_ms != NO_TIMESTAMP:
            times = [min(times[0], time_ms), max(times[1], time_ms)]
    if shift_to is None or times[1] == NO_TIMESTAMP:
        return 0
    begin_ms = recording.head.from_ms
    shifted_ms = instant_ms(shift_to, now_ms) - (times[0] if begin_ms is None else begin_ms)
    if times[0] + shifted_ms < 0 or times[1] + shifted_ms > INT64_MAX:
        raise NoRecording(
            f"{recording.path} has messages from {format_time(times[0])} to "
            f"{format_time(times[1])}: moved by {shifted_ms} ms, their times would not be from 0 "
            f"to {INT64_MAX}"
        )
    return shifted_ms


async def _send(address: str, recording: RecordingFile, topic: str, shifted_ms: int) -> int:
    sent: deque[asyncio.Future[SentRecord]] = deque()
    count = 0
    async with Producer(address, check_units=False, stamp_missing=False) as producer:
        for message in recording.messages():
            record = message.record
            time_ms = record.timestamp_ms
            sent.append(
                await producer.enqueue(
                    topic,
                    record.value,
                    key=record.key,
                    timestamp_ms=None if time_ms == NO_TIMESTAMP else time_ms + shifted_ms,
                    partition=message.partition,
                    headers=record.headers,
                )
            )
            count += 1
            if len(sent) == _UNANSWERED_MAX:
                await producer.flush()
            while len(sent) >= _UNANSWERED_MAX:
                await sent.popleft()
        await producer.flush()
        for each in sent:
            await each
    return count
