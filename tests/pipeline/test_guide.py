"""docs/pipeline.md shows what really happens."""

import contextlib
import io
import os
import re
import runpy
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from unittest import mock

from pyspark.sql import SparkSession

from horolog.cli.main import run as run_command
from horolog.tests.pages.shell import Shell, blocks, commands, comparable

PAGE = "pipeline.md"
SUBMITTED = "submit"
"""The block with a Spark of its own, which has a test of its own."""


def without_lag(text: str) -> str:
    return re.sub(r'"lag_s": [0-9.]+', '"lag_s": SOME', comparable(text))


class SparkShell(Shell):
    """Runs jobs in this process, on the Spark of the tests: starting one takes ten seconds."""

    def _output(self, command: str) -> list[str]:
        program, *arguments = shlex.split(command)
        if program == "python":
            with mock.patch.object(sys, "argv", arguments):
                return self._here(lambda: runpy.run_path(arguments[0], run_name="__main__"))
        if (program, *arguments[:1]) == ("horolog", "pipeline"):
            return self._here(lambda: run_command(arguments))
        return super()._output(command)

    def _here(self, work: Callable[[], object]) -> list[str]:
        out = io.StringIO()
        environment: Mapping[str, str] = self._environment()
        with (
            contextlib.chdir(self.folder),
            mock.patch.dict(os.environ, environment),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(out),
        ):
            work()
        return out.getvalue().splitlines()


def test_the_page_shows_what_happens(spark: SparkSession, tmp_path: Path) -> None:
    session = blocks(PAGE)
    assert len(session) > 5
    with SparkShell(tmp_path) as shell:
        for name, written in session.items():
            if "." in name:
                (tmp_path / name).write_text(written)
            elif name != SUBMITTED:
                assert commands(written)
                assert without_lag(shell.run(written)) == without_lag(written), name
