"""Writing for people: with colour on a terminal, as plain text elsewhere."""

import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import Final

from ...printable import printable
from ..output import AsIs, emit
from ..streams import is_terminal

_WIDTH_MAXIMUM: Final = 100
_INDENT: Final = "   "
_HEAD_COLUMNS: Final = 34
"""Offset and time of a message."""


class Paper:
    """Numbered sections of sentences, quoted lines and commands."""

    def __init__(self) -> None:
        self._colours = is_terminal(sys.stdout)
        self._width = min(shutil.get_terminal_size().columns, _WIDTH_MAXIMUM)
        self._sections = 0

    def section(self, title: str) -> None:
        """Begin a section."""
        self._sections += 1
        self._print([f"{self._sections}. {title}"], "bold cyan", apart=True)

    def say(self, text: str) -> None:
        """A sentence or more, wrapped."""
        self._print(textwrap.wrap(text, self._width - len(_INDENT)), "")

    def quote(self, lines: Iterable[str], style: str = "green") -> None:
        """Messages, metrics: a line each, whose middle is left out when it is too long."""
        room = self._width - len(_INDENT) - 2
        self._print((f"  {_clipped(line, room)}" for line in lines), style)

    def error(self, text: str) -> None:
        """What an error said, wrapped."""
        self.quote(textwrap.wrap(text, self._width - len(_INDENT) - 2), "red")

    def command(self, command: str, meaning: str) -> None:
        """A command to type, never broken up, and what it does."""
        self._print([f"# {meaning}"], "dim")
        self._print([command], "bold")

    def close(self, text: str) -> None:
        """The last words."""
        self._print([text], "bold", apart=True)

    def _print(self, lines: Iterable[str], style: str, *, apart: bool = False) -> None:
        """`apart`: behind an empty line, and not indented."""
        if apart:
            emit([""])
        shown = [("" if apart else _INDENT) + line for line in lines]
        if not self._colours:
            emit(shown)
            return
        from rich.console import Console
        from rich.text import Text

        console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        with console.capture() as capture:
            for line in shown:
                console.print(Text(printable(line), style=style))
        emit([AsIs(capture.get().removesuffix("\n"))])


def _clipped(line: str, room: int) -> str:
    """The end of a long line says more than its middle: it is where a file's name is."""
    if len(line) <= room:
        return line
    head = min(_HEAD_COLUMNS, room // 2)
    return f"{line[:head]}...{line[head + 3 - room :]}"
