"""Reads a window of time, exactly the messages whose times are in it; and formats a message as a
line of output."""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from datetime import timedelta
from enum import StrEnum

from ..client.client import ReadFrom
from ..client.cluster.servers import Servers
from ..client.consume.consumer import Consumer
from ..client.consume.time_window import TimeWindow
from ..client.results import ConsumerRecord
from ..times import format_time
from ..values import value_class
from .broker_requests import FOLLOW_WAIT_MS, PARTITIONS_AGE_MS, Connected
from .errors import WrongUsage, note, print_error
from .options import AtEnd, AtTime, Position
from .output import (
    emit,
    json_bytes,
    json_headers,
    json_line,
    json_time,
    plural,
    shown_bytes,
    shown_headers,
    shown_size,
    shown_time,
)

Emit = Callable[[Iterable[str]], None]
"""Writes lines."""


@value_class
class RecordReading:
    """What `consume` reads, from where, and how messages are printed."""

    server: Servers
    read_from: ReadFrom
    topic: str
    partition: int | None
    """None for all partitions."""
    as_json: bool
    follow: bool
    append_time: bool
    """Whether lines include the append time."""
    read_committed: bool

    def consumer(self, *, check_units: bool = True) -> Consumer:
        """Return a consumer that raises errors at once, because `Connected` does the retries."""
        return Consumer(
            self.server,
            max_wait_ms=FOLLOW_WAIT_MS,
            append_times=self.append_time,
            read_committed=self.read_committed,
            retry_timeout_ms=0,
            metadata_max_age_ms=PARTITIONS_AGE_MS,
            check_units=check_units,
            read_from=self.read_from,
        )

    def line(self, record: ConsumerRecord) -> str:
        """Format a message as JSON or as text."""
        return self._as_json(record) if self.as_json else self._as_text(record)

    def _as_json(self, record: ConsumerRecord) -> str:
        fields: dict[str, object] = {
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": json_time(record.timestamp_ms),
            "timestamp_type": record.timestamp_type,
            "key": json_bytes(record.key),
            "value": json_bytes(record.value),
        }
        if self.append_time:
            fields["append_time_ms"] = json_time(record.append_time_ms)
        if record.headers:
            fields["headers"] = json_headers(record.headers)
        return json_line(fields)

    def _as_text(self, record: ConsumerRecord) -> str:
        times = f"{shown_time(record.timestamp_ms):24}"
        if self.append_time:
            times += f"  {shown_time(record.append_time_ms):24}"
        place = f"{record.partition}:{record.offset}"
        key, value = shown_bytes(record.key), shown_bytes(record.value)
        return f"{times}  {place:>8}  {key}  {value}{shown_headers(record.headers)}"


class WindowedBy(StrEnum):
    """The times that a window compares: the messages' own, or append times."""

    CREATE = "create"
    APPEND = "append"


@value_class
class ReplayWindow:
    """Window of time, from `from_ms` to `until_ms` (exclusive); None for an open side."""

    from_ms: int | None
    until_ms: int | None
    by: WindowedBy


def window_of(
    bounds: tuple[Position | None, Position | None], by: WindowedBy
) -> ReplayWindow | None:
    """Return the window of `--from` and `--until`; None if they give no time, or an offset. The
    first message as the start, and the next one as the end, are open sides.

    Raises WrongUsage for a window that ends before it begins.
    """
    start, until = bounds
    start = None if start is AtEnd.EARLIEST else start
    until = None if until is AtEnd.LATEST else until
    times = [bound for bound in (start, until) if bound is not None]
    if not times or not all(isinstance(bound, AtTime) for bound in times):
        return None
    from_ms, until_ms = (
        bound.timestamp_ms if isinstance(bound, AtTime) else None for bound in (start, until)
    )
    if from_ms is not None and until_ms is not None and until_ms < from_ms:
        raise WrongUsage(
            f"--until: {format_time(until_ms)} is before {format_time(from_ms)}, the time of --from"
        )
    return ReplayWindow(from_ms, until_ms, by)


class Replay:
    """Writes the messages of a window."""

    def __init__(
        self, reading: RecordReading, window: ReplayWindow, stats: bool, emit: Emit = emit
    ) -> None:
        """`emit` writes the lines; by default it prints them."""
        self._emit = emit
        self._reading = reading
        self._window = window
        self._stats = stats
        self._connected = Connected()

    async def run(self) -> None:
        """Write the window to its end, or until Ctrl-C, and then how much of the log was read."""
        reading = self._reading
        async with AsyncExitStack() as stack:
            consumer = await stack.enter_async_context(reading.consumer(check_units=False))
            window = consumer.window(
                reading.topic,
                self._window.from_ms,
                self._window.until_ms,
                partitions=None if reading.partition is None else [reading.partition],
                by=self._window.by.value,
                follow=timedelta.max if reading.follow else None,
            )
            if reading.follow:
                # Only Ctrl-C, which cancels this task, ends the window.
                stack.callback(self._print_costs, window)

            def fill(lost: bool) -> Awaitable[bool]:
                return window.fill(max_wait_ms=0 if lost else None)

            while await self._connected.ask(fill):
                self._emit(map(reading.line, iter(window.take, None)))
        if not reading.follow:
            self._print_costs(window)

    def _print_costs(self, window: TimeWindow) -> None:
        if self._stats:
            print_error(
                json_line(
                    messages=window.messages,
                    read_bytes=window.read_bytes,
                    skipped_bytes=window.skipped_bytes,
                    log_bytes=window.log_bytes,
                )
            )
            return
        note(
            f"{window.messages:,} {plural(window.messages, 'message')} in the window; "
            f"{shown_size(window.read_bytes)} of the log read, "
            f"{shown_size(window.skipped_bytes)} passed over"
        )
