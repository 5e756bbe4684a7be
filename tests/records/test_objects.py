"""What compiling has to gain: no Python object for each message.

A type that gets lost in a declaration is caught here: every number is a Python object again then.
"""

import ctypes
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from horolog.bench.kernel import OfForm, works

from .conftest import form_of

pytestmark = pytest.mark.parametrize("form", ["compiled"], indirect=True)

SMALL, LARGE = 100, 1024
"""Sizes of values: many messages in a set, and few."""

OF_A_SET = 60
"""Objects for all of a set, however many messages it has. There are 4 to 36."""

OF_A_CALL = 20
"""With one message."""

TRIES = 5
"""The least of them counts: another thread of the process may make objects beside one."""

Count = Callable[[OfForm, ModuleType], int]


@pytest.fixture(scope="module")
def count(tmp_path_factory: pytest.TempPathFactory) -> Count:
    """Counts the objects that are made by one form of the kernel."""
    library = tmp_path_factory.mktemp("counting") / "allocations.so"
    source = Path(__file__).with_name("allocations.c")
    flags = ("-shared", "-fPIC", "-Wall", "-Wextra", "-Werror")
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run(["cc", *flags, include, str(source), "-o", str(library)], check=True)
    counter = ctypes.PyDLL(str(library))
    counter.end.restype = ctypes.c_long

    def counted(work: OfForm, module: ModuleType) -> int:
        work(module)  # what is made once is there
        return min(count_once(work, module) for _ in range(TRIES))

    def count_once(work: OfForm, module: ModuleType) -> int:
        counter.begin()
        try:
            work(module)
        finally:
            made: int = counter.end()
        return made

    return counted


@pytest.mark.parametrize("value_bytes", [SMALL, LARGE])
@pytest.mark.parametrize("what", [what for what, _, _ in works(SMALL)])
def test_the_compiled_form_makes_no_objects_for_each_message(
    what: str, value_bytes: int, count: Count
) -> None:
    ((messages, work),) = [found[1:] for found in works(value_bytes) if found[0] == what]
    made = count(work, form_of("compiled"))
    assert made <= (OF_A_SET if messages > 1 else OF_A_CALL)
    assert count(work, form_of("reference")) > 5 * messages, "and those of the other are counted"
