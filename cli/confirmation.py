"""Questions on the terminal before something is deleted, moved or repaired."""

import sys
from typing import Final

from ..printable import printable
from .errors import CommandFailed, print_error

_CURE: Final = "Give --yes to do it without the question"


def confirm(question: str, unchanged: str) -> None:
    """Ask a question on the terminal. Raises CommandFailed unless the answer is yes; `unchanged`
    is its text, such as `nothing was deleted`."""
    while True:
        if sys.stderr is not None:
            sys.stderr.write(printable(f"{question} [y/N] "))
            sys.stderr.flush()
        line = sys.stdin.readline()
        if not line.endswith("\n"):  # Ctrl-D, and the cursor is still behind the question
            print_error("")
            raise CommandFailed(f"{unchanged}: the question was not answered", _CURE)
        answer = line.strip().lower()
        if answer in ("y", "yes"):
            return
        if answer in ("", "n", "no"):
            raise CommandFailed(unchanged, _CURE)
        print_error("Please answer y or n.")
