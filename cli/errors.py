"""How a command ends other than by being done."""

from typing import Final

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
