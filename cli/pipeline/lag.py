"""`horolog pipeline lag`: how far readers are behind by time, with an exit code for alerts."""

from collections.abc import Sequence
from typing import Annotated

import typer

from ...pipeline.jobs.lag import TimeLag, lag_by_time
from ..errors import CommandFailed, note
from ..options import DEFAULT_SERVER, Json, Server, check_texts
from ..output import emit, json_line, json_time, shown_number, shown_span, shown_time, table
from .shown import length_ms


def lag(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Names of positions; all when not given.",
            callback=check_texts,
        ),
    ] = None,
    at_most: Annotated[
        str | None,
        typer.Option(
            metavar="LENGTH",
            help="Exit with 1 when a reader is further behind than this: 30s, 5m, 1h30m.",
        ),
    ] = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Say how far readers are behind, in messages and by time.

    Behind is how long the first message that was not read has been waiting, marked with ~ where it
    goes by create times. Read until and newest are the create times of the last message read and
    of the newest one stored.
    """
    limit_ms = None if at_most is None else length_ms("--at-most", at_most)
    rows = lag_by_time(server, names or ())
    missing = sorted(set(names or ()) - {row.name for row in rows})
    if as_json:
        emit(_as_json(row) for row in rows)
    elif rows:
        _show(rows)
    elif not names:
        emit(["no positions are stored"])
    if missing:
        raise CommandFailed(f"no position is stored under {', '.join(missing)}")
    if limit_ms is not None:
        _check(rows, limit_ms)


def _check(rows: Sequence[TimeLag], limit_ms: int) -> None:
    late = [row for row in rows if row.behind_s is None or row.behind_s * 1000 > limit_ms]
    for row in late:
        behind = "for a time not known" if row.behind_s is None else shown_span(row.behind_s)
        note(f"{row.name} is behind in {row.topic}-{row.partition}: {behind}")
    if late:
        raise typer.Exit(1)


def _show(rows: Sequence[TimeLag]) -> None:
    columns = (
        *("name", "topic", "partition", "position", "end", "messages", "behind", "caught up in"),
        *("read until", "newest"),
    )
    emit(table(columns, [_as_row(row) for row in rows], right=columns[2:8]))


def _as_row(row: TimeLag) -> tuple[str, ...]:
    behind = shown_span(row.behind_s)
    return (
        row.name,
        row.topic,
        str(row.partition),
        str(row.position),
        str(row.end_offset),
        shown_number(row.messages),
        f"~{behind}" if row.estimated else behind,
        shown_span(row.catch_up_s),
        shown_time(row.read_until_ms),
        shown_time(row.newest_ms),
    )


def _as_json(row: TimeLag) -> str:
    return json_line(
        name=row.name,
        topic=row.topic,
        partition=row.partition,
        offset=row.position,
        end=row.end_offset,
        lag=row.messages,
        lag_s=row.behind_s,
        estimated=row.estimated,
        catch_up_s=row.catch_up_s,
        read_until_ms=json_time(row.read_until_ms),
        newest_ms=json_time(row.newest_ms),
    )
