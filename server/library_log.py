"""Warnings and errors of libraries, as events of the broker.

asyncio, uvloop and aiohttp use Python's `logging`; warnings, and errors that no caller can catch,
go to standard error. All of them become events here: in the format of the broker's log, and with
its limits, because clients can cause some of them as often as they like.
"""

import asyncio
import logging
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final, TextIO

from ..storage.events import Observer

_UNUSED: Final = "rich"
"""Module that structlog loads if it is installed, for coloured tracebacks. It takes 3 MB."""
_USER: Final = "structlog.dev"

LONGEST_MESSAGE: Final = 1000


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
