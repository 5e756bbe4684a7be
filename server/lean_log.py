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
    """Let structlog find no `rich` when it is loaded, in this process; others find it.

    Not for a broker inside another program, which may want those tracebacks in its own log.
    """
    if not any(isinstance(finder, _NotForLog) for finder in sys.meta_path):
        sys.meta_path.insert(0, _NotForLog())


class _NotForLog:
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == _UNUSED and _is_loading(_USER):
            raise ModuleNotFoundError(f"{_USER} does without {_UNUSED}", name=name)
        return None


def _is_loading(name: str) -> bool:
    """Whether a module is half-way through its import."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))
