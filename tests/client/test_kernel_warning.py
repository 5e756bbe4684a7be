"""A client that runs on the kernel's reference form says so, and at what price."""

import os
import subprocess
import sys

import pytest

from horolog.compiled import PRICE, REMEDY
from horolog.protocol.records.kernel import FORM

PROGRAM = """
import horolog
for kind in (horolog.Producer, horolog.Consumer, horolog.Admin, horolog.Producer):
    kind("127.0.0.1:1")
"""


@pytest.mark.parametrize("form", ["compiled", "reference"])
def test_it_warns_once_a_process(form: str) -> None:
    if form != FORM == "reference":
        pytest.skip("the kernel is not compiled")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "HOROLOG_KERNEL": form},
        capture_output=True,
        check=True,
        text=True,
    )
    warned = [f"the kernel is not compiled: {PRICE}; {REMEDY}"] if form == "reference" else []
    assert done.stderr.splitlines() == warned
