"""Groups of commands: short names, and suggestions for a mistyped name."""

from difflib import get_close_matches
from typing import Any, Final

from typer.core import TyperGroup

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

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        found = self.get_command(ctx, args[0])
        if found is not None:
            return found.name, found, args[1:]
        if ctx.resilient_parsing or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        return ctx.fail(self._unknown(ctx, args[0]))

    def _unknown(self, ctx: Any, name: str) -> str:
        safe = [each for each in self.list_commands(ctx) if each not in _DESTRUCTIVE]
        close = get_close_matches(name[:100], safe, 1)
        there = f"`{ctx.command_path} --help` shows which there are."
        hint = f"Did you mean {close[0]!r}?" if close else there
        return f"No such command {name[:100]!r}. {hint}"
