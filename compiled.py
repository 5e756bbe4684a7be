"""Which form of the kernel runs, and from which sources the compiled form is built.

The compiled module lies beside its sources and contains a digest of them. If the sources have
changed since, the module is ignored, so that an old build never hides a change.
`HOROLOG_KERNEL=reference` ignores the module too; with `HOROLOG_KERNEL=compiled` a module that
cannot be used is an error.

`setup.py` imports this file before the package exists, so it imports no other module of Horolog.
"""

import importlib
import os
import zlib
from typing import Final

PACKAGE: Final = "horolog.protocol.records.kernel"
FOLDER: Final = "protocol/records/kernel"
"""Folder of `PACKAGE`, relative to the repository's root."""
MODULE: Final = "compiled"
SOURCES: Final = (
    "compiled.pyx",
    "bytes.pxi",
    "unchanged.pxi",
    "rows.pxi",
    "search.pxi",
    "walk.pxi",
    "messages.pxi",
    "records.pxi",
    "latencies.pxi",
    "columns.pxi",
    "collecting.pxi",
    "fields.pxi",
    "packed.pxi",
    "spans.pxi",
    "times.pxi",
    "keeping.pxi",
    "kernel.h",
)
VARIABLE: Final = "HOROLOG_KERNEL"
FORMS: Final = ("compiled", "reference")
PRICE: Final = (
    "checking and storing a message takes the kernel's reference form about 2 microseconds of "
    "processor time, and the compiled one 25 nanoseconds"
)
"""Cost of the reference form, for users. Measured with messages of 100 bytes in sets of 64 KiB:
`python -m horolog.bench.kernel`, "store as sent"."""
REMEDY: Final = "with a C compiler there, install horolog again"

_warned: set[int] = set()
"""Ids of the processes in which `warn_of_reference` has logged its warning."""


class KernelUnavailable(ImportError):
    """`HOROLOG_KERNEL` names a form that does not exist or cannot be used."""


def sources_digest(root: str) -> str:
    """CRC-32 of the kernel's sources below `root`, as eight hexadecimal digits. Empty if a source
    cannot be read, as in a zip file."""
    crc = 0
    for name in SOURCES:
        try:
            with open(os.path.join(root, FOLDER, name), "rb") as source:
                crc = zlib.crc32(source.read(), zlib.crc32(name.encode(), crc))
        except OSError:
            return ""
    return f"{crc:08x}"


def kernel_form() -> str:
    """The form of the kernel to use in this process: one of `FORMS`. Raises `KernelUnavailable` if
    `HOROLOG_KERNEL` asks for a form that cannot be used."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", *FORMS):
        raise KernelUnavailable(f"{VARIABLE} is compiled or reference, not {wanted!r}")
    if wanted == "reference":
        return wanted
    reason = _why_not_compiled(os.path.dirname(os.path.abspath(__file__)))
    if not reason:
        return "compiled"
    if wanted == "compiled":
        raise KernelUnavailable(
            f"{VARIABLE} is compiled, and {reason}: make setup compiles it in a checkout, "
            "installing the package again elsewhere"
        )
    return "reference"


def warn_of_reference(form: str) -> None:
    """Log a warning, once per process, if `form` is the reference form."""
    if form == "reference" and os.getpid() not in _warned:
        import logging

        _warned.add(os.getpid())
        logging.getLogger("horolog").warning("the kernel is not compiled: %s; %s", PRICE, REMEDY)


def _why_not_compiled(root: str) -> str:
    """Why the compiled kernel below `root` cannot be used; empty if it can."""
    name = f"{PACKAGE}.{MODULE}"
    try:
        made_from: str = importlib.import_module(name).SOURCES
    except ModuleNotFoundError as error:
        if error.name == name:
            return "the kernel is not compiled for this Python"
        return f"the compiled kernel cannot be loaded ({error})"
    except Exception as error:  # a module built from other sources may fail in any way
        return f"the compiled kernel cannot be loaded ({error})"
    # An installation may have no sources; then there is nothing that the module could be older
    # than.
    sources = (os.path.join(root, FOLDER, source) for source in SOURCES)
    if made_from == sources_digest(root) or not any(map(os.path.lexists, sources)):
        return ""
    return "the compiled kernel was made from other sources"
