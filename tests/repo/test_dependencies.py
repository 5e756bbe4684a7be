"""The lists of dependencies agree with each other."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

LOCKS = ("build", "run", "dev")


def pins(lock: Path) -> dict[str, tuple[str, int]]:
    """Package -> (version, number of hashes)."""
    text = lock.read_text("utf-8").replace("\\\n", " ")
    found = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)((?:\s+--hash=sha256:[0-9a-f]{64})*)", text, re.M)
    return {
        name.lower().replace("_", "-"): (version, hashes.count("--hash"))
        for name, version, hashes in found
    }


def name_of(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match is not None
    return match[0].lower().replace("_", "-")


@pytest.fixture(scope="module")
def project(root: Path) -> dict[str, Any]:
    declared: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    return declared["project"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_hashes_and_nothing_else_is_in_a_lock(root: Path, lock: str) -> None:
    path = root / "requirements" / f"{lock}.txt"
    assert all(count > 0 for _, count in pins(path).values())
    for line in path.read_text("utf-8").splitlines():
        assert re.match(r"$|#|    #|    --hash=sha256:|[A-Za-z0-9._-]+==", line), line


def test_the_locks_hold_what_the_project_declares(root: Path, project: dict[str, Any]) -> None:
    run, dev = (pins(root / "requirements" / f"{lock}.txt") for lock in ("run", "dev"))
    declared = {name_of(text) for text in project["dependencies"]}
    assert declared <= run.keys()
    for extra in ("dev", "arrow", "spark", "java", "oauth", "certificates", "plot"):
        assert {name_of(text) for text in project["optional-dependencies"][extra]} <= dev.keys()
    assert {name: pin for name, pin in dev.items() if name in run} == run


def test_running_needs_no_test_tool(root: Path, project: dict[str, Any]) -> None:
    run = pins(root / "requirements" / "run.txt")
    for extra in project["optional-dependencies"].values():
        assert run.keys().isdisjoint(name_of(text) for text in extra)


def test_every_dependency_has_a_reason(root: Path, project: dict[str, Any]) -> None:
    page = (root / "docs" / "dependencies.md").read_text("utf-8")
    extras = project["optional-dependencies"].values()
    for text in (*project["dependencies"], *(text for extra in extras for text in extra)):
        assert f"| `{name_of(text)}` |" in page, f"docs/dependencies.md lacks {name_of(text)}"
