"""Groups of commands: short names, and suggestions for a mistyped or foreign name."""

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, Final

import typer
from typer.core import TyperGroup

from .hints import command_hint, option_hint

PARSER_ERROR: Final[Any] = typer.BadParameter.__mro__[2]
"""Base class of the parser's errors; its module is private in some versions of typer."""

ALIASES: Final = {"ls": ("list",), "rm": ("delete", "remove")}
"""Short names of commands, in every group that has such a command."""

_DESTRUCTIVE: Final = frozenset({"delete", "remove", "rm", "trim", "repair", "promote", "seek"})
"""Commands that delete or move what is there: they are never suggested for a mistyped name."""


class CommandGroup(TyperGroup):
    """A group of commands. `ls` and `rm` are short names; a mistyped name gets a suggestion, but
    never a command that deletes something."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "suggest_commands": False})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        names = (cmd_name, *ALIASES.get(cmd_name, ()))
        return next((self.commands[name] for name in names if name in self.commands), None)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with hinting(self, ctx):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        found = self.get_command(ctx, args[0])
        if found is not None:
            return found.name, found, args[1:]
        if ctx.resilient_parsing or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        return ctx.fail(self._unknown(ctx, args[0]))

    def _unknown(self, ctx: Any, name: str) -> str:
        hint = command_hint(_path(ctx), name)
        if hint is not None:
            return f"No such command {name[:100]!r}. {hint[0].upper()}{hint[1:]}."
        safe = [each for each in self.list_commands(ctx) if each not in _DESTRUCTIVE]
        close = get_close_matches(name[:100], safe, 1)
        there = f"`{ctx.command_path} --help` shows which there are."
        return f"No such command {name[:100]!r}. " + (
            f"Did you mean {close[0]!r}?" if close else there
        )


@contextmanager
def hinting(command: Any, ctx: Any) -> Iterator[None]:
    """Add what to write instead to the error about an option that the command does not have."""
    try:
        yield
    except PARSER_ERROR as error:
        option = getattr(error, "option_name", None)
        if isinstance(option, str) and hasattr(error, "possibilities"):
            hint = option_hint(_path(ctx), option, command.get_params(ctx))
            if hint is not None:
                error.message = f"No such option: {option}: {hint}"
                error.possibilities = None
        raise


def _path(ctx: Any) -> str:
    """Return the names of a command and its groups, without the program's."""
    return str(ctx.command_path).partition(" ")[2]
