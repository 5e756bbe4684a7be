"""Converts times between text and milliseconds since the epoch. Horolog's only parser of times.

A time is one of

- RFC 3339 with a zone: `2016-11-14T17:24:32.509Z`, `2016-11-14 18:24:32+01:00`;
- `now`;
- `@-1h`, `@-7d`, `@-1h30m`: that long before now (units `w d h m s ms`, in this order);
- epoch milliseconds: 0, or 10^11 to 10^14 (March 1973 to November 5138);
- with a time zone given: a date or a time of day there, such as `14:05` (today), `today`,
  `yesterday 14:00`, `2016-11-14`, `2016-11-14 14:05`. Without a time of day, the first moment of
  that day.

Anything whose meaning would be a guess is refused with a hint: a date or time without a zone, a
time of day that a change of the clocks leaves out or repeats, a number that looks like seconds or
microseconds, a time before 1970 (negative milliseconds are sentinels in the protocol).
"""

import re
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from typing import Final, NamedTuple

from .protocol.errors import HorologError

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_MS_MINIMUM: Final = 10**11
EPOCH_MS_MAXIMUM: Final = 10**14
INT64_MAX: Final = 2**63 - 1

_FORMS: Final = (
    "a time is RFC 3339 with a zone (2016-11-14T17:24:32Z), now, @-1h, or epoch milliseconds"
)

_RFC3339: Final = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt ](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?"
    r"(?:([Zz])|([+-])(\d{2}):?(\d{2}))",
    re.ASCII,
)
_NAIVE: Final = re.compile(r"\d{4}-\d{2}-\d{2}([Tt ]\d{2}(:\d{2}(:\d{2}(\.\d+)?)?)?)?", re.ASCII)
_NO_SECONDS: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}([Zz]|[+-]\d{2}:?\d{2})", re.ASCII
)
_CLOCK: Final = r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?"
_LOCAL: Final = re.compile(
    rf"(today|yesterday|\d{{4}}-\d{{2}}-\d{{2}})(?:[Tt ]{_CLOCK})?|{_CLOCK}", re.ASCII
)
_OFFSET: Final = re.compile(r"([+-])(\d{2}):?(\d{2})", re.ASCII)
_NUMBER: Final = re.compile(r"0|[1-9]\d{0,18}", re.ASCII)
_DURATION: Final = re.compile(
    r"(?:(\d{1,12})w)?(?:(\d{1,12})d)?(?:(\d{1,12})h)?(?:(\d{1,12})m(?!s))?"
    r"(?:(\d{1,12})s)?(?:(\d{1,12})ms)?",
    re.ASCII,
)
_LONGEST: Final = 200
_UNITS_MS: Final = (7 * 86_400_000, 86_400_000, 3_600_000, 60_000, 1000, 1)


class TimeError(HorologError, ValueError):
    """The text is not a time, or is ambiguous. The message says what to write."""


class OtherUnit(TimeError):
    """A number that does not look like milliseconds. With `any_unit` it is accepted."""


class NoZone(TimeError):
    """A date or a time of day without a zone. It is accepted together with a time zone."""


class _TimeRules(NamedTuple):
    """The present time, and what `parse_time` accepts."""

    now_ms: int
    any_unit: bool
    zone: tzinfo | None


def parse_time(text: str, now_ms: int, any_unit: bool = False, zone: tzinfo | None = None) -> int:
    """Return the time that `text` means, in milliseconds since the epoch. A fraction finer than
    milliseconds is rounded up.

    `any_unit` accepts a plain number unchanged, even if it looks like another unit: for topics
    whose producers wrote seconds or microseconds into their timestamps. `zone` is the time zone of
    dates and times of day without one; None refuses these. Raises `TimeError`.
    """
    return _parse_time(text, _TimeRules(now_ms, any_unit, zone))


def _parse_time(text: str, rules: _TimeRules) -> int:
    _check_length(text)
    bare = text.removeprefix("@")
    duration_ms = _duration_ms(bare.removeprefix("-"))
    if duration_ms is not None:
        if text.startswith("@-"):
            return _not_before_epoch(rules.now_ms - duration_ms, text)
        raise TimeError(
            f"{text!r} is a length of time, not a time: write @-{bare.removeprefix('-')} for "
            "that long ago"
        )
    return _parse_absolute(bare, text, rules)


def parse_range(
    text: str, now_ms: int, any_unit: bool = False, zone: tzinfo | None = None
) -> tuple[int | None, int | None]:
    """Return the range `@A:B` as (start, end) in milliseconds; None for an open side.

    A and B are times without `@`, read as by `parse_time`. `-1h` on either side counts back from
    now, `1h` as B counts from A, and an empty side is open. Raises `TimeError`, also if no colon,
    or more than one, splits the text into two times.
    """
    rules = _TimeRules(now_ms, any_unit, zone)
    _check_length(text)
    if not text.startswith("@") or ":" not in text or _RFC3339.fullmatch(text[1:]):
        raise TimeError(f"{text!r} is not a range: write @A:B, for example @-2h:1h")
    found: list[tuple[int | None, int | None]] = []
    reasons: list[TimeError] = []
    for colon in (position for position, letter in enumerate(text) if letter == ":"):
        try:
            found.append(_parse_sides(text[1:colon], text[colon + 1 :], rules))
        except TimeError as error:
            reasons.append(error)
    if len(found) > 1:
        raise TimeError(f"{text!r} can be split into two times in more than one way")
    if not found:
        telling = reasons if len(reasons) == 1 else [e for e in reasons if isinstance(e, NoZone)]
        if telling:
            # The error of the last split has the longest left side: the complete date and time.
            raise _as(telling[-1], f"{text!r} is not a range: {telling[-1]}")
        raise TimeError(f"{text!r} has no colon with a time on both sides: {_FORMS}")
    start_ms, end_ms = found[0]
    if start_ms is not None and end_ms is not None and end_ms < start_ms:
        raise TimeError(
            f"{text!r} ends ({format_time(end_ms)}) before it starts ({format_time(start_ms)})"
        )
    return start_ms, end_ms


def parse_time_or_range(
    text: str, now_ms: int, any_unit: bool = False, zone: tzinfo | None = None
) -> tuple[int | None, int | None]:
    """Return (time, None) for a single time, or the range as `parse_range`. Raises `TimeError`."""
    try:
        return parse_time(text, now_ms, any_unit, zone), None
    except TimeError:
        if not text.startswith("@") or ":" not in text:
            raise
        if any(form.fullmatch(text[1:]) for form in (_RFC3339, _NAIVE, _NO_SECONDS)):
            raise  # a single time, whose colons are part of it: the first error helps more
        try:
            return parse_range(text, now_ms, any_unit, zone)
        except TimeError as error:
            raise error from None


def check_unit(number: int, any_unit: bool = False) -> int:
    """Return `number` if it is epoch milliseconds: 0, or from 10^11 to 10^14. `any_unit` accepts
    any timestamp that a message can have. Raises `TimeError`; `OtherUnit` if the number looks like
    another unit."""
    if number > INT64_MAX:
        raise TimeError(f"{number} does not fit in 64 bits")
    if any_unit or number == 0 or EPOCH_MS_MINIMUM <= number <= EPOCH_MS_MAXIMUM:
        return number
    if number < EPOCH_MS_MINIMUM:
        guess, in_ms = "seconds", number * 1000
    elif number < EPOCH_MS_MAXIMUM * 1000:
        guess, in_ms = "microseconds", number // 1000
    else:
        guess, in_ms = "nanoseconds (or microseconds)", number // 1_000_000
    advice = ""
    if EPOCH_MS_MINIMUM <= in_ms <= EPOCH_MS_MAXIMUM:
        advice = f"; write {in_ms} if it is {guess.split()[0]}"
    raise OtherUnit(
        f"{number} looks like {guess}: epoch milliseconds are 0 or from {EPOCH_MS_MINIMUM} to "
        f"{EPOCH_MS_MAXIMUM}{advice}"
    )


def parse_length(text: str) -> int:
    """Parse a duration such as `5m`, `1h30m` or `250ms` into milliseconds. Raises `TimeError`."""
    _check_length(text)
    length_ms = _duration_ms(text)
    if length_ms is None:
        raise TimeError(f"{text!r} is not a length of time: write 250ms, 30s, 5m, 1h30m or 7d")
    return length_ms


def format_length(length_ms: int) -> str:
    """Format a duration as `parse_length` reads it: `7d`, `1h30m`, `0s`. Weeks are days."""
    parts, left_ms = [], length_ms
    for unit, unit_ms in zip(("d", "h", "m", "s", "ms"), _UNITS_MS[1:], strict=True):
        count, left_ms = divmod(left_ms, unit_ms)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def parse_zone(text: str) -> tzinfo:
    """Return the time zone with this name of the IANA database, such as `Europe/Berlin`, or with
    this offset from UTC, such as `+01:00`. Raises `TimeError`."""
    from difflib import get_close_matches
    from zoneinfo import ZoneInfo, available_timezones

    offset = _OFFSET.fullmatch(text)
    if offset is not None and int(offset[2]) < 24 and int(offset[3]) < 60:
        length = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return timezone(-length if offset[1] == "-" else length)
    if text in ("UTC", "Z"):
        return UTC
    try:
        return ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        pass
    known = available_timezones()
    shown = repr(text[:100])
    if not known:
        raise TimeError(
            f"{shown}: this machine has no database of time zones: install the system's tzdata, "
            "or write an offset such as +01:00"
        )
    close = get_close_matches(text[:100], known, 1)
    hint = f"did you mean {close[0]}?" if close else "write one such as Europe/Berlin"
    raise TimeError(f"{shown} is not a time zone; {hint}")


def later(timestamp_ms: int, length_ms: int) -> int:
    """Return `timestamp_ms` plus `length_ms`, at most the largest 64-bit timestamp."""
    return min(timestamp_ms + length_ms, INT64_MAX)


def format_time(timestamp_ms: int) -> str:
    """Format a timestamp as RFC 3339 in UTC with milliseconds. A number beyond the calendar's
    dates is formatted as `<number> ms`."""
    try:
        moment = EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _check_length(text: str) -> None:
    if len(text) > _LONGEST:
        raise TimeError(f"a text of {len(text)} characters is not a time: {_FORMS}")


def _parse_sides(start: str, end: str, rules: _TimeRules) -> tuple[int | None, int | None]:
    start_ms = None if start == "" else _parse_side(start, rules)
    if end == "":
        return start_ms, None
    length_ms = _duration_ms(end)
    if length_ms is None:
        return start_ms, _parse_side(end, rules)
    if start_ms is None:
        raise TimeError(f"{end!r} counts from the start of the range, and there is none")
    if start_ms + length_ms > INT64_MAX:
        raise TimeError(f"{end!r} after the start of the range does not fit in 64 bits")
    return start_ms, start_ms + length_ms


def _parse_side(text: str, rules: _TimeRules) -> int:
    if text.startswith("-"):
        return _parse_time("@" + text, rules)
    if text.startswith("@"):
        raise TimeError(f"{text!r} has a second @: a range is @A:B")
    return _parse_time(text, rules)


def _parse_absolute(bare: str, text: str, rules: _TimeRules) -> int:
    if bare == "now":
        return rules.now_ms
    if _NUMBER.fullmatch(bare):
        return check_unit(int(bare), rules.any_unit)
    match = _RFC3339.fullmatch(bare)
    if match is not None:
        return _not_before_epoch(_rfc3339_ms(match, text), text)
    if _NO_SECONDS.fullmatch(bare):
        raise TimeError(f"{text!r} has no seconds: RFC 3339 is like 2016-11-14T17:24:00Z")
    local = _LOCAL.fullmatch(bare)
    if local is not None and rules.zone is not None:
        return _not_before_epoch(_local_ms(local, text, rules.now_ms, rules.zone), text)
    if _NAIVE.fullmatch(bare) and rules.zone is None:
        raise NoZone(
            f"{text!r} has no zone, so it could be any of a day's worth of times: "
            f"write {_with_zone(bare)} for UTC, or with an offset such as +01:00"
        )
    if local is not None:
        raise NoZone(
            f"{text!r} has no zone, so it could be any of a day's worth of times: write the time "
            "with its date and zone, such as 2016-11-14T14:05:00Z"
        )
    raise TimeError(f"{text!r} is not a time: {_FORMS}")


def _with_zone(naive: str) -> str:
    """Complete a text without a zone to a full RFC 3339 time in UTC, for the hint."""
    return naive + "T00:00:00"[len(naive) - 10 :] + "Z" if len(naive) < 19 else naive + "Z"


def _rfc3339_ms(match: re.Match[str], text: str) -> int:
    year, month, day, hour, minute, second = (int(match[group]) for group in range(1, 7))
    offset = timedelta(0)
    if match[8] is None:
        hours, minutes = int(match[10]), int(match[11])
        if hours > 23 or minutes > 59:
            raise TimeError(f"{text!r} has a zone outside -23:59 to +23:59")
        offset = timedelta(hours=hours, minutes=minutes) * (-1 if match[9] == "-" else 1)
    if second == 60:
        raise _leap_second(text)
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=timezone(offset))
        return _epoch_ms(moment) + _fraction_ms(match[7] or "")
    except (ValueError, OverflowError) as error:
        raise TimeError(f"{text!r} is not a date and time: {error}") from None


def _local_ms(match: re.Match[str], text: str, now_ms: int, zone: tzinfo) -> int:
    """Return the only moment that `_LOCAL` means in the zone; of a day, its first moment."""
    hour, minute, second, fraction = match.groups()[1:5] if match[1] else match.groups()[5:]
    try:
        day = _day(match[1], now_ms, zone)
        if hour is None:
            return _epoch_ms(_first_of_day(day, text, zone))
        if second == "60":
            raise TimeError(
                f"{text!r} names a leap second, which epoch time does not count: use 59"
            )
        local = datetime.combine(day, time(int(hour), int(minute), int(second or 0)))
        moments = _moments(local, zone)
    except TimeError:
        raise
    except (ValueError, OverflowError) as error:
        raise TimeError(f"{text!r} is not a date and time: {error}") from None
    if not moments:
        raise TimeError(
            f"{text!r} does not exist in {zone}: the clocks were put forward over it; write the "
            "time with its offset, such as +01:00"
        )
    if len(moments) > 1:
        choice = " or ".join(moment.isoformat() for moment in moments)
        raise TimeError(
            f"{text!r} exists twice in {zone}, because the clocks were put back: write {choice}"
        )
    return _epoch_ms(moments[0]) + _fraction_ms(fraction or "")


def _day(text: str | None, now_ms: int, zone: tzinfo) -> date:
    if text is not None and text not in ("today", "yesterday"):
        return date.fromisoformat(text)
    today = (EPOCH + timedelta(milliseconds=now_ms)).astimezone(zone).date()
    return today - timedelta(days=1) if text == "yesterday" else today


def _first_of_day(day: date, text: str, zone: tzinfo) -> datetime:
    """Return the first moment of a day: where the clocks are put forward at midnight, that is not
    00:00."""
    midnight = datetime.combine(day, time())
    for minute in range(24 * 60):
        moments = _moments(midnight + timedelta(minutes=minute), zone)
        if moments:
            return moments[0]
    raise TimeError(f"{text!r} does not exist in {zone}: the calendar skips that day there")


def _moments(local: datetime, zone: tzinfo) -> list[datetime]:
    """Return the moments at which clocks in the zone show `local`: one, or none in the hour that
    they skip, or two in the hour that they repeat."""
    found: list[datetime] = []
    for fold in (0, 1):
        moment = local.replace(tzinfo=zone, fold=fold)
        there = moment.astimezone(UTC).astimezone(zone)
        if there.replace(tzinfo=None, fold=0) == local and moment.utcoffset() not in (
            each.utcoffset() for each in found
        ):
            found.append(moment)
    return found


def _leap_second(text: str) -> TimeError:
    return TimeError(f"{text!r} names a leap second, which epoch time does not count: use 59")


def _epoch_ms(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def _fraction_ms(digits: str) -> int:
    """Return a fraction of a second in milliseconds: the first one that is not before the given
    time, because messages with a timestamp at or after the result are searched for."""
    return int(digits.ljust(3, "0")[:3]) + any(digit != "0" for digit in digits[3:])


def _duration_ms(text: str) -> int | None:
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        return None
    return sum(
        int(count) * unit_ms
        for count, unit_ms in zip(match.groups(default="0"), _UNITS_MS, strict=True)
    )


def _as(error: TimeError, text: str) -> TimeError:
    """Return an error of the same class with another text."""
    return type(error)(text)


def _not_before_epoch(timestamp_ms: int, text: str) -> int:
    if timestamp_ms < 0:
        raise TimeError(f"{text!r} is before 1970-01-01T00:00:00Z, the earliest time there is")
    return timestamp_ms
