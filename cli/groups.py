"""`horolog group`: list, describe, seek and delete consumer groups and named positions."""

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Final

import typer

from ..client.administer.admin import Admin
from ..client.cluster.servers import Servers
from ..client.results import GroupDescription, GroupPosition, GroupSummary, PositionMove
from ..clock import SystemClock
from ..times import INT64_MAX, TimeError, parse_length
from .broker_requests import ask
from .errors import WrongUsage, is_terminal, note
from .options import (
    DEFAULT_SERVER,
    INT32_MAX,
    AnyUnit,
    Json,
    Server,
    check_text,
    complete_group,
    complete_topic,
    group,
    parse_moment,
)
from .output import (
    NOTHING,
    confirm,
    emit,
    json_line,
    plural,
    shown_number,
    shown_span,
    shown_time,
    table,
)

_OFFSET: Final = "offset:"
_STEP: Final = re.compile(r"[+-][0-9]{1,19}")
_NUMBER: Final = re.compile(r"[0-9]{1,19}")

groups = group("List, describe, move and delete consumer groups and named positions.")

Name = Annotated[
    str,
    typer.Argument(
        metavar="GROUP",
        help="Name of the group, or of the positions.",
        autocompletion=complete_group,
        callback=check_text,
    ),
]
Part = Annotated[
    str | None,
    typer.Option(
        "--topic",
        metavar="TOPIC[:PARTITION]",
        help="Only this topic, or this partition of it.",
        autocompletion=complete_topic,
        callback=check_text,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@groups.command("list")
def list_(
    idle_for: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Only groups without members whose positions were not used for this long (7d, "
            "12h): no commit, and no member.",
        ),
    ] = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """List consumer groups and named positions.

    Shows the state of each group, its members, its positions, when one of them last moved, and when
    the group was last used: its last commit, or when its last member left. Over kafka:// the last
    three are not known.
    """
    idle = None if idle_for is None else _duration(idle_for)
    found = ask(Admin, server, lambda admin: admin.list_groups(idle_for=idle))
    if as_json:
        emit(_summary_json(each) for each in found)
        return
    if not found:
        emit(["no groups" if idle is None else f"no group is idle for {idle_for}"])
        return
    columns = ("group", "state", "members", "positions", "moved", "used")
    rows = [
        (
            each.name,
            _kind_shown(each.state),
            str(each.members),
            shown_number(each.positions),
            shown_time(each.moved_at_ms),
            shown_time(each.used_at_ms),
        )
        for each in found
    ]
    emit(table(columns, rows, right=("members", "positions")))


def _duration(text: str) -> timedelta:
    try:
        return timedelta(milliseconds=parse_length(text))
    except (TimeError, OverflowError) as error:
        raise WrongUsage(f"--idle-for: {error}") from None


def _kind(state: str | None) -> str:
    return "position" if state is None else "group"


def _kind_shown(state: str | None) -> str:
    return "named position" if state is None else state


def _summary_json(found: GroupSummary) -> str:
    return json_line(
        group=found.name,
        kind=_kind(found.state),
        state=found.state,
        members=found.members,
        positions=found.positions,
        moved_at_ms=found.moved_at_ms,
        used_at_ms=found.used_at_ms,
    )


@groups.command()
def describe(name: Name, server: Server = DEFAULT_SERVER, as_json: Json = False) -> None:
    """Show a group's partitions: position, lag, member, and when the position last moved.

    The lag in seconds is how long the first unread message has been waiting: since its append time,
    or, marked with ~, since its create time. A partition that a member has and in which nothing is
    committed has no position. A member without a partition stands alone in its line. Over kafka://
    it is not known when a position moved.
    """
    found = ask(Admin, server, lambda admin: admin.describe_group(name))
    if as_json:
        emit(_lines_json(found))
    else:
        emit(_described(found))
    failed = [each for each in found.positions if each.error is not None]
    for each in failed:
        note(f"{name}: {each.topic}-{each.partition}: {each.error}")
    if failed:
        raise typer.Exit(1)


def _lines_json(found: GroupDescription) -> list[str]:
    lines = [
        json_line(
            topic=each.topic,
            partition=each.partition,
            position=each.offset,
            end=each.end_offset,
            lag=None if each.lag is None else each.lag.messages,
            lag_seconds=None if each.lag is None else each.lag.seconds,
            member=None if each.member is None else each.member.member_id,
            host=None if each.member is None else each.member.host,
            moved_at_ms=each.moved_at_ms,
        )
        for each in found.positions
    ]
    nothing: Mapping[str, Any] = dict.fromkeys(
        ("topic", "partition", "position", "end", "lag", "lag_seconds")
    )
    lines += [
        json_line({**nothing, "member": member.member_id, "host": member.host, "moved_at_ms": None})
        for member in found.members
        if not member.partitions
    ]
    return lines


def _described(found: GroupDescription) -> list[str]:
    count = len(found.members)
    head = f"{found.name}: {_kind_shown(found.state)}"
    if found.state is not None:
        head += f", {count} {plural(count, 'member')}"
    columns = (
        *("topic", "partition", "position", "end", "lag", "behind"),
        *("moved", "member", "host"),
    )
    rows = [_row(each) for each in found.positions]
    rows += [
        (*(NOTHING,) * 7, member.member_id, member.host)
        for member in found.members
        if not member.partitions
    ]
    if not rows:
        return [head, "no positions"]
    return [head, "", *table(columns, rows, right=columns[1:6])]


def _row(found: GroupPosition) -> tuple[str, ...]:
    lag, member = found.lag, found.member
    behind = NOTHING if lag is None else shown_span(lag.seconds)
    return (
        found.topic,
        str(found.partition),
        shown_number(found.offset),
        shown_number(found.end_offset),
        NOTHING if lag is None else str(lag.messages),
        f"~{behind}" if lag is not None and lag.estimated and behind != NOTHING else behind,
        shown_time(found.moved_at_ms),
        NOTHING if member is None else member.member_id,
        NOTHING if member is None else member.host,
    )


@groups.command()
def seek(
    name: Name,
    to: Annotated[
        str,
        typer.Option(
            metavar="POS",
            help="A time (2016-11-14T17:24:32Z, @-1h, epoch milliseconds): the first message with "
            "that time or a later one; earliest, latest, offset:N; or +N, -N messages from where "
            "each position is.",
        ),
    ],
    topic: Part = None,
    yes: Yes = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show which positions would move.")
    ] = False,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
    any_unit: AnyUnit = False,
) -> None:
    """Move the positions of a group, so that its clients read again from there, or skip messages.

    Shows each position with the offset before and after, and asks on a terminal. In a script,
    without a terminal, it does not ask. Without --topic all positions of the group move; with it
    those in all partitions of the topic, and a group that does not exist is created. A group with
    members is refused: stop its clients first.
    """
    target = _target(to, any_unit)
    of_topic = _part(topic)
    moves = ask(
        partial(Admin, check_units=False),
        server,
        lambda admin: admin.seek_group(name, **target, **of_topic, dry_run=True),
    )
    _show(moves, as_json)
    if dry_run:
        return
    moves = [each for each in moves if each.new != each.old]
    what = f"{_count(moves)} of {name}"
    if moves:
        if not yes and is_terminal(sys.stdin):
            confirm(f"move {what}?", "nothing was moved")
        ask(Admin, server, lambda admin: admin.move_group(name, moves))
    if not as_json:
        emit([f"moved {what}" if moves else f"nothing to move: {name} is there already"])


def _target(text: str, any_unit: bool) -> dict[str, Any]:
    """Parse `--to` into the argument of `Admin.seek_group`. Raises WrongUsage."""
    if text in ("earliest", "latest"):
        return {"to": text}
    if _STEP.fullmatch(text) and abs(int(text)) <= INT64_MAX:
        return {"by": int(text)}
    digits = text.removeprefix(_OFFSET)
    if digits != text:
        if not _NUMBER.fullmatch(digits) or int(digits) > INT64_MAX:
            raise WrongUsage(f"--to {text}: write offset:N with N from 0 to {INT64_MAX}")
        return {"offset": int(digits)}
    others = "earliest, latest, offset:N, +N or -N"
    at_ms = parse_moment(text, "--to", SystemClock().now_ms(), any_unit, others=others)
    return {"timestamp_ms": at_ms}


def _part(text: str | None) -> dict[str, Any]:
    """Parse `--topic` into arguments of `Admin`. Raises WrongUsage."""
    if text is None:
        return {}
    topic, colon, number = text.rpartition(":")
    if not colon:
        return {"topic": text}
    if not topic or not _NUMBER.fullmatch(number) or int(number) > INT32_MAX:
        raise WrongUsage(
            f"--topic {text}: write TOPIC, or TOPIC:PARTITION with a partition from 0 to "
            f"{INT32_MAX}"
        )
    return {"topic": topic, "partition": int(number)}


def _show(moves: Sequence[PositionMove], as_json: bool) -> None:
    if as_json:
        emit(
            json_line(topic=each.topic, partition=each.partition, old=each.old, new=each.new)
            for each in moves
        )
        return
    columns = ("topic", "partition", "position", "new position")
    rows = [
        (each.topic, str(each.partition), shown_number(each.old), shown_number(each.new))
        for each in moves
    ]
    emit(table(columns, rows, right=columns[1:]))


def _count(moves: Sequence[PositionMove]) -> str:
    return f"{len(moves)} {plural(len(moves), 'position')}"


@groups.command()
def delete(
    name: Name,
    topic: Part = None,
    yes: Yes = False,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Delete a group with all its positions, or its positions in one topic.

    On a terminal it says how many positions go, and asks. A group with members is refused, and so
    is a topic to which a member subscribes. Clients that come back begin as they are configured to
    where nothing is committed.
    """
    of_topic = _part(topic)
    what = name if topic is None else f"the positions of {name} in {topic}"
    if not yes and is_terminal(sys.stdin):
        count = _count(_deleted(name, of_topic, server, dry_run=True))
        confirm(f"delete {what} ({count})?", "nothing was deleted")
    gone = _deleted(name, of_topic, server, dry_run=False)
    if not as_json:
        emit([f"deleted {what}: {_count(gone)}"])
    elif topic is None:
        emit([json_line(group=name, positions=len(gone))])
    else:
        emit(
            json_line(group=name, topic=each.topic, partition=each.partition, position=each.old)
            for each in gone
        )


def _deleted(
    name: str, of_topic: Mapping[str, Any], server: Servers, *, dry_run: bool
) -> list[PositionMove]:
    return ask(Admin, server, lambda admin: admin.delete_group(name, **of_topic, dry_run=dry_run))
