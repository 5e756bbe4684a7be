"""Shared parts of the pipeline's commands: options, and the output of plans."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from ...clock import SystemClock
from ...pipeline.jobs.ranges import ReadPlan
from ...times import TimeError, parse_length
from ..errors import CommandFailed, WrongUsage
from ..options import parse_moment
from ..output import emit, json_line, json_time, shown_time, table

From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="TIME",
        help="Begin at this time, inclusive: 2016-11-14T17:00:00Z, @-1h, now, epoch milliseconds.",
    ),
]
To = Annotated[
    str | None, typer.Option("--to", metavar="TIME", help="End at this time, exclusive.")
]


def time_ms(option: str, text: str | None) -> int | None:
    """Parse the time of an option. Raises WrongUsage."""
    if text is None:
        return None
    return parse_moment(text, option, SystemClock().now_ms(), any_unit=None)


def times_between(start: str | None, end: str | None) -> tuple[int | None, int | None]:
    """Parse --from and --to. Raises WrongUsage, also if --to is not later than --from."""
    from_ms, to_ms = time_ms("--from", start), time_ms("--to", end)
    if from_ms is not None and to_ms is not None and to_ms <= from_ms:
        raise WrongUsage(f"--to {end} is not later than --from {start}: no time is between them")
    return from_ms, to_ms


def length_ms(option: str, text: str, *, least: int = 0) -> int:
    """Parse the duration of an option. Raises WrongUsage, also if it is below `least` ms."""
    try:
        found = parse_length(text)
    except TimeError as error:
        raise WrongUsage(f"{option}: {error}") from None
    if found < least:
        raise WrongUsage(f"{option} {text}: it is at least {least} ms")
    return found


@contextmanager
def refusals() -> Iterator[None]:
    """Turn a ValueError, with which a job refuses its arguments, into CommandFailed."""
    try:
        yield
    except ValueError as error:
        raise CommandFailed(str(error)) from None


def show_plan(plan: ReadPlan, as_json: bool) -> None:
    """Print the offsets that will be read, before they are."""
    if as_json:
        emit(
            json_line(
                plan=plan.topic,
                partition=one.partition,
                start=one.start_offset,
                end=one.end_offset,
                rows=one.rows,
                from_ms=json_time(plan.from_ms),
                to_ms=json_time(plan.to_ms),
            )
            for one in plan.ranges
        )
        return
    start, end = _side(plan.from_ms, "the beginning"), _side(plan.to_ms, "the end")
    emit([f"reading {plan.topic}, {start} to {end}:"])
    columns = ("partition", "first offset", "end offset", "rows")
    rows = [
        (str(one.partition), str(one.start_offset), str(one.end_offset), str(one.rows))
        for one in plan.ranges
    ]
    emit(table(columns, rows, right=columns))


def _side(ms: int | None, open_end: str) -> str:
    return open_end if ms is None else shown_time(ms)
