"""A compiled kernel is used when it was made from the sources that are there, and only then."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from horolog.compiled import FOLDER, MODULE, SOURCES, sources_digest

SAY = "from horolog.protocol.records.kernel import FORM; print(FORM)"


@pytest.fixture
def copy(root: Path, tmp_path: Path, require_program: Callable[[str], str]) -> Path:
    """The package with its compiled kernel, somewhere else."""
    require_program("cc")
    package = tmp_path / "horolog"
    package.mkdir()
    for path in ("__init__.py", "compiled.py", "values.py", "protocol"):
        source = root / path
        (shutil.copytree if source.is_dir() else shutil.copy)(source, package / path)
    if not kernel(package).exists():
        pytest.skip("the kernel is not compiled; make setup does it")
    return package


def kernel(package: Path) -> Path:
    return package / FOLDER / f"{MODULE}{EXTENSION_SUFFIXES[0]}"


def form(package: Path, **environ: str) -> str:
    done = subprocess.run(
        (sys.executable, "-S", "-c", SAY),
        cwd=package.parent,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def test_the_compiled_form_is_taken_unless_asked_otherwise(copy: Path) -> None:
    assert form(copy) == "compiled"
    assert form(copy, HOROLOG_KERNEL="compiled") == "compiled"
    assert form(copy, HOROLOG_KERNEL="reference") == "reference"
    assert "compiled or reference, not 'fast'" in form(copy, HOROLOG_KERNEL="fast")


@pytest.mark.parametrize("changed", SOURCES)
def test_other_sources_are_never_hidden_by_it(copy: Path, changed: str) -> None:
    with (copy / FOLDER / changed).open("a") as source:
        source.write("\n")
    assert form(copy) == "reference"
    assert "make setup" in form(copy, HOROLOG_KERNEL="compiled")


def test_without_it_the_reference_runs(copy: Path) -> None:
    kernel(copy).unlink()
    assert form(copy) == "reference"
    assert "make setup" in form(copy, HOROLOG_KERNEL="compiled")


def test_a_file_that_is_no_module_is_passed_over(copy: Path) -> None:
    kernel(copy).write_bytes(b"not a shared object")
    assert form(copy) == "reference"


def test_the_digest_is_of_every_source(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir(parents=True)
    for name in SOURCES:
        shutil.copy(root / FOLDER / name, folder)
    digests = {sources_digest(str(tmp_path))}
    for name in SOURCES:
        (folder / name).write_bytes(b"changed")
        digests.add(sources_digest(str(tmp_path)))
    assert len(digests) == len(SOURCES) + 1
    (folder / SOURCES[0]).unlink()
    assert sources_digest(str(tmp_path)) == ""


def test_every_source_counts(root: Path) -> None:
    kinds = (".pyx", ".pxi", ".h")
    assert {path.name for path in (root / FOLDER).iterdir() if path.suffix in kinds} == set(SOURCES)
