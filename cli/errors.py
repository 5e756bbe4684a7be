"""How a command ends other than by being done, and the standard streams, any of which may be
closed, full or without a reader."""

import os
import sys
from typing import Final, TextIO

from ..printable import printable

WRONG_USAGE: Final = 2

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as shells give it: 128 and the number of SIGINT."""


class CommandFailed(Exception):
    """The command could not do what was asked: exit code 1. The text is for the user."""


class OutputClosed(Exception):
    """Standard output is not read any more (`| head`): there is nothing left to do."""


class OutputFailed(CommandFailed):
    """Standard output takes no more, as on a disk that is full."""


class WrongUsage(Exception):
    """The command line does not say what to do: exit code 2. The text is for the user."""


def note(text: str) -> None:
    """Print something that is no output, in one line on standard error."""
    print_error(f"horolog: {printable(text)}")


def print_error(line: str) -> None:
    """Print a line on standard error as it is."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except OSError:
        drop(sys.stderr)  # nothing can be printed, which is no reason to end otherwise


def drop(stream: TextIO | None) -> None:
    """What is still to be written there goes nowhere: the interpreter flushes once more when it
    exits."""
    if stream is not None:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a standard stream is a terminal."""
    return stream is not None and stream.isatty()
