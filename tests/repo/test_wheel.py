"""What `pip install horolog` would put on a machine."""

import email
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import venv
import zipfile
from collections.abc import Callable, Iterable
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import horolog
from horolog.compiled import FOLDER, MODULE, PRICE, SOURCES
from horolog.testing.program import READY, next_line
from horolog.tests.pages.shell import blocks, commands

from .test_dependencies import pins

pytestmark = pytest.mark.timeout(900)
"""The first test that needs the wheel waits for two builds and a compiler."""

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

MAKE_SOURCE_ARCHIVE = """
import sys
from setuptools.build_meta import build_sdist
build_sdist(sys.argv[1])
"""

OF_SPARK = ("pyspark", "py4j", "pyarrow")
"""What the extra `spark` installs."""

IN_PLACE = (sys.executable, "setup.py", "--quiet", "build_ext", "--inplace")

IMPORT_ALL = """
import importlib, json, pkgutil, sys, horolog
names = ["horolog"] + [m.name for m in pkgutil.walk_packages(horolog.__path__, "horolog.")]
for name in names:
    importlib.import_module(name)
print(json.dumps({name: sys.modules[name].__file__ for name in names}))
"""


def run(
    *command: str | Path,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    stdin: str = "",
) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=env, input=stdin, capture_output=True, text=True, check=False
    )
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
def source_archive(export: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of the sources (sdist) that would be on the package index."""
    out = tmp_path_factory.mktemp("archive")
    run(sys.executable, "-I", "-c", MAKE_SOURCE_ARCHIVE, out, cwd=export)
    (made,) = out.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(export: Path, source_archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is built from the archive of the sources."""
    out = tmp_path_factory.mktemp("wheel")
    with tarfile.open(source_archive) as archive:
        archive.extractall(out, filter="data")
    (unpacked,) = out.iterdir()
    for path in (path for path in TRANSLATED if (export / path).exists()):
        (unpacked / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(export / path, unpacked / path)
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
        unpacked,
        env={**os.environ, "CC": str(compiler)},
    )
    shutil.copy(unpacked / OUTPUT, out)
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


def write_wheel(installed: metadata.Distribution, folder: Path) -> None:
    """Write the wheel that a package was installed from, without its scripts: installers make those
    again."""
    files = [
        file
        for file in installed.files or ()
        if file.parts[0] != ".." and "__pycache__" not in file.parts
    ]
    (described,) = {file.parts[0] for file in files if file.parts[0].endswith(".dist-info")}
    tags = re.findall(r"^Tag: (.*)-(.*)-(.*)$", installed.read_text("WHEEL") or "", re.MULTILINE)
    tag = "-".join(".".join(sorted(set(part))) for part in zip(*tags, strict=True))
    path = folder / f"{described.removesuffix('.dist-info')}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file in files:
            if file.name not in ("INSTALLER", "RECORD", "REQUESTED", "direct_url.json"):
                archive.write(str(file.locate()), str(file))
        archive.writestr(f"{described}/RECORD", "".join(f"{file},,\n" for file in files))


def write_wheels(names: Iterable[str], folder: Path) -> None:
    for name in names:
        try:
            write_wheel(metadata.distribution(name), folder)
        except metadata.PackageNotFoundError:
            continue  # a package for another version of Python


@pytest.fixture(scope="module")
def index(root: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in the place of the package index: the wheel, and those of its dependencies."""
    folder = tmp_path_factory.mktemp("index")
    shutil.copy(wheel, folder)
    write_wheels(pins(root / "requirements/run.txt"), folder)
    return folder


@pytest.fixture
def nothing(
    index: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    require_program: Callable[[str], str],
) -> dict[str, str]:
    """The environment of a user who has installed nothing yet: no compiler, an empty cache, and
    the folder as the only index."""
    require_program("cc")  # of the wheel
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    programs = tmp_path / "bin"
    programs.mkdir()
    for program in ("uv", "uvx", "pipx", "dirname", "realpath"):
        (programs / program).symlink_to(require_program(program))
    return {
        "PATH": str(programs),
        "HOME": str(tmp_path / "home"),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": str(index),
        "PIP_NO_INDEX": "1",
        "PIPX_DEFAULT_PYTHON": sys.executable,
        "UV_FIND_LINKS": str(index),
        "UV_NO_INDEX": "1",
        "UV_OFFLINE": "1",
        "UV_PYTHON": sys.executable,
        "UV_PYTHON_DOWNLOADS": "never",
    }


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
    named = {word for word in declared["project"]["classifiers"] if ":: Python :: 3." in word}
    assert named == {f"Programming Language :: Python :: 3.{v[3:-2]}" for v in of_wheels["build"]}
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


def without_a_clone(program: str) -> list[list[str]]:
    """The commands of a program that the installation page has for users without a clone."""
    written = commands(blocks("installation.md")["without-a-clone"])
    split = [shlex.split(command)[1:] for command in written]
    return [words for words in split if words[0] == program]


def test_uvx_serves_a_message_where_nothing_was_installed(
    nothing: dict[str, str], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """`uvx horolog serve`."""
    begun_s = time.monotonic()
    (command,) = without_a_clone("uvx")
    *program, serve = tmp_path / "bin/uvx", *command[1:]
    ports = [f"--{name}=127.0.0.1:0" for name in ("listen", "http-listen", "kafka-listen")]
    with subprocess.Popen(
        [*program, serve, "--data-dir", "data", *ports],
        cwd=tmp_path,
        env=nothing,
        stdout=subprocess.PIPE,
        text=True,
    ) as broker:
        try:
            ready = READY.fullmatch(next_line(broker, within_s=150))
            assert ready is not None
            env = {**nothing, "HOROLOG_SERVER": ready["native"]}
            run(*program, "produce", "words", cwd=tmp_path, env=env, stdin="there and back\n")
            read = run(*program, "consume", "words", cwd=tmp_path, env=env)
            assert "there and back" in read
            took_s = time.monotonic() - begun_s
        finally:
            broker.terminate()
    assert broker.returncode == 0
    record_property("measured", f"from nothing to the first served message: {took_s:.1f} s")


def test_pipx_installs_it(nothing: dict[str, str], tmp_path: Path) -> None:
    """`pipx install horolog`."""
    (command,) = without_a_clone("pipx")
    run(tmp_path / "bin/pipx", *command[1:], cwd=tmp_path, env=nothing)
    program = tmp_path / "home/.local/bin/horolog"
    assert "(compiled)" in run(program, "--version", cwd=tmp_path, env=nothing)


@pytest.mark.soak
def test_pip_installs_it_with_spark(index: Path, nothing: dict[str, str], tmp_path: Path) -> None:
    """`pip install 'horolog[spark]'`."""
    write_wheels(OF_SPARK, index)
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    (command,) = without_a_clone("pip")
    run(python, "-m", *command, cwd=tmp_path, env=nothing)
    said = run(python, "-I", "-c", "import horolog.pipeline, pyspark, pyarrow", env=nothing)
    assert said == ""


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        said = email.message_from_bytes(archive.read(name))
        (name,) = [name for name in archive.namelist() if name.endswith("/entry_points.txt")]
        entry_points = archive.read(name).decode()
        licences = [name for name in archive.namelist() if name.endswith("/LICENSE")]
    assert said["Version"] == horolog.__version__
    assert said["License-Expression"] == "Apache-2.0"
    assert {"spark", "java", "oauth", "certificates", "plot"} <= {
        *said.get_all("Provides-Extra", [])
    }
    assert len(licences) == 1
    assert "[pytest11]\nhorolog = horolog.testing.plugin\n" in entry_points


def test_the_description_has_no_link_that_breaks_on_another_page(root: Path, wheel: Path) -> None:
    """README.md links to files beside it, and shows pictures among them."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        said = email.message_from_bytes(archive.read(name))
    assert said["Description-Content-Type"] == "text/markdown"
    description = said.get_payload()
    assert isinstance(description, str)
    parsed = MarkdownIt().parse(description)
    tokens = [token for block in parsed for token in (block, *(block.children or ()))]
    targets = [str(token.attrs.get("href") or token.attrs.get("src") or "") for token in tokens]
    assert [target for target in targets if target and not target.startswith("https://")] == []
    headings = re.findall(r"^#.*$", (root / "README.md").read_text("utf-8"), re.MULTILINE)
    assert re.findall(r"^#.*$", description, re.MULTILINE) == headings
    assert not [token for token in tokens if token.type == "text" and "](" in token.content]


def test_the_source_archive_has_what_the_package_is_made_of_and_the_pages(
    source_archive: Path, sources: list[Path]
) -> None:
    with tarfile.open(source_archive) as archive:
        names = {
            Path(*Path(member.name).parts[1:]) for member in archive.getmembers() if member.isfile()
        }
    left_out = {"tests", "bench", "docker", "requirements", ".ci"}
    expected = {
        path
        for path in sources
        if path.parts[0] not in left_out
        and (len(path.parts) > 1 or path.suffix in (".py", ".toml", ".md", ".in", ".typed"))
    }
    written = {name for name in names if name.suffix != ".txt" and "egg-info" not in str(name)}
    assert written - {Path("PKG-INFO"), Path("setup.cfg"), Path("LICENSE")} == expected


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
