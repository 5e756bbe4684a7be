"""Runs of pytest in a process of its own, as in a project that has Horolog installed."""

import subprocess
import sys
from collections.abc import Callable, Mapping

import pytest

RunPytest = Callable[..., str]

INI = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings =
    error
    # How kafka-python opens its own schemas.
    ignore:(read_text|open_text) is deprecated. Use files:DeprecationWarning
"""


@pytest.fixture(scope="module")
def run_pytest(tmp_path_factory: pytest.TempPathFactory) -> RunPytest:
    """`run_pytest(sources, *options)` runs test modules, given by name, with warnings as errors;
    its output."""

    def run(sources: Mapping[str, str], *options: str) -> str:
        folder = tmp_path_factory.mktemp("project")
        for name, source in sources.items():
            (folder / f"{name}.py").write_text(source)
        (folder / "pytest.ini").write_text(INI)
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, *options], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
