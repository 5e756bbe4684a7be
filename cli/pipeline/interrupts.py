"""Ctrl-C in a command that waits for Spark."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_PY4J: Final = ("java_gateway", "clientserver")
_LOOK_SECONDS: Final = 0.2


class Interrupts:
    """Ctrl-C that is put off."""

    def __init__(self) -> None:
        self._came = False

    def note(self, *_: object) -> None:
        """Take note of the first Ctrl-C; the second one does not wait."""
        if self._came:
            raise KeyboardInterrupt
        self._came = True

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if Ctrl-C came."""
        if self._came:
            raise KeyboardInterrupt


@contextmanager
def own_interrupts() -> Iterator[Interrupts]:
    """Have Ctrl-C interrupt this process as it did before, whatever the block puts in its place;
    one that comes during the block is put off.

    A Java that Spark has begun to start, and cannot report its address any more, would never end.
    PySpark's own answer to Ctrl-C asks Spark something in the middle of another question to Spark,
    and both fail.
    """
    handler = signal.getsignal(signal.SIGINT)
    interrupts = Interrupts()
    on_main_thread = threading.current_thread() is threading.main_thread()
    if on_main_thread and handler is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupts.note)
    try:
        yield interrupts
    finally:
        if on_main_thread:
            signal.signal(signal.SIGINT, handler)


def ask_in_thread(ask: Callable[[], object], give_up: Callable[[], object]) -> None:
    """Ask Spark something that may take for ever, and wait such that Ctrl-C disturbs no question.

    Where the wait is interrupted, `give_up` has Spark answer. Raises what `ask` raises.
    """
    from pyspark.util import InheritableThread

    failures: list[Exception] = []

    def asking() -> None:
        try:
            ask()
        except Exception as error:
            failures.append(error)

    thread = InheritableThread(target=asking, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            # A signal that comes just before a wait for a thread begins does not end it.
            thread.join(_LOOK_SECONDS)
    finally:
        give_up()
        thread.join()
    if failures:
        raise failures[0]


@contextmanager
def whole_answers() -> Iterator[None]:
    """Whatever interrupts the block in the middle of a question to Spark, the next question of this
    thread has a connection of its own, on which no answer is due."""
    from pyspark import SparkContext

    try:
        yield
    except KeyboardInterrupt:
        gateway = SparkContext._gateway
        connection = gateway and gateway._gateway_client.get_thread_connection()
        if connection is not None:
            connection.close()
        raise


@contextmanager
def silent_gateway() -> Iterator[None]:
    """Errors are handled by the caller of Spark: Py4J need not log them, with a traceback, too."""
    root = logging.getLogger()
    if root.handlers:  # the log is configured already
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
