"""Programs that others have written, fetched from their registries when they are first run.

They go into `build/ecosystem`, which later runs need no network for.
"""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from shutil import which
from typing import Final

import pytest

PROGRAMS: Final = Path(__file__).with_name("programs")
CACHE: Final = Path(__file__).resolve().parents[2] / "build" / "ecosystem"
_INSTALL_SECONDS: Final = 600

_PIP: Final = "pip==26.3"
"""It needs half the processor time that the pip of Python 3.11 needs."""


def not_installed(reason: str) -> None:
    """Leave a test out by name; with `HOROLOG_REQUIRE=all` it fails instead."""
    if os.environ.get("HOROLOG_REQUIRE") == "all":
        pytest.fail(reason)
    pytest.skip(reason)


def python_of(name: str) -> Path:
    """The Python of an environment with the packages of `programs/NAME/requirements.txt`."""
    packages = PROGRAMS / name / "requirements.txt"
    pip = _environment("pip", _PIP, sys.executable)
    return _environment(name, packages.read_text("utf-8"), pip)


def _environment(name: str, packages: str, installer: Path | str) -> Path:
    """The Python of an environment with exactly these packages, by the pip of `installer`.

    Nothing is compiled ahead: a program imports a small part of what is installed.
    """
    folder = CACHE / f"{name}-{_digest(packages.encode())}"
    python = folder / "bin" / "python"

    def install(folder: Path) -> None:
        _run([sys.executable, "-m", "venv", "--without-pip", folder])
        wanted = folder / "requirements.txt"
        wanted.write_text(packages)
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile"]
        _run([installer, "-m", "pip", "--python", python, "install", *options, "-r", wanted])

    once(folder, install)
    return python


def go_program(name: str) -> Path:
    """The program in Go of `programs/NAME`, with the modules of its `go.sum`."""
    if which("go") is None:
        not_installed(f"{name} needs Go")
    source = PROGRAMS / name
    files = sorted(path for path in source.iterdir() if path.is_file())
    folder = CACHE / f"{name}-{_digest(b''.join(path.read_bytes() for path in files))}"
    program = folder / name

    def install(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        kept = {"GOMODCACHE": str(CACHE / "go-modules"), "GOCACHE": str(CACHE / "go-cache")}
        build = ["go", "build", "-C", source, "-modcacherw", "-o", program, "."]
        _run(build, {**os.environ, **kept, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"})

    once(folder, install)
    return program


def once(folder: Path, install: Callable[[Path], None]) -> None:
    """Have `install` fill a folder, if that was not done yet, by whichever process comes first."""
    with _locked(folder):
        if not (folder / "complete").exists():
            try:
                install(folder)
            except (OSError, subprocess.SubprocessError) as error:
                said = getattr(error, "stderr", None) or ""
                not_installed(f"{folder.name} could not be installed: {error} {said[-500:]}")
            (folder / "complete").touch()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _digest(content: bytes) -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return sha256(version.encode() + content).hexdigest()[:16]


def _run(command: list[object], environment: Mapping[str, str] | None = None) -> None:
    subprocess.run(
        [*map(str, command)],
        check=True,
        capture_output=True,
        text=True,
        timeout=_INSTALL_SECONDS,
        env=environment,
    )
