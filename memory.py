"""Memory that is not used any more, and who keeps it."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

KEPT_BYTES: Final = 16 << 20
"""The C library gives memory at the end of its heap back to the system above this."""

_ON_ITS_OWN_BYTES: Final = 4 << 20
"""From this size on it asks the system for a block, and gives it back at once."""

_COLLECTED_AFTER: Final = (700, 10, 2**31 - 1)
"""New objects after which the youngest generation is looked through, and rounds of each generation
after which the next one is: never of everything."""

_LOOKED_THROUGH_MAX: Final = 50_000
"""Objects that a look through everything takes some 20 ms for."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_CHOSEN_BY: Final = ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")


@contextmanager
def no_collection() -> Iterator[None]:
    """While modules are imported: nothing of them is garbage, and to look for it takes a tenth of
    the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def settle() -> None:
    """For a process that has made what it needs all the time, and works with it from now on. A
    broker does so twice: when it begins to serve, and when it has opened its logs.

    The garbage collector passes over what is there: to look for garbage among thousands of logs
    would stop a broker for 50 ms at a time. It no longer looks through everything by itself: with
    the values of a large request or thousands of new logs that takes 100 ms, in the middle of a
    request. `collect_garbage` is to be called where there is time.
    """
    gc.freeze()
    gc.set_threshold(*_COLLECTED_AFTER)
    keep_freed_memory()


def collect_garbage() -> None:
    """Look through all that was made since `settle`, if it was called and there may be garbage.

    Many objects that are left, such as those of thousands of new logs, are passed over from then
    on: each look through them would stop a broker for as long as the first one.
    """
    if gc.get_threshold() == _COLLECTED_AFTER and gc.get_count()[-1]:
        gc.collect()
        if len(gc.get_objects()) > _LOOKED_THROUGH_MAX:
            gc.freeze()


def keep_freed_memory() -> None:
    """Have the C library keep freed memory for what comes next, if it is glibc and nothing else
    says otherwise.

    Left to itself it returns what the requests of a turn took at the end of the turn, and the
    system has to find, clear and map the same pages again in the next: a sixth of the time of a
    busy broker.
    """
    if any(name in os.environ for name in _CHOSEN_BY):
        return
    import ctypes  # Not at the top: the start does without.

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _ON_ITS_OWN_BYTES)
