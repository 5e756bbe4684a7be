"""The commands of `horolog pipeline`, put together; of them `doctor`, `env` and `package`: what
this machine has for Spark. Spark is imported only by those that run it."""

import os
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ...pipeline.java import NoJava
from ...pipeline.jobs.machine import Check, Level, checks, spark_environment, write_package
from ..errors import CommandFailed, WrongUsage
from ..options import DEFAULT_SERVER, Json, Server, group
from ..output import AsIs, emit, emit_object, json_line, table
from .bootstrap import bootstrap
from .failover import failover
from .lag import lag
from .latency import latency
from .replay import replay
from .spark import DEFAULT_MASTER, Conf, Master, spark_session
from .watch import watch

pipeline = group("Jobs between topics, files and clusters.")
pipeline.command()(replay)
pipeline.command()(latency)
pipeline.command()(bootstrap)
pipeline.command()(failover)
pipeline.command()(lag)
pipeline.command()(watch)


def doctor(
    start: Annotated[
        bool, typer.Option("--start", help="Start Spark too, and let a worker do something.")
    ] = False,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Look for what keeps jobs from running, and say what to do about it.

    Java, Python, packages, whether Spark's workers can import this package, and the broker. Exit
    code 1 when there is a problem; warnings leave it at 0.
    """
    found = list(checks(server, os.environ))
    if start and not any(one.level is Level.PROBLEM for one in found if one.name != "broker"):
        found += _started(master, conf)
    if as_json:
        emit(json_line(asdict(one)) for one in found)
    else:
        rows = [(one.name, one.level.value, one.found) for one in found]
        emit(table(("check", "", "found"), rows))
        emit(f"To do: {one.fix}" for one in found if one.fix)
    if any(one.level is Level.PROBLEM for one in found):
        raise typer.Exit(1)


def env(as_json: Json = False) -> None:
    """Print the variables that spark-submit needs: eval "$(horolog pipeline env)"."""
    try:
        variables = spark_environment(os.environ)
    except NoJava as error:
        raise CommandFailed(str(error)) from None
    if as_json:
        emit_object(variables)
    else:
        emit(AsIs(f"export {name}={shlex.quote(value)}") for name, value in variables.items())


def package(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="Where to: horolog.zip.")],
) -> None:
    """Write this package as a file that spark-submit sends to workers without it: --py-files FILE.

    What the package needs (pyarrow and others) must be installed there. All of it runs as plain
    Python: jobs that read small messages take two to three times as long as with Horolog installed.
    """
    if target.suffix != ".zip":
        raise WrongUsage(f"{target}: Spark takes a package from a .zip file")
    try:
        write_package(target)
    except OSError as error:
        raise CommandFailed(f"{target} cannot be written: {error.strerror or error}") from None
    emit([f"wrote {target}"])


def _started(master: str, conf: list[str] | None) -> Iterator[Check]:
    try:
        with spark_session(master, conf) as spark:
            (name,) = spark.sparkContext.parallelize([0], 1).map(_imported).collect()
            yield Check("spark", Level.GOOD, f"{spark.version} ran a task that imported {name}")
    except CommandFailed as error:
        yield Check("spark", Level.PROBLEM, str(error))


def _imported(_: int) -> str:
    """Runs in a worker."""
    from ...pipeline import source

    return source.__name__


pipeline.command()(doctor)
pipeline.command()(env)
pipeline.command()(package)
