"""Checks whether this machine can run jobs that need Spark, without starting Spark. Also writes
this package as one file, for workers that lack it (`spark-submit --py-files`)."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile

from ...blocking import Admin
from ...client.cluster.servers import Servers
from ...protocol.errors import HorologError
from ..java import Java, NoJava, find_java, pip_install

_ROOT: Final = Path(__file__).parents[2]
_LEFT_OUT: Final = frozenset(("bench", "pyspark_horolog", "testing"))
"""Folders that no task needs."""

_INSTALL: Final = pip_install("spark")
_PACKAGES: Final[Mapping[str, tuple[tuple[int, int], tuple[int, int] | None]]] = {
    "pyspark": ((4, 2), (4, 4)),
    "pyarrow": ((18, 0), None),
}
"""Package -> first version that works, and first version that was not tried (None: no limit)."""

_IMPORTS: Final = "import horolog.pipeline.source"
_TIMEOUT_S: Final = 120


class Level(StrEnum):
    """Severity of a finding; jobs can run unless there is a problem."""

    GOOD = "good"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check."""

    name: str
    level: Level
    found: str
    fix: str = ""
    """A command, or what else to do; empty if there is nothing to do."""


def checks(server: str | Servers, environment: Mapping[str, str]) -> Iterator[Check]:
    """Check Java, Python, packages, workers and the broker, in this order."""
    yield java_check(environment)
    yield Check("python", Level.GOOD, f"{_dotted(sys.version_info[:3])} ({sys.executable})")
    for name in _PACKAGES:
        yield package_check(name)
    yield from worker_checks(environment)
    yield broker_check(server)


def java_check(environment: Mapping[str, str]) -> Check:
    """Check whether there is a Java that Spark runs on."""
    try:
        java = find_java(environment)
    except NoJava as error:
        found, _, _ = str(error).partition(". ")
        fix = f"install Java 17 or 21, or: {pip_install('spark', 'java')}"
        return Check("java", Level.PROBLEM, found, fix)
    return Check("java", Level.GOOD, f"{java.text} (from {java.origin}: {java.home})")


def package_check(name: str) -> Check:
    """Check whether a package is installed in a version that works."""
    least, beyond = _PACKAGES[name]
    try:
        found = version(name)
    except PackageNotFoundError:
        return Check(name, Level.PROBLEM, "is not installed", _INSTALL)
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    if numbers < least:
        return Check(name, Level.PROBLEM, f"{found}; {_dotted(least)} is needed", _INSTALL)
    if beyond is not None and numbers >= beyond:
        text = f"{found}; only versions below {_dotted(beyond)} were tried"
        return Check(name, Level.WARNING, text, _INSTALL)
    return Check(name, Level.GOOD, found)


def worker_checks(environment: Mapping[str, str]) -> Iterator[Check]:
    """Check whether the Python of Spark's workers can import this package.

    Without PYSPARK_PYTHON, `horolog.pipeline.session()` runs workers with this Python, and
    `spark-submit` with `python3` of the PATH; a failure of the latter is only a warning.
    """
    said = environment.get("PYSPARK_PYTHON")
    if said is not None:
        yield _worker_check("workers", said, environment, Level.PROBLEM)
        return
    yield _worker_check("workers", sys.executable, environment, Level.PROBLEM)
    on_path = shutil.which("python3", path=environment.get("PATH", ""))
    if on_path is not None and Path(on_path) != Path(sys.executable):
        yield _worker_check("workers of spark-submit", on_path, environment, Level.WARNING)


def broker_check(server: str | Servers) -> Check:
    """Check whether the broker answers."""
    try:
        with Admin(server, request_timeout_ms=10_000) as admin:
            topics = len(admin.list_topics())
    except (HorologError, OSError) as error:
        text = " ".join(str(error).split())
        fix = "start a broker with `horolog serve`, or name another one with --server"
        return Check("broker", Level.PROBLEM, text, fix)
    return Check("broker", Level.GOOD, f"{server} answers, with {topics} topics")


def spark_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that `spark-submit` needs. Raises NoJava."""
    java: Java = find_java(environment)
    found = {"JAVA_HOME": str(java.home), "PYSPARK_PYTHON": sys.executable}
    spec = find_spec("pyspark")
    if spec is not None and spec.origin is not None and "SPARK_HOME" not in environment:
        found["SPARK_HOME"] = str(Path(spec.origin).parent)
    return found


def _worker_check(name: str, python: str, environment: Mapping[str, str], level: Level) -> Check:
    fix = f"export PYSPARK_PYTHON={sys.executable}"
    try:
        done = subprocess.run(
            [python, "-c", _IMPORTS],
            # From the root, because the current folder may contain the package by chance.
            cwd=os.path.abspath(os.sep),
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Check(name, level, f"{python} does not start: {error}", fix)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return Check(name, level, f"{python} cannot import horolog.pipeline: {why}", fix)
    return Check(name, Level.GOOD, f"{python} can import horolog.pipeline")


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


def write_package(target: Path) -> None:
    """Write the sources of this package as a zip file.

    Python can import from the file, but it lacks the compiled kernel: a job that reads small
    messages takes two to three times as long as with the package installed. The packages that this
    one needs must be installed. Raises OSError.
    """
    with ZipFile(target, "w", ZIP_DEFLATED) as file:
        for source in _sources(_ROOT):
            file.write(source, Path("horolog", source.relative_to(_ROOT)))


def _sources(folder: Path) -> Iterator[Path]:
    """Yield the modules of a package and of its subpackages, which are folders with an
    `__init__.py`."""
    for path in sorted(folder.iterdir()):
        if path.suffix == ".py" and path.name != "setup.py":
            yield path
        elif (path / "__init__.py").exists() and path.name not in _LEFT_OUT:
            yield from _sources(path)
