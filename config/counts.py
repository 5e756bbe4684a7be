"""Settings that give names numbers: `127.0.0.1:200,build-7:20`."""

from collections.abc import Mapping
from typing import Final

MAX_NAMES: Final = 1000
MAX_COUNT: Final = 1_000_000
FORM: Final = f"NAME:COUNT by commas, each count from 0 to {MAX_COUNT}"


def counts(text: str) -> Mapping[str, int]:
    """The numbers by name. What is behind the last colon is the number; a name may have colons, and
    one of an address of IPv6 may be in brackets.

    Raises `ValueError` saying which part is wrong.
    """
    found: dict[str, int] = {}
    for part in text.split(",") if text.strip() else ():
        name, colon, number = part.strip().rpartition(":")
        name = name.strip().removeprefix("[").removesuffix("]")
        number = number.strip()
        if not (colon and name and number.isascii() and number.isdecimal() and len(number) < 10):
            raise ValueError(f"{part.strip()[:100]!r} is not NAME:COUNT")
        if int(number) > MAX_COUNT:
            raise ValueError(f"{number} is more than {MAX_COUNT}")
        if name in found:
            raise ValueError(f"{name[:100]!r} is there twice")
        found[name] = int(number)
    if len(found) > MAX_NAMES:
        raise ValueError(f"there are more than {MAX_NAMES} names")
    return found
