"""The tour of the demo: a search by time, a window, counts by time, a refused message, latencies,
and commands to type next."""

import asyncio
import shlex
import shutil
import sys
import textwrap
import urllib.request
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain, count, pairwise
from pathlib import Path
from typing import Final

from ...client.administer.admin import Admin
from ...client.consume.consumer import Consumer
from ...client.consume.time_window import TimeWindow
from ...client.produce.producer import Producer
from ...client.results import ConsumerRecord, Found
from ...clock import SystemClock
from ...config.address import join_address, split_address
from ...printable import printable
from ...protocol.api.log.list_offsets import EARLIEST, LATEST
from ...protocol.errors import InvalidTimestamp
from ...protocol.records.messages.sets import NewRecord
from ...server.network.ports import Addresses
from ..errors import CommandFailed, OutputClosed, is_terminal
from ..histogram import bars
from ..output import AsIs, emit, plural, shown_bytes, shown_size, shown_time
from .feed import (
    History,
    ensure_topic,
    find_history,
    not_yet_stored,
    read_all,
    sample_load,
    send_all,
)

_NEVER_MS: Final = 1 << 63
_DAY_MS: Final = 86_400_000
_YEAR_MS: Final = 365 * _DAY_MS

_LENGTHS_MS: Final = (
    *(1000, 10_000, 60_000, 600_000, 3_600_000, 6 * 3_600_000),
    *(_DAY_MS, 7 * _DAY_MS, 30 * _DAY_MS, 91 * _DAY_MS, _YEAR_MS),
)
"""Lengths of intervals that counts may have."""

_WIDTH_MAXIMUM: Final = 100
_INDENT: Final = "   "
_HEAD_COLUMNS: Final = 34
"""Columns of a line that offset and time of a message take."""

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}

LOAD_TOPIC: Final = "demo-load"
STRICT_TOPIC: Final = "demo-strict"
CLICKS_TOPIC: Final = "demo-clicks"
_CLICKS_MS: Final = 1_479_132_000_000  # 2016-11-14T14:00:00Z
_CLICK_MINUTES: Final = (1, 3, 2, 9, 4, 5, 8)
_STRICT_MS: Final = 60_000

_HISTORY_SETTINGS: Final = {
    "message.timestamp.type": "CreateTime",
    "retention.ms": "-1",
    # Times jump back and forth by years, and each jump would roll a segment.
    "segment.ms": str(100 * 365 * 86_400_000),
}

_READ_MAXIMUM: Final = 200_000
_REPLAYED_MESSAGES: Final = 200
_LINES_SHOWN: Final = 6
_BARS: Final = 12
_BAR_WIDTH: Final = 30
_HTTP_TIMEOUT_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class Disorder:
    """How far messages are out of order."""

    late: int
    """Number of messages that are older than a message before them."""
    furthest_ms: int
    """The largest difference to a newer message before one."""


@dataclass(frozen=True, slots=True)
class SeenWindow:
    """A window of time, and the offsets that searches by its start and end time find."""

    start_ms: int
    end_ms: int
    start: int
    end: int


def time_of(record: ConsumerRecord) -> int:
    """Return the time of a message; -1, before every time, if it has none."""
    return -1 if record.timestamp_ms is None else record.timestamp_ms


def disorder(records: Sequence[ConsumerRecord]) -> Disorder:
    """Measure how far messages, in offset order, are out of order."""
    late = furthest_ms = 0
    newest_ms = -1
    for record in records:
        time_ms = time_of(record)
        if 0 <= time_ms < newest_ms:
            late += 1
            furthest_ms = max(furthest_ms, newest_ms - time_ms)
        newest_ms = max(newest_ms, time_ms)
    return Disorder(late, furthest_ms)


def first_of_their_time(records: Sequence[ConsumerRecord]) -> list[ConsumerRecord]:
    """Return the messages that are newer than all before them. Only these can be the result of a
    search by time."""
    found: list[ConsumerRecord] = []
    newest_ms = -1
    for record in records:
        if time_of(record) > newest_ms:
            found.append(record)
            newest_ms = time_of(record)
    return found


def moment_to_ask_for(records: Sequence[ConsumerRecord]) -> int:
    """Return a time for which the search finds a message near the middle, rounded to seconds if
    that finds the same message. `records` must hold a message with a time.
    """
    candidates = first_of_their_time(records)
    middle = records[len(records) // 2].offset
    best = min(range(len(candidates)), key=lambda i: abs(candidates[i].offset - middle))
    time_ms = time_of(candidates[best])
    before_ms = time_of(candidates[best - 1]) if best else -1
    rounded_ms = time_ms // 1000 * 1000
    return rounded_ms if rounded_ms > before_ms else time_ms


def window_to_replay(records: Sequence[ConsumerRecord], messages: int) -> SeenWindow | None:
    """Return the window whose offsets span nearest to `messages` messages; None if no two times
    differ. If there are windows that differ from the range of offsets found for their two times, it
    is one of these.
    """
    candidates = first_of_their_time(records)
    misplaced = _Misplaced(records, candidates)
    best: SeenWindow | None = None
    for first, last in sorted(
        _spans(candidates, messages),
        key=lambda span: abs(candidates[span[1]].offset - candidates[span[0]].offset - messages),
    ):
        start, end = candidates[first], candidates[last]
        differs = misplaced.any_in(first, last)
        if best is None or differs:
            best = SeenWindow(time_of(start), time_of(end), start.offset, end.offset)
        if differs or not misplaced:
            break
    return best


class _Misplaced:
    """Messages that make a range of offsets differ from a window: a message with an older time than
    one before it, or without a time. A window is named by the two candidates at its bounds."""

    def __init__(
        self, records: Sequence[ConsumerRecord], candidates: Sequence[ConsumerRecord]
    ) -> None:
        """`candidates` are the records that are newer than all before them."""
        times = [time_of(record) for record in candidates]
        self._times = times
        self._oldest = [_NEVER_MS] * len(times)
        """The oldest time between a candidate and the next one, by candidate."""
        self._latest = [-1] * len(times)
        """The last candidate before a message whose time lies between a candidate and the next one,
        by the latter candidate."""
        gap = -1
        for record in records:
            if gap + 1 < len(times) and record.offset == candidates[gap + 1].offset:
                gap += 1
            elif gap >= 0:
                time_ms = time_of(record)
                self._oldest[gap] = min(self._oldest[gap], time_ms)
                place = bisect_right(times, time_ms) - 1
                if place >= 0:
                    self._latest[place] = gap

    def __bool__(self) -> bool:
        """Whether a window can differ."""
        return any(
            oldest < time_ms for oldest, time_ms in zip(self._oldest, self._times, strict=True)
        )

    def any_in(self, first: int, last: int) -> bool:
        """Whether the range of offsets has a message of another time, or lacks one of the
        window."""
        return (
            min(self._oldest[first:last]) < self._times[first]
            or max(self._latest[first:last]) >= last
        )


def intervals_to_count(records: Sequence[ConsumerRecord], most: int) -> tuple[int, int, int]:
    """Return start, end and length, in ms, of at most `most` intervals of a round length that
    cover the times of all messages. `records` must hold a message with a time.
    """
    times = [time_of(record) for record in records if time_of(record) >= 0]
    first_ms, last_ms = min(times), max(times)
    years = max((last_ms - first_ms) // (most * _YEAR_MS), 2)  # fewer are too short
    for length_ms in chain(_LENGTHS_MS, map(_YEAR_MS.__mul__, count(years))):
        start = first_ms // length_ms
        end = last_ms // length_ms + 1
        if end - start <= most:
            break
    return start * length_ms, end * length_ms, length_ms


def _spans(candidates: Sequence[ConsumerRecord], messages: int) -> list[tuple[int, int]]:
    """Pair each candidate with the next one, and with the first that is at least `messages`
    offsets later."""
    spans = list(pairwise(range(len(candidates))))
    last = 0
    for first, start in enumerate(candidates):
        while last < len(candidates) and candidates[last].offset < start.offset + messages:
            last += 1
        if last < len(candidates):
            spans.append((first, last))
    return spans


class Paper:
    """Prints the tour: numbered sections of sentences, quoted lines and commands."""

    def __init__(self) -> None:
        self._colours = is_terminal(sys.stdout)
        self._width = min(shutil.get_terminal_size().columns, _WIDTH_MAXIMUM)
        self._sections = 0

    def section(self, title: str) -> None:
        """Print the numbered title of a section."""
        self._sections += 1
        self._print([f"{self._sections}. {title}"], "bold cyan", apart=True)

    def say(self, text: str) -> None:
        """Print sentences, wrapped."""
        self._print(textwrap.wrap(text, self._width - len(_INDENT)), "")

    def quote(self, lines: Iterable[str], style: str = "green") -> None:
        """Print messages or metrics, a line each; the middle of a line that is too long is left
        out."""
        room = self._width - len(_INDENT) - 2
        self._print((f"  {_clipped(line, room)}" for line in lines), style)

    def error(self, text: str) -> None:
        """Print the text of an error, wrapped."""
        self.quote(textwrap.wrap(text, self._width - len(_INDENT) - 2), "red")

    def command(self, command: str, meaning: str) -> None:
        """Print a command to type, unwrapped, and its meaning."""
        self._print([f"# {meaning}"], "dim")
        self._print([command], "bold")

    def close(self, text: str) -> None:
        """Print the last line of the tour."""
        self._print([text], "bold", apart=True)

    def _print(self, lines: Iterable[str], style: str, *, apart: bool = False) -> None:
        """Print lines, indented; with `apart` not indented and after an empty line."""
        if apart:
            emit([""])
        shown = [("" if apart else _INDENT) + line for line in lines]
        if not self._colours:
            emit(shown)
            return
        from rich.console import Console
        from rich.text import Text

        console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        with console.capture() as capture:
            for line in shown:
                console.print(Text(printable(line), style=style))
        emit([AsIs(capture.get().removesuffix("\n"))])


def _clipped(line: str, room: int) -> str:
    """Leave out the middle of a line longer than `room`. The end is kept, because a file's name is
    there."""
    if len(line) <= room:
        return line
    head = min(_HEAD_COLUMNS, room // 2)
    return f"{line[:head]}...{line[head + 3 - room :]}"


class Commands:
    """Writes commands that work as printed, in the folder where the demo was started."""

    def __init__(self, program: Sequence[str], address: str) -> None:
        """`program` starts horolog; `address` is the broker's."""
        self._program = list(program)
        self._address = address

    def client(self, *arguments: str) -> str:
        """Return a command that connects to the broker."""
        return self.local(*arguments, "--server", self._address)

    def local(self, *arguments: str) -> str:
        """Return a command that needs no broker."""
        return shlex.join([*self._program, *arguments])


def program_started_as(argv0: str) -> list[str]:
    """Return the shortest command line that starts this program again, from its `sys.argv[0]`."""
    path = Path(argv0)
    if path.name == "__main__.py":
        return [_shortest(Path(sys.executable)), "-m", "horolog"]
    found = shutil.which(path.name)
    if found is not None and Path(found).absolute() == path.absolute():
        return [path.name]
    return [_shortest(path)]


def reachable(address: str) -> str:
    """Return the address to connect to for a listener; a wildcard address becomes loopback."""
    host, port = split_address(address)
    return join_address(_EVERYWHERE.get(host, host), port)


def _shortest(path: Path) -> str:
    absolute = path.absolute()
    if not absolute.is_relative_to(Path.cwd()):
        return str(absolute)
    relative = str(absolute.relative_to(Path.cwd()))
    return relative if "/" in relative else f"./{relative}"


class Tour:
    """The tour; runs beside a broker until it is cancelled."""

    def __init__(
        self, addresses: Addresses, data_dir: Path, folder: Path | None, program: Sequence[str]
    ) -> None:
        self._address = reachable(addresses.native)
        self._http = None if addresses.http is None else reachable(addresses.http)
        self._data_dir = data_dir
        self._folder = folder
        self._commands = Commands(program, self._address)
        self._paper = Paper()
        self._load_stored = asyncio.Event()

    async def run(self) -> None:
        """Send the messages, print the tour, and go on sending samples of the load."""
        async with (
            Admin(self._address, check_units=False) as self._admin,
            Producer(self._address, check_units=False) as self._producer,
        ):
            await ensure_topic(self._admin, LOAD_TOPIC, {"message.timestamp.type": "LogAppendTime"})
            sampling = asyncio.create_task(
                sample_load(self._producer, LOAD_TOPIC, self._load_stored)
            )
            try:
                # If standard output is closed, the broker goes on without the tour.
                with suppress(OutputClosed):
                    await self._show()
                await sampling
            finally:
                sampling.cancel()

    async def _show(self) -> None:
        history = await asyncio.to_thread(find_history, self._folder)
        if not history.records:
            raise CommandFailed(f"{self._folder}: there are no files to take times from")
        stored = await self._feed(history)
        moment_ms = moment_to_ask_for(stored)
        window = await asyncio.to_thread(window_to_replay, stored, _REPLAYED_MESSAGES)
        await self._offset_at(history, stored, moment_ms)
        self._paper.section("Replay a window of time")
        if window is None or not await self._window(history, stored, window):
            await self._clicks()
        await self._count(history, stored)
        await self._refusal(history)
        await self._latency()
        self._type_next(history, moment_ms, window)

    async def _feed(self, history: History) -> list[ConsumerRecord]:
        """Send the messages that are not stored yet; return all stored messages."""
        topic = history.topic
        await ensure_topic(self._admin, topic, _HISTORY_SETTINGS)
        stored = await self._read_on(topic, [])
        earlier = len(stored)
        rest = not_yet_stored(history.records, stored)
        clock = SystemClock()
        started = clock.monotonic()
        await send_all(self._producer, topic, rest)
        seconds = clock.monotonic() - started
        stored = await self._read_on(topic, stored)
        self._paper.section("Real messages with real times")
        self._paper.say(
            f"Topic {topic} holds {len(stored):,} messages: {history.what} (CreateTime). "
            + (f"{earlier:,} are from an earlier run. " if earlier else "")
            + (f"{len(rest):,} were sent just now, in {seconds:.1f} s. " if rest else "")
        )
        found = disorder(stored)
        self._paper.say(
            f"{found.late:,} of them are older than a message before them, by up to "
            f"{_span(found.furthest_ms)}: their times are out of order."
            if found.late
            else "Their times happen to be in order."
        )
        self._paper.say(
            f"Topic {LOAD_TOPIC} gets a sample of this host's load every second, with the time "
            "at which the broker appends it (LogAppendTime)."
        )
        return stored

    async def _read_on(self, topic: str, before: list[ConsumerRecord]) -> list[ConsumerRecord]:
        first, next_ = await self._admin.list_offsets(topic, 0, [EARLIEST, LATEST])
        start = before[-1].offset + 1 if before else first.offset or 0
        end = min(next_.offset or 0, start + _READ_MAXIMUM)
        return before + await read_all(self._address, topic, start, end)

    async def _find(self, topic: str, time_ms: int) -> int:
        found = await self._admin.find_offset(topic, 0, timestamp_ms=time_ms)
        if not isinstance(found, Found):
            raise CommandFailed(f"no message of {topic} is as late as {shown_time(time_ms)}")
        return found.offset

    async def _offset_at(
        self, history: History, stored: Sequence[ConsumerRecord], moment_ms: int
    ) -> None:
        self._paper.section(f"Which offset was it at {shown_time(moment_ms)}?")
        offset = await self._find(history.topic, moment_ms)
        self._paper.quote([_line(stored[offset - stored[0].offset])])
        late = sum(1 for one in stored if one.offset > offset and 0 <= time_of(one) < moment_ms)
        first = next(one.offset for one in stored if time_of(one) >= moment_ms)
        same = "the same" if first == offset else f"offset {first}"
        self._paper.say(
            f"Offset {offset:,}: the first message of that time or later, found through the time "
            f"index; reading all {len(stored):,} from the beginning gives {same}. Every message "
            f"before it is older, and so are {late:,} of those after it, which came late."
        )

    async def _window(
        self, history: History, stored: Sequence[ConsumerRecord], window: SeenWindow
    ) -> bool:
        """Replay a window of the history; return whether a range of offsets differs from it."""
        exact, asked = await self._read(history.topic, window.start_ms, window.end_ms)
        wanted = [one for one in stored if window.start_ms <= time_of(one) < window.end_ms]
        is_same = {one.offset for one in exact} == {one.offset for one in wanted}
        self._paper.say(
            f"From {shown_time(window.start_ms)} until {shown_time(window.end_ms)}: the window has "
            f"{len(exact):,} {plural(len(exact), 'message')}: all with a time in it, wherever they "
            "are in the log."
        )
        self._paper.quote(_line(record) for record in exact[:_LINES_SHOWN])
        more = len(exact) - _LINES_SHOWN
        if more > 0:
            self._paper.say(f"... and {more:,} more.")
        self._paper.say(
            f"Looking at the time of each of the {len(stored):,} messages gives "
            f"{'the same' if is_same else f'{len(wanted):,} others'}. The broker passed over "
            f"{shown_size(asked.skipped_bytes)} of the log and read {shown_size(asked.read_bytes)}."
        )
        return await self._offset_range(history.topic, window.start_ms, window.end_ms, exact)

    async def _clicks(self) -> None:
        """Replay a window of seven clicks, because in the history no range of offsets is wrong."""
        await ensure_topic(self._admin, CLICKS_TOPIC, _HISTORY_SETTINGS)
        if not await self._read_on(CLICKS_TOPIC, []):
            clicks = [
                NewRecord(b"click of 14:%02d" % minute, None, _CLICKS_MS + minute * 60_000)
                for minute in _CLICK_MINUTES
            ]
            await send_all(self._producer, CLICKS_TOPIC, clicks)
        start_ms, end_ms = (_CLICKS_MS + minute * 60_000 for minute in (5, 6))
        exact, _ = await self._read(CLICKS_TOPIC, start_ms, end_ms)
        self._paper.say(
            f"Topic {CLICKS_TOPIC} has seven clicks that came out of order. From "
            f"{shown_time(start_ms)} until {shown_time(end_ms)} its window has {len(exact)}:"
        )
        self._paper.quote(_line(record) for record in exact)
        await self._offset_range(CLICKS_TOPIC, start_ms, end_ms, exact)

    async def _read(
        self, topic: str, start_ms: int, end_ms: int
    ) -> tuple[list[ConsumerRecord], TimeWindow]:
        async with Consumer(self._address, check_units=False) as consumer:
            asked = consumer.window(topic, start_ms, end_ms)
            return [record async for record in asked], asked

    async def _offset_range(
        self, topic: str, start_ms: int, end_ms: int, exact: Sequence[ConsumerRecord]
    ) -> bool:
        """Compare a window with the range of offsets found for its two times; return whether they
        differ."""
        start, end = await self._find(topic, start_ms), await self._find(topic, end_ms)
        between, offsets = set(range(start, end)), {record.offset for record in exact}
        wrong, missing = len(between - offsets), len(offsets - between)
        found = f"{len(between):,} {plural(len(between), 'message')}"
        bounds = (
            f"from the first message of the one time or later, offset {start:,}, to the first of "
            f"the other, offset {end:,}"
        )
        self._paper.say(
            f"A range of offsets gets this window wrong. It goes {bounds}: {found}. Of other "
            f"times: {wrong:,}. Missing: {missing:,}."
            if wrong or missing
            else f"A range of offsets, {bounds}, has the same {found} here, because none came late."
        )
        return bool(wrong or missing)

    async def _count(self, history: History, stored: Sequence[ConsumerRecord]) -> None:
        start_ms, end_ms, every_ms = intervals_to_count(stored, _BARS)
        self._paper.section("Count by time")
        counted = await self._admin.count_by_time(
            history.topic, start_ms, end_ms, timedelta(milliseconds=every_ms)
        )
        self._paper.quote(bars(counted, _BAR_WIDTH))
        self._paper.say(
            f"All {counted.messages:,} messages from the first time to the last. The counts are "
            f"exact, and {shown_size(counted.read_bytes)} of {shown_size(counted.log_bytes)} were "
            "read for them: the rest is in the time maps beside the log."
        )

    async def _refusal(self, history: History) -> None:
        self._paper.section("A message refused for its time")
        await ensure_topic(
            self._admin,
            STRICT_TOPIC,
            {
                "message.timestamp.type": "CreateTime",
                "max.message.time.difference.ms": str(_STRICT_MS),
            },
        )
        oldest = min(history.records, key=lambda record: record.timestamp_ms)
        self._paper.say(
            f"Topic {STRICT_TOPIC} has max.message.time.difference.ms={_STRICT_MS}. The oldest "
            f"message of {history.topic} is sent to it:"
        )
        try:
            sent = await self._producer.send(
                STRICT_TOPIC, oldest.value, key=oldest.key, timestamp_ms=oldest.timestamp_ms
            )
        except InvalidTimestamp as error:
            self._paper.error(str(error))
        else:
            self._paper.say(f"It is new enough, and stored at offset {sent.offset}.")

    async def _latency(self) -> None:
        self._paper.section("How long messages take: append time minus create time")
        if self._http is None:
            self._paper.say("http.listen is off, so there is no /metrics to look at.")
            return
        await self._load_stored.wait()
        url = f"http://{self._http}/metrics"
        text = await asyncio.to_thread(_get, url)
        self._paper.say(f"From {url}, in seconds:")
        self._paper.quote(latency_lines(text, LOAD_TOPIC))

    def _type_next(self, history: History, moment_ms: int, window: SeenWindow | None) -> None:
        paper, client, topic = self._paper, self._commands.client, history.topic
        paper.section("Type next, in another terminal")
        moment = shown_time(moment_ms)
        paper.command(client("offsets", topic, "--at", moment), "which offset was it?")
        if window is not None:
            span = f"@{shown_time(window.start_ms)}:{shown_time(window.end_ms)}"
            paper.command(client("consume", topic, "--from", span), "the window above")
        last_minute = client("consume", LOAD_TOPIC, "--from", "@-1m", "--follow")
        paper.command(last_minute, "the last minute of the host's load, and what comes")
        paper.command(f"date | {client('produce', 'my-topic')}", "a message of your own")
        paper.command(client("topic", "describe", topic), "partitions and settings")
        log = self._data_dir / f"{topic}-0" / f"{0:020d}.timeindex"
        paper.command(self._commands.local("dump", str(log)), "the time index on disk")
        if self._http is not None:
            paper.command(f"curl http://{self._http}/metrics", "all metrics")
            paper.say(f"Or open http://{self._http}/ in a browser.")
        paper.close(f"The broker runs until Ctrl-C. Its data is in {self._data_dir}.")


def latency_lines(metrics: str, topic: str) -> Iterator[str]:
    """Yield the metrics of a topic's latency, without the buckets that count no more messages than
    the one before."""
    label = f'topic="{topic}"'
    counted = ""
    for line in metrics.splitlines():
        if label not in line or line.startswith("#") or "_created" in line:
            continue
        name, _, value = line.rpartition(" ")
        if name.startswith("horolog_latency_seconds_bucket"):
            if float(value) > 0 and value != counted:
                counted = value
                yield line
        elif name.startswith(("horolog_latency_seconds", "horolog_max_latency_seconds")):
            yield line


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=_HTTP_TIMEOUT_SECONDS) as response:
        text: bytes = response.read()
    return text.decode()


def _line(record: ConsumerRecord) -> str:
    content = shown_bytes(record.value)
    if record.key is not None:
        content = f"{shown_bytes(record.key)}  {content}"
    return f"{record.offset:>6}  {shown_time(record.timestamp_ms):24}  {content}"


def _span(milliseconds: int) -> str:
    """Format a duration in the unit that fits."""
    for unit, size_ms in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000)):
        if milliseconds >= 2 * size_ms:
            return f"{milliseconds / size_ms:,.0f} {unit}"
    return f"{milliseconds / 1000:.1f} seconds"
