"""A compiled kernel is used when it was made from the sources that are there, and only then."""

import os
import shutil
import subprocess
import sys
import sysconfig
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
        env={"PYTHONPATH": sysconfig.get_path("purelib")} | environ,
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


STALE = """
static PyObject *none(PyObject *module, PyObject *arguments) {{ Py_RETURN_NONE; }}
static PyMethodDef functions[] = {{{{"none", none, METH_NOARGS, NULL}}, {{NULL, NULL, 0, NULL}}}};
static struct PyModuleDef definition = {{
    PyModuleDef_HEAD_INIT, "compiled", NULL, -1, functions, NULL, NULL, NULL, NULL}};
PyMODINIT_FUNC PyInit_compiled(void) {{ {} }}
"""
"""An extension module of another time."""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return PyModule_Create(&definition);", "has no attribute 'SOURCES'"),
        ('PyErr_SetString(PyExc_TypeError, "no such base"); return NULL;', "no such base"),
        ('return PyImport_ImportModule("horolog.moved");', "No module named 'horolog.moved'"),
    ],
    ids=["without a digest", "failing", "of names that moved"],
)
def test_a_module_of_another_time_is_passed_over(copy: Path, body: str, reason: str) -> None:
    source = copy.parent / "stale.c"
    source.write_text(f"#include <Python.h>\n{STALE.format(body)}")
    include = sysconfig.get_path("include")
    compiler = ("cc", "-shared", "-fPIC", f"-I{include}", source, "-o", kernel(copy))
    subprocess.run(compiler, check=True)
    assert form(copy) == "reference"
    said = form(copy, HOROLOG_KERNEL="compiled")
    assert reason in said
    assert "cannot be loaded" in said


@pytest.mark.parametrize("suffix", [".cpython-39-x86_64-linux-gnu.so", ".cpython-399-darwin.so"])
def test_a_kernel_of_another_python_is_passed_over(copy: Path, suffix: str) -> None:
    kernel(copy).rename(copy / FOLDER / f"{MODULE}{suffix}")
    assert form(copy) == "reference"
    assert "not compiled for this Python" in form(copy, HOROLOG_KERNEL="compiled")


def test_a_cut_file_is_passed_over(copy: Path) -> None:
    content = kernel(copy).read_bytes()
    kernel(copy).unlink()  # it may be in use where it came from
    kernel(copy).write_bytes(content[:100])
    assert form(copy) == "reference"
    assert "cannot be loaded" in form(copy, HOROLOG_KERNEL="compiled")


def test_in_a_zip_file_the_reference_runs(copy: Path) -> None:
    archive = shutil.make_archive(str(copy.parent / "packed"), "zip", copy.parent, "horolog")
    shutil.rmtree(copy)
    libraries = sysconfig.get_path("purelib")
    assert form(copy, PYTHONPATH=f"{archive}{os.pathsep}{libraries}") == "reference"
    assert "not compiled for this Python" in form(
        copy, PYTHONPATH=archive, HOROLOG_KERNEL="compiled"
    )


def test_an_installation_without_sources_keeps_its_kernel(copy: Path) -> None:
    """Programs that bundle others leave out what is neither Python nor a library."""
    for name in SOURCES[1:]:
        (copy / FOLDER / name).unlink()
    assert form(copy) == "reference"
    (copy / FOLDER / SOURCES[0]).unlink()
    assert form(copy) == "compiled"


def test_a_source_that_cannot_be_read_is_another_one(copy: Path) -> None:
    (copy / FOLDER / SOURCES[0]).unlink()
    (copy / FOLDER / SOURCES[0]).mkdir()
    assert form(copy) == "reference"


def test_choosing_writes_nothing(copy: Path) -> None:
    """An installation may be read-only."""
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*")}
    assert form(copy, PYTHONDONTWRITEBYTECODE="1") == "compiled"
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("*")} == before


@pytest.mark.parametrize("arguments", [["--version"], ["topic", "list"], ["serve"]])
def test_the_program_says_in_a_line_that_there_is_no_such_form(arguments: list[str]) -> None:
    done = subprocess.run(
        (sys.executable, "-m", "horolog", *arguments),
        env={**os.environ, "HOROLOG_KERNEL": "fast"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "horolog: HOROLOG_KERNEL is compiled or reference, not 'fast'\n"


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
