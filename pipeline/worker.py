"""What only a process of Spark's is told."""

import os
from typing import Final

from .. import memory

_USED_AGAIN: Final = "SPARK_REUSE_WORKER"
"""Environment variable of a worker that gets one task after the other."""

_settled: set[int] = set()
"""The processes that `settle` has been called in."""


def settle() -> None:
    """Call `memory.settle` in a worker of Spark's; once.

    Spark has such a worker collect garbage after each task. To look at all modules again and again
    takes longer than many a task, and finds nothing.
    """
    if _USED_AGAIN in os.environ and os.getpid() not in _settled:
        _settled.add(os.getpid())
        memory.settle()
