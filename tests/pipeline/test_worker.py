"""Garbage collection in Spark's workers: it passes over what is there for good."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import gc
from horolog.pipeline.worker import settle
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
