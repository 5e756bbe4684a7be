"""Lengths of time, sizes and rates as a person writes them: `7d`, `90s`, `1GiB`, `10MB/s`.

`KiB`, `MiB`, `GiB` and `TiB` are powers of 1024; `KB`, `MB`, `GB` and `TB` powers of 1000.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ..times import TimeError, format_length, parse_length

TIME_UNITS_MS: Final = MappingProxyType(
    {"ms": 1, "s": 1000, "minutes": 60_000, "hours": 3_600_000, "days": 86_400_000}
)
"""Units of settings that are lengths of time, in milliseconds."""

SIZE: Final = "bytes"
RATE: Final = "bytes/s"

SIZES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "B": 1,
        **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", 1)},
        **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", 1)},
        "kB": 1000,
    }
)
_AMOUNT: Final = re.compile(r"(\d{1,19})(?:\.(\d{1,9}))? ?([A-Za-z]{1,3})", re.ASCII)
_LONGEST: Final = 40
_LONGEST_MS: Final = 10**17
"""Longest time that is shown in days: three million years."""


class UnitError(ValueError):
    """The amount has a unit, and cannot be expressed in whole units of the setting. The text is the
    end of a sentence about it."""


def parse_amount(text: str, unit: str) -> int | None:
    """Return what `text` means in `unit`: a unit of `TIME_UNITS_MS`, `SIZE` or `RATE`. None if the
    text has no unit, or the setting's unit is another. Raises `UnitError`."""
    if len(text) > _LONGEST:
        return None
    if unit in TIME_UNITS_MS:
        return _time(text, TIME_UNITS_MS[unit], unit)
    if unit == SIZE:
        return _size(text)
    return _size(text.removesuffix("/s")) if unit == RATE else None


def format_amount(number: int, unit: str) -> str:
    """Return the shortest text that `parse_amount` reads as exactly `number`; the number itself if
    it is not positive, or has no whole larger unit."""
    if number <= 0:
        return str(number)
    if unit in TIME_UNITS_MS:
        length_ms = number * TIME_UNITS_MS[unit]
        return format_length(length_ms) if length_ms <= _LONGEST_MS else str(number)
    if unit not in (SIZE, RATE):
        return str(number)
    behind = "/s" if unit == RATE else ""
    whole = [
        f"{number // size}{name}{behind}"
        for name, size in SIZES.items()
        if size > 1 and name != "kB" and number % size == 0
    ]
    return min([*whole, str(number)], key=len)


def form_of(unit: str) -> str:
    """Return how an amount in `unit` may be written besides as a number; empty for other units."""
    if unit in TIME_UNITS_MS:
        return "with a unit: 90s, 12h, 7d"
    return {SIZE: "with a unit: 512KiB, 1GiB, 10MB", RATE: "with a unit: 1MiB/s, 10MB/s"}.get(
        unit, ""
    )


def _time(text: str, unit_ms: int, unit: str) -> int | None:
    try:
        length_ms = parse_length(text)
    except TimeError:
        return None
    number, rest = divmod(length_ms, unit_ms)
    if rest:
        raise UnitError(f"{text} is not a whole number of {unit}")
    return number


def _size(text: str) -> int | None:
    match = _AMOUNT.fullmatch(text)
    if match is None:
        return None
    size = SIZES.get(match[3])
    if size is None:
        letter = match[3][0].upper()
        if letter in "KMGT":
            raise UnitError(f"{match[3]} could be {letter}iB or {letter}B")
        return None
    fraction: str = match[2] or ""
    digits: str = match[1] + fraction
    scale: int = 10 ** len(fraction)
    number, rest = divmod(int(digits) * size, scale)
    if rest:
        raise UnitError(f"{text} is not a whole number of bytes")
    return number
