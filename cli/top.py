"""`horolog top`: live rates, lateness and lag by topic."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Annotated, Final, TypeVar

import typer

from ..client.administer.admin import Admin
from ..client.cluster.servers import Servers
from ..client.consume.consumer import Consumer
from ..clock import Clock, SystemClock
from ..protocol.api.log.list_offsets import LATEST
from ..protocol.errors import HorologError, UnknownTopicOrPartition
from ..times import TimeError, parse_length
from ..values import value_class
from .errors import WrongUsage, is_terminal
from .options import DEFAULT_SERVER, Json, Server, check_texts, complete_topic
from .output import AsIs, emit, json_line, shown_number, shown_span, shown_time, table

_AT_ONCE: Final = 32
"""Requests in flight at the same time."""

_SAMPLED: Final = 200
"""Partitions whose newest message is read in an interval, those with the most new messages; the
lateness of others is not looked at."""

_SAMPLE_BYTES: Final = 16 * 1024
_SAMPLE_WAIT_MS: Final = 100
_SHORTEST_MS: Final = 100

_COLUMNS: Final = ("topic", "messages/s", "messages", "lateness", "lag", "behind", "reader")

TopicPartition = tuple[str, int]

K = TypeVar("K")
T = TypeVar("T")


@value_class
class TopicRate:
    """What happened in one topic in an interval."""

    topic: str
    messages: int
    """New messages."""
    per_second: float
    lateness_s: float | None
    """Append time minus create time of the newest message, the largest of the partitions; None if
    there is no new message, or the server does not tell append times."""
    lag: int | None
    """Messages that the reader who is the furthest behind has not read; None without readers."""
    lag_s: float | None
    reader: str | None
    """Name under which that reader commits its positions."""


@value_class
class TopInterval:
    """The topics in one interval, the busiest first."""

    time_ms: int
    seconds: float
    topics: Sequence[TopicRate]


def top(
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC...]",
            help="Only these topics; all when not given.",
            autocompletion=complete_topic,
            callback=check_texts,
        ),
    ] = None,
    every: Annotated[
        str, typer.Option(metavar="DURATION", help="Length of an interval, from 100ms on.")
    ] = "2s",
    number: Annotated[
        int | None,
        typer.Option("-n", min=1, metavar="N", help="End after N intervals; else at Ctrl-C."),
    ] = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Show live rates, lateness and lag by topic, until Ctrl-C.

    The lateness is how long after its create time the newest message was appended. The lag is that
    of the reader (a consumer group, or a name of positions) that is the furthest behind. On a
    terminal the table is drawn anew after each interval, with the busiest topics that fit; else a
    table is printed each time. With --json an interval is one line: {"time_ms", "interval_s",
    "topics": [{"topic", "messages", "messages_per_s", "lateness_s", "lag", "lag_s", "reader"}]}.
    """
    watching = _Watching(server, topics or [], _every_ms(every) / 1000, SystemClock())
    show = _as_json if as_json else _drawing() if is_terminal(sys.stdout) else _as_text
    try:
        asyncio.run(watching.run(number, show))
    except KeyboardInterrupt:
        return


def _every_ms(text: str) -> int:
    try:
        every_ms = parse_length(text)
    except TimeError as error:
        raise WrongUsage(f"--every: {error}") from None
    if not _SHORTEST_MS <= every_ms <= 86_400_000:
        raise WrongUsage(f"--every {text}: it is from {_SHORTEST_MS} ms to a day, such as 2s")
    return every_ms


class _Watching:
    """Asks the server for the state of topics in each interval."""

    def __init__(
        self, server: Servers, topics: Sequence[str], interval_s: float, clock: Clock
    ) -> None:
        self._server = server
        self._wanted = topics
        self._interval_s = interval_s
        self._clock = clock
        self._few = asyncio.Semaphore(_AT_ONCE)

    async def run(self, number: int | None, show: Callable[[TopInterval], None]) -> None:
        """Show `number` intervals; without a number, until the command is interrupted."""
        async with Admin(self._server) as admin, self._sampler() as sampler:
            ends = await self._ends(admin)
            at = self._clock.monotonic()
            shown = 0
            while number is None or shown < number:
                wait_s = at + self._interval_s - self._clock.monotonic()
                await asyncio.sleep(max(wait_s, 0))
                before, since = ends, at
                ends, at = await self._ends(admin), self._clock.monotonic()
                show(await self._interval(admin, sampler, before, ends, at - since))
                shown += 1

    def _sampler(self) -> Consumer:
        return Consumer(
            self._server,
            append_times=not self._server.kafka,
            partition_max_bytes=_SAMPLE_BYTES,
            retry_timeout_ms=0,
            check_units=False,
        )

    async def _ends(self, admin: Admin) -> dict[TopicPartition, int | None]:
        """Return the next offset of each partition; None if the answer is an error. Raises the
        error if it is that of all partitions, as at a follower."""
        counts = await admin.list_topics()
        missing = next((name for name in self._wanted if name not in counts), None)
        if missing is not None:
            raise UnknownTopicOrPartition(f"there is no topic {missing}")
        names = self._wanted or list(counts)
        keys = [(name, number) for name in names for number in range(counts[name])]
        failures: list[HorologError] = []
        found = await self._all(lambda key: _end(admin, key), keys, failures)
        if keys and len(failures) == len(keys):
            error = failures[0]
            if not isinstance(error, UnknownTopicOrPartition):  # deleted meanwhile
                raise error
        return dict(zip(keys, found, strict=True))

    async def _all(
        self,
        question: Callable[[K], Awaitable[T]],
        keys: Iterable[K],
        failures: list[HorologError] | None = None,
    ) -> list[T | None]:
        """Ask about each key; None where the answer is an error, which is added to `failures`."""

        async def one(key: K) -> T | None:
            async with self._few:
                try:
                    return await question(key)
                except HorologError as error:
                    if failures is not None:
                        failures.append(error)
                    return None

        return await asyncio.gather(*map(one, keys))

    async def _interval(
        self,
        admin: Admin,
        sampler: Consumer,
        before: Mapping[TopicPartition, int | None],
        ends: Mapping[TopicPartition, int | None],
        seconds: float,
    ) -> TopInterval:
        new = new_messages(before, ends)
        lateness = await self._lateness(sampler, new, ends)
        lags = await self._lags(admin)
        messages: dict[str, int] = {}
        for (topic, _), count in new.items():
            messages[topic] = messages.get(topic, 0) + count
        rates = [
            TopicRate(
                topic,
                count,
                count / seconds,
                lateness.get(topic),
                *lags.get(topic, (None, None, None)),
            )
            for topic, count in messages.items()
        ]
        rates.sort(key=lambda rate: (-rate.messages, rate.topic))
        return TopInterval(self._clock.now_ms(), seconds, rates)

    async def _lateness(
        self,
        sampler: Consumer,
        new: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int | None],
    ) -> dict[str, float]:
        """Read the newest message of partitions with new ones; return the lateness by topic, in
        seconds."""
        if self._server.kafka:
            return {}
        busy = sorted((key for key in new if new[key]), key=lambda key: -new[key])[:_SAMPLED]
        for key in busy:
            sampler.assign(*key, offset=(ends[key] or 1) - 1)
        found: dict[str, float] = {}
        left = set(busy)
        while left:
            try:
                records = await sampler.fetch(max_wait_ms=_SAMPLE_WAIT_MS)
            except HorologError:
                break  # trimmed or deleted meanwhile: the next interval has a sample again
            if not records:
                break
            for key in {(record.topic, record.partition) for record in records} & left:
                # A busy partition must not keep the loop going for one that has no answer.
                sampler.unassign(*key)
                left.discard(key)
            for record in records:
                if record.append_time_ms is not None and record.timestamp_ms is not None:
                    late_s = max(record.append_time_ms - record.timestamp_ms, 0) / 1000
                    found[record.topic] = max(found.get(record.topic, 0.0), late_s)
        for key in left:
            sampler.unassign(*key)
        return found

    async def _lags(self, admin: Admin) -> dict[str, tuple[int, float | None, str]]:
        """Return by topic the lag in messages and in seconds of the reader that is the furthest
        behind, and its name."""
        try:
            names = await admin.position_names()
        except HorologError:
            return {}  # the user may not see them
        found: dict[str, tuple[int, float | None, str]] = {}
        for name, lags in zip(names, await self._all(admin.lag, names), strict=True):
            total: dict[str, tuple[int, float | None]] = {}
            for one in lags or ():
                if one.lag is not None:
                    messages, seconds = total.get(one.topic, (0, None))
                    known = [s for s in (seconds, one.lag.seconds) if s is not None]
                    total[one.topic] = messages + one.lag.messages, max(known, default=None)
            for topic, (messages, seconds) in total.items():
                worst = found.get(topic)
                if worst is None or (seconds or 0, messages) > (worst[1] or 0, worst[0]):
                    found[topic] = messages, seconds, name
        return found


def new_messages(
    before: Mapping[TopicPartition, int | None], ends: Mapping[TopicPartition, int | None]
) -> dict[TopicPartition, int]:
    """Return how many messages each partition with a known end got; 0 if its end before is not
    known. A partition that was added meanwhile was empty before."""
    return {
        key: max(end - start, 0) if (start := before.get(key, 0)) is not None else 0
        for key, end in ends.items()
        if end is not None
    }


async def _end(admin: Admin, key: TopicPartition) -> int:
    (latest,) = await admin.list_offsets(*key, [LATEST])
    return latest.offset or 0


def _as_json(interval: TopInterval) -> None:
    line = json_line(
        time_ms=interval.time_ms,
        interval_s=round(interval.seconds, 3),
        topics=[
            {
                "topic": rate.topic,
                "messages": rate.messages,
                "messages_per_s": round(rate.per_second, 3),
                "lateness_s": rate.lateness_s,
                "lag": rate.lag,
                "lag_s": rate.lag_s,
                "reader": rate.reader,
            }
            for rate in interval.topics
        ],
    )
    emit([line])


def _as_text(interval: TopInterval) -> None:
    emit([*_lines(interval, None), ""])


def _lines(interval: TopInterval, limit: int | None) -> list[str]:
    rows = [
        (
            rate.topic,
            f"{rate.per_second:,.1f}",
            f"{rate.messages:,}",
            shown_span(rate.lateness_s),
            shown_number(rate.lag),
            shown_span(rate.lag_s),
            rate.reader or "",
        )
        for rate in interval.topics[:limit]
    ]
    heading = f"{shown_time(interval.time_ms)}, {interval.seconds:.1f} s"
    return [heading, *table(_COLUMNS, rows, right=_COLUMNS[1:6])]


def _drawing() -> Callable[[TopInterval], None]:
    """Return what draws an interval over the one before, on a terminal."""
    from rich.console import Console

    console = Console(file=sys.stdout)

    def draw(interval: TopInterval) -> None:
        lines = _lines(interval, max(console.height - 5, 1))
        with console.capture() as capture:
            console.clear()
        emit([AsIs(capture.get() + lines[0]), *lines[1:]])

    return draw
