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
"""Of messages of 100 bytes in sets of 64 KiB: `python -m horolog.bench.kernel`, "store as sent"."""
REMEDY: Final = "with a C compiler there, install horolog again"

_warned: set[int] = set()
"""The processes in which `warn_of_reference` has logged its warning."""


class KernelUnavailable(ImportError):
    """`HOROLOG_KERNEL` asks for a form that there is not."""


def sources_digest(root: str) -> str:
    """Eight hexadecimal digits of what is in the sources below `root`; empty where one of them
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
    """The form to use here: one of `FORMS`. `KernelUnavailable` where the one asked for is not
    there."""
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
    """Log a warning, once a process, if the kernel is in its reference form."""
    if form == "reference" and os.getpid() not in _warned:
        import logging

        _warned.add(os.getpid())
        logging.getLogger("horolog").warning("the kernel is not compiled: %s; %s", PRICE, REMEDY)


def _why_not_compiled(root: str) -> str:
    """Why the compiled kernel below `root` cannot be used; empty where it can."""
    name = f"{PACKAGE}.{MODULE}"
    try:
        made_from: str = importlib.import_module(name).SOURCES
    except ModuleNotFoundError as error:
        if error.name == name:
            return "the kernel is not compiled for this Python"
        return f"the compiled kernel cannot be loaded ({error})"
    except Exception as error:  # what was made from other sources may fail in any way
        return f"the compiled kernel cannot be loaded ({error})"
    # An installation may come without sources, and then there are no others.
    sources = (os.path.join(root, FOLDER, source) for source in SOURCES)
    if made_from == sources_digest(root) or not any(map(os.path.lexists, sources)):
        return ""
    return "the compiled kernel was made from other sources"
