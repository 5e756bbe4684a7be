"""Spark's workers: garbage collection passes over what is there for good, and each warns of the
kernel's reference form."""

import os
import subprocess
import sys

import pytest

from horolog.compiled import PRICE
from horolog.protocol.records.kernel import FORM

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
