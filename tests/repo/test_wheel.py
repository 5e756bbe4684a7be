"""What `pip install horolog` would put on a machine."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import horolog
from horolog.compiled import FOLDER, MODULE, PRICE, SOURCES
from horolog.tests.pages.shell import blocks, commands

RECORDS = f"horolog/{FOLDER}/"
NOT_INSTALLED = {"tests", "bench", "docs", "setup.py"}
"""Folders with Python files, and one such file, that stay in the repository."""

ALONE = "pyspark_horolog"
"""The one package beside `horolog`, because that is where Spark looks."""

TRANSLATED = [Path("build/kernel/horolog", FOLDER, name) for name in ("compiled.c", "written.txt")]
"""What Cython wrote, and of which sources: setup.py translates others again."""

OUTPUT = Path("build/kernel/output.txt")
"""What the compilers of the kernel said."""

SMALL_KERNEL = """
cdef extern from "kernel.h":
    pass
"""

IN_PLACE = (sys.executable, "setup.py", "--quiet", "build_ext", "--inplace")

IMPORT_ALL = """
import importlib, json, pkgutil, sys, horolog
names = ["horolog"] + [m.name for m in pkgutil.walk_packages(horolog.__path__, "horolog.")]
for name in names:
    importlib.import_module(name)
print(json.dumps({name: sys.modules[name].__file__ for name in names}))
"""


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def export(root: Path, sources: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository's files, and the C source of the kernel where `make setup` made it of them:
    Cython takes longer than all else here. No other file of a build folder is there to help."""
    export = tmp_path_factory.mktemp("export")
    for path in (*sources, *(path for path in TRANSLATED if (root / path).exists())):
        (export / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / path, export / path)
    return export


@pytest.fixture
def small(export: Path, tmp_path: Path) -> Path:
    """The same, with a kernel that is compiled in no time: how it is built is the same."""
    small = tmp_path / "small"
    for path in ("setup.py", "compiled.py", "pyproject.toml", "README.md", "LICENSE", FOLDER):
        copy = shutil.copytree if (export / path).is_dir() else shutil.copy
        (small / path).parent.mkdir(parents=True, exist_ok=True)
        copy(export / path, small / path)
    (small / FOLDER / f"{MODULE}.pyx").write_text(SMALL_KERNEL)
    return small


@pytest.fixture(scope="module")
def wheel(export: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    compiler = out / "cc"
    compiler.write_text('#!/bin/sh\nexec cc "$@" -O0\n')  # half the time
    compiler.chmod(0o755)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(
        *pip,
        "wheel",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "-w",
        out,
        export,
        env={**os.environ, "CC": str(compiler)},
    )
    shutil.copy(export / OUTPUT, out)  # Later builds of the same files write another one.
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel in it, beside the libraries of this one."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python3.*/site-packages")
    # A path line adds the folder itself; the .pth files inside it, and so this checkout, do not
    # come along.
    (libraries,) = {str(Path(pytest.__file__).parents[1])}
    (packages / "libraries.pth").write_text(libraries + "\n")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", folder)
    run(*pip, "install", "--no-deps", "--no-index", "--no-warn-script-location", wheel)
    return folder


def test_every_module_is_in_it_and_nothing_else(
    wheel: Path, modules: list[Path], sources: list[Path]
) -> None:
    expected = {
        str(path) if path.parts[0] == ALONE else f"horolog/{path}"
        for path in modules
        if path.parts[0] not in NOT_INSTALLED
    }
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {name for name in names if name.endswith(".py")} == expected
    of_c = {
        name for name in names if name.startswith(RECORDS) and name.endswith((".pyx", ".pxi", ".h"))
    }
    assert of_c == {f"{RECORDS}{name}" for name in SOURCES}
    of_page = {f"horolog/{path}" for path in sources if path.parts[:2] == ("server", "static")}
    assert "horolog/server/static/index.html" in of_page
    rest = {name for name in names if not name.endswith((".py", ".so"))}
    of_spark = {"horolog/cli/pipeline/log4j2.properties"}
    assert rest == {"horolog/py.typed"} | of_c | of_page | of_spark


def test_it_has_the_compiled_kernel(
    wheel: Path, elsewhere: Path, tmp_path: Path, require_program: Callable[[str], str]
) -> None:
    require_program("cc")
    with zipfile.ZipFile(wheel) as archive:
        compiled = {name for name in archive.namelist() if name.endswith(".so")}
    assert compiled == {f"{RECORDS}{MODULE}{EXTENSION_SUFFIXES[0]}"}
    assert "(compiled)" in run(elsewhere / "bin/horolog", "--version", cwd=tmp_path)


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [
        ("no-such-compiler", "there is no C compiler (no-such-compiler)"),
        ("false", "build/kernel/output.txt says why"),
    ],
    ids=["none", "broken"],
)
def test_it_is_made_without_a_compiler_that_works(
    export: Path, tmp_path: Path, compiler: str, reason: str
) -> None:
    made = subprocess.run(
        (sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", tmp_path),
        cwd=export,
        env={**os.environ, "CC": compiler},
        capture_output=True,
        text=True,
        check=True,
    )
    said = [f"The kernel was not compiled ({reason}): {PRICE}"]
    assert made.stderr.splitlines() == said
    assert list(tmp_path.rglob("*.so")) == []


def test_it_is_not_made_without_the_kernel_where_that_is_asked_for(
    export: Path, tmp_path: Path
) -> None:
    made = subprocess.run(
        (sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", tmp_path),
        cwd=export,
        env={**os.environ, "CC": "no-such-compiler", "HOROLOG_KERNEL": "compiled"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 1
    assert made.stderr.splitlines() == [
        "HOROLOG_KERNEL is compiled, and the kernel was not compiled: "
        "there is no C compiler (no-such-compiler)"
    ]


def test_a_module_that_was_cut_short_is_made_again_and_that_in_place_replaced_in_one_step(
    small: Path, require_program: Callable[[str], str]
) -> None:
    """As by a kill while it was written. What is whole is not made again; a broker that runs has
    the old one in memory, as long as that is its file."""
    require_program("cc")
    run(*IN_PLACE, cwd=small)
    (made,) = (small / "build").rglob("*.so")
    (in_place,) = (small / FOLDER).glob("*.so*")
    first, content = made.stat(), made.read_bytes()
    run(*IN_PLACE, cwd=small)
    assert made.stat().st_mtime_ns == first.st_mtime_ns
    made.write_bytes(content[:-1])
    with in_place.open("rb") as held:
        run(*IN_PLACE, cwd=small)
        assert os.fstat(held.fileno()).st_nlink == 0
        assert held.read() == content
    assert made.read_bytes() == in_place.read_bytes() == content
    assert list((small / FOLDER).glob("*.so*")) == [in_place]


def test_the_compiler_warns_of_nothing(
    root: Path, wheel: Path, small: Path, require_program: Callable[[str], str]
) -> None:
    require_program("cc")
    assert "warning:" not in (wheel.parent / OUTPUT.name).read_text()
    if (root / OUTPUT).exists():  # Where Cython translated the kernel in this checkout.
        assert "warning:" not in (root / OUTPUT).read_text()
    with (small / FOLDER / "kernel.h").open("a") as header:
        # One fault, to see that it would.
        header.write("static inline int never(unsigned a) { int b; return a == 0; }\n")
    run(*IN_PLACE, cwd=small)
    said = (small / OUTPUT).read_text().splitlines()
    (warning,) = (line for line in said if "warning:" in line)
    assert "unused variable 'b'" in warning.translate(dict.fromkeys(map(ord, "\u2018\u2019"), "'"))


@pytest.mark.skipif(sys.platform != "linux", reason="manylinux is about Linux")
def test_it_runs_on_all_linux_systems_of_a_kind(wheel: Path, elsewhere: Path) -> None:
    shown = " ".join(run(sys.executable, "-m", "auditwheel", "show", wheel).split())
    assert 'is consistent with the following platform tag: "manylinux_2_' in shown


def test_a_message_goes_there_and_back_elsewhere(
    root: Path, elsewhere: Path, tmp_path: Path, require_program: Callable[[str], str]
) -> None:
    require_program("cc")
    tried = root / "tests/repo/installed.py"
    said = run(elsewhere / "bin/python", "-I", tried, cwd=tmp_path)
    assert said.endswith(f"(compiled) in {elsewhere}: a message went there and back\n")


def test_this_checkout_is_not_taken_for_an_installation(root: Path) -> None:
    tried = subprocess.run(
        (sys.executable, "-I", root / "tests/repo/installed.py"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert tried.returncode == 1
    assert "another Horolog was found" in tried.stderr


def test_runners_make_wheels_for_every_python_and_try_them(root: Path) -> None:
    declared = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    of_wheels = declared["tool"]["cibuildwheel"]
    oldest = declared["project"]["requires-python"].removeprefix(">=3.")
    assert of_wheels["build"] == [f"cp3{minor}-*" for minor in range(int(oldest), 15)]
    assert of_wheels["environment"] == {"HOROLOG_KERNEL": "compiled"}
    (tried,) = [word for word in of_wheels["test-command"].split() if word.endswith(".py")]
    assert (root / tried.removeprefix("{project}/")).is_file()


def test_the_package_list_is_the_folders(root: Path, modules: list[Path]) -> None:
    declared = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    folders = {path.parent for path in modules if path.parts[0] not in NOT_INSTALLED}
    packages = {
        ".".join(folder.parts if ALONE in folder.parts else ("horolog", *folder.parts))
        for folder in folders
    }
    assert set(declared["tool"]["setuptools"]["packages"]) == packages
    assert [folder for folder in folders if not (root / folder / "__init__.py").exists()] == []


def test_every_module_can_be_imported_elsewhere(elsewhere: Path, tmp_path: Path) -> None:
    files = json.loads(run(elsewhere / "bin/python", "-I", "-c", IMPORT_ALL, cwd=tmp_path))
    assert {name for name, file in files.items() if not file.startswith(str(elsewhere))} == set()
    assert len(files) > 20


@pytest.mark.parametrize("command", [["bin/horolog"], ["bin/python", "-I", "-m", "horolog"]])
def test_the_program_starts_elsewhere(elsewhere: Path, tmp_path: Path, command: list[str]) -> None:
    program, *arguments = command
    assert "serve" in run(elsewhere / program, *arguments, "--help", cwd=tmp_path)


def test_the_commands_of_the_installation_page_work_elsewhere(
    elsewhere: Path, tmp_path: Path, require_program: Callable[[str], str]
) -> None:
    require_program("cc")
    written = blocks("installation.md")["check"]
    (command,) = commands(written)
    path = f"{elsewhere / 'bin'}:{os.environ['PATH']}"
    said = run("bash", "-c", command[2:], cwd=tmp_path, env={**os.environ, "PATH": path})
    assert f"{command}\n{said}" == written + "\n"


def test_pytest_finds_the_fixture_elsewhere(elsewhere: Path, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(horolog_broker):\n    pass\n")
    options = ("-W", "error", "-p", "no:cacheprovider", "-p", "no:asyncio")
    assert "1 passed" in run(elsewhere / "bin/python", "-m", "pytest", *options, cwd=tmp_path)


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = archive.read(name).decode()
        (name,) = [name for name in archive.namelist() if name.endswith("/entry_points.txt")]
        entry_points = archive.read(name).decode()
        licences = [name for name in archive.namelist() if name.endswith("/LICENSE")]
    assert f"Version: {horolog.__version__}\n" in metadata
    assert "License-Expression: Apache-2.0\n" in metadata
    assert len(licences) == 1
    assert "[pytest11]\nhorolog = horolog.testing.plugin\n" in entry_points


def test_make_has_the_targets_of_the_readme(
    root: Path, require_program: Callable[[str], str]
) -> None:
    for target in (
        "setup",
        "run",
        "test",
        "check",
        "bench",
        "clean",
        "soak",
        "asan",
        "wheel",
        "help",
        "lock",
    ):
        run(require_program("make"), "-n", target, cwd=root)
