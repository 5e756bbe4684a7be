"""The broker's events: each is a log line on standard error, and some are counted in metrics.

Events have stable names and keys. The logger is made here from the settings and belongs to one
broker; structlog's global configuration is neither used nor changed.

asyncio, uvloop and aiohttp use Python's `logging`; warnings, and errors that no caller can catch,
go to standard error. All of them become events here: in the format of the broker's log, and with
its limits, because clients can cause some of them as often as they like.
"""

import asyncio
import io
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import MappingProxyType, ModuleType
from typing import Any, Final, TextIO

from ..clock import Clock
from ..printable import printable
from ..protocol.errors import HorologError
from ..storage.events import Observer
from ..times import format_time
from .metrics.figures import Figures, count

_UNUSED: Final = "rich"
"""Module that structlog loads if it is installed, for coloured tracebacks. It takes 3 MB."""
_USER: Final = "structlog.dev"

LONGEST_MESSAGE: Final = 1000

BURST: Final = 20
"""The most lines of one event in one second; further lines are only counted. Clients can cause
events as fast as they like, and must not fill the disk with log lines."""

RARE_SECONDS: Final = 60.0

RARE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "http_request_failed": "kind",
        "http_request_refused": "reason",
        "library_error": "at",
        "library_warning": "at",
        "loop_error": "message",
    }
)
"""Events with at most one line in `RARE_SECONDS` for each value of the given field: libraries or
unknown clients cause these events, and the lines repeat."""

MAX_RARE: Final = 200
"""How many values of those fields have limits of their own; all further values share one."""

AUDIT: Final = frozenset(
    {
        "acl_changed",
        "quota_changed",
        "action_refused",
        "failures_not_shown",
        "refusals_not_shown",
        "settings_changed",
        "topic_changed",
        "user_changed",
    }
)
"""Events without a limit of lines: each is a change by a principal. For refusals and failures, the
audit has limits of its own."""

_LEVELS: Final = MappingProxyType({"debug": 10, "info": 20, "warning": 30, "error": 40})

LEVEL_OF: Final[Mapping[str, str]] = MappingProxyType(
    {
        "action_refused": "warning",
        "leader_epochs_unreadable": "error",
        "leader_not_followed": "warning",
        "leads_no_more": "warning",
        "leads_not": "warning",
        "directory_copied": "warning",
        "elected_with_loss": "warning",
        "etcd_not_reached": "warning",
        "etcd_refuses": "error",
        "partition_not_replicated": "error",
        "leader_cannot_read": "error",
        "promoted_with_loss": "warning",
        "replication_failed": "error",
        "topic_not_of_leader": "warning",
        "append_times_dropped": "warning",
        "append_times_unreadable": "warning",
        "checkpoint_ignored": "warning",
        "checksums_not_written": "warning",
        "clean_stop_doubted": "warning",
        "clock_behind_log": "warning",
        "cluster_id_not_stored": "warning",
        "clock_stepped": "warning",
        "connection_dropped": "warning",
        "connection_refused": "warning",
        "damaged_on_the_way": "warning",
        "deletion_failed": "warning",
        "http_request_refused": "warning",
        "disk_reserve_short": "warning",
        "index_rebuilt": "warning",
        "kernel_not_compiled": "warning",
        "kafka_port_taken": "warning",
        "library_error": "error",
        "library_warning": "warning",
        "limits_lowered": "warning",
        "loop_error": "error",
        "messages_past_retention": "warning",
        "metadata_log_missing": "error",
        "metadata_log_set_aside": "error",
        "metadata_not_applied": "error",
        "metadata_state_not_written": "warning",
        "metadata_unreadable": "error",
        "min_insync_unmet": "warning",
        "login_failed": "warning",
        "open_transaction_aborted": "warning",
        "partition_folder_missing": "error",
        "permissions_left": "warning",
        "port_unprotected": "warning",
        "failures_not_shown": "warning",
        "refusals_not_shown": "warning",
        "segment_damaged": "error",
        "segment_set_aside": "error",
        "segments_pinned": "warning",
        "stray_file": "warning",
        "stray_ignored": "warning",
        "sync_not_started": "error",
        "time_map_dropped": "warning",
        "tls_failed": "warning",
        "tls_files_refused": "warning",
        "token_keys_refused": "warning",
        "topics_file_broken": "error",
        "torn_tail_cut": "warning",
        "variables_ignored": "warning",
    }
)
"""Levels of events. An event that is not listed is an error if its name ends in `_failed`, else
information."""


def load_lean_log() -> None:
    """Hide `rich` from structlog while it is loaded in this process; other modules find `rich`.

    Not for a broker inside another program, which may want those tracebacks in its own log.
    """
    if not any(isinstance(finder, _NotForLog) for finder in sys.meta_path):
        sys.meta_path.insert(0, _NotForLog())


class _NotForLog:
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == _UNUSED and _is_loading(_USER):
            raise ModuleNotFoundError(f"{_USER} does without {_UNUSED}", name=name)
        return None


def _is_loading(name: str) -> bool:
    """Whether a module is half-way through its import."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


class LibraryLog(logging.Handler):
    """Turns each record of `logging` into an event."""

    def __init__(self, observe: Observer) -> None:
        super().__init__(logging.WARNING)
        self._observe = observe

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception as error:
            message = f"{record.msg!r} ({error})"
        _report(
            self._observe,
            "library_error" if record.levelno >= logging.ERROR else "library_warning",
            message,
            f"{record.name} {record.module}:{record.lineno}",
            record.exc_info[1] if record.exc_info else None,
        )


@contextmanager
def library_messages_to(observe: Observer, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Turn the messages of libraries in this process into events, until the `with` block ends."""

    def warned(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        text = f"{category.__name__}: {message}"
        _report(observe, "library_warning", text, f"{filename}:{lineno}")

    def unraisable(met: "sys.UnraisableHookArgs") -> None:
        # Deferred: this may be called at any point, even while a log line is written.
        text = f"{met.err_msg or 'exception ignored in'}: {met.object!r}"
        at = type(met.exc_value).__name__
        loop.call_soon_threadsafe(_report, observe, "library_error", text, at, met.exc_value)

    def thread_failed(met: "threading.ExceptHookArgs") -> None:
        name = met.thread.name if met.thread is not None else "?"
        text = f"thread {name} ended with an exception"
        _report(observe, "library_error", text, f"thread {name}", met.exc_value)

    handler = LibraryLog(observe)
    before = warnings.showwarning, sys.unraisablehook, threading.excepthook
    logging.getLogger().addHandler(handler)
    warnings.showwarning = warned
    sys.unraisablehook = unraisable
    threading.excepthook = thread_failed
    try:
        yield
    finally:
        warnings.showwarning, sys.unraisablehook, threading.excepthook = before
        logging.getLogger().removeHandler(handler)


def _report(
    observe: Observer, event: str, message: str, at: str, error: BaseException | None = None
) -> None:
    observe(event, message=message[:LONGEST_MESSAGE], at=at, error=error)


def level_of(event: str) -> str:
    """Return the level at which an event is logged."""
    return LEVEL_OF.get(event, "error" if event.endswith("_failed") else "info")


class Events:
    """Takes every event, from any thread: counts it, and logs it unless there are too many."""

    def __init__(
        self,
        figures: Figures,
        clock: Clock,
        *,
        log_format: str = "console",
        log_level: str = "info",
        stream: TextIO | None = None,
    ) -> None:
        """Without a `stream` nothing is logged."""
        self._figures = figures
        self._clock = clock
        self._log_format = log_format
        self._log_level = log_level
        self._stream = stream
        self._logger: Any = None
        # Reentrant: importing structlog may cause a warning, which is an event too.
        self._lock = threading.RLock()
        self._second = -1
        self._lines: dict[str, int] = {}
        self._rare_until: dict[tuple[str, object], float] = {}

    def __call__(self, event: str, /, **fields: object) -> None:
        with self._lock:
            counting = _COUNTED.get(event)
            if counting is not None:
                counting(self._figures, fields)
            if self._stream is None or not self._take_line(event, fields):
                return
            if self._logger is None:
                self._logger = _logger(self._clock, self._log_format, self._log_level, self._stream)
        error = fields.pop("error", None)
        if isinstance(error, BaseException):
            fields["error"] = str(error) or type(error).__name__
            if not isinstance(error, HorologError | OSError):
                # An expected error says what is wrong; only a surprise needs its traceback.
                fields["exc_info"] = error
        elif error is not None:
            fields["error"] = error
        self._logger.log(_LEVELS[level_of(event)], event, **fields)

    def _take_line(self, event: str, fields: Mapping[str, object]) -> bool:
        """Count a line against the limits of its event. Returns whether to log it."""
        if event in AUDIT:
            return True
        if event in RARE:
            return self._take_rare_line(event, fields.get(RARE[event]))
        second = int(self._clock.monotonic())
        if second != self._second:
            self._second = second
            self._lines.clear()
        lines = self._lines[event] = self._lines.get(event, 0) + 1
        if lines <= BURST:
            return True
        count(self._figures.suppressed_lines, event)
        return False

    def _take_rare_line(self, event: str, kind: object) -> bool:
        now = self._clock.monotonic()
        known = self._rare_until
        if (event, kind) not in known and len(known) >= MAX_RARE:
            kind = "others"
        if now < known.get((event, kind), now):
            count(self._figures.suppressed_lines, event)
            return False
        known[event, kind] = now + RARE_SECONDS
        return True


def _logger(clock: Clock, log_format: str, log_level: str, stream: TextIO) -> Any:
    # The import takes a tenth of a second, which would delay the start of a broker.
    import structlog

    def add_time(_: Any, __: str, fields: Any) -> Any:
        return {"time": format_time(clock.now_ms())} | fields

    # Without local variables: these contain users' messages, and may be large.
    last: list[Any]
    if log_format == "json":
        transformer = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        last = [
            structlog.processors.ExceptionRenderer(transformer),
            structlog.processors.JSONRenderer(default=str),
        ]
    else:
        colors = stream.isatty()
        last = [
            _escaped,
            structlog.dev.ConsoleRenderer(
                colors=colors,
                timestamp_key="time",
                exception_formatter=_traceback,
            ),
        ]
    return structlog.wrap_logger(
        structlog.PrintLogger(stream),
        processors=[structlog.processors.add_log_level, add_time, *last],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[log_level]),
        context_class=dict,
        cache_logger_on_first_use=False,
    )


def _escaped(_: Any, __: str, fields: Any) -> Any:
    """Return the fields without control characters: clients choose some of the texts, and must not
    control the terminal."""
    return {
        name: value if isinstance(value, int | float) or name == "exc_info" else _shown(value)
        for name, value in fields.items()
    }


def _shown(value: object) -> str:
    return printable(str(value))


def _traceback(target: TextIO, raised: Any) -> None:
    """Write a traceback without control characters, because its texts may come from clients."""
    from structlog.dev import plain_traceback

    text = io.StringIO()
    plain_traceback(text, raised)
    target.write("\n".join(printable(line) for line in text.getvalue().split("\n")))


Fields = dict[str, object]


def _rolled(figures: Figures, fields: Fields) -> None:
    count(figures.topic(str(fields["topic"])).rolls, str(fields["reason"]))


def _deleted(figures: Figures, fields: Fields) -> None:
    figures.topic(str(fields["topic"])).deleted_segments += 1


def _rebuilt(figures: Figures, fields: Fields) -> None:
    figures.topic(str(fields["topic"])).index_rebuilds += 1


def _torn(figures: Figures, fields: Fields) -> None:
    topic = figures.topic(str(fields["topic"]))
    topic.torn_tails += 1
    topic.torn_bytes += int(str(fields["cut_bytes"]))


def _segment_set_aside(figures: Figures, fields: Fields) -> None:
    figures.topic(str(fields["topic"])).segments_set_aside += 1


def _damaged(figures: Figures, fields: Fields) -> None:
    topic = str(fields["topic"])
    figures.topic(topic).damaged_segments += 1
    figures.damaged_partitions[topic, int(str(fields["partition"]))] = None


def _clock_behind(figures: Figures, fields: Fields) -> None:
    figures.topic(str(fields["topic"])).clock_behind += 1


def _clock_stepped(figures: Figures, fields: Fields) -> None:
    count(figures.clock_steps, str(fields["direction"]))


def _task_failed(figures: Figures, fields: Fields) -> None:
    count(figures.failed_passes, str(fields["task"]))


def _log_failed(figures: Figures, fields: Fields) -> None:
    figures.topic(str(fields["topic"])).failures += 1


_COUNTED: Final[Mapping[str, Callable[[Figures, Fields], None]]] = MappingProxyType(
    {
        "clock_ahead_of_last_use": _clock_stepped,
        "clock_behind_log": _clock_behind,
        "clock_stepped": _clock_stepped,
        "index_rebuilt": _rebuilt,
        "log_failed": _log_failed,
        "segment_damaged": _damaged,
        "segment_deleted": _deleted,
        "segment_rolled": _rolled,
        "segment_set_aside": _segment_set_aside,
        "task_failed": _task_failed,
        "torn_tail_cut": _torn,
    }
)
