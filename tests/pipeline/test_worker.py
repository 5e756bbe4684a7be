"""Spark's workers: garbage collection passes over what is there for good, each warns of the
kernel's reference form, and those of the tests connect in time."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from horolog.compiled import PRICE
from horolog.protocol.records.kernel import FORM

from .conftest import EARLY

PROGRAM = """
import gc
from horolog.pipeline.sink import settle
settle()
first = gc.get_freeze_count()
later = [[] for _ in range(100_000)]
settle()
print(first, gc.get_freeze_count() - first)
"""


@pytest.mark.parametrize(
    ("environment", "frozen"), [({"SPARK_REUSE_WORKER": "1"}, True), ({}, False)]
)
def test_what_is_there_is_settled_once_in_a_worker_and_nowhere_else(
    environment: dict[str, str], frozen: bool
) -> None:
    inherited = {name: text for name, text in os.environ.items() if name != "SPARK_REUSE_WORKER"}
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=inherited | environment,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    first, more = map(int, told.stdout.split())
    assert (first > 1000) is frozen
    assert more == 0


WORKERS = """
import os, sys
for _ in range(2):
    if not (worker := os.fork()):
        import horolog.pipeline.source, horolog.pipeline.sink, horolog
        horolog.Consumer("127.0.0.1:1")
        sys.exit()
    os.waitpid(worker, 0)
"""
"""As Spark's daemon makes them."""


@pytest.mark.parametrize("form", ["compiled", "reference"])
def test_each_worker_warns_once_of_the_reference_form(form: str) -> None:
    if form != FORM == "reference":
        pytest.skip("the kernel is not compiled")
    told = subprocess.run(
        [sys.executable, "-c", WORKERS],
        env={**os.environ, "HOROLOG_KERNEL": form},
        stderr=subprocess.PIPE,
        check=True,
        text=True,
    )
    assert told.stderr.count(PRICE) == (2 if form == "reference" else 0)


SLOW = """
import os, socket, sys
sys.stdin.readline()  # as imports that take long
with socket.socket(socket.AF_UNIX) as own:
    own.settimeout(15)
    own.connect(os.environ["PYTHON_WORKER_FACTORY_SOCK_PATH"])
    own.settimeout(None)
    own.sendall(b"here")
"""


def test_a_process_of_spark_connects_once_and_before_its_imports(tmp_path: Path) -> None:
    """Without a daemon: it has ten seconds, whatever else the machine does."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    (tmp_path / "pyspark" / "runner.py").write_text(SLOW)
    place = str(tmp_path / "socket")
    environment = {"PYTHONPATH": str(EARLY), "PYTHON_WORKER_FACTORY_SOCK_PATH": place}
    with socket.socket(socket.AF_UNIX) as waiting:
        waiting.bind(place)
        waiting.listen()
        with subprocess.Popen(
            [sys.executable, "-m", "pyspark.runner"],
            cwd=tmp_path,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
        ) as process:
            connection, _ = waiting.accept()
            process.communicate(b"now\n")
        with connection:
            assert connection.recv(100) == b"here"
        assert process.returncode == 0
        waiting.setblocking(False)
        with pytest.raises(BlockingIOError):
            waiting.accept()
