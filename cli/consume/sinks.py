"""Where `consume` brings messages: to standard output, or to another topic; and at which pace."""

import asyncio
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Protocol, Self

from ...client.administer.admin import Admin
from ...client.cluster.servers import Servers, parse_servers
from ...client.errors import ClientClosed
from ...client.produce.producer import Producer
from ...client.results import ConsumerRecord, SentRecord
from ...clock import Clock
from ...printable import printable
from ...protocol.errors import HorologError, UnknownTopicOrPartition
from ...values import value_class
from ..errors import CommandFailed, WrongUsage, note
from ..options import check_address
from ..output import emit, plural, shown_span, warn_past_retention
from .formats import LineFormat

_WRITES_OPEN: Final = 10_000
"""Messages that are written and not acknowledged yet."""

_SPEED_MIN: Final = 0.001
_SPEED_MAX: Final = 1_000_000

_LONG_WAIT_S: Final = 60
"""A wait for the next message that is longer than this is announced."""


class MessageSink(Protocol):
    """Takes the messages that are consumed."""

    async def write(self, records: Sequence[ConsumerRecord]) -> None:
        """Take messages, in their order."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class MessagePrinter:
    """Prints a line for each message."""

    def __init__(self, line_format: LineFormat) -> None:
        self._format = line_format

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    async def write(self, records: Sequence[ConsumerRecord]) -> None:
        if records:
            emit(map(self._format.line, records))


@value_class
class CopyTarget:
    """A topic to write messages to."""

    server: Servers
    topic: str

    def __str__(self) -> str:
        return f"{self.server}/{self.topic}"


def parse_target(text: str, server: Servers) -> CopyTarget:
    """Parse `--to`: a topic at `server`, or `ADDRESS/TOPIC` as in `kafka://HOST:PORT/TOPIC`. Raises
    WrongUsage."""
    address, slash, topic = text.rpartition("/")
    if not slash:
        address, topic = "", text
    if not topic or address.endswith("/") or (slash and not address):
        raise WrongUsage(
            f"--to {printable(text)}: write TOPIC, or ADDRESS/TOPIC as in "
            "kafka://127.0.0.1:9092/clicks"
        )
    try:
        topic.encode()
    except UnicodeEncodeError:
        raise WrongUsage(f"--to: {topic!r} is not UTF-8, so it is no name") from None
    if not address:
        return CopyTarget(server, topic)
    found = check_address(address, "--to")
    if found == parse_servers(str(server)):
        return CopyTarget(server, topic)  # with the login that was given
    return CopyTarget(found, topic)


class TopicCopier:
    """Writes messages to a topic, with their keys, values, headers and times.

    A message keeps its partition if the target has at least as many partitions as its topic;
    otherwise the key chooses the partition.
    """

    def __init__(self, target: CopyTarget, partition_counts: dict[str, int]) -> None:
        """`partition_counts` are those of the topics that are read."""
        self._target = target
        self._counts = partition_counts
        self._target_count = 0
        self._producer = Producer(
            target.server, idempotent=True, check_units=False, stamp_missing=False
        )
        self._open: deque[asyncio.Future[SentRecord]] = deque()
        self._written = self._past_retention = 0

    async def __aenter__(self) -> Self:
        async with Admin(self._target.server) as admin:
            try:
                self._target_count = await admin.partition_count(self._target.topic)
            except UnknownTopicOrPartition:
                self._target_count = 0  # it may be created when the first message comes
        await self._producer.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        failure = None
        try:
            if not isinstance(exc, Exception):  # Ctrl-C ends it too
                await self._producer.flush()
            self._take_answers()
        except CommandFailed as error:
            failure = error
        finally:
            await self._producer.close(flush=False)
            for waiter in self._open:  # otherwise asyncio reports their errors
                if waiter.done() and not waiter.cancelled():
                    waiter.exception()
        count = self._written
        note(f"{count:,} {plural(count, 'message')} written to {self._target.topic}")
        warn_past_retention(self._past_retention, self._target.topic)
        if failure is not None and exc is None:
            raise failure

    async def write(self, records: Sequence[ConsumerRecord]) -> None:
        """Raises CommandFailed when the target refused a message."""
        for record in records:
            if len(self._open) >= _WRITES_OPEN:
                await self._wait_for_first()
            self._open.append(
                await self._producer.enqueue(
                    self._target.topic,
                    record.value,
                    key=record.key,
                    timestamp_ms=record.timestamp_ms,
                    partition=self._partition(record),
                    headers=record.headers,
                )
            )
        self._take_answers()

    def _partition(self, record: ConsumerRecord) -> int | None:
        keeps = self._counts.get(record.topic, 0) <= self._target_count
        return record.partition if keeps and record.partition < self._target_count else None

    async def _wait_for_first(self) -> None:
        await asyncio.wait({self._open[0]})
        self._take_answers()

    def _take_answers(self) -> None:
        """Take the answers that are there. Raises CommandFailed for a refusal."""
        while self._open and self._open[0].done():
            try:
                sent = self._open.popleft().result()
            except ClientClosed:
                continue
            except HorologError as error:
                raise CommandFailed(
                    f"{error}: a message was not written to {self._target.topic}, and messages "
                    "behind it may be missing there"
                ) from error
            self._written += 1
            self._past_retention += sent.past_retention


def parse_speed(text: str | None) -> float | None:
    """Parse `--speed`; None is as fast as possible. Raises WrongUsage."""
    if text is None or text == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not _SPEED_MIN <= speed <= _SPEED_MAX:
        raise WrongUsage(
            f"--speed {printable(text)}: write a number from {_SPEED_MIN} to {_SPEED_MAX:,}, such "
            "as 1 for the pace of the messages' times, or max"
        )
    return speed


class ReplayPace:
    """Says how long to wait for each message, so that messages come at the pace of their times."""

    def __init__(self, speed: float, clock: Clock) -> None:
        """`speed` 1 is the pace of the times, 10 ten times as fast."""
        self._speed = speed
        self._clock = clock
        self._begun: tuple[float, int] | None = None
        """Time of the first message that has one, on the monotonic clock and in the message."""

    def wait_s(self, time_ms: int | None) -> float:
        """Return the seconds to wait before a message of this time; none for one without a
        time."""
        if time_ms is None:
            return 0.0
        now = self._clock.monotonic()
        if self._begun is None:
            self._begun = now, time_ms
        begun, first_ms = self._begun
        wait_s = begun + (time_ms - first_ms) / 1000 / self._speed - now
        if wait_s > _LONG_WAIT_S:
            note(f"the next message comes in {shown_span(wait_s)}")
        return max(0.0, wait_s)
