"""The table of docs/security/guarding.md: each threat is held by something, and that is tested."""

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from horolog.config.broker_table import BROKER_SETTINGS

PAGE = Path("docs") / "security" / "guarding.md"
HEAD = "| who | tries | held by | tested by |\n|---|---|---|---|\n"
_TEST = re.compile(r"`([\w/]+\.py)(?:::(\w+))?`")
_SETTING = re.compile(r"`([a-z]+(?:\.[a-z]+)+)`")


class Row(NamedTuple):
    who: str
    tries: str
    held_by: str
    tested_by: str


def rows(page: str) -> list[Row]:
    table = page.partition(HEAD)[2].partition("\n\n")[0]
    return [Row(*(cell.strip() for cell in line.split("|")[1:-1])) for line in table.splitlines()]


def faults(row: Row, tests: Path, settings: set[str]) -> list[str]:
    """What is wrong with a row."""
    found = [f"{row.tries}: an empty cell" for cell in row if not cell]
    named = _TEST.findall(row.tested_by)
    if not named:
        found.append(f"{row.tries}: no test is named")
    for file, test in named:
        path = tests / file
        if not path.is_file():
            found.append(f"{row.tries}: there is no {file}")
        elif test and test not in _names(path):
            found.append(f"{row.tries}: there is no {test} in {file}")
        elif not any(name.startswith(("test_", "Test")) for name in _names(path)):
            found.append(f"{row.tries}: {file} has no tests")
    said = set(_SETTING.findall(f"{row.tries} {row.held_by}"))
    return found + [f"{row.tries}: there is no setting {setting}" for setting in said - settings]


def _names(path: Path) -> set[str]:
    body = ast.parse(path.read_text("utf-8")).body
    kinds = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
    return {node.name for node in body if isinstance(node, kinds)}


@pytest.fixture
def settings() -> set[str]:
    return set(BROKER_SETTINGS)


def test_each_threat_is_held_and_tested(root: Path, settings: set[str]) -> None:
    found = rows((root / PAGE).read_text("utf-8"))
    assert len(found) >= 20
    assert [fault for row in found for fault in faults(row, root / "tests", settings)] == []


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (Row("a", "b", "c", "`guard/test_none.py`"), "there is no guard/test_none.py"),
        (Row("a", "b", "c", "`guard/test_tls.py::test_none`"), "no test_none in guard/test_tls.py"),
        (Row("a", "b", "c", "`guard/conftest.py`"), "has no tests"),
        (Row("a", "b", "c", "somewhere"), "no test is named"),
        (Row("a", "b", "", "`guard/test_tls.py`"), "an empty cell"),
        (Row("a", "b", "`tls.magic`", "`guard/test_tls.py`"), "no setting tls.magic"),
    ],
)
def test_what_is_wrong_is_seen(root: Path, settings: set[str], row: Row, fault: str) -> None:
    (told,) = faults(row, root / "tests", settings)
    assert fault in told
