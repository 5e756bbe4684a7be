"""`horolog consume`: read messages, from and until an offset or a time."""

import asyncio
import sys
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

import typer

from ..client.administer.admin import Admin
from ..client.cluster.retry import UNREACHABLE, retry
from ..client.consume.consumer import Consumer
from ..client.results import AfterEnd, ConsumerRecord, Found
from ..clock import SystemClock
from ..protocol.api.log.list_offsets import EARLIEST, LATEST
from .errors import CommandFailed
from .options import DEFAULT_ADDRESS, AnyUnit, Json, Partition, Server, TopicName
from .output import (
    emit,
    json_bytes,
    json_headers,
    json_line,
    json_time,
    shown_bytes,
    shown_headers,
    shown_time,
)
from .positions import POSITION_HELP, AtOffset, AtTime, Position, parse_bounds
from .progress import Advance, progress
from .streams import is_terminal, note

_FOLLOW_WAIT_MS: Final = 10_000
"""How long a fetch waits at the broker for new messages; they are sent as soon as there are any."""

_RETRY_TIMEOUT_MS: Final = 120_000


@dataclass(frozen=True, slots=True)
class Window:
    """What is to be read of one partition: the offsets from `start` up to, without, `end`."""

    partition: int
    start: int
    end: int | None
    """None: no end is known yet."""
    until_ms: int | None = None
    """Without an end: it is the first message of this time or later."""


def consume(
    topic: TopicName,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="POS",
            help=f"Where to begin: {POSITION_HELP}; or a range of times @A:B that sets --until "
            "too, such as @-2h:1h. The first message stored when not given.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="POS", help="Where to stop, before that message: a POS too."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for new messages, until Ctrl-C.")
    ] = False,
    partition: Partition = None,
    append_time: Annotated[
        bool,
        typer.Option(
            "--append-time",
            help="Say when the broker appended each message too; with --json as append_time_ms.",
        ),
    ] = False,
    read_committed: Annotated[
        bool,
        typer.Option(
            "--read-committed",
            help="Leave out messages of transactions that were aborted, and wait for those that "
            "are not decided. Only in a Kafka cluster, and in directories that Kafka wrote, there "
            "are any.",
        ),
    ] = False,
    server: Server = DEFAULT_ADDRESS,
    as_json: Json = False,
    any_unit: AnyUnit = False,
) -> None:
    """Read messages from and until a time or an offset.

    They come in the order of their offsets; partitions one after the other, or together with
    --follow. Without --follow it stops at the end as it was when it began.

    A time stands for an offset: that of the first message whose time is that or later. So
    --until stops before the first message that is as late as that. Where messages came out of
    order, older and newer ones may lie between the two offsets, and messages of the times asked
    for outside them; if --until finds a lower offset than --from, there is nothing to read,
    and a note on standard error says so.

    With --json a message that has headers has them as "headers", a list of {"name", "value"}.
    """
    bounds = parse_bounds(start, until, SystemClock().now_ms(), any_unit)
    reading = _Reading(server, topic, as_json, follow, append_time, read_committed)
    try:
        asyncio.run(reading.run(partition, bounds))
    except KeyboardInterrupt:
        if not follow:
            raise


class _Reading:
    def __init__(
        self,
        server: str,
        topic: str,
        as_json: bool,
        follow: bool,
        append_time: bool,
        read_committed: bool,
    ) -> None:
        self._server = server
        self._topic = topic
        self._line = _as_json if as_json else _as_text
        self._follow = follow
        self._append_time = append_time
        self._read_committed = read_committed
        self._advance: Advance = lambda amount: None
        self._lost = False
        """Whether it was reported that the connection is, and not yet that it is back."""

    async def run(
        self, partition: int | None, bounds: tuple[Position | None, Position | None]
    ) -> None:
        async with AsyncExitStack() as stack:
            admin = await stack.enter_async_context(Admin(self._server, check_units=False))
            consumer = await stack.enter_async_context(
                Consumer(
                    self._server,
                    max_wait_ms=_FOLLOW_WAIT_MS,
                    append_times=self._append_time,
                    read_committed=self._read_committed,
                    retry_timeout_ms=0,
                )
            )
            if partition is None:
                partitions = range((await admin.describe_topic(self._topic)).partitions)
            else:
                partitions = range(partition, partition + 1)
            windows = [await self._window(admin, number, *bounds) for number in partitions]
            if self._follow:
                await self._read(consumer, windows)
                return
            total = sum(max((window.end or 0) - window.start, 0) for window in windows)
            # On a terminal the messages themselves show how far it is.
            with progress("reading", 0 if is_terminal(sys.stdout) else total) as self._advance:
                for window in windows:
                    await self._read(consumer, [window])

    async def _window(
        self, admin: Admin, partition: int, start: Position | None, until: Position | None
    ) -> Window:
        """Turn positions into offsets, once, before reading."""
        first, last = await admin.list_offsets(self._topic, partition, [EARLIEST, LATEST])
        low, high = first.offset or 0, last.offset or 0
        begin = low if start is None else await self._offset(admin, partition, start)
        if begin is None:
            begin = high
        if isinstance(start, AtOffset) and not low <= start.offset <= high:
            raise CommandFailed(
                f"OFFSET_OUT_OF_RANGE: --from offset:{start.offset}: partition {partition} of "
                f"{self._topic} has the offsets from {low}, and the next one is {high}"
            )
        end = None if until is None else await self._offset(admin, partition, until)
        if end is not None and end < begin:
            note(
                f"partition {partition}: nothing to read, --from is offset {begin} and --until "
                f"offset {end}: a time stands for the first message of that time or later"
            )
        if not self._follow:
            end = high if end is None else min(end, high)
        unknown = end is None and isinstance(until, AtTime)
        until_ms = until.timestamp_ms if unknown and isinstance(until, AtTime) else None
        return Window(partition, begin, end, until_ms)

    async def _offset(self, admin: Admin, partition: int, position: Position) -> int | None:
        """The offset that a position means; None when it is at or behind the end."""
        if isinstance(position, AtOffset):
            return position.offset
        found = await admin.find_offset(self._topic, partition, timestamp_ms=position.timestamp_ms)
        match found:
            case Found(offset=offset):
                return offset
            case AfterEnd():
                return None
        note(f"partition {partition} has no message with a time")
        return None

    async def _read(self, consumer: Consumer, windows: Sequence[Window]) -> None:
        """Print the windows' messages until each window's end is reached."""
        left: dict[int, Window] = {}
        for window in windows:
            if window.end is None or window.start < window.end:
                left[window.partition] = window
                consumer.assign(self._topic, window.partition, offset=window.start)
        while left:
            batch = await self._fetch(consumer)
            self._advance(len(batch))
            emit(self._inside(batch, left, consumer))
            for partition, window in list(left.items()):
                position = consumer.position(self._topic, partition)
                if window.end is not None and position is not None and position >= window.end:
                    self._finish(partition, left, consumer)

    async def _fetch(self, consumer: Consumer) -> list[ConsumerRecord]:
        """The next messages. A broker that is gone is waited for; who follows a topic is told."""
        return await retry(
            partial(self._try_to_fetch, consumer),
            timeout_ms=_RETRY_TIMEOUT_MS,
            setting="retry_timeout_ms",
        )

    async def _try_to_fetch(self, consumer: Consumer) -> list[ConsumerRecord]:
        try:
            # The first answer is not to wait for messages: it shows that there is a broker.
            batch = await consumer.fetch(max_wait_ms=0 if self._lost else None)
        except UNREACHABLE as error:
            if not self._lost:
                note(f"{error}. Trying again for up to {_RETRY_TIMEOUT_MS // 1000} s")
            self._lost = True
            raise
        if self._lost:
            note("connected again")
        self._lost = False
        return batch

    def _inside(
        self, batch: Iterable[ConsumerRecord], left: dict[int, Window], consumer: Consumer
    ) -> Iterable[str]:
        """The lines of the messages that are in their windows."""
        for record in batch:
            window = left.get(record.partition)
            if window is None:
                continue
            if _is_behind(record, window):
                self._finish(record.partition, left, consumer)
            else:
                yield self._line(record, self._append_time)

    def _finish(self, partition: int, left: dict[int, Window], consumer: Consumer) -> None:
        del left[partition]
        consumer.unassign(self._topic, partition)


def _is_behind(record: ConsumerRecord, window: Window) -> bool:
    if window.end is not None:
        return record.offset >= window.end
    if window.until_ms is None or record.timestamp_ms is None:
        return False
    return record.timestamp_ms >= window.until_ms


def _as_json(record: ConsumerRecord, append_time: bool) -> str:
    fields: dict[str, object] = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": json_time(record.timestamp_ms),
        "timestamp_type": record.timestamp_type,
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
    }
    if append_time:
        fields["append_time_ms"] = json_time(record.append_time_ms)
    if record.headers:
        fields["headers"] = json_headers(record.headers)
    return json_line(fields)


def _as_text(record: ConsumerRecord, append_time: bool) -> str:
    times = f"{shown_time(record.timestamp_ms):24}"
    if append_time:
        times += f"  {shown_time(record.append_time_ms):24}"
    place = f"{record.partition}:{record.offset}"
    key, value = shown_bytes(record.key), shown_bytes(record.value)
    return f"{times}  {place:>8}  {key}  {value}{shown_headers(record.headers)}"
