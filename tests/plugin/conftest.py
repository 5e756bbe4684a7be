"""Runs of pytest in a process of its own, as in a project that has Horolog installed."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

RunPytest = Callable[..., str]


@pytest.fixture
def run_pytest(tmp_path: Path) -> RunPytest:
    """`run_pytest(source, *options)` runs a test module, with warnings as errors; its output."""

    def run(source: str, *options: str) -> str:
        folder = tmp_path / "project"
        folder.mkdir()
        (folder / "test_it.py").write_text(source)
        (folder / "pytest.ini").write_text(
            "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
        )
        command = [sys.executable, "-m", "pytest", "-W", "error", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, *options], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
