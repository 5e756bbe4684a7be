"""The command line as a whole: assembles the commands with typer, and corrects typer where its help
and completion would mislead."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Annotated, Any, Final, cast

import typer
from typer.core import TyperCommand, TyperOption

from .. import __version__
from ..memory import no_collection
from ..protocol.records.kernel import FORM
from ..values import value_class
from .broker_options import BROKER_OPTIONS, HISTORY, SET, BrokerOption
from .broker_options import ENVIRONMENT as BROKER_ENVIRONMENT
from .command_group import PARSER_ERROR, CommandGroup, hinting
from .errors import WRONG_USAGE, CommandFailed, WrongUsage
from .output import emit
from .security.options import (
    ENVIRONMENT,
    OPTION,
    OPTIONS,
    added,
    flags_of,
    is_security,
    profiles_path,
)
from .time_zone import TIME_ZONE_VARIABLE, complete_time_zone, use_time_zone

TIME_ZONE: Final = "time_zone"
"""Name of the parameter `--tz` for the parser."""

_TIMES: Final = ("TIME", "POS")
"""Metavariables of options that take a time."""


class Command(TyperCommand):
    """A command whose usage says `TOPIC`, not `{TOPIC}`. A command with `--server` also has the
    security options, and its `server` argument includes their values. A command with an option that
    takes a time also has `--tz`."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def get_params(self, ctx: Any) -> list[Any]:
        *params, help_option = super().get_params(ctx)
        if any(param.metavar in _TIMES for param in params):
            params.append(_time_zone_option())
        if any(param.name == "server" for param in params):
            return [*params, help_option, *added(params)]
        return [*params, help_option]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with hinting(self, ctx):
            rest = super().parse_args(ctx, args)
        with suppress(*(WrongUsage,) if ctx.resilient_parsing else ()):
            _use_time_zone(ctx)
        connected(ctx)
        return rest

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """What says how to be let in stands behind the command's own options."""
        sections: dict[str, list[Any]] = {"Arguments": [], "Options": [], "Security": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                argument = param.param_type_name == "argument"
                title = "Security" if is_security(param) else "Options"
                sections["Arguments" if argument else title].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _time_zone_option() -> TyperOption:
    return TyperOption(
        param_decls=[TIME_ZONE, "--tz"],
        metavar="ZONE",
        help="Time zone, such as Europe/Berlin, of dates and times of day without one: 14:05, "
        "today 14:00, yesterday, 2016-11-14 14:05.",
        envvar=TIME_ZONE_VARIABLE,
        show_envvar=True,
        autocompletion=lambda context, arguments, incomplete: complete_time_zone(incomplete),
    )


def _use_time_zone(context: Any) -> None:
    source = _source(context, TIME_ZONE)
    origin = TIME_ZONE_VARIABLE if source == ENVIRONMENT else "--tz"
    use_time_zone(context.params.pop(TIME_ZONE, None), origin)


class BrokerCommand(Command):
    """A command that starts a broker. Its arguments are parsed elsewhere, without typer; typer
    knows its options only for completion and for the reference page."""

    options: tuple[BrokerOption, ...] = BROKER_OPTIONS

    def get_params(self, ctx: Any) -> list[Any]:
        return [
            TyperOption(
                param_decls=[one.flag],
                metavar=one.metavar or None,
                help=one.help,
                is_flag=one.is_flag,
                autocompletion=_complete_broker_setting if one is SET else None,
            )
            for one in self.options
        ]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.args = list(args)
        return args


def _complete_broker_setting(context: Any, arguments: list[str], incomplete: str) -> list[str]:
    """Return what may follow in `serve --set`."""
    from ..config.broker import NAMES
    from .topics.settings import complete_assignment

    return complete_assignment({name: NAMES.find(name) for name in NAMES}, incomplete)


def with_plain_usage(app: typer.Typer) -> typer.Typer:
    """Make `Command` the class of all commands in `app` that have no class of their own."""
    for command in app.registered_commands:
        if command.cls is TyperCommand:
            command.cls = Command
    for group in app.registered_groups:
        assert group.typer_instance is not None
        with_plain_usage(group.typer_instance)
    return app


@value_class
class CommandEntry:
    """A command or group of commands: its summary in the help, and where it is defined."""

    name: str
    module: str
    attribute: str
    summary: str

    def read(self) -> Any:
        """Import the module and return its command."""
        found = getattr(import_module(self.module, __package__), self.attribute)
        app = typer.Typer(rich_markup_mode=None)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=self.name)
        else:
            app.command(self.name)(found)
        return typer.main.get_group(with_plain_usage(app)).commands[self.name]


def connected(context: Any) -> None:
    """Add the security settings of options, environment and profile to the parameter `server`.
    Raises WrongUsage."""
    chosen = {option.parameter: context.params.pop(option.parameter, None) for option in OPTIONS}
    given = context.params.get("server")
    if given is None or not (_is_any_given(chosen) or _has_profiles()):
        return
    from .security.settings import GivenOptions, servers_of

    sources = {name: _source(context, name) for name in (*chosen, "server")}
    own = flags_of(context.command.params)
    flags = {option.name: option.flag_beside(own) for option in OPTIONS}
    places = GivenOptions(chosen, sources, os.environ, flags)
    # During shell completion, errors in the line are ignored.
    with suppress(*(WrongUsage,) if context.resilient_parsing else ()):
        context.params["server"] = servers_of(
            given, is_chosen=sources["server"] in (OPTION, ENVIRONMENT), layers=places.layers
        )


def _is_any_given(chosen: Mapping[str, str | None]) -> bool:
    return any(chosen.values()) or any(os.environ.get(option.variable) for option in OPTIONS)


def _has_profiles() -> bool:
    path = profiles_path(os.environ)
    return path is not None and os.path.lexists(path)


def _source(context: Any, name: str) -> str:
    source = context.get_parameter_source(name)
    return "" if source is None else str(source.name)


ENTRIES: Final = (
    CommandEntry(
        "produce", ".produce", "produce", "Send each VALUE, or standard input, a message a line."
    ),
    CommandEntry(
        "consume",
        ".consume.command",
        "consume",
        "Read the messages of a window of time, or of a range of offsets.",
    ),
    CommandEntry(
        "record",
        ".record",
        "record",
        "Write the messages of a window of time to a file, for tests to load.",
    ),
    CommandEntry("export", ".export", "export", "Write a window of time to Parquet files."),
    CommandEntry("histogram", ".histogram", "histogram", "Count messages by time."),
    CommandEntry("offsets", ".offsets", "offsets", "Say which offset it was at a time."),
    CommandEntry("lag", ".lag", "lag", "Say how far readers are behind."),
    CommandEntry(
        "group",
        ".groups",
        "groups",
        "List, describe, move and delete consumer groups and named positions.",
    ),
    CommandEntry("top", ".top", "top", "Show live rates, lateness and lag by topic, until Ctrl-C."),
    CommandEntry(
        "load", ".load", "load", "Measure load and latency against a broker or a Kafka cluster."
    ),
    CommandEntry("dump", ".stored", "dump", "Print what is in a stored file."),
    CommandEntry("verify", ".stored", "verify", "Check stored files."),
    CommandEntry("repair", ".stored", "repair", "Repair damaged stored files."),
    CommandEntry(
        "doctor", ".doctor", "doctor", "Look for what is wrong, and say what to do about it."
    ),
    CommandEntry(
        "topic",
        ".topics.commands",
        "topics",
        "Create, list, describe, change and delete topics.",
    ),
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
        ".cluster",
        "cluster",
        "Show who leads and who follows, and let another broker lead.",
    ),
    CommandEntry(
        "explain",
        ".explain",
        "explain",
        "Say why messages are there or gone, how an offset was found, and how a name is read.",
    ),
    CommandEntry(
        "profile",
        ".security.commands",
        "profile",
        "Profiles: named servers, with their TLS settings and logins.",
    ),
    CommandEntry(
        "pipeline", ".pipeline.app", "pipeline", "Jobs between topics, files and clusters."
    ),
)
"""The commands that do not start a broker."""


class CommandLine(CommandGroup):
    """The whole command line. Only the command that runs is imported: together the commands import
    most of the package. Help and completion use the names and summaries of `ENTRIES`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._unread = {entry.name: entry for entry in ENTRIES}
        for entry in ENTRIES:
            self.add_command(TyperCommand(entry.name, help=entry.summary))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        self.read(args[0])
        return super().resolve_command(ctx, args)

    def read(self, name: str) -> None:
        """Import the command with this name, if there is one, and put it into `commands`."""
        entry = self._unread.pop(name, None)
        if entry is not None:
            with no_collection():
                self.add_command(entry.read())


app = typer.Typer(
    cls=CommandLine,
    help="Horolog, the log that knows what time it is.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
_BROKER: dict[str, Any] = {
    "add_help_option": False,
    "context_settings": _PASSED_ON,
    "epilog": BROKER_ENVIRONMENT,
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


def run_command_line(arguments: Sequence[str]) -> int:
    """Run a command that does not start a broker; return its exit code."""
    with no_collection():
        command_line = program()
    try:
        code = command_line(args=list(arguments), prog_name="horolog", standalone_mode=False)
    except typer.Abort:  # the end of the input, where a command reads from a terminal
        raise CommandFailed("standard input ended before the command had what it needs") from None
    except PARSER_ERROR as error:
        from .failures import is_json, report

        if is_json(arguments) and (text := error.format_message()):
            report(WrongUsage(text), arguments)
        else:
            error.show()
        return WRONG_USAGE
    return code if isinstance(code, int) else 0


@cache
def whole_program() -> CommandLine:
    """The whole command line, with all commands imported."""
    whole = cast(CommandLine, typer.main.get_command(app))
    for entry in ENTRIES:
        whole.read(entry.name)
    return whole
