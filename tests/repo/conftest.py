"""The repository itself, as its tests see it."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

NOT_SOURCES = {".git", ".venv", "build", "dist", "__pycache__", "horolog-data", ".hypothesis"}


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def sources() -> list[Path]:
    """Every file that belongs to the repository, as a path relative to its root.

    By git where this is a checkout, so that nobody's stray files count; by folder where it is an
    unpacked archive.
    """
    if (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split("\0")
        names = [Path(name) for name in listed if name]
    else:
        names = [
            path.relative_to(ROOT)
            for path in ROOT.rglob("*")
            if not any(
                part in NOT_SOURCES or part.endswith(("_cache", ".egg-info"))
                for part in path.relative_to(ROOT).parts
            )
        ]
    return sorted(name for name in names if (ROOT / name).is_file())


@pytest.fixture(scope="session")
def modules(sources: list[Path]) -> list[Path]:
    """The Python files of the package: everything but tests and documentation."""
    return [
        path for path in sources if path.suffix == ".py" and path.parts[0] not in ("tests", "docs")
    ]
