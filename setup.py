"""Compiles the kernel, if Cython and a C compiler are installed.

Without them, or if the compilation fails, setup prints one line about it and installs the package
all the same; the kernel's reference form is used then. With `HOROLOG_KERNEL=compiled` in the
environment a failure is an error, and with `HOROLOG_KERNEL=reference` nothing is compiled.

The long description is README.md without what would break on the page of a package index. The rest
of the configuration is in pyproject.toml.
"""

import os
import re
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
from compiled import FOLDER, MODULE, PACKAGE, PRICE, VARIABLE, sources_digest  # noqa: E402

sys.path.remove(str(ROOT))

DIGEST = sources_digest(str(ROOT))

# The warnings switched off here are those that Cython's generated C code causes in every module.
WARNINGS = [
    "-Wall",
    "-Wextra",
    "-Wno-unused-function",
    "-Wno-unused-parameter",
    "-Wno-sign-compare",
]


class BuildKernel(build_ext):
    """Compiles the kernel if its sources have changed; not with `HOROLOG_KERNEL=reference`.

    A failure is an error only with `HOROLOG_KERNEL=compiled`.
    """

    force: bool

    def run(self) -> None:
        if os.environ.get(VARIABLE) == "reference":
            return
        try:
            super().run()
        except (Exception, SystemExit) as error:
            reason = " ".join(str(error).split())[:80] or type(error).__name__
            if os.environ.get(VARIABLE) == "compiled":
                sys.exit(f"{VARIABLE} is compiled, and the kernel was not compiled: {reason}")
            sys.stderr.write(f"The kernel was not compiled ({reason}): {PRICE}\n")

    def build_extensions(self) -> None:
        (kernel,) = self.extensions
        made = Path(self.get_ext_fullpath(kernel.name))
        record = Path(self.build_temp) / "made.txt"
        if not self.force and record.exists() and record.read_text() == _record_of(made):
            return
        record.unlink(missing_ok=True)
        compiler = sysconfig.get_config_var("CC") or "cc"
        program = os.environ.get("CC", compiler).split()[0]
        if shutil.which(program) is None:
            raise RuntimeError(f"there is no C compiler ({program})")
        self.force = True
        output = ROOT / "build" / "kernel" / "output.txt"
        try:
            with _output_to(output):
                _translate(kernel)
                super().build_extensions()
        except ImportError:
            raise
        except Exception:
            raise RuntimeError(f"{output.relative_to(ROOT)} says why") from None
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(_record_of(made))

    def copy_extensions_to_source(self) -> None:
        """Replace the module by a rename: a Python that loads a half-written file crashes."""
        for extension in self.extensions:
            made = Path(self.build_lib) / self.get_ext_filename(extension.name)
            part = ROOT / FOLDER / f"{made.name}.part"
            shutil.copy(made, part)
            part.replace(ROOT / FOLDER / made.name)

    def get_outputs(self) -> list[str]:
        return [path for path in super().get_outputs() if os.path.exists(path)]


class WithoutThisFile(build_py):
    """Leaves `setup.py` out of the package. The repository's root is the package, so setuptools
    would include this file."""

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


def _record_of(made: Path) -> str:
    """The text that records a complete compiled module: digest of its sources, size, path."""
    size_bytes = made.stat().st_size if made.exists() else -1
    return f"{DIGEST} {size_bytes} {made}\n"


def _translate(kernel: Extension) -> None:
    """Write the C source into the build folder, unless it is up to date. Raises `ImportError`
    without Cython.

    Cython needs folders with the names of the packages, and the repository's folder may have any
    name; so the sources are copied into such folders.
    """
    from importlib.metadata import version

    from Cython.Build import cythonize

    package = ROOT / "build" / "kernel" / PACKAGE.replace(".", os.sep)
    written, record = package / f"{MODULE}.c", package / "written.txt"
    made_of = f"{DIGEST} {version('Cython')}\n"
    if written.exists() and record.exists() and record.read_text() == made_of:
        kernel.sources = [str(written)]
        return
    package.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(ROOT / FOLDER, package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for folder in (package, *package.parents[: PACKAGE.count(".")]):
        (folder / "__init__.py").touch()
    made = Extension(kernel.name, [str(package / f"{MODULE}.pyx")])
    (translated,) = cythonize([made], force=True, quiet=True)
    kernel.sources = translated.sources
    record.write_text(made_of)


def _description() -> str:
    """README.md without its pictures, and with the texts alone of links to files of the repository:
    a package index has neither."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n\n?", "", text, flags=re.MULTILINE)
    return re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", text)


setup(
    long_description=_description(),
    long_description_content_type="text/markdown",
    cmdclass={"build_ext": BuildKernel, "build_py": WithoutThisFile},
    ext_modules=[
        Extension(
            f"{PACKAGE}.{MODULE}",
            [f"{FOLDER}/{MODULE}.pyx"],
            include_dirs=[FOLDER],
            define_macros=[("HOROLOG_SOURCES", f'"{DIGEST}"')],
            # No SLP vectorization: it loads two fields that were just stored as one vector, and
            # the processor stalls on that.
            extra_compile_args=["-O2", "-fno-tree-slp-vectorize", "-g0", *WARNINGS],
        )
    ],
)
