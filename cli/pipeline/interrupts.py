"""Ctrl-C in a command that waits for Spark."""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_PY4J: Final = ("java_gateway", "clientserver")


@contextmanager
def own_interrupts() -> Iterator[None]:
    """Have Ctrl-C interrupt this process as it did before, whatever the block puts in its place.

    PySpark's own answer to it asks Spark something in the middle of another question to Spark, and
    both fail.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


@contextmanager
def silent_gateway() -> Iterator[None]:
    """Whoever asks Spark handles what goes wrong: Py4J need not log it, with its traceback, too."""
    root = logging.getLogger()
    if root.handlers:  # the log has been set up, by whoever wants it
        yield
        return
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.addFilter(lambda record: record.module not in _PY4J)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
