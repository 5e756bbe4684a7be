"""Options that several commands share, positions in a partition (a time, an end, `offset:N`), and
shell completion of topics and names."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_type_hints

import typer

from ..client.administer.admin import Admin
from ..client.client import DEFAULT_ADDRESS
from ..client.client import ReadFrom as ReadFromValue
from ..client.cluster.servers import Servers, parse_servers
from ..protocol.errors import HorologError
from ..times import (
    INT64_MAX,
    NoZone,
    OtherUnit,
    TimeError,
    parse_length,
    parse_time,
    parse_time_or_range,
)
from ..values import value_class
from .command_group import CommandGroup
from .errors import WrongUsage
from .time_zone import TIME_ZONE_VARIABLE, time_zone

_OFFSET: Final = re.compile(r"offset:(\d{1,19})", re.ASCII)

POSITION_HELP: Final = (
    "a time (2016-11-14T17:24:32Z, now, @-1h, epoch milliseconds), earliest, latest or offset:N"
)

_PLAIN: Final = frozenset("_-.,:/@%+=")
_TIMEOUT_MS: Final = 1_000
"""Time-out of a request for shell completion, while the user waits."""

__all__ = [
    "DEFAULT_SERVER",
    "INT32_MAX",
    "AnyUnit",
    "Json",
    "Partition",
    "ReadFrom",
    "Server",
    "TopicName",
    "check_address",
    "check_file",
    "check_read_from",
    "check_text",
    "check_texts",
    "group",
    "name_values",
    "parse_every",
    "parse_moment",
    "refused",
    "takes",
    "unreadable",
]

T = TypeVar("T")


INT32_MAX: Final = 2**31 - 1
"""Largest partition number, and largest number of partitions, that a request can carry."""


DEFAULT_SERVER: Final = parse_servers(DEFAULT_ADDRESS)


@value_class
class AtOffset:
    """Position of the message with this offset."""

    offset: int


@value_class
class AtTime:
    """Position of the first message, in offset order, with this time or a later one."""

    timestamp_ms: int


class AtEnd(StrEnum):
    """Position of the first stored message, or of the next one to be written."""

    EARLIEST = "earliest"
    LATEST = "latest"


Position = AtOffset | AtTime | AtEnd


def parse_moment(
    text: str, option: str, now_ms: int, any_unit: bool | None, *, others: str = ""
) -> int:
    """Parse the time of an option into milliseconds, in the command's time zone.

    `any_unit` is None in a command without --any-unit. Raises WrongUsage; its text names `others`,
    what the option takes beside a time.
    """
    try:
        return parse_time(text, now_ms, bool(any_unit), time_zone())
    except TimeError as error:
        unhinted = any_unit is None and isinstance(error, OtherUnit)
        more = f"; or {others}" if others else ""
        raise WrongUsage(f"{option}: {error if unhinted else refused(error)}{more}") from None


def parse_position(text: str, option: str, now_ms: int, any_unit: bool) -> Position:
    """Parse a position. Raises WrongUsage."""
    if text.startswith("offset:"):
        return _at_offset(text, option)
    if text in tuple(AtEnd):
        return AtEnd(text)
    others = "earliest, latest, offset:N"
    return AtTime(parse_moment(text, option, now_ms, any_unit, others=others))


def parse_bounds(
    start: str | None, until: str | None, now_ms: int, any_unit: bool
) -> tuple[Position | None, Position | None]:
    """Parse `--from` and `--until`; None is an open side. `--from` may be a range `@A:B`, which
    sets both. Raises WrongUsage.
    """
    end = None if until is None else parse_position(until, "--until", now_ms, any_unit)
    if start is None:
        return None, end
    if start.startswith("offset:"):
        return _at_offset(start, "--from"), end
    if start in tuple(AtEnd):
        return AtEnd(start), end
    try:
        start_ms, end_ms = parse_time_or_range(start, now_ms, any_unit, time_zone())
    except TimeError as error:
        raise WrongUsage(f"--from: {refused(error)}") from None
    if end_ms is not None:
        if end is not None:
            raise WrongUsage("--until: the range in --from sets the end already")
        end = AtTime(end_ms)
    return None if start_ms is None else AtTime(start_ms), end


def _at_offset(text: str, option: str) -> AtOffset:
    match = _OFFSET.fullmatch(text)
    if match is None or int(match[1]) > INT64_MAX:
        raise WrongUsage(f"{option}: {text!r} is not offset:N with N from 0 to {INT64_MAX}")
    return AtOffset(int(match[1]))


def group(help: str) -> typer.Typer:
    """Make a group of commands; the name of the group alone prints its help."""
    return typer.Typer(cls=CommandGroup, help=help, no_args_is_help=True, rich_markup_mode=None)


def takes(options: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Make a function of one value a command: the fields of the value class `options` are the
    arguments and options of the command, in their order."""

    def command_of(run: Callable[[T], None]) -> Callable[..., None]:
        @wraps(run)
        def command(**given: Any) -> None:
            run(options(**given))

        command.__annotations__ = get_type_hints(options, include_extras=True)
        command.__dict__["__signature__"] = signature(options, eval_str=True)
        return command

    return command_of


def check_address(text: str | Servers, option: str) -> Servers:
    """Parse the address of servers. Raises WrongUsage."""
    try:
        return parse_servers(text)
    except ValueError as error:
        raise WrongUsage(f"{option}: {error}") from None


def check_file(path: str, option: str) -> None:
    """Raise WrongUsage if the file of an option is missing. The file is not opened, because a pipe
    can be opened only once."""
    try:
        os.stat(path)
    except OSError as error:
        raise WrongUsage(unreadable(option, path, error)) from None


def unreadable(option: str, path: str | Path, error: OSError) -> str:
    """Return the text about an option's file that cannot be read."""
    return f"{option}: {path} cannot be read: {error.strerror}"


def check_text(text: str | None) -> str | None:
    """Raise WrongUsage if a name is not UTF-8: no request can carry such a name."""
    try:
        (text or "").encode()
    except UnicodeEncodeError:
        raise WrongUsage(f"{text!r} is not UTF-8, so it is no name") from None
    return text


def check_texts(texts: list[str] | None) -> list[str] | None:
    """Apply `check_text` to each of several names."""
    for text in texts or ():
        check_text(text)
    return texts


def _servers(text: str | Servers) -> Servers:
    return check_address(text, "--server or HOROLOG_SERVER")


Server = Annotated[
    Servers,
    typer.Option(
        "--server",
        envvar="HOROLOG_SERVER",
        metavar="ADDRESS",
        parser=_servers,
        help="HOST:PORT of a broker (of a leader and its followers: HOST:PORT,HOST:PORT), or "
        "kafka://HOST:PORT[,HOST:PORT...] of a Kafka cluster; over TLS tls://HOST:PORT, "
        "kafka+tls://HOST:PORT.",
    ),
]
ReadFrom = Annotated[
    ReadFromValue,
    typer.Option(
        "--read-from",
        help="Read at the broker that leads, or at any one that has the messages: up to where that "
        "one has them.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]
Partition = Annotated[
    int | None,
    typer.Option("--partition", min=0, max=INT32_MAX, metavar="N", help="Only this partition."),
]


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Return the broker's topics that begin with `incomplete`; none if no broker answers."""
    return _that_begin_with(incomplete, _topics, context)


def complete_position_name(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of stored positions that begin with `incomplete`; none if the broker does
    not answer."""
    return _that_begin_with(incomplete, Admin.position_names, context)


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of groups and stored positions that begin with `incomplete`; none if the
    broker does not answer."""
    return _that_begin_with(incomplete, _groups, context)


def _that_begin_with(
    incomplete: str,
    ask: Callable[[Admin], Awaitable[Iterable[str]]],
    context: typer.Context,
) -> list[str]:
    server = context.params.get("server") or DEFAULT_ADDRESS
    with suppress(HorologError, OSError, ValueError):
        found = asyncio.run(_asked(server, ask))
        return [name for name in found if name.startswith(incomplete) and _is_plain(name)]
    return []


def _is_plain(name: str) -> bool:
    """Whether a name needs no quotes in a shell. Completions are not quoted, and a name that
    another client chose must not begin a second command."""
    return all(letter.isalnum() or letter in _PLAIN for letter in name)


async def _asked(
    server: str | Servers, ask: Callable[[Admin], Awaitable[Iterable[str]]]
) -> Iterable[str]:
    async with Admin(server, request_timeout_ms=_TIMEOUT_MS) as admin:
        return await ask(admin)


async def _groups(admin: Admin) -> Iterable[str]:
    return [group.name for group in await admin.list_groups()]


async def _topics(admin: Admin) -> Iterable[str]:
    return await admin.list_topics()


TopicName = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        help="Name of the topic.",
        autocompletion=complete_topic,
        callback=check_text,
    ),
]
_ANY_UNIT: Final = "--any-unit"
AnyUnit = Annotated[
    bool,
    typer.Option(_ANY_UNIT, help="Take a number as a time even if it looks like seconds."),
]


def check_read_from(server: Servers, read_from: ReadFromValue) -> ReadFromValue:
    """Raise WrongUsage for `any` with a Kafka cluster, which does not support it."""
    if server.kafka and read_from != "leader":
        raise WrongUsage(
            f"--read-from {read_from} is for Horolog's own protocol; at {server} messages are read "
            "from the brokers that lead"
        )
    return read_from


def refused(error: TimeError) -> str:
    """Return the text of a refused time, with a hint at the option that would accept it."""
    if isinstance(error, OtherUnit):
        return f"{error}, or give {_ANY_UNIT} to take the number as it is"
    if isinstance(error, NoZone):
        return f"{error}, or name a zone: --tz Europe/Berlin, or {TIME_ZONE_VARIABLE}"
    return str(error)


def parse_every(text: str) -> timedelta:
    """Parse `--every`, the length of an interval. Raises WrongUsage."""
    try:
        every = timedelta(milliseconds=parse_length(text))
    except TimeError as error:
        raise WrongUsage(f"--every: {error}") from None
    except OverflowError:
        raise WrongUsage(f"--every: {text!r} is longer than all of time: write 1h or 7d") from None
    if not every:
        raise WrongUsage(f"--every: {text!r} is no length: write 1ms or more, such as 1h")
    return every


def name_values(options: Sequence[str], name: str = "--set") -> dict[str, str]:
    """Parse the `NAME=VALUE` texts of the option `name`. Raises WrongUsage."""
    found: dict[str, str] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key:
            raise WrongUsage(f"{name} {option}: write NAME=VALUE")
        found[key.strip()] = value
    return found
