"""Places in a partition as the command line writes them: a time, or `offset:N`."""

import re
from typing import Final

from ..times import INT64_MAX, TimeError, parse_time, parse_time_or_range
from ..values import value_class
from .errors import WrongUsage
from .options import refused

_OFFSET: Final = re.compile(r"offset:(\d{1,19})", re.ASCII)

POSITION_HELP: Final = "a time (2016-11-14T17:24:32Z, now, @-1h, epoch milliseconds) or offset:N"


@value_class
class AtOffset:
    """The message with this offset."""

    offset: int


@value_class
class AtTime:
    """The first message, in offset order, whose time is this or later."""

    timestamp_ms: int


Position = AtOffset | AtTime


def parse_position(text: str, option: str, now_ms: int, any_unit: bool) -> Position:
    """One position. Wrong usage when `text` is none."""
    if text.startswith("offset:"):
        return _at_offset(text, option)
    try:
        return AtTime(parse_time(text, now_ms, any_unit))
    except TimeError as error:
        raise WrongUsage(f"{option}: {refused(error)}; or offset:N") from None


def parse_bounds(
    start: str | None, until: str | None, now_ms: int, any_unit: bool
) -> tuple[Position | None, Position | None]:
    """What `--from` and `--until` say; None is the beginning or the end. `--from` may be a range
    `@A:B`, which sets both.
    """
    end = None if until is None else parse_position(until, "--until", now_ms, any_unit)
    if start is None:
        return None, end
    if start.startswith("offset:"):
        return _at_offset(start, "--from"), end
    try:
        start_ms, end_ms = parse_time_or_range(start, now_ms, any_unit)
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
