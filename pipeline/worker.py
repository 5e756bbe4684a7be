"""What a process of Spark's workers gets, and others do not."""

import os
import sys
import traceback
from typing import Any, Final

from .. import memory

_USED_AGAIN: Final = "SPARK_REUSE_WORKER"
"""Environment variable of a worker that gets one task after the other."""

_DAEMON: Final = "pyspark.daemon"
"""The program that workers are forked from."""

_LET_GO: Final = (BrokenPipeError, ConnectionResetError)

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


def end_quietly() -> None:
    """Have this process, if it is a worker of Spark's, print nothing when Spark lets go of it.

    Spark closes the connection of a worker as soon as it needs it no more: it has the plan or the
    rows that it wants, the job is cancelled, the session stops. What the worker says last cannot
    be delivered then, and its program prints that with a traceback.
    """
    program: Any = sys.modules["__main__"]
    if getattr(getattr(program, "__spec__", None), "name", None) == _DAEMON:
        program.traceback = _Traceback()


class _Traceback:
    """The module `traceback` as that program uses it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def print_exc(self) -> None:
        """As the function of the module, but of a connection that was closed."""
        if not isinstance(sys.exception(), _LET_GO):
            traceback.print_exc()
