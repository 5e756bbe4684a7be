"""Settings of the garbage collector and of the C library's allocator, for processes that serve."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

KEPT_BYTES: Final = 16 << 20
"""Free memory at the end of the heap above which the C library returns it to the system."""

_ON_ITS_OWN_BYTES: Final = 4 << 20
"""Size from which the C library maps an allocation on its own, and returns it once it is freed."""

_COLLECTED_AFTER: Final = (700, 10, 2**31 - 1)
"""Thresholds of `gc.set_threshold`: a collection of the youngest generation after 700 new objects,
of the next after 10 such collections, and practically never a full collection."""

_LOOKED_THROUGH_MAX: Final = 50_000
"""Number of objects for which a full collection takes about 20 ms."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_CHOSEN_BY: Final = ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")


@contextmanager
def no_collection() -> Iterator[None]:
    """Switch garbage collection off within the block. For imports: they leave no garbage, and
    looking for it takes a tenth of their time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def settle() -> None:
    """Tune a process that has made its long-lived objects. A broker calls this twice: when it
    begins to serve, and when it has opened its logs.

    From now on the garbage collector skips all objects that exist now: a collection over thousands
    of logs would stop a broker for 50 ms at a time. It makes no full collection by itself: with
    the values of a large request or thousands of new logs that takes 100 ms, in the middle of a
    request. Call `collect_garbage` when there is time.
    """
    gc.freeze()
    gc.set_threshold(*_COLLECTED_AFTER)
    keep_freed_memory()


def collect_garbage() -> None:
    """Collect garbage among the objects made since `settle`. Does nothing if `settle` was not
    called, or if there can be no garbage.

    If many objects remain, such as those of thousands of new logs, later collections skip them:
    each would stop the broker for as long as this one.
    """
    if gc.get_threshold() == _COLLECTED_AFTER and gc.get_count()[-1]:
        gc.collect()
        if _count_objects() > _LOOKED_THROUGH_MAX:
            gc.freeze()


def _count_objects() -> int:
    """Number of objects that a full collection looks through.

    The list of them lives within a single call of a C function. If it lived from one bytecode to
    the next, another thread could meanwhile shrink a tuple that `tuple(generator)` has built in
    part: CPython raises SystemError for a tuple with a second reference.
    """
    return next(map(len, iter(gc.get_objects, None)))


def keep_freed_memory() -> None:
    """Have glibc keep freed memory for later allocations. Does nothing with another C library, or
    where an environment variable configures the allocator.

    By default glibc returns the memory of a turn's requests to the system when the turn ends, and
    in the next turn the system has to find, clear and map the pages again: a sixth of the time of
    a busy broker.
    """
    if any(name in os.environ for name in _CHOSEN_BY):
        return
    import ctypes  # Here, because a program that does not call this starts faster without it.

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _ON_ITS_OWN_BYTES)
