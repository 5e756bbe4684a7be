"""`horolog load`: sends and reads messages, and measures how many and how fast."""

import asyncio
import math
import os
import struct
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Final

import typer

from ..client.administer.admin import Admin
from ..client.cluster.servers import Servers
from ..client.consume.consumer import Consumer
from ..client.produce.producer import Compression, Producer
from ..client.results import SentRecord
from ..clock import Clock, SystemClock
from ..config.setting import SIZE, UnitError, parse_amount
from ..protocol.errors import HorologError, TopicAlreadyExists, UnknownTopicOrPartition
from ..times import TimeError, parse_length
from ..values import value_class
from .errors import CommandFailed, WrongUsage, note
from .options import DEFAULT_SERVER, INT32_MAX, Json, Server, check_text, complete_topic
from .output import emit, emit_object, progress, shown_size, table

_STAMP: Final = struct.Struct(">16sd")
"""Start of each value: the run, and the monotonic time of its send in seconds."""

_SIZE_MAX: Final = 16 * 2**20
_RATE_MAX: Final = 10_000_000
_LONGEST_MS: Final = 24 * 3_600_000

_TURN_S: Final = 0.005
"""With a rate, messages that are due are sent together this often."""

_UNANSWERED: Final = 10_000
"""Messages in flight without a rate; more wait for answers, so that the latency is not that of a
queue without an end."""

_STOP_S: Final = 2.0
"""Longest time to wait, after Ctrl-C, for the answers to messages."""

_DRAIN_S: Final = 10.0
"""How long messages that were sent are waited for at the end."""

_STEP: Final = math.log(1.02)
_PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)

Milliseconds = Mapping[str, float | None]


class LoadLatencies:
    """Counts durations in classes that are 2 % wide, so that millions of them take no memory."""

    def __init__(self) -> None:
        self._classes: Counter[int] = Counter()
        self._max_s = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        seconds = max(seconds, 1e-6)
        self._classes[math.ceil(math.log(seconds) / _STEP)] += count
        self._max_s = max(self._max_s, seconds)

    def milliseconds(self) -> Milliseconds:
        """Return percentiles, each up to 2 % too high, and the exact maximum; None if there are no
        durations."""
        names = [f"p{each:g}" for each in _PERCENTILES]
        total = self._classes.total()
        if not total:
            return dict.fromkeys([*names, "max"])
        found: dict[str, float | None] = {}
        for name, percent in zip(names, _PERCENTILES, strict=True):
            seconds = self._percentile(total * percent / 100)
            found[name] = round(min(seconds, self._max_s) * 1000, 3)
        return {**found, "max": round(self._max_s * 1000, 3)}

    def _percentile(self, rank: float) -> float:
        seen = 0
        for number, count in sorted(self._classes.items()):
            seen += count
            if seen >= rank:
                return math.exp(number * _STEP)
        return self._max_s


@value_class
class Load:
    """What `load` sends."""

    size: int
    """Bytes of a value."""
    rate: int | None
    """Messages a second; None for as many as are answered."""
    seconds: float
    messages: int | None
    """End after this many messages; None for no limit but the time."""
    compression: Compression


@value_class
class LoadResult:
    """What `load` measured."""

    topic: str
    sent: int
    failed: int
    read: int
    size: int
    seconds: float
    """From the first send to the last answer."""
    ack_ms: Milliseconds
    """Time from the call of send to the answer of the broker."""
    end_to_end_ms: Milliseconds
    """Time from the call of send to the message's arrival at a consumer."""
    error: str | None
    """The first error of a send."""


def load(
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="[TOPIC]",
            help="Topic to use; it is created if it is missing, and keeps the messages. Without "
            "one, a topic is created, and deleted at the end.",
            autocompletion=complete_topic,
            callback=check_text,
        ),
    ] = None,
    size: Annotated[
        str, typer.Option(metavar="BYTES", help="Size of a value, such as 100 or 10KiB.")
    ] = "100",
    rate: Annotated[
        int | None,
        typer.Option(
            min=1, max=_RATE_MAX, metavar="N", help="Messages a second; else as many as possible."
        ),
    ] = None,
    duration: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long to send, up to 24h.")
    ] = "10s",
    number: Annotated[
        int | None, typer.Option("-n", min=1, metavar="N", help="End after N messages.")
    ] = None,
    partitions: Annotated[
        int, typer.Option(min=1, max=INT32_MAX, metavar="N", help="Partitions of a new topic.")
    ] = 1,
    compression: Annotated[
        Compression, typer.Option(help="Compression of the message sets.")
    ] = "none",
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Measure load and latency against a broker or a Kafka cluster.

    Sends messages with acks=all and reads them at the same time, from one process. ack is the time
    from the call of send to the broker's answer, end to end that to the message's arrival at a
    consumer. Without --rate at most 10,000 messages are unanswered at a time. With --json the
    result is one object. Exit code 1 if messages were refused or did not arrive.
    """
    wanted = Load(_size(size), rate, _seconds(duration), number, compression)
    clock = SystemClock()
    result = asyncio.run(_in_topic(server, topic, partitions, wanted, clock))
    if as_json:
        emit_object(_as_json(result))
    else:
        emit(_as_text(result))
    if result.error is not None:
        raise CommandFailed(f"{result.failed} messages were refused: {result.error}")
    if result.read < result.sent:
        raise CommandFailed(
            f"{result.sent - result.read} messages did not arrive within {_DRAIN_S:.0f} s",
            "`horolog doctor` looks for what is wrong",
        )


def _size(text: str) -> int:
    try:
        number = int(text) if text.isascii() and text.isdecimal() else parse_amount(text, SIZE)
    except (UnitError, ValueError) as error:
        raise WrongUsage(f"--size {text}: {error}") from None
    if number is None or not _STAMP.size <= number <= _SIZE_MAX:
        raise WrongUsage(
            f"--size {text}: it is from {_STAMP.size} to {_SIZE_MAX} bytes, such as 100 or 10KiB"
        )
    return number


def _seconds(text: str) -> float:
    try:
        length_ms = parse_length(text)
    except TimeError as error:
        raise WrongUsage(f"--for: {error}") from None
    if not 1 <= length_ms <= _LONGEST_MS:
        raise WrongUsage(f"--for {text}: it is from 1ms to 24h")
    return length_ms / 1000


async def _in_topic(
    server: Servers, topic: str | None, partitions: int, wanted: Load, clock: Clock
) -> LoadResult:
    """Run the load in the topic, or in one of its own that is deleted at the end."""
    name = topic or f"horolog-load-{os.urandom(6).hex()}"
    async with Admin(server) as admin:
        await create_if_missing(admin, name, partitions)
        try:
            count = await admin.partition_count(name)
            return await _Run(server, name, count, wanted, clock).run()
        finally:
            if topic is None:
                await _delete(admin, name)


async def create_if_missing(admin: Admin, name: str, partitions: int) -> None:
    """Create a topic unless it exists. For one that exists no right to create topics is needed."""
    try:
        await admin.partition_count(name)
    except UnknownTopicOrPartition:
        with suppress(TopicAlreadyExists):
            await admin.create_topic(name, partitions=partitions)


async def _delete(admin: Admin, name: str) -> None:
    try:
        await admin.delete_topic(name)
    except HorologError as error:
        note(f"the topic {name} is left: {error}. `horolog topic delete {name}` deletes it")


class _Run:
    """One run: a producer and a consumer in one event loop."""

    def __init__(
        self, server: Servers, topic: str, partitions: int, wanted: Load, clock: Clock
    ) -> None:
        self._server = server
        self._topic = topic
        self._partitions = partitions
        self._wanted = wanted
        self._clock = clock
        self._id = os.urandom(16)
        self._filler = os.urandom(wanted.size - _STAMP.size)
        self._acks, self._arrivals = LoadLatencies(), LoadLatencies()
        self._sent = self._failed = self._read = 0
        self._error: str | None = None
        self._unanswered: set[asyncio.Future[SentRecord]] = set()

    async def run(self) -> LoadResult:
        async with (
            Consumer(self._server, check_units=False) as consumer,
            Producer(self._server, compression=self._wanted.compression) as producer,
        ):
            for number in range(self._partitions):
                consumer.assign(self._topic, number)
            await consumer.seek_to_end()
            reading = asyncio.create_task(self._receive(consumer))
            began = self._clock.monotonic()
            try:
                await self._send_all(producer, began)
                seconds = self._clock.monotonic() - began
                await self._drain(reading)
            except asyncio.CancelledError:
                if self._unanswered:  # otherwise the producer reports them as lost
                    await asyncio.wait(self._unanswered, timeout=_STOP_S)
                raise
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
        return LoadResult(
            self._topic,
            self._sent,
            self._failed,
            self._read,
            self._wanted.size,
            seconds,
            self._acks.milliseconds(),
            self._arrivals.milliseconds(),
            self._error,
        )

    async def _send_all(self, producer: Producer, began: float) -> None:
        wanted = self._wanted
        number = 0
        with progress("sending", math.ceil(wanted.seconds)) as advance:
            shown = 0
            while (passed := self._clock.monotonic() - began) < wanted.seconds:
                if int(passed) > shown:
                    advance(int(passed) - shown)
                    shown = int(passed)
                if wanted.messages is not None and number >= wanted.messages:
                    break
                due = self._due(number, passed)
                for _ in range(due):
                    await self._send(producer)
                number += due
                if wanted.rate is not None:
                    await asyncio.sleep(_TURN_S)
        await producer.flush()
        if self._unanswered:
            await asyncio.wait(self._unanswered)

    def _due(self, number: int, passed: float) -> int:
        """Return how many messages to send now, after `number` of them."""
        due = 100 if self._wanted.rate is None else int(passed * self._wanted.rate) + 1 - number
        left = due if self._wanted.messages is None else self._wanted.messages - number
        return max(min(due, left, 1_000), 0)

    async def _send(self, producer: Producer) -> None:
        if len(self._unanswered) >= _UNANSWERED:
            await asyncio.wait(self._unanswered, return_when=asyncio.FIRST_COMPLETED)
        began = self._clock.monotonic()
        value = _STAMP.pack(self._id, began) + self._filler
        answer = await producer.enqueue(self._topic, value)
        self._unanswered.add(answer)
        answer.add_done_callback(lambda done: self._answered(done, began))

    def _answered(self, answer: "asyncio.Future[SentRecord]", began: float) -> None:
        self._unanswered.discard(answer)
        error = None if answer.cancelled() else answer.exception()
        if error is None:
            self._sent += 1
            self._acks.add(self._clock.monotonic() - began)
        else:
            self._failed += 1
            self._error = self._error or str(error)

    async def _receive(self, consumer: Consumer) -> None:
        while True:
            records = await consumer.fetch()
            now = self._clock.monotonic()
            for record in records:
                value = record.value or b""
                if value.startswith(self._id) and len(value) >= _STAMP.size:
                    self._read += 1
                    self._arrivals.add(now - _STAMP.unpack_from(value)[1])

    async def _drain(self, reading: "asyncio.Task[None]") -> None:
        """Wait until all sent messages have arrived, but not for ever."""
        end = self._clock.monotonic() + _DRAIN_S
        while self._read < self._sent and self._clock.monotonic() < end and not reading.done():
            await asyncio.wait([reading], timeout=0.01)
        if reading.done():
            reading.result()  # raises the error that ended it


def _as_json(result: LoadResult) -> Mapping[str, object]:
    per_second = result.sent / result.seconds if result.seconds else 0.0
    return {
        "topic": result.topic,
        "sent": result.sent,
        "failed": result.failed,
        "read": result.read,
        "size_bytes": result.size,
        "seconds": round(result.seconds, 3),
        "messages_per_s": round(per_second, 1),
        "bytes_per_s": round(per_second * result.size, 1),
        "ack_ms": result.ack_ms,
        "end_to_end_ms": result.end_to_end_ms,
    }


def _as_text(result: LoadResult) -> list[str]:
    per_second = result.sent / result.seconds if result.seconds else 0.0
    rate = f"{per_second:,.0f} messages/s, {shown_size(round(per_second * result.size))}/s"
    rows = [
        (name, *("-" if value is None else f"{value:,.2f} ms" for value in found.values()))
        for name, found in (("ack", result.ack_ms), ("end to end", result.end_to_end_ms))
    ]
    columns = ("latency", *result.ack_ms)
    return [
        f"{result.sent:,} messages of {result.size:,} bytes in {result.seconds:.1f} s: {rate}",
        *table(columns, rows, right=columns[1:]),
    ]
