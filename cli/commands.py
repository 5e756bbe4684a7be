"""Commands as typer makes them, put right where their help and completion would mislead."""

from typing import Any

import typer
from typer.core import TyperCommand, TyperOption

from .broker_options import BROKER_OPTIONS, BrokerOption
from .security.applying import connected
from .security.options import added, is_security


class Command(TyperCommand):
    """A command whose usage says `TOPIC`, not `{TOPIC}`. One that takes `--server` takes the
    options that go with it, too, and gets a `server` with what they say."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def get_params(self, ctx: Any) -> list[Any]:
        params = super().get_params(ctx)
        if not any(param.name == "server" for param in params):
            return params
        return [*params, *added(params)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
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


class BrokerCommand(Command):
    """A command that starts a broker: what it is given is parsed elsewhere, without typer, which
    has to know its options for completion and for the reference page."""

    options: tuple[BrokerOption, ...] = BROKER_OPTIONS

    def get_params(self, ctx: Any) -> list[Any]:
        return [
            TyperOption(
                param_decls=[one.flag],
                metavar=one.metavar or None,
                help=one.help,
                is_flag=one.is_flag,
            )
            for one in self.options
        ]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.args = list(args)
        return args


def with_plain_usage(app: typer.Typer) -> typer.Typer:
    """The same, with `Command` wherever nothing else was asked for."""
    for command in app.registered_commands:
        if command.cls is TyperCommand:
            command.cls = Command
    for group in app.registered_groups:
        assert group.typer_instance is not None
        with_plain_usage(group.typer_instance)
    return app
