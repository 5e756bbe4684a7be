"""Everything here that asks the kernel itself runs against both of its forms, in one process."""

import importlib
import os
from collections.abc import Iterator
from types import ModuleType

import pytest

from horolog.compiled import FORMS
from horolog.protocol.records import kernel
from horolog.protocol.records.kernel import reference

KERNEL = [
    name
    for name, value in vars(reference).items()
    if not (name.startswith("_") or name == "FORM" or isinstance(value, ModuleType))
]
"""The kernel's names."""


def form_of(form: str) -> ModuleType:
    """The kernel in that form. Without a compiled one the test skips, or fails under
    `HOROLOG_REQUIRE=all`."""
    if form == "compiled" and kernel.FORM != "compiled":
        missing = pytest.fail if os.environ.get("HOROLOG_REQUIRE") == "all" else pytest.skip
        missing("the kernel is not compiled; make setup does it where a C compiler is")
    return importlib.import_module(f"{kernel.__name__}.{form}")


@pytest.fixture(scope="module", params=FORMS, autouse=True)
def form(request: pytest.FixtureRequest) -> Iterator[str]:
    """The form under test; what a test module imported from the kernel is of that form."""
    mine = vars(request.module)
    imported = vars(kernel)
    wanted = [name for name in KERNEL if name in mine and mine[name] is imported[name]]
    before = {name: mine[name] for name in wanted}
    other = form_of(request.param)
    mine.update({name: getattr(other, name) for name in wanted})
    yield request.param
    mine.update(before)
