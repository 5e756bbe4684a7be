"""Options that several commands have."""

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from ..client.client import DEFAULT_ADDRESS
from ..client.servers import parse_servers
from ..times import OtherUnit, TimeError
from .completion import complete_topic
from .errors import WrongUsage

__all__ = [
    "DEFAULT_ADDRESS",
    "AnyUnit",
    "Json",
    "Partition",
    "Server",
    "TopicName",
    "name_values",
    "refused",
]


def _check_address(text: str) -> str:
    try:
        parse_servers(text)
    except ValueError as error:
        raise WrongUsage(f"--server or HOROLOG_SERVER: {error}") from None
    return text


Server = Annotated[
    str,
    typer.Option(
        "--server",
        envvar="HOROLOG_SERVER",
        metavar="ADDRESS",
        callback=_check_address,
        help="HOST:PORT of a broker, or kafka://HOST:PORT[,HOST:PORT...] of a Kafka cluster.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]
Partition = Annotated[
    int | None, typer.Option("--partition", min=0, metavar="N", help="Only this partition.")
]
TopicName = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=complete_topic),
]
_ANY_UNIT: Final = "--any-unit"
AnyUnit = Annotated[
    bool,
    typer.Option(_ANY_UNIT, help="Take a number as a time even if it looks like seconds."),
]


def refused(error: TimeError) -> str:
    """Why a time is refused, by a command that takes numbers in any unit if it is asked to."""
    if isinstance(error, OtherUnit):
        return f"{error}, or give {_ANY_UNIT} to take the number as it is"
    return str(error)


def name_values(options: Sequence[str], name: str = "--set") -> dict[str, str]:
    """The `NAME=VALUE`s of the option `name` as a mapping. Wrong usage when one has no `=`."""
    found: dict[str, str] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key:
            raise WrongUsage(f"{name} {option}: write NAME=VALUE")
        found[key.strip()] = value
    return found
