"""The commands, put together."""

from functools import cache
from typing import Annotated, Any

import typer

from .. import __version__
from ..protocol.records.kernel import FORM
from .acls import acls
from .cluster.commands import cluster
from .commands import BrokerCommand, with_plain_usage
from .consume import consume
from .demo.options import HISTORY
from .doctor import doctor
from .explain import explain
from .histogram import histogram
from .lag import lag
from .offsets import offsets
from .output import emit
from .pipeline.app import pipeline
from .produce import produce
from .repair import repair
from .security.commands import profile
from .security.quotas import quotas
from .serve import ENVIRONMENT
from .stored import dump, verify
from .topics import topics
from .trim import trim
from .users import users

app = typer.Typer(
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


topics.command()(trim)
app.add_typer(topics, name="topic")
app.add_typer(users, name="user")
app.add_typer(acls, name="acl")
app.add_typer(quotas, name="quota")
app.add_typer(cluster, name="cluster")
app.add_typer(explain, name="explain")
app.add_typer(profile, name="profile")
app.add_typer(pipeline, name="pipeline")
app.command()(produce)
app.command()(consume)
app.command()(histogram)
app.command()(offsets)
app.command()(lag)
app.command()(dump)
app.command()(verify)
app.command()(repair)
app.command()(doctor)
with_plain_usage(app)


@cache
def program() -> Any:
    """The whole command line, ready to be called. Reading it from the signatures takes 20 ms."""
    return typer.main.get_command(app)
