"""How much memory something takes."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

_ATTEMPTS: Final = 5


def memory_of(make: Callable[[], T], most: Callable[[T], float]) -> tuple[int, T]:
    """The bytes that are allocated after `make`, and its result. It is made again, a few times, if
    that is more than `most` of it: other threads of this process, such as that of the test kit's
    broker, allocate memory meanwhile."""
    for _ in range(_ATTEMPTS):
        taken, made = _memory(make)
        if taken <= most(made):
            break
    return taken, made


def _memory(make: Callable[[], T]) -> tuple[int, T]:
    gc.collect()  # Python keeps the memory of small objects for the next ones, until it collects.
    tracemalloc.start()
    try:
        made = make()
        gc.collect()
        return tracemalloc.get_traced_memory()[0], made
    finally:
        tracemalloc.stop()
