"""`horolog produce`: send lines of standard input, or of the command line."""

import asyncio
import logging
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Final

import typer

from ..client.cluster.servers import Servers
from ..client.json_lines import Message
from ..client.produce.encoding import headers_bytes
from ..client.produce.producer import Producer
from ..client.produce.set_limits import TOO_LARGE
from ..client.results import SentRecord
from ..clock import Clock, SystemClock
from ..protocol.errors import CodedError, RequestTimedOut
from ..protocol.records.layout import BATCH_OVERHEAD, ENTRY_OVERHEAD, MESSAGE_OVERHEAD
from ..protocol.records.messages.sets import NewRecord
from ..values import value_class
from .consume.formats import unescaped
from .errors import INTERRUPTED, CommandFailed, OutputClosed, OutputFailed, WrongUsage
from .headers import argument_bytes, parse_headers
from .lines import (
    BadLine,
    GivenLines,
    StandardInput,
    json_message,
    keyed_message,
    plain_message,
)
from .options import (
    DEFAULT_SERVER,
    INT32_MAX,
    AnyUnit,
    Server,
    TopicName,
    parse_moment,
    takes,
)
from .output import emit, json_line, json_time, warn_past_retention

STDIN: Final = 0

LINGER_SECONDS: Final = 0.02
"""How long a message may wait for others to share its set."""

SET_BYTES: Final = 16 * 1024
"""Size limit of a set of several messages; a single message may be larger."""

_PLAIN_SET_BYTES: Final = SET_BYTES - BATCH_OVERHEAD
"""Size limit of the messages in an uncompressed set, which may be a record batch with its overhead:
with headers, or in a Kafka cluster."""

_COMPRESSED_SET_BYTES: Final = SET_BYTES - 512
"""Size limit of the messages in a compressed set; leaves room for the bytes that compression adds
to data that it cannot shrink."""

_CLUSTER_TIMEOUT_MS: Final = 120_000
"""How long a set is retried in a cluster, where another broker can take over."""

_BATCHES_UNANSWERED: Final = 64
_OVERHEAD_BYTES: Final = ENTRY_OVERHEAD + MESSAGE_OVERHEAD[1]


class Compression(StrEnum):
    """Codecs of the message formats."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


@value_class
class ProduceArguments:
    """The arguments and options of `produce`."""

    topic: TopicName
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[VALUE]...",
            help="Messages to send instead of standard input; each is read as a line is.",
            show_default=False,
        ),
    ] = None
    partition: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=INT32_MAX,
            metavar="N",
            help="Where to send messages that do not say. When not given, by the key; messages "
            "without a key take turns.",
        ),
    ] = None
    compression: Annotated[Compression, typer.Option(help="Of the sets.")] = Compression.NONE
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help='A line is an object {"value", "key"?, "timestamp_ms"?, "timestamp"?, '
            '"partition"?, "headers"?}: value and key a string, {"base64": "..."} or null; '
            "timestamp RFC 3339; a time of null is no time; headers a list of "
            '{"name", "value"}.',
        ),
    ] = False
    key: Annotated[
        str | None,
        typer.Option("--key", "-k", metavar="KEY", help="Key of messages that have none."),
    ] = None
    headers: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="NAME=VALUE",
            help="A header of every message, before those of its line. Repeatable.",
        ),
    ] = None
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="Time of messages that have none: 2016-11-14T17:24:32Z, now, @-1h, epoch "
            "milliseconds. When not given, the time at which the line is read.",
        ),
    ] = None
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator",
            "-K",
            metavar="S",
            help="A line is a key, this text and a value; escapes such as \\t are replaced.",
        ),
    ] = None
    ignore_partition: Annotated[
        bool,
        typer.Option(
            "--ignore-partition",
            help="With --json: leave the partition of lines out; keys choose the partitions.",
        ),
    ] = False
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print no line for a message that was stored.")
    ] = False
    server: Server = DEFAULT_SERVER
    any_unit: AnyUnit = False


@takes(ProduceArguments)
def produce(given: ProduceArguments) -> None:
    """Send each VALUE, or standard input, a message a line.

    With a VALUE, standard input is not read. Lines are sent as they come. A message gets the time
    of its line, else that of --at, else the time at which its line was read. Once a message is as
    durable as the topic requires, a JSON object is printed for it, in the order of the input. For a
    refused set of messages an error is printed; later sets are still sent, and the exit code is 1.
    Sets are kept within the topic's limits, so only a message that is too large by itself is
    refused for its size. Ctrl-C ends the input: lines that were read are still sent and answered.
    With --json, empty lines are skipped. A line that is not a message, or has a time that looks
    like seconds or microseconds, ends the command: the lines before it were sent, the rest was not.

    A message may be past the topic's retention already when it is stored. Then its line has a field
    "past_retention", and at the end standard error says how many such messages there were. A Kafka
    cluster does not tell.

    If a single Horolog broker is lost, the command ends at once. In a cluster, of Horolog or Kafka,
    a set is retried for up to two minutes until another broker leads, and is stored once.
    """
    sending = _LineSender(given, SystemClock())
    of_asyncio = logging.getLogger("asyncio")
    of_asyncio.addFilter(is_no_lost_write)
    try:
        refused = asyncio.run(sending.run(given.server))
    except OutputClosed:
        raise CommandFailed("standard output was closed: the rest was not sent") from None
    except (BadLine, OutputFailed) as error:
        raise CommandFailed(f"{error}; the rest was not sent") from None
    finally:
        of_asyncio.removeFilter(is_no_lost_write)
        warn_past_retention(sending.past_retention, given.topic)
    if sending.interrupted:
        raise typer.Exit(INTERRUPTED)
    if refused:
        raise typer.Exit(1)


def is_no_lost_write(record: logging.LogRecord) -> bool:
    """Log filter: drops asyncio's warning about each write to a lost connection, because the
    command reports the loss once."""
    return record.msg != "socket.send() raised exception."


@value_class
class _LineFormat:
    """How a line becomes a message, and what a message gets that the line does not have."""

    as_json: bool
    any_unit: bool
    ignore_partition: bool
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    at_ms: int | None
    """None for the time at which a line is read."""
    separator: bytes | None
    """Separates the key of a plain line from its value."""

    def message(self, line: bytes, number: int, now_ms: int) -> Message:
        """Return the message of line `number`. Raises BadLine."""
        time_ms = now_ms if self.at_ms is None else self.at_ms
        if self.as_json:
            message = json_message(line, number, time_ms, self.any_unit)
        elif self.separator is not None:
            message = keyed_message(line, number, self.separator, time_ms)
        else:
            message = plain_message(line, time_ms)
        record = message.record
        if self.key is not None and record.key is None:
            record = replace(record, key=self.key)
        if self.headers:
            record = replace(record, headers=(*self.headers, *record.headers))
        return Message(record, None if self.ignore_partition else message.partition)


def _line_format(given: ProduceArguments, now_ms: int) -> _LineFormat:
    """Return what the options say about lines. Raises WrongUsage for options that do not go
    together."""
    at_ms = None if given.at is None else parse_moment(given.at, "--at", now_ms, given.any_unit)
    if given.any_unit and not given.as_json and at_ms is None:
        raise WrongUsage(
            "--any-unit is about the times of --json and of --at, and plain lines have none"
        )
    if given.ignore_partition and not given.as_json:
        raise WrongUsage("--ignore-partition is about lines of --json, and plain lines name none")
    separator = given.key_separator
    if separator is not None:
        if given.as_json:
            raise WrongUsage("--key-separator is about plain lines: with --json, lines have a key")
        if given.key is not None:
            raise WrongUsage("--key-separator with --key: every line has a key of its own then")
        if separator == "":
            raise WrongUsage("--key-separator: give at least one character")
        separator = unescaped(separator, "--key-separator")
    return _LineFormat(
        given.as_json,
        given.any_unit,
        given.ignore_partition,
        None if given.key is None else argument_bytes(given.key),
        parse_headers(given.headers, "--header"),
        at_ms,
        None if separator is None else argument_bytes(separator),
    )


Outcome = SentRecord | CodedError


@dataclass(slots=True)
class _Batch:
    """Messages sent together: a set for each partition, answered in the order of the lines."""

    partitions: list[int] = field(default_factory=list)
    """Partition of each message, in the order of the input."""
    sets: dict[int, list[Message]] = field(default_factory=dict)
    bytes_of: dict[int, int] = field(default_factory=dict)
    answers: dict[int, asyncio.Task[list[Outcome]]] = field(default_factory=dict)
    deadline: float = 0.0
    limit_bytes: int = 0
    """Size limit of a set with several messages."""

    def has_room(self, partition: int, size_bytes: int) -> bool:
        taken = self.bytes_of.get(partition, 0)
        return taken == 0 or taken + size_bytes <= self.limit_bytes

    def add(self, partition: int, message: Message, size_bytes: int) -> None:
        self.partitions.append(partition)
        self.sets.setdefault(partition, []).append(message)
        self.bytes_of[partition] = self.bytes_of.get(partition, 0) + size_bytes


class _LineSender:
    def __init__(self, given: ProduceArguments, clock: Clock) -> None:
        """Raises WrongUsage for options that do not go together."""
        self._topic = given.topic
        self._partition = given.partition
        self._compression = given.compression
        self._limit_bytes = (
            _PLAIN_SET_BYTES if given.compression is Compression.NONE else _COMPRESSED_SET_BYTES
        )
        self._format = _line_format(given, clock.now_ms())
        self._clock = clock
        self._given = [argument_bytes(value) for value in given.values or ()]
        """Lines that are sent instead of standard input, if there are any."""
        self._quiet = given.quiet
        self.past_retention = 0
        """Number of messages that were past retention when they were stored."""
        self._line_number = 0
        self._batch = _Batch()
        self._sent: asyncio.Queue[_Batch | None] = asyncio.Queue(_BATCHES_UNANSWERED)
        self.interrupted = False
        """Whether Ctrl-C ended the input."""
        self._unanswered: set[asyncio.Task[list[Outcome]]] = set()
        self._last: dict[int, asyncio.Task[list[Outcome]]] = {}
        """The set sent last to each partition."""
        self._divided: Counter[int] = Counter()
        """Number of sets of each partition that are being sent in parts; later sets wait."""

    async def run(self, server: Servers) -> bool:
        """Send all of standard input; return whether a message was refused."""
        async with Producer(
            server,
            compression=self._compression.value,
            check_units=False,
            stamp_missing=False,
            # With a single broker nothing is retried: a lost broker is an error at once, and the
            # program that writes to the pipe decides what to send again. In a cluster another
            # broker can take over.
            delivery_timeout_ms=_CLUSTER_TIMEOUT_MS if server.several else 0,
            idempotent=None if server.several else False,  # what is sent once needs no number
        ) as self._producer:
            printing = asyncio.create_task(self._print_answers())
            reading = asyncio.create_task(self._send_all())
            try:
                await asyncio.wait({printing, reading}, return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    return printing.result()  # raises: without an error it ends after the reading
                failure = reading.exception()
                if failure is None or isinstance(failure, CommandFailed):
                    refused = await printing
                if failure is not None:
                    raise failure
                return refused
            finally:
                # Sets that wait behind a failed set must not be sent.
                given_up = (printing, reading, *self._unanswered)
                for task in given_up:
                    task.cancel()
                await asyncio.gather(*given_up, return_exceptions=True)

    async def _send_all(self) -> None:
        """Send the input up to its end or to a bad line, and tell the printing task that it ended.

        Raises CommandFailed after the lines before it were sent; raises other errors at once.
        """
        failure: CommandFailed | None = None
        try:
            await self._send_input()
        except CommandFailed as error:
            failure = error
        await self._send_batch()
        await self._sent.put(None)
        if failure is not None:
            raise failure

    async def _send_input(self) -> None:
        """Read and send until the input ends. Raises BadLine, CommandFailed."""
        source = GivenLines(self._given) if self._given else StandardInput(STDIN)
        with closing(source):
            # The first Ctrl-C ends the input; a second one ends the command without waiting for
            # answers. Only the main thread gets signals.
            if threading.current_thread() is threading.main_thread():
                loop = asyncio.get_running_loop()
                loop.add_signal_handler(signal.SIGINT, self._interrupted, source)
            await self._send_lines(source)

    async def _send_lines(self, source: GivenLines | StandardInput) -> None:
        loop = asyncio.get_running_loop()
        waiting = asyncio.ensure_future(source.lines())
        while True:
            gathered = bool(self._batch.partitions)
            timeout = max(0.0, self._batch.deadline - loop.time()) if gathered else None
            await asyncio.wait({waiting}, timeout=timeout)
            if waiting.done():
                lines = waiting.result()
                if lines is None:
                    return
                waiting = asyncio.ensure_future(source.lines())
                for line in lines:
                    await self._add(line)
            if loop.time() >= self._batch.deadline:
                await self._send_batch()

    def _interrupted(self, source: GivenLines | StandardInput) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        self.interrupted = True
        source.stop()

    async def _add(self, line: bytes) -> None:
        self._line_number += 1
        if self._format.as_json and not line.strip():
            return
        message = self._format.message(line, self._line_number, self._clock.now_ms())
        record = message.record
        partition = self._partition if message.partition is None else message.partition
        if partition is None:
            partition = await self._choose_partition(record.key)
        size_bytes = _size_bytes(record)
        if not self._batch.has_room(partition, size_bytes):
            await self._send_batch()
        if not self._batch.partitions:
            self._batch.limit_bytes = await self._set_bytes()
            self._batch.deadline = asyncio.get_running_loop().time() + LINGER_SECONDS
        self._batch.add(partition, message, size_bytes)

    async def _choose_partition(self, key: bytes | None) -> int:
        try:
            return await self._producer.partition_for(self._topic, key)
        except CodedError:
            return 0  # sending to 0 fails with the same error, in the order of the input

    async def _set_bytes(self) -> int:
        try:
            return min(self._limit_bytes, await self._producer.set_bytes_for(self._topic))
        except CodedError:
            return self._limit_bytes  # sending fails with the same error

    async def _send_batch(self) -> None:
        """Begin to send the gathered messages. Waits while too many batches are unanswered."""
        batch, self._batch = self._batch, _Batch()
        if not batch.partitions:
            return
        for partition, messages in batch.sets.items():
            records = [message.record for message in messages]
            send = self._send_set(partition, records, self._last.get(partition))
            answer = batch.answers[partition] = self._last[partition] = asyncio.create_task(send)
            self._unanswered.add(answer)
            answer.add_done_callback(self._answered)
        await self._sent.put(batch)

    async def _send_set(
        self,
        partition: int,
        records: list[NewRecord],
        before: asyncio.Task[list[Outcome]] | None,
    ) -> list[Outcome]:
        """Send messages as one set. If the topic's limits have become lower, send them in parts,
        after the set `before`."""
        if before is not None and self._divided[partition]:
            await asyncio.wait({before})
        try:
            return [*await self._producer.send_many(self._topic, records, partition=partition)]
        except TOO_LARGE:
            if len(records) == 1:
                raise
        self._divided[partition] += 1
        try:
            if before is not None:
                await asyncio.wait({before})
            return await self._send_parts(partition, records)
        finally:
            self._divided[partition] -= 1

    async def _send_parts(self, partition: int, records: list[NewRecord]) -> list[Outcome]:
        """Send the messages in parts; return the outcome of each message."""
        outcomes: list[Outcome] = []
        parts = [records[len(records) // 2 :], records[: len(records) // 2]]
        while parts:
            part = parts.pop()
            middle = len(part) // 2
            if middle and sum(map(_size_bytes, part)) > await self._set_bytes():
                parts += (part[middle:], part[:middle])
                continue
            try:
                outcomes += await self._producer.send_many(self._topic, part, partition=partition)
            except TOO_LARGE as error:
                if middle:
                    parts += (part[middle:], part[:middle])
                else:
                    outcomes.append(error)
            except RequestTimedOut:
                raise
            except CodedError as error:
                outcomes += [error] * len(part)
        return outcomes

    def _answered(self, answer: asyncio.Task[list[Outcome]]) -> None:
        self._unanswered.discard(answer)
        if not answer.cancelled():
            answer.exception()  # retrieved: if several fail with a connection, one is reported

    async def _print_answers(self) -> bool:
        """Print answers in the order of the input; return whether any was a refusal."""
        any_refused = False
        while (batch := await self._sent.get()) is not None:
            answers: dict[int, Iterator[Outcome]] = {}
            lines: list[str] = []
            for partition in batch.partitions:
                if partition not in answers:
                    if not batch.answers[partition].done():
                        emit(lines)
                        lines.clear()
                    try:
                        answers[partition] = iter(await batch.answers[partition])
                    except RequestTimedOut:
                        raise  # not a refusal: the set may have been appended
                    except CodedError as error:
                        any_refused = True
                        answers[partition] = iter(())
                        lines.append(_refused(error))
                outcome = next(answers[partition], None)
                if isinstance(outcome, CodedError):
                    any_refused = True
                    lines.append(_refused(outcome))
                elif outcome is not None:
                    self.past_retention += outcome.past_retention
                    if not self._quiet:
                        lines.append(_acknowledged(outcome))
            emit(lines)
        return any_refused


def _size_bytes(record: NewRecord) -> int:
    size_bytes = _OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    return size_bytes + headers_bytes(record.headers)


def _refused(error: CodedError) -> str:
    return json_line({"error": error.name, "message": error.message})


def _acknowledged(sent: SentRecord) -> str:
    fields: dict[str, object] = {
        "partition": sent.partition,
        "offset": sent.offset,
        "timestamp_ms": json_time(sent.timestamp_ms),
    }
    if sent.past_retention:
        fields["past_retention"] = True
    return json_line(fields)
