"""Spark for the commands that need it: started late, its errors in one line."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ...pipeline.installing import pip_install
from ...pipeline.java import submitted
from ..errors import CommandFailed, WrongUsage
from ..options import name_values
from ..streams import note
from .interrupts import own_interrupts, silent_gateway, whole_answers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def seen_by_spark(path: str, master: str) -> str:
    """A path as Spark on this machine takes it, whichever folder its Java was started in; one with
    a scheme, or for a cluster, is left as it is."""
    return os.path.abspath(path) if of_this_machine(path, master) else path


def of_this_machine(path: str, master: str) -> bool:
    """Whether Spark looks for a path where this process does."""
    return master.startswith("local") and not submitted(os.environ) and ":" not in path


@contextmanager
def spark_session(master: str, conf: list[str] | None) -> Iterator["SparkSession"]:
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
