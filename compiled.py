"""Which modules can be compiled, and whether their compiled form is what is imported.

A compiled module lies beside its source, where Python prefers it. It carries a digest of the
sources that it was made from: with other sources there it is passed over, so that no change is
ever hidden by an old file. `HOROLOG_KERNEL=interpreted` passes over all of them.

`setup.py` reads this file too, before there is a package: it imports nothing of ours.
"""

import importlib.machinery
import importlib.util
import os.path
import sys
import zlib
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Final

PACKAGE: Final = "horolog.protocol.records.kernel"
FOLDER: Final = "protocol/records/kernel"
"""The place of `PACKAGE` below the package's root."""
MODULES: Final = (
    "batch_head",
    "gathering",
    "packing",
    "record_check",
    "record_cursor",
    "record_gathering",
    "record_packing",
    "record_rewriting",
    "rewriting",
    "rows",
    "scans",
    "sent_batches",
    "walk",
    "walked",
)
SOURCES: Final = (
    *(f"{name}.{kind}" for name in MODULES for kind in ("py", "pxd")),
    "kernel.h",
)
VARIABLE: Final = "HOROLOG_KERNEL"


def sources_digest(root: str) -> str:
    """Eight hexadecimal digits of what is in the sources below `root`."""
    crc = 0
    for name in SOURCES:
        with open(os.path.join(root, FOLDER, name), "rb") as source:
            crc = zlib.crc32(source.read(), zlib.crc32(name.encode(), crc))
    return f"{crc:08x}"


def is_made_from(path: str, digest: str) -> bool:
    """Whether the compiled module at `path` is there and was made from sources of that digest."""
    try:
        with open(path, "rb") as compiled:
            return f"horolog-sources:{digest}".encode() in compiled.read()
    except FileNotFoundError:
        return False


class FromSource:
    """A finder that imports the source of the modules, whatever lies beside it."""

    def __init__(self, root: str) -> None:
        self._folder = os.path.join(root, FOLDER)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package, _, module = name.rpartition(".")
        if package != PACKAGE or module not in MODULES:
            return None
        return importlib.util.spec_from_file_location(
            name, os.path.join(self._folder, f"{module}.py")
        )


def choose(environ: Mapping[str, str]) -> None:
    """Make imports take the compiled modules, or the sources where they are not of use."""
    wanted = environ.get(VARIABLE, "")
    if wanted not in ("", "compiled", "interpreted"):
        raise ImportError(f"{VARIABLE} is compiled or interpreted, not {wanted!r}")
    root = os.path.dirname(os.path.abspath(__file__))
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    if wanted != "interpreted":
        paths = [os.path.join(root, FOLDER, name + suffix) for name in MODULES]
        digest = sources_digest(root) if os.path.exists(paths[0]) else ""
        if digest and all(is_made_from(path, digest) for path in paths):
            return
        if wanted == "compiled":
            raise ImportError(f"{VARIABLE} is compiled, and the kernel is not: make setup does it")
    # In a zip file nothing compiled can lie beside the sources.
    if os.path.isdir(os.path.join(root, FOLDER)):
        sys.meta_path.insert(0, FromSource(root))


def source_form(name: str) -> ModuleType:
    """The module, interpreted, under a second name beside what Python imports under the first."""
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), FOLDER)
    path = os.path.join(folder, f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"{PACKAGE}.{name}_source", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
