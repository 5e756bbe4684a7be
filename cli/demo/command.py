"""`horolog demo`: runs a broker, and the tour beside it."""

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ...server.main import serve
from ...server.network.ports import Addresses
from ..broker_options import HISTORY
from ..serve import broker_parser, settings_of
from .tour import Tour, program_started_as

_DESCRIPTION = (
    "Run a broker until it is stopped (Ctrl-C, SIGTERM), feed it real input and show what it does "
    "with it: the history of a git repository or the files of this Python installation, with "
    "their times, and a sample of this host's load every second. Nothing is downloaded."
)


def demo(arguments: Sequence[str]) -> int:
    """Run the demo until SIGTERM or SIGINT; returns the exit code."""
    parser = broker_parser("horolog demo", _DESCRIPTION)
    parser.add_argument(HISTORY.flag, metavar=HISTORY.metavar, type=Path, help=HISTORY.help)
    options = parser.parse_args(arguments)
    environ = dict(os.environ)
    if options.config is None:
        # The broker's log lines would appear between the lines of the tour.
        environ.setdefault("HOROLOG_LOG_LEVEL", "warning")
    settings = settings_of(parser, options, environ)
    return serve(settings, beside=partial(_show, options.history, settings.data_dir))


async def _show(history: Path | None, data_dir: Path, addresses: Addresses) -> None:
    await Tour(addresses, data_dir, history, program_started_as(sys.argv[0])).run()
