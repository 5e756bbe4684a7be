"""Names of window topics: a window of time of a topic, as the name of a topic that is not stored.

`BASE..FROM..TO`, or `BASE..FROM` for that time and later, each with an optional `..append` behind
it: by append time in place of message time. FROM and TO are

- a UTC time in ISO 8601's basic form: `20161114T14Z`, `20161114T1405Z`, `20161114T140500Z`,
  `20161114T140500.250Z`;
- epoch milliseconds, from 10^11 to 10^14;
- for TO also a length of time counted from FROM: `15m`, `1h`, `7d`, `1h30m` (units `w d h m s ms`).

A name is split at the rightmost `..` whose parts parse, so a base may contain dots. The window is
[FROM, TO). A name with `..` that does not parse is that of an ordinary topic.
"""

import re
from collections.abc import Container
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from ..values import value_class

SEPARATOR: Final = ".."
BY_APPEND_SUFFIX: Final = "append"

MAX_WINDOW_PARTS: Final = 3
"""The most parts behind the base in the name of a window: FROM, TO and `append`."""

MAX_NAME: Final = 249
"""Largest number of characters of a topic's name, as in Kafka."""

EPOCH_MS_MINIMUM: Final = 10**11
EPOCH_MS_MAXIMUM: Final = 10**14
"""The bounds of all times that people write as numbers: others look like seconds or
microseconds."""

_LATEST_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, the last time that the basic form can write."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER: Final = re.compile(r"[1-9][0-9]{11,14}")
_BASIC: Final = re.compile(
    r"([0-9]{4})([0-9]{2})([0-9]{2})T([0-9]{2})(?:([0-9]{2})(?:([0-9]{2})(?:\.([0-9]{3}))?)?)?Z"
)
_LENGTH: Final = re.compile(
    r"(?:([0-9]{1,12})w)?(?:([0-9]{1,12})d)?(?:([0-9]{1,12})h)?(?:([0-9]{1,12})m(?!s))?"
    r"(?:([0-9]{1,12})s)?(?:([0-9]{1,12})ms)?"
)
_PARSED_KEPT: Final = 16_384
"""Names whose meaning is cached, some 400 bytes each: more than one request can have, because a
handler reads a name several times."""

_UNITS_MS: Final = (7 * 86_400_000, 86_400_000, 3_600_000, 60_000, 1000, 1)
_BASE: Final = re.compile(r"[a-zA-Z0-9._-]+")


@value_class
class WindowName:
    """The window that the name of a window topic denotes."""

    base: str
    """The topic whose messages are in the window."""
    from_ms: int
    until_ms: int | None
    """`None`: the window is open, and later messages belong to it too."""
    by_append: bool = False
    """Whether the window is in append times, instead of message times."""

    @property
    def is_empty(self) -> bool:
        """Whether the window cannot contain any time. Then there is no such topic."""
        return self.until_ms is not None and self.until_ms <= self.from_ms


def may_name_window(name: str) -> bool:
    """Whether a name is worth parsing: a request can have thousands of other names of 32,000
    characters."""
    return len(name) <= MAX_NAME and SEPARATOR in name


def parse_window_name(name: str) -> WindowName | None:
    """Return the window that a topic's name denotes; `None` for the name of an ordinary topic."""
    return _parse(name) if may_name_window(name) else None


@lru_cache(_PARSED_KEPT)
def _parse(name: str) -> WindowName | None:
    rest, _, last = name.rpartition(SEPARATOR)
    by_append = last == BY_APPEND_SUFFIX
    if by_append:
        rest, _, last = rest.rpartition(SEPARATOR)
    base, _, start = rest.rpartition(SEPARATOR)
    from_ms = _time_ms(start)
    if from_ms is not None and _is_base(base):
        until_ms = _time_ms(last)
        if until_ms is None:
            until_ms = _end_ms(from_ms, last)
        if until_ms is not None:
            return WindowName(base, from_ms, until_ms, by_append)
    from_ms = _time_ms(last)
    if from_ms is not None and _is_base(rest):
        return WindowName(rest, from_ms, None, by_append)
    return None


def window_name(window: WindowName) -> str:
    """Return the name of a window, which `parse_window_name` reads as this window.

    Raises `ValueError` for a window without a name: with times before 1970 or after the year 9999,
    or with a base that leaves too few of the 249 characters.
    """
    times = [window.from_ms] if window.until_ms is None else [window.from_ms, window.until_ms]
    parts = [window.base, *map(_basic, times)]
    if window.by_append:
        parts.append(BY_APPEND_SUFFIX)
    name = SEPARATOR.join(parts)
    if parse_window_name(name) != window:
        raise ValueError(
            f"no topic name says the window {name!r}: it may have {MAX_NAME} characters, and the "
            "base those of a topic's name"
        )
    return name


def _is_base(text: str) -> bool:
    return text not in (".", "..") and _BASE.fullmatch(text) is not None


def _time_ms(text: str) -> int | None:
    if _NUMBER.fullmatch(text):
        number = int(text)
        return number if EPOCH_MS_MINIMUM <= number <= EPOCH_MS_MAXIMUM else None
    match = _BASIC.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, milliseconds = map(int, match.groups("0"))
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    found = (moment - _EPOCH) // timedelta(milliseconds=1) + milliseconds
    return found if found >= 0 else None


def _end_ms(from_ms: int, text: str) -> int | None:
    match = _LENGTH.fullmatch(text)
    if match is None or not text:
        return None
    counts = map(int, match.groups("0"))
    end_ms = from_ms + sum(
        count * unit_ms for count, unit_ms in zip(counts, _UNITS_MS, strict=True)
    )
    return end_ms if end_ms <= _LATEST_MS else None


def _basic(time_ms: int) -> str:
    if not 0 <= time_ms <= _LATEST_MS:
        raise ValueError(f"the time {time_ms} of a window is not from 1970 to the year 9999")
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    text = moment.strftime("%Y%m%dT%H%M%S").rjust(15, "0")
    fraction_ms = time_ms % 1000
    return f"{text}.{fraction_ms:03}Z" if fraction_ms else f"{text}Z"


def read_only(name: str, window: WindowName) -> str:
    """Say that `name`, which means a window, cannot be changed."""
    return f"{name} is a window of {window.base}: read only"


def not_a_topic(name: str, window: WindowName) -> str:
    """Say what a request may do with `name`, which means a window, and what with its base."""
    return (
        f"{read_only(name, window)}, by fetches and searches for offsets. "
        f"Name {window.base} for everything else"
    )


def find_window(topics: Container[str], name: str) -> WindowName | None:
    """Return the window that a name denotes. `None` for the name of a topic, for a window of a
    topic that does not exist, and for an empty window."""
    if not may_name_window(name) or name in topics:
        return None
    window = parse_window_name(name)
    if window is None or window.is_empty or window.base not in topics:
        return None
    return window


def base_of(topics: Container[str], name: str) -> str:
    """Return the topic that has the messages of a topic: for a window its base."""
    window = find_window(topics, name)
    return name if window is None else window.base
