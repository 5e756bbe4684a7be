"""The time zone of a command: that of dates and times of day without one."""

from contextvars import ContextVar
from datetime import tzinfo
from typing import Final

from ..times import TimeError, parse_zone
from .errors import WrongUsage

TIME_ZONE_VARIABLE: Final = "HOROLOG_TZ"

_time_zone: ContextVar[tzinfo | None] = ContextVar("time_zone", default=None)


def use_time_zone(name: str | None, origin: str) -> None:
    """Read dates and times of day without a zone in this time zone from now on; None refuses them.
    `origin` is the option or variable that names the zone. Raises WrongUsage."""
    _time_zone.set(None)
    try:
        _time_zone.set(None if name is None else parse_zone(name))
    except TimeError as error:
        raise WrongUsage(f"{origin}: {error}") from None


def time_zone() -> tzinfo | None:
    """The time zone from --tz or HOROLOG_TZ; None if the command has none."""
    return _time_zone.get()


def complete_time_zone(incomplete: str) -> list[str]:
    """Return the names of time zones that begin with `incomplete`."""
    from zoneinfo import available_timezones

    return sorted(name for name in available_timezones() if name.startswith(incomplete))
