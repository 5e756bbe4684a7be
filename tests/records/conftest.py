"""Everything here that asks the kernel itself runs against both of its forms, in one process."""

import importlib
import os
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType

import pytest

from horolog.compiled import MODULES, PACKAGE, source_form

FORMS = ("interpreted", "compiled")


def form_of(name: str, form: str) -> ModuleType:
    """One of the modules that can be compiled, in that form.

    The source is loaded under a second name, beside what Python imports under the first. Without
    a compiled form the test skips, or fails under `HOROLOG_REQUIRE=all`.
    """
    module = importlib.import_module(f"{PACKAGE}.{name}")
    if form == "compiled":
        if module.FORM != "compiled":
            missing = pytest.fail if os.environ.get("HOROLOG_REQUIRE") == "all" else pytest.skip
            missing("the kernel is not compiled; make setup does it where a C compiler is")
        return module
    source = source_form(name)
    assert source.FORM == "interpreted"
    return source


@pytest.fixture(scope="module", params=FORMS, autouse=True)
def form(request: pytest.FixtureRequest) -> Iterator[str]:
    """The form under test; what a test module imported from the kernel is of that form."""
    mine = vars(request.module)
    before = {}
    for name in MODULES:
        imported = vars(importlib.import_module(f"{PACKAGE}.{name}"))
        shared = {
            key
            for key, value in imported.items()
            if callable(value) and getattr(value, "__module__", "") == f"{PACKAGE}.{name}"
        }
        if wanted := {key for key in mine if key in shared and mine[key] is imported[key]}:
            other = form_of(name, request.param)
            before.update({key: mine[key] for key in wanted})
            mine.update({key: getattr(other, key) for key in wanted})
    yield request.param
    mine.update(before)


@pytest.fixture(scope="session")
def source_of() -> Callable[[str], ModuleType]:
    """`source_of("walk")` is that module in its interpreted form, to compare with."""
    return cache(lambda name: form_of(name, "interpreted"))
