"""The commands, put together."""

from functools import cache
from importlib import import_module
from typing import Annotated, Any, Final, cast

import typer
from typer.core import TyperCommand, TyperGroup

from .. import __version__
from ..memory import no_collection
from ..protocol.records.kernel import FORM
from ..values import value_class
from .broker_options import ENVIRONMENT
from .commands import BrokerCommand, with_plain_usage
from .demo.options import HISTORY
from .output import emit


@value_class
class CommandEntry:
    """A command, or a group of them: what the help of the program says, and where it is."""

    name: str
    module: str
    attribute: str
    summary: str

    def read(self) -> Any:
        """The command as its module declares it."""
        found = getattr(import_module(self.module, __package__), self.attribute)
        app = typer.Typer(rich_markup_mode=None)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=self.name)
        else:
            app.command(self.name)(found)
        return typer.main.get_group(with_plain_usage(app)).commands[self.name]


ENTRIES: Final = (
    CommandEntry("produce", ".produce", "produce", "Send standard input, a message a line."),
    CommandEntry(
        "consume",
        ".consume",
        "consume",
        "Read the messages of a window of time, or of a range of offsets.",
    ),
    CommandEntry("histogram", ".histogram", "histogram", "Count messages by time."),
    CommandEntry("offsets", ".offsets", "offsets", "Say which offset it was at a time."),
    CommandEntry("lag", ".lag", "lag", "Say how far readers are behind."),
    CommandEntry("dump", ".stored", "dump", "Print what is in a stored file."),
    CommandEntry("verify", ".stored", "verify", "Check stored files."),
    CommandEntry("repair", ".repair", "repair", "Put damaged stored files right."),
    CommandEntry(
        "doctor", ".doctor", "doctor", "Look for what is wrong, and say what to do about it."
    ),
    CommandEntry("topic", ".topics", "topics", "Create, list, describe, change and delete topics."),
    CommandEntry(
        "user", ".users", "users", "Add users, change their passwords, remove and list them."
    ),
    CommandEntry(
        "acl", ".acls", "acls", "Say who may do what, list that, and ask what follows from it."
    ),
    CommandEntry(
        "quota",
        ".security.quotas",
        "quotas",
        "Say how much users and clients may take, and list that.",
    ),
    CommandEntry(
        "cluster",
        ".cluster.commands",
        "cluster",
        "Show who leads and who follows, and let another broker lead.",
    ),
    CommandEntry(
        "explain",
        ".explain.commands",
        "explain",
        "Say why messages are still there, how an offset was found, and how a name is read.",
    ),
    CommandEntry(
        "profile",
        ".security.commands",
        "profile",
        "Servers and how to be let in there, under names.",
    ),
    CommandEntry(
        "pipeline", ".pipeline.app", "pipeline", "Jobs between topics, files and clusters."
    ),
)
"""The commands that do not start a broker."""


class CommandLine(TyperGroup):
    """The whole command line. A command is read from its module when it is the one that runs: all
    together import most of what there is. Help and completion take the names and summaries."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._unread = {entry.name: entry for entry in ENTRIES}
        for entry in ENTRIES:
            self.add_command(TyperCommand(entry.name, help=entry.summary))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        self.read(args[0])
        return super().resolve_command(ctx, args)

    def read(self, name: str) -> None:
        """Have the command of that name in `commands` with its arguments, if there is one."""
        entry = self._unread.pop(name, None)
        if entry is not None:
            with no_collection():
                self.add_command(entry.read())


app = typer.Typer(
    cls=CommandLine,
    help="Horolog, the log that knows what time it is.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
_BROKER: dict[str, Any] = {
    "add_help_option": False,
    "context_settings": _PASSED_ON,
    "epilog": ENVIRONMENT,
}


def _print_version(wanted: bool) -> None:
    if wanted:
        emit([f"horolog {__version__} ({FORM})"])
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version, and whether the kernel is compiled.",
        ),
    ] = False,
) -> None:
    pass


class _Demo(BrokerCommand):
    options = (*BrokerCommand.options, HISTORY)


@app.command("serve", cls=BrokerCommand, **_BROKER)
def _serve(context: typer.Context) -> None:
    """Run a broker until it is stopped."""
    from .serve import serve

    raise typer.Exit(serve(context.args))


@app.command("demo", cls=_Demo, **_BROKER)
def _demo(context: typer.Context) -> None:
    """Run a broker, feed it real input, show what it does."""
    from .demo.command import demo

    raise typer.Exit(demo(context.args))


with_plain_usage(app)


@cache
def program() -> CommandLine:
    """The whole command line, ready to be called."""
    return cast(CommandLine, typer.main.get_command(app))


@cache
def whole_program() -> CommandLine:
    """The same, with every command read."""
    whole = cast(CommandLine, typer.main.get_command(app))
    for entry in ENTRIES:
        whole.read(entry.name)
    return whole
