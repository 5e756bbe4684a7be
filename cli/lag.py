"""`horolog lag`: how far named positions are behind, in messages and in seconds."""

from typing import Annotated, Final

import typer

from ..client.administer.admin import Admin
from ..client.administer.lagging import PositionLag
from .broker_requests import ask
from .errors import CommandFailed, note
from .failures import name_of, print_failure
from .options import DEFAULT_SERVER, Json, Server, check_text, complete_position_name
from .output import NOTHING, emit, json_line, plural, shown_span, table

_FIX: Final = "`horolog doctor` looks for what is wrong"


def lag(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Name of the positions; by default all names.",
            autocompletion=complete_position_name,
            callback=check_text,
        ),
    ] = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Say how far readers are behind.

    Prints a line for each position that is stored under a name. The lag in seconds is how long the
    first unread message has been waiting: since its append time, or, marked with ~, since its
    create time. It is absent if no time is known. The time to catch up assumes the pace of the last
    minute, and is absent while the lag does not shrink. If the name is a consumer group of Kafka's
    clients, its state and its number of members are shown too.
    """
    found = ask(Admin, server, lambda admin: _ask(admin, name))
    failed = [(owner, one) for owner, one in found if one.lag is None]
    if as_json:
        emit(_as_json(owner, one) for owner, one in found)
    elif found:
        columns = ["name", "topic", "partition", "position", "messages", "behind", "caught up in"]
        right = columns[2:]
        rows = [_as_row(owner, one) for owner, one in found]
        if any(one.group for _, one in found):
            columns.append("group")
            rows = [(*row, _group(one)) for row, (_, one) in zip(rows, found, strict=True)]
        emit(table(columns, rows, right=right))
    else:
        emit(["no positions are stored"])
    for owner, one in failed:
        where = f"{owner}: {one.topic}-{one.partition}"
        if as_json and one.error is not None:
            print_failure(name_of(one.error), f"{where}: {one.error}", _FIX)
        else:
            note(f"{where}: {one.error}")
    if failed:
        raise typer.Exit(1)


async def _ask(admin: Admin, name: str | None) -> list[tuple[str, PositionLag]]:
    if name is None:
        names = await admin.position_names()
        return [(one, lag) for one in names for lag in await admin.lag(one)]
    found = await admin.lag(name)
    if not found:
        raise CommandFailed(
            f"no position is stored under {name!r}; `horolog lag` without a name shows all"
        )
    return [(name, lag) for lag in found]


def _as_json(name: str, found: PositionLag) -> str:
    lag = found.lag
    return json_line(
        name=name,
        topic=found.topic,
        partition=found.partition,
        offset=found.offset,
        lag=None if lag is None else lag.messages,
        lag_s=None if lag is None else lag.seconds,
        estimated=None if lag is None else lag.estimated,
        catch_up_s=None if lag is None else lag.catch_up_seconds,
        group=found.group,
        members=found.members if found.group else None,
    )


def _group(found: PositionLag) -> str:
    if found.group is None:
        return NOTHING
    if not found.members:
        return found.group
    return f"{found.group}, {found.members} {plural(found.members, 'member')}"


def _as_row(name: str, found: PositionLag) -> tuple[str, ...]:
    place = (name, found.topic, str(found.partition), str(found.offset))
    lag = found.lag
    if lag is None:
        return (*place, NOTHING, NOTHING, NOTHING)
    behind, catch_up = shown_span(lag.seconds), shown_span(lag.catch_up_seconds)
    return (*place, str(lag.messages), f"~{behind}" if lag.estimated else behind, catch_up)
