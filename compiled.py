"""Which form of the kernel runs, and what the compiled one is made of.

The compiled module lies beside its sources, and carries a digest of them: with other sources there
it is passed over, so that an old file never hides a change. `HOROLOG_KERNEL=reference` passes over
it too, and `compiled` refuses to do without it.

`setup.py` reads this file before there is a package: it imports nothing of ours.
"""

import importlib
import os
import zlib
from typing import Final

PACKAGE: Final = "horolog.protocol.records.kernel"
FOLDER: Final = "protocol/records/kernel"
"""The place of `PACKAGE` below the package's root."""
MODULE: Final = "compiled"
SOURCES: Final = (
    "compiled.pyx",
    "bytes.pxi",
    "walk.pxi",
    "messages.pxi",
    "records.pxi",
    "batches.pxi",
    "columns.pxi",
    "kernel.h",
)
VARIABLE: Final = "HOROLOG_KERNEL"
FORMS: Final = ("compiled", "reference")


def sources_digest(root: str) -> str:
    """Eight hexadecimal digits of what is in the sources below `root`; empty where there are none,
    as in a zip file."""
    crc = 0
    for name in SOURCES:
        try:
            with open(os.path.join(root, FOLDER, name), "rb") as source:
                crc = zlib.crc32(source.read(), zlib.crc32(name.encode(), crc))
        except (FileNotFoundError, NotADirectoryError):
            return ""
    return f"{crc:08x}"


def kernel_form() -> str:
    """The form to use here: one of `FORMS`. `ImportError` where the one asked for is not there."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", *FORMS):
        raise ImportError(f"{VARIABLE} is compiled or reference, not {wanted!r}")
    if wanted == "reference":
        return wanted
    try:
        made_from: str = importlib.import_module(f"{PACKAGE}.{MODULE}").SOURCES
    except ImportError:
        made_from = ""
    if made_from and made_from == sources_digest(os.path.dirname(os.path.abspath(__file__))):
        return "compiled"
    if wanted == "compiled":
        raise ImportError(f"{VARIABLE} is compiled, and the kernel is not: make setup does it")
    return "reference"
