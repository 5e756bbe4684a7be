"""What `count.py` counts, on a small package."""

from pathlib import Path

import pytest

from .count import counted, main, phrases_in

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
    "docs/page.md": "A broker that is one\nof several, and those who ask.\n",
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
        "phrases": {"docs/page.md": {"one of several": 1, "those who": 1}},
    }


def test_a_phrase_is_found_across_lines_of_a_comment() -> None:
    assert phrases_in("# what\n# became of it; the beginning") == {"what became of": 1}


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--yaml"]) == 2
    assert capsys.readouterr().err == "usage: python tests/repo/count.py [--json]\n"
