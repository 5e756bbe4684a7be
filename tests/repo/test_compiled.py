"""A compiled kernel is used when it was made from the sources that are there, and only then."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from horolog.compiled import FOLDER, MODULES, SOURCES, is_made_from, sources_digest

SAY = "from horolog.protocol.records.kernel.{} import FORM; print(FORM)"


@pytest.fixture
def copy(root: Path, tmp_path: Path, require_program: Callable[[str], str]) -> Path:
    """The package with its compiled kernel, somewhere else."""
    require_program("cc")
    package = tmp_path / "horolog"
    package.mkdir()
    for path in ("__init__.py", "compiled.py", "values.py", "protocol"):
        source = root / path
        (shutil.copytree if source.is_dir() else shutil.copy)(source, package / path)
    if not all((package / FOLDER / f"{name}{EXTENSION_SUFFIXES[0]}").exists() for name in MODULES):
        pytest.skip("the kernel is not compiled; make setup does it")
    return package


def form(package: Path, module: str = "walk", **environ: str) -> str:
    done = subprocess.run(
        (sys.executable, "-S", "-c", SAY.format(module)),
        cwd=package.parent,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("module", MODULES)
def test_the_compiled_form_is_taken_unless_asked_otherwise(copy: Path, module: str) -> None:
    assert form(copy, module) == "compiled"
    assert form(copy, module, HOROLOG_KERNEL="compiled") == "compiled"
    assert form(copy, module, HOROLOG_KERNEL="interpreted") == "interpreted"
    assert "compiled or interpreted, not 'fast'" in form(copy, module, HOROLOG_KERNEL="fast")


@pytest.mark.parametrize("changed", SOURCES)
def test_other_sources_are_never_hidden_by_it(copy: Path, changed: str) -> None:
    with (copy / FOLDER / changed).open("a") as source:
        source.write("\n")
    assert {form(copy, module) for module in MODULES} == {"interpreted"}
    assert "make setup" in form(copy, HOROLOG_KERNEL="compiled")


def test_one_missing_module_is_enough_to_do_without_the_others(copy: Path) -> None:
    (copy / FOLDER / f"{MODULES[-1]}{EXTENSION_SUFFIXES[0]}").unlink()
    assert {form(copy, module) for module in MODULES} == {"interpreted"}


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
    assert not is_made_from(str(folder / "none.so"), digests.pop())
