"""Compiles the kernel where Cython and a C compiler are there.

Without them, or when it cannot be compiled, one line says so and everything is installed all the
same: the kernel then runs as plain Python. All else is in pyproject.toml.
"""

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))
from compiled import FOLDER, MODULES, PACKAGE, SOURCES, is_made_from, sources_digest  # noqa: E402

sys.path.remove(str(ROOT))

DIGEST = sources_digest(str(ROOT))

DIRECTIVES = {
    "language_level": 3,
    "auto_pickle": False,
    "annotation_typing": False,  # the types are in the .pxd files
    "binding": False,
    "boundscheck": False,
    "cdivision": True,
    "initializedcheck": False,
    "wraparound": False,
}


class BuildKernel(build_ext):
    """Compiles what has changed, several modules at a time, and never fails."""

    def run(self) -> None:
        self.parallel = len(MODULES)
        try:
            super().run()
        except (Exception, SystemExit) as error:
            reason = " ".join(str(error).split())[:80] or type(error).__name__
            sys.stderr.write(f"The kernel was not compiled and runs as plain Python: {reason}\n")

    def build_extensions(self) -> None:
        paths = [self.get_ext_fullpath(extension.name) for extension in self.extensions]
        if all(is_made_from(path, DIGEST) for path in paths):
            return
        compiler = sysconfig.get_config_var("CC") or "cc"
        program = os.environ.get("CC", compiler).split()[0]
        if shutil.which(program) is None:
            raise RuntimeError(f"there is no C compiler ({program})")
        self.force = True
        output = ROOT / "build" / "kernel" / "output.txt"
        try:
            with _output_to(output):
                _translate(self.extensions)
                super().build_extensions()
        except ImportError:
            raise
        except Exception:
            raise RuntimeError(f"{output.relative_to(ROOT)} says why") from None

    def get_outputs(self) -> list[str]:
        return [path for path in super().get_outputs() if os.path.exists(path)]


class WithoutThisFile(build_py):
    """The root is the package, and what lies in it belongs to it; only this file does not."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        found = super().find_package_modules(package, package_dir)
        return [module for module in found if module[:2] != ("horolog", "setup")]


@contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Let what compilers write go to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(number) for number in (1, 2)]
    try:
        with path.open("wb") as file:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
            yield
    finally:
        for number, original in zip((1, 2), kept, strict=True):
            os.dup2(original, number)
            os.close(original)


def _translate(extensions: list[Extension]) -> None:
    """Write the C sources; `ImportError` without Cython.

    Cython finds .pxd files by the names of the folders, and the root's can be anything.
    """
    from Cython.Build import cythonize

    staged = ROOT / "build" / "kernel" / PACKAGE.replace(".", os.sep)
    staged.mkdir(parents=True, exist_ok=True)
    for folder in (staged, *staged.parents[: PACKAGE.count(".")]):
        (folder / "__init__.py").touch()
    for name in SOURCES:
        shutil.copy(ROOT / FOLDER / name, staged)
    for extension in extensions:
        module = extension.name.rpartition(".")[2]
        made = Extension(extension.name, [str(staged / f"{module}.py")])
        (translated,) = cythonize([made], compiler_directives=DIRECTIVES, force=True, quiet=True)
        extension.sources = translated.sources


setup(
    cmdclass={"build_ext": BuildKernel, "build_py": WithoutThisFile},
    ext_modules=[
        Extension(
            f"{PACKAGE}.{module}",
            [f"{FOLDER}/{module}.py"],
            include_dirs=[FOLDER],
            define_macros=[("HOROLOG_SOURCES", f'"{DIGEST}"')],
            # Two fields that were just stored, loaded as one vector, keep the processor waiting.
            extra_compile_args=["-O2", "-fno-tree-slp-vectorize", "-g0", "-w"],
        )
        for module in MODULES
    ],
)
