"""The program `horolog`: runs a command and turns errors into exit codes.

0 done, 1 refused or failed, 2 wrong usage. An error is one line on standard error, with --json one
JSON object.
"""

import sys
from collections.abc import Sequence

from ..compiled import KernelUnavailable
from ..memory import no_collection
from ..protocol.errors import HorologError, InvalidConfig
from .errors import INTERRUPTED, WRONG_USAGE, CommandFailed, OutputClosed, WrongUsage, note

__all__ = ["main", "run"]


def main() -> None:
    """Entry point of the program."""
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal cannot show is escaped; it must not end the command.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    try:
        return _dispatch(arguments)
    except OutputClosed:
        return 0
    except SystemExit as stop:  # raised by the parsers after --help or wrong usage
        return stop.code if isinstance(stop.code, int) else 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except KernelUnavailable as error:  # most modules cannot be imported now
        note(" ".join(str(error).split()))
        return WRONG_USAGE
    except (WrongUsage, InvalidConfig, CommandFailed, HorologError, OSError) as error:
        from .failures import report

        report(error, arguments)
        return _code(error)


def _dispatch(arguments: Sequence[str]) -> int:
    # Commands that start a broker do not use typer, whose import would slow the start down.
    match list(arguments):
        case ["serve", *rest]:
            from .serve import serve

            return serve(rest)
        case ["demo", *rest]:
            from .demo.command import demo

            return demo(rest)
    with no_collection():
        from .app import run_command_line

    return run_command_line(arguments)


def _code(error: Exception) -> int:
    from ..client.errors import SecurityError

    # InvalidConfig is a setting that is not allowed.
    usage = isinstance(error, WrongUsage | InvalidConfig | SecurityError)
    return WRONG_USAGE if usage else 1
