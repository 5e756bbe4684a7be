"""`make mutants`: breaks one rule at a time in a copy of the tree, and runs the test that has to
fail.

Prints a line for each fault; exit code 1 if a test passes all the same, or a fault fits no longer.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from horolog.tests.mutants.table import MUTANTS, Mutant

ROOT: Final = Path(__file__).resolve().parents[2]

_NOT_COPIED: Final = (".git", ".venv", "build", "dist", "__pycache__", ".hypothesis", "*_cache")
_BUILD: Final = (sys.executable, "setup.py", "--quiet", "build_ext", "--inplace")
_COMPILE: Final = (sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash")
_PYTEST: Final = (sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider")
_SEED: Final = "--hypothesis-seed=0"

_PASSED: Final = 0
_FAILED: Final = 1
"""Exit codes of pytest; others say that it could not run the test."""


class Outcome(StrEnum):
    """What came of a fault."""

    NOTICED = "noticed"
    SURVIVED = "SURVIVED"
    MISFITS = "FITS NO LONGER"
    BROKEN = "COULD NOT RUN"


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of the tree, in which tests run with the packages that are installed here."""

    root: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the copy's `tests/`."""
        imported = str(self.root.parent / "src")
        return subprocess.run(
            command,
            cwd=self.root / "tests",
            env=os.environ | {"PYTHONPATH": imported},
            capture_output=True,
            text=True,
        )

    def test(self, *names: str) -> subprocess.CompletedProcess[str]:
        return self.run(*_PYTEST, _SEED, *names)

    @contextmanager
    def broken_by(self, mutant: Mutant) -> Iterator[None]:
        """The copy with this fault. Raises ValueError where it does not fit."""
        path = self.root / mutant.file
        changed = with_fault(mutant, path.read_text(encoding="utf-8"))
        kernels = path.parent.glob("*.so") if mutant.compiled else ()
        before = {each: each.read_bytes() for each in (path, *kernels)}
        path.write_text(changed, encoding="utf-8")
        try:
            if mutant.compiled:
                subprocess.run(_BUILD, cwd=self.root, check=True)
            yield
        finally:
            for each, content in before.items():
                each.unlink()  # Another process may have it mapped.
                each.write_bytes(content)


def with_fault(mutant: Mutant, source: str) -> str:
    """The source of the mutant's file with the fault in it. Raises ValueError where `old` is not in
    it exactly once."""
    found = source.count(mutant.old)
    if found != 1 or mutant.old == mutant.new:
        raise ValueError(f"{mutant.file} has {mutant.old!r} {found} times, and not once")
    return source.replace(mutant.old, mutant.new)


@contextmanager
def copied_tree() -> Iterator[Copy]:
    """A copy of the tree, compiled kernel included; it is removed in the end."""
    with TemporaryDirectory(prefix="horolog-mutants-") as folder:
        root, packages = Path(folder) / "tree", Path(folder) / "src"
        shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(*_NOT_COPIED))
        packages.mkdir()
        (packages / "horolog").symlink_to(root)
        (packages / "pyspark_horolog").symlink_to(root / "pyspark_horolog")
        copy = Copy(root)
        # Compiled files by content: two versions of a file can be of the same second and size.
        copy.run(*_COMPILE, str(root))
        yield copy


def outcome_of(copy: Copy, mutant: Mutant) -> tuple[Outcome, str]:
    """What comes of a fault, and what is worth reading about it."""
    try:
        with copy.broken_by(mutant):
            done = copy.test(mutant.test)
    except ValueError as error:
        return Outcome.MISFITS, str(error)
    if done.returncode == _FAILED:
        return Outcome.NOTICED, ""
    if done.returncode == _PASSED:
        return Outcome.SURVIVED, ""
    return Outcome.BROKEN, done.stdout + done.stderr


def main() -> int:
    """Try all faults; returns the exit code."""
    with copied_tree() as copy:
        sound = copy.test(*(mutant.test for mutant in MUTANTS))
        if sound.returncode != _PASSED:
            _print(f"The tests fail without any fault:\n{sound.stdout}{sound.stderr}")
            return 1
        outcomes = []
        for mutant in MUTANTS:
            began = time.monotonic()
            outcome, text = outcome_of(copy, mutant)
            seconds = time.monotonic() - began
            _print(f"{outcome:14}  {seconds:5.1f} s  {mutant.rule}\n{'':25}{mutant.test}")
            if text:
                _print(text)
            outcomes.append(outcome)
    noticed = outcomes.count(Outcome.NOTICED)
    _print(f"{noticed} of {len(outcomes)} faults were noticed")
    return int(noticed < len(outcomes))


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
