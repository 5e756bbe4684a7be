"""The ways in which a command fails, and output to the standard streams, any of which may be
closed, full or without a reader."""

import os
import sys
from typing import Final, TextIO

from ..printable import printable

WRONG_USAGE: Final = 2

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as shells give it: 128 and the number of SIGINT."""


class CommandFailed(Exception):
    """The command failed: exit code 1. The text is for the user. `cure` says what to do, if the
    text does not."""

    def __init__(self, text: str, cure: str = "") -> None:
        super().__init__(text)
        self.cure = cure


class OutputClosed(Exception):
    """The reader of standard output has gone (`| head`), so the command ends."""


class OutputFailed(CommandFailed):
    """Standard output cannot be written, for example because the disk is full."""


class WrongUsage(Exception):
    """The command line is wrong: exit code 2. The text is for the user, and says what to write."""


def note(text: str) -> None:
    """Print a message of the program, in one line, on standard error."""
    print_error(f"horolog: {printable(text)}")


def print_error(line: str) -> None:
    """Print a line on standard error, without escaping."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except OSError:
        drop(sys.stderr)  # a note that cannot be printed does not change how the command ends


def drop(stream: TextIO | None) -> None:
    """Redirect a stream to the null device, because the interpreter flushes its buffer at exit."""
    if stream is not None:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a standard stream is a terminal."""
    return stream is not None and stream.isatty()
