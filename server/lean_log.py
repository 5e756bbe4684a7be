"""The library of the log, without what it would load and this program does not use."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

_UNUSED: Final = "rich"
"""structlog loads it where it is, for tracebacks in colours and boxes. It takes 3 MB."""
_USER: Final = "structlog.dev"


def load_lean_log() -> None:
    """Have `rich` not be there for structlog, in this process; it is for everybody else.

    Not for a broker inside another program, which may want those tracebacks of its own log.
    """
    if not any(isinstance(finder, _NotForLog) for finder in sys.meta_path):
        sys.meta_path.insert(0, _NotForLog())


class _NotForLog:
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == _UNUSED:
            frame = sys._getframe()
            while (caller := frame.f_back) is not None:
                frame = caller
                if frame.f_globals.get("__name__") == _USER:
                    raise ModuleNotFoundError(f"{_USER} does without {_UNUSED}", name=name)
        return None
