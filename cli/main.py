"""The program `horolog`: runs a command and turns errors into exit codes.

0 done, 1 refused or failed, 2 wrong usage. An error is one line on standard error.
"""

import sys
from collections.abc import Sequence

from ..compiled import KernelUnavailable
from ..memory import no_collection
from ..protocol.errors import HorologError, InvalidConfig, UnknownTopicOrPartition
from .errors import INTERRUPTED, WRONG_USAGE, CommandFailed, OutputClosed, WrongUsage, note


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
    except (KernelUnavailable, WrongUsage, InvalidConfig) as error:
        # InvalidConfig is a setting that is not allowed.
        note(_explained(error))
        return WRONG_USAGE
    except (CommandFailed, HorologError, OSError) as error:
        note(_explained(error))
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
        from .app import program

        command_line = program()
    command_line(args=list(arguments), prog_name="horolog")
    return 0


def _code(error: Exception) -> int:
    from ..client.errors import SecurityError

    return WRONG_USAGE if isinstance(error, SecurityError) else 1


def _explained(error: Exception) -> str:
    """Return the error as one line, with advice where the remedy is not obvious."""
    text = " ".join(str(error).split())
    if isinstance(error.__cause__, ConnectionRefusedError):
        return f"{text}. Start a broker with `horolog serve`, or name another one with --server"
    if isinstance(error, UnknownTopicOrPartition):
        return f"{text}. `horolog topic list` shows what there is"
    return text
