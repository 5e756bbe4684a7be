"""The program's own command line, as someone would type it to talk to the demo's broker."""

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ...config.address import join_address, split_address

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class Commands:
    """Writes commands that work as printed, in the folder where the demo was started."""

    def __init__(self, program: Sequence[str], address: str) -> None:
        """`program` starts horolog; `address` is the broker's."""
        self._program = list(program)
        self._address = address

    def client(self, *arguments: str) -> str:
        """A command that asks the broker."""
        return self.local(*arguments, "--server", self._address)

    def local(self, *arguments: str) -> str:
        """A command that needs no broker."""
        return shlex.join([*self._program, *arguments])


def program_started_as(argv0: str) -> list[str]:
    """How to start this program again: what it was started as, in the shortest form that works."""
    path = Path(argv0)
    if path.name == "__main__.py":
        return [_shortest(Path(sys.executable)), "-m", "horolog"]
    found = shutil.which(path.name)
    if found is not None and Path(found).absolute() == path.absolute():
        return [path.name]
    return [_shortest(path)]


def reachable(address: str) -> str:
    """The address to connect to for one that is listened on: not that of every interface."""
    host, port = split_address(address)
    return join_address(_EVERYWHERE.get(host, host), port)


def _shortest(path: Path) -> str:
    absolute = path.absolute()
    if not absolute.is_relative_to(Path.cwd()):
        return str(absolute)
    relative = str(absolute.relative_to(Path.cwd()))
    return relative if "/" in relative else f"./{relative}"
