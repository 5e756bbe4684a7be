"""Spark for the commands that need it: started late, its errors in one line, ended by Ctrl-C."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from ...pipeline.java import pip_install, submitted
from ...pipeline.spark_types import SparkSession
from ..errors import CommandFailed, WrongUsage, note
from ..options import name_values

_PY4J: Final = ("java_gateway", "clientserver")
_LOOK_SECONDS: Final = 0.2

Master = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="Where Spark runs: local[*], or a cluster's address; in spark-submit that one's.",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark's. May be repeated."),
]
DEFAULT_MASTER: Final = "local[*]"

_MASTERS: Final = ("local", "spark://", "k8s://")
"""How Spark's masters begin, beside `yarn`. Spark itself says only that its Java has ended."""


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


def seen_by_spark(path: str, master: str) -> str:
    """A path as Spark on this machine takes it, whichever folder its Java was started in; one with
    a scheme, or for a cluster, is left as it is."""
    return os.path.abspath(path) if of_this_machine(path, master) else path


def of_this_machine(path: str, master: str) -> bool:
    """Whether Spark looks for a path where this process does."""
    return master.startswith("local") and not submitted(os.environ) and ":" not in path


@contextmanager
def spark_session(master: str, conf: list[str] | None) -> Iterator[SparkSession]:
    """A session; what Spark reports is the command's failure. One that was there before is used,
    and left running."""
    given = name_values(conf or (), "--conf")
    if master != "yarn" and not master.startswith(_MASTERS):
        raise WrongUsage(
            f"--master: {master!r} is no place where Spark runs: write local[*], or a cluster's "
            "address as spark://HOST:PORT, k8s://HOST:PORT or yarn"
        )
    try:
        from pyspark.errors import PySparkException

        from ...pipeline.java import NoJava
        from ...pipeline.spark_session import running, session
    except ImportError as error:
        raise CommandFailed(
            f"this needs Spark ({error}): {pip_install('spark')}. `horolog pipeline doctor` looks "
            "for what else is missing"
        ) from None
    started = running() is None
    if started:
        given = _quiet() | given
        if sys.stderr.isatty():
            note(f"starting Spark ({master})")
    try:
        with _reported_once(), silent_gateway():
            with own_interrupts() as interrupts:
                spark = session("horolog pipeline", master=master, conf=given)
            try:
                interrupts.check()
                with whole_answers():
                    yield spark
            finally:
                if started:
                    spark.stop()
    except NoJava as error:
        raise CommandFailed(str(error)) from None
    except PySparkException as error:
        raise CommandFailed(one_line(str(error))) from error


def _quiet() -> dict[str, str]:
    """On a terminal Spark shows the progress of its stages; elsewhere that is only noise. Its log
    is shown on request."""
    progress = "true" if sys.stderr.isatty() else "false"
    quiet = {"spark.ui.showConsoleProgress": progress, "spark.ui.enabled": "false"}
    if submitted(os.environ):
        return quiet | {"spark.log.level": "ERROR"}
    log = Path(__file__).with_name("log4j2.properties").as_uri()
    return quiet | {"spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={log}"'}


@contextmanager
def _reported_once() -> Iterator[None]:
    """PySpark logs what it raises, with the place in our program; a command says it once."""
    from pyspark.logger import PySparkLogger

    loggers = [
        PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("DataFrame", "SQL")
    ]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def one_line(text: str) -> str:
    """What a task or the planning raised, without the ways of Spark around it."""
    lines = [line.strip() for line in text.splitlines()]
    ours = [line for line in lines if line.startswith("horolog.") and ": " in line]
    if ours:
        return ours[-1].partition(": ")[2]
    found = [line for line in lines if line and not line.startswith(("at ", "File "))]
    return found[0] if found else "Spark failed"
