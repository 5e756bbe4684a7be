"""Rules that hold for every source file."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
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


STAMPING = {
    *("stamp", "set_append_time", "set_timestamp", "set_times_in_place", "take_unchanged"),
    *("convert_entries", "build_wrapper", "finish_batch", "give_append_time"),
    *("add_sets", "add_spans", "set_modified_ms"),
}
"""What writes a time into a message, beside it, or as that of a file."""

NO_TIME_OF_MESSAGES = {"DirectoryLock.__init__", "DirectoryLock.seen", "AppendTimes.add"}


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions of a module and methods of its classes, by their qualified names."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield f"{node.name}.{inner.name}", inner


def test_the_header_of_admission_names_every_place_where_a_time_is_stamped(
    root: Path, modules: list[Path]
) -> None:
    storage = [path for path in modules if path.parts[0] == "storage"]
    trees = {path: ast.parse((root / path).read_text("utf-8")) for path in storage}
    header = ast.get_docstring(trees[Path("storage/log/admission.py")]) or ""
    named = set(re.findall(r"`(\w+(?:\.\w+)?)`", header.split("| What |")[1]))
    known, stamping = set(), set()
    for tree in trees.values():
        for name, function in functions(tree):
            known.add(name)
            calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
            if any(getattr(call, "attr", getattr(call, "id", "")) in STAMPING for call in calls):
                stamping.add(name)
    assert stamping - named == NO_TIME_OF_MESSAGES
    assert {name for name in named if "." in name} <= known


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
