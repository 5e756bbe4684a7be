"""Runs Spark for commands: starts it late, prints its errors in one line, ends it on Ctrl-C."""

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
        help="Spark master: local[*], or the address of a cluster; by default spark-submit's.",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark. May be repeated."),
]
DEFAULT_MASTER: Final = "local[*]"

_MASTERS: Final = ("local", "spark://", "k8s://")
"""Prefixes of Spark's masters, besides `yarn`. Checked here, because Spark reports a wrong master
only as a Java process that ended."""


class Interrupts:
    """Records Ctrl-C, so that it can take effect later."""

    def __init__(self) -> None:
        self._came = False

    def note(self, *_: object) -> None:
        """Record the first Ctrl-C; raise KeyboardInterrupt at the second."""
        if self._came:
            raise KeyboardInterrupt
        self._came = True

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if Ctrl-C came."""
        if self._came:
            raise KeyboardInterrupt


@contextmanager
def own_interrupts() -> Iterator[Interrupts]:
    """Defer Ctrl-C during the block, and afterwards restore the handler of Ctrl-C that the block
    may have replaced.

    If Ctrl-C interrupted the start of Spark, the Java that is starting could not report its address
    and would never end. PySpark's own handler of Ctrl-C sends a request to Spark in the middle of
    another request, and both fail.
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
    """Run `ask`, a request to Spark that may take for ever, in a thread, so that Ctrl-C does not
    interrupt a request.

    When the wait ends or is interrupted, `give_up` is called, which makes Spark answer. Raises what
    `ask` raises.
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
            # With a time-out, because a signal just before the wait begins does not interrupt it.
            thread.join(_LOOK_SECONDS)
    finally:
        give_up()
        thread.join()
    if failures:
        raise failures[0]


@contextmanager
def whole_answers() -> Iterator[None]:
    """If Ctrl-C interrupts the block in the middle of a request to Spark, close the connection of
    this thread, so that its next request does not get the answer to the interrupted one."""
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
    """Keep Py4J from logging errors with a traceback: the caller of Spark handles them."""
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
    """Make a path absolute if Spark uses it on this machine, because its Java may run in another
    folder. A path with a scheme, or for a cluster, stays unchanged."""
    return os.path.abspath(path) if of_this_machine(path, master) else path


def of_this_machine(path: str, master: str) -> bool:
    """Whether Spark uses the same files for a path as this process."""
    return master.startswith("local") and not submitted(os.environ) and ":" not in path


@contextmanager
def spark_session(master: str, conf: list[str] | None) -> Iterator[SparkSession]:
    """Provide a Spark session. Errors of Spark become CommandFailed. A session that was running
    before is used, and left running."""
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
    """Return settings that keep Spark quiet: progress of stages only on a terminal, no web page,
    and a log only on request."""
    progress = "true" if sys.stderr.isatty() else "false"
    quiet = {"spark.ui.showConsoleProgress": progress, "spark.ui.enabled": "false"}
    if submitted(os.environ):
        return quiet | {"spark.log.level": "ERROR"}
    log = Path(__file__).with_name("log4j2.properties").as_uri()
    return quiet | {"spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={log}"'}


@contextmanager
def _reported_once() -> Iterator[None]:
    """Keep PySpark from logging the errors that it raises: the command reports them once."""
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
    """Return the message of an error in a task or in planning, without the lines of Spark."""
    lines = [line.strip() for line in text.splitlines()]
    ours = [line for line in lines if line.startswith("horolog.") and ": " in line]
    if ours:
        return ours[-1].partition(": ")[2]
    found = [line for line in lines if line and not line.startswith(("at ", "File "))]
    return found[0] if found else "Spark failed"
