"""The examples of docs/testing.md with frameworks, each in an environment of its own."""

import re
import site
from pathlib import Path

import pytest

from .installing import python_of
from .running import run

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)

RUN_PYTEST = """
import site
import sys
for folder in sys.argv[1].split(":"):
    site.addsitedir(folder)  # Behind the packages of the environment, which win.
import pytest
sys.exit(pytest.main(sys.argv[2:]))
"""


_LIMIT_SECONDS = 600
"""The first run installs the framework."""


@pytest.mark.timeout(_LIMIT_SECONDS)
@pytest.mark.parametrize(
    "framework", [pytest.param("faststream", marks=pytest.mark.ecosystem), "quixstreams"]
)
def test_the_example_with_a_framework(tmp_path: Path, framework: str) -> None:
    (example,) = [each for each in EXAMPLES if f"from {framework}" in each]
    (tmp_path / "test_example.py").write_text(example)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    folders = ":".join(site.getsitepackages())
    command = [python_of(framework), "-c", RUN_PYTEST, folders, "-p", "no:cacheprovider", tmp_path]
    run([*command, "--rootdir", tmp_path], tmp_path / "log", seconds=120)
