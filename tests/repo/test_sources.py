"""Rules that hold for every source file."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

MOST_FILES_IN_A_FOLDER = 35

CLOCK_READERS = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"},
    "datetime": {"now", "utcnow", "today"},
}
"""Calls that read the machine's clock, by the module or class they are read from."""

MAY_READ_THE_CLOCK = re.compile(r"from +time +import|time *\. *[a-z]")
"""Other files need not be parsed, which takes longer than all else here."""

OUTPUT_BELONGS_TO = {"cli", "bench", "__main__.py"}

BANNED = {
    # Written in pieces, so that this file does not match.
    "a path of somebody's machine": r"/"
    r"(?:work/(?:main|shared|\.)|root/|home/\w|Users/\w|tmp/\w)",
    "a package registry": r"py"
    r"pi\.org|python"
    r"hosted|(?<!emit-)index"
    r"-url|(?<!emit-)trusted"
    r"-host",
    "a task number": r"\b[Ii]ssue" r" #?\d",
}


def test_folders_show_their_subject(sources: list[Path]) -> None:
    counts = Counter(path.parent for path in sources)
    assert {str(path): n for path, n in counts.items() if n > MOST_FILES_IN_A_FOLDER} == {}


def test_the_architecture_page_names_every_room(root: Path, modules: list[Path]) -> None:
    layout = (root / "docs" / "architecture.md").read_text("utf-8").split("```")[1]
    parts = dict(re.findall(r"^(\w+)/(.*(?:\n +.*)*)", layout, re.MULTILINE))
    rooms = {path.parts[:2] for path in modules if len(path.parts) > 2}
    assert {(part, room) for part, room in rooms if f"{room}/" not in parts.get(part, "")} == set()


def reads_the_clock(tree: ast.AST) -> list[int]:
    """Lines that read the machine's own clock instead of one passed in."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time" and node.level == 0:
            lines += [node.lineno for alias in node.names if alias.name in CLOCK_READERS["time"]]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            readers = CLOCK_READERS.get(node.value.id, set())
            lines += [node.lineno] if node.attr in readers else []
    return lines


def test_only_the_clock_module_reads_the_clock(root: Path, modules: list[Path]) -> None:
    wrong = []
    for path in modules:
        if path == Path("clock.py") or path.parts[0] == "bench":
            continue
        text = (root / path).read_text("utf-8")
        if MAY_READ_THE_CLOCK.search(text):
            wrong += [f"{path}:{line}" for line in reads_the_clock(ast.parse(text))]
    assert wrong == []


@pytest.mark.parametrize(
    "source",
    ["time.time()", "time.monotonic", "from time import time_ns", "datetime.now(UTC)"],
)
def test_the_clock_check_sees(source: str) -> None:
    assert MAY_READ_THE_CLOCK.search(source)
    assert reads_the_clock(ast.parse(source)) == [1]


def test_only_the_command_line_prints(root: Path, modules: list[Path]) -> None:
    wrong = []
    for path in modules:
        if path.parts[0] in OUTPUT_BELONGS_TO:
            continue
        text = (root / path).read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if "print" in text else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                wrong += [f"{path}:{node.lineno}"] if node.func.id == "print" else []
    assert wrong == []


def test_public_modules_say_what_they_are(root: Path, modules: list[Path]) -> None:
    texts = {path: (root / path).read_text("utf-8") for path in modules}
    silent = [
        str(path)
        for path, text in texts.items()
        if not text.startswith('"""') and ast.get_docstring(ast.parse(text)) is None
    ]
    assert silent == []


@pytest.mark.parametrize("what", BANNED)
def test_nothing_machine_specific_is_in_the_repository(
    root: Path, sources: list[Path], what: str
) -> None:
    pattern = re.compile(BANNED[what])
    found = []
    for path in sources:
        try:
            text = (root / path).read_text("utf-8")
        except UnicodeDecodeError:
            continue
        found += [
            f"{path}:{number}: {line.strip()[:80]}"
            for number, line in enumerate(text.splitlines(), 1)
            if pattern.search(line)
        ]
    assert found == []
