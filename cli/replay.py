"""Reading a window of time: the messages whose times are in it, and no other."""

import sys
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from ..client.client import ReadFrom
from ..client.cluster.servers import Servers
from ..client.consume.consumer import Consumer
from ..client.consume.time_window import TimeWindow
from ..client.results import ConsumerRecord
from ..times import format_time
from .errors import WrongUsage
from .output import emit, json_line, shown_size
from .positions import AtOffset, AtTime, Position
from .record_lines import record_line
from .retrying import FOLLOW_WAIT_MS, Connected
from .streams import drop, note


class WindowedBy(StrEnum):
    """Which times a window is of."""

    CREATE = "create"
    APPEND = "append"


@dataclass(frozen=True, slots=True)
class Window:
    """The times from `from_ms` up to, without, `until_ms`; None is no bound."""

    from_ms: int | None
    until_ms: int | None
    by: WindowedBy


def window_of(bounds: tuple[Position | None, Position | None], by: WindowedBy) -> Window | None:
    """The window that `--from` and `--until` ask for; None when they say no time, or an offset too.

    Wrong usage when it ends before it begins.
    """
    if any(isinstance(bound, AtOffset) for bound in bounds) or bounds == (None, None):
        return None
    from_ms, until_ms = (
        bound.timestamp_ms if isinstance(bound, AtTime) else None for bound in bounds
    )
    if from_ms is not None and until_ms is not None and until_ms < from_ms:
        raise WrongUsage(
            f"--until: {format_time(until_ms)} is before {format_time(from_ms)}, the time of --from"
        )
    return Window(from_ms, until_ms, by)


class Replay:
    """Prints a window's messages."""

    def __init__(
        self,
        server: Servers,
        read_from: ReadFrom,
        topic: str,
        window: Window,
        as_json: bool,
        follow: bool,
        append_time: bool,
        read_committed: bool,
        stats: bool,
    ) -> None:
        self._server = server
        self._read_from = read_from
        self._topic = topic
        self._window = window
        self._as_json = as_json
        self._follow = follow
        self._append_time = append_time
        self._read_committed = read_committed
        self._stats = stats
        self._connected = Connected()

    async def run(self, partition: int | None) -> None:
        """Read it to its end, or until Ctrl-C, and say what it took."""
        async with AsyncExitStack() as stack:
            consumer = await stack.enter_async_context(
                Consumer(
                    self._server,
                    max_wait_ms=FOLLOW_WAIT_MS,
                    append_times=self._append_time,
                    read_committed=self._read_committed,
                    retry_timeout_ms=0,
                    check_units=False,
                    read_from=self._read_from,
                )
            )
            window = consumer.window(
                self._topic,
                self._window.from_ms,
                self._window.until_ms,
                partitions=None if partition is None else [partition],
                by=self._window.by.value,
                follow=timedelta.max if self._follow else None,
            )
            if self._follow:
                # It has no other end than Ctrl-C, which comes as a cancellation.
                stack.callback(self._tell, window)

            def fill(lost: bool) -> Awaitable[bool]:
                return window.fill(max_wait_ms=0 if lost else None)

            while await self._connected.ask(fill):
                emit(map(self._line, _ready(window)))
        if not self._follow:
            self._tell(window)

    def _line(self, record: ConsumerRecord) -> str:
        return record_line(record, as_json=self._as_json, append_time=self._append_time)

    def _tell(self, window: TimeWindow) -> None:
        if self._stats:
            _print_error(
                json_line(
                    {
                        "messages": window.messages,
                        "read_bytes": window.read_bytes,
                        "skipped_bytes": window.skipped_bytes,
                        "log_bytes": window.log_bytes,
                    }
                )
            )
            return
        plural = "" if window.messages == 1 else "s"
        note(
            f"{window.messages:,} message{plural} in the window; "
            f"{shown_size(window.read_bytes)} of the log read, "
            f"{shown_size(window.skipped_bytes)} passed over"
        )


def _ready(window: TimeWindow) -> list[ConsumerRecord]:
    """What has been fetched."""
    found = []
    while (record := window.take()) is not None:
        found.append(record)
    return found


def _print_error(line: str) -> None:
    """Print a line on standard error as it is."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except OSError:
        drop(sys.stderr)
