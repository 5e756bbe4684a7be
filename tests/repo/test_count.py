"""What `count.py` counts, on a small package."""

from pathlib import Path

import pytest

from .count import (
    PHRASES,
    STORAGE_ORDER,
    counted,
    groups_in_cycles,
    imported,
    imports_up,
    main,
    parsed,
    phrases_in,
)

FIRST, SECOND = PHRASES[0], PHRASES[2]
"""Two phrases that are counted. This file does not hold them, because it is counted too."""

FILES = {
    "__init__.py": "",
    "storage/__init__.py": "",
    "storage/index/__init__.py": "",
    "storage/index/one.py": (
        '"""Doc."""\n\n# Why.\nfrom ..check.two import Two\n\n\nclass One: ...\n'
    ),
    "storage/check/__init__.py": "",
    "storage/check/two.py": (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from ..index.one import One\n"
        "class Two: ...\n"
        "class One: ...\n"
        "def late() -> None:\n    from ...server import other\n"
    ),
    "server/__init__.py": "",
    "server/other.py": "x = 1  # one\n",
    "tests/test_x.py": "",
    "docs/page.md": f"It is {FIRST.replace(' ', chr(10), 1)}, and {SECOND} wait.\n",
}


def test_each_count(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert counted(tmp_path, map(Path, FILES)) == {
        "files": {"product": 8, "tests": 1},
        "lines": {"docstring": 1, "blank": 3, "comment": 1, "code": 10},
        "imports_up": ["storage.index.one -> storage.check.two"],
        "cycles": [["storage.check.two", "storage.index.one"]],
        "in_cycles": 2,
        "type_checking": 1,
        "late_imports": 1,
        "twice": {"One": ["storage.check.two", "storage.index.one"]},
        "phrases": {"docs/page.md": {FIRST: 1, SECOND: 1}},
    }


@pytest.fixture(scope="module")
def storage(root: Path, modules: list[Path]) -> dict[str, set[str]]:
    """Modules of `storage/`, and what each imports of them, wherever the import stands."""
    paths = [path for path in modules if path.parts[0] == "storage"]
    found = [parsed(path, (root / path).read_text("utf-8")) for path in paths]
    parts = {module.name: module for module in found}
    return {name: set(imported(module, parts)) for name, module in parts.items()}


def test_storage_is_imported_in_one_order(storage: dict[str, set[str]]) -> None:
    assert list(imports_up(storage)) == []
    assert groups_in_cycles(storage) == []


def test_the_order_of_storage_names_each_room(storage: dict[str, set[str]]) -> None:
    rooms = {name.split(".")[1] for name in storage if "." in name}
    assert rooms == {room for rank in STORAGE_ORDER for room in rank}


def test_a_phrase_is_found_across_lines_of_a_comment() -> None:
    lines = FIRST.replace(" ", "\n# ", 1)
    assert phrases_in(f"# {lines} of them; {SECOND}se") == {FIRST: 1}


@pytest.mark.parametrize("phrase", PHRASES)
def test_each_phrase_is_found_as_whole_words(phrase: str) -> None:
    assert phrases_in(f"It says {phrase.title()}.") == {phrase: 1}
    assert phrases_in(f"un{phrase}, {phrase}s") == {}


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--yaml"]) == 2
    assert capsys.readouterr().err == "usage: python tests/repo/count.py [--json]\n"
