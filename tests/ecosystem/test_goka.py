"""goka with a table, which it has a copy of in a compacted topic."""

import os
import subprocess
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from .installing import CACHE, PROGRAMS, once
from .messages import COUNTS, WORDS, Messages
from .running import running

_BUILD_SECONDS = 600


@pytest.fixture(scope="module")
def goka() -> Path:
    """The program of `programs/goka`, compiled."""
    sources = PROGRAMS / "goka"
    content = b"".join(path.read_bytes() for path in sorted(sources.iterdir()))
    program = CACHE / f"goka-{sha256(content).hexdigest()[:16]}" / "count-words"

    def build(folder: Path) -> None:
        subprocess.run(
            ["go", "build", "-modcacherw", "-o", program],
            cwd=sources,
            env={**os.environ, "GOMODCACHE": str(CACHE / "go")},
            check=True,
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS,
        )

    once(program.parent, build)
    return program


@pytest.mark.ecosystem
@pytest.mark.timeout(2 * _BUILD_SECONDS)
def test_its_table_comes_back_from_the_changelog(
    require_program: Callable[[str], str],
    request: pytest.FixtureRequest,
    address: str,
    messages: Messages,
    tmp_path: Path,
) -> None:
    require_program("go")
    program = request.getfixturevalue("goka")
    messages.create("words", "counts")
    for number, folder in enumerate(("first", "second"), start=1):
        messages.send("words", WORDS)
        with running([program, address, tmp_path / folder], tmp_path / f"{folder}.log"):
            found = messages.read("counts", number * len(WORDS))
    assert [(key.decode(), int(value)) for key, value in found if key and value] == COUNTS
    assert messages.compacted() == {"counting-table"}
