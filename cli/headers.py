"""Headers of messages as options: `NAME=VALUE`, any number of times."""

import os
from collections.abc import Sequence

from ..printable import printable
from .errors import WrongUsage


def parse_headers(options: Sequence[str] | None, flag: str) -> tuple[tuple[str, bytes], ...]:
    """Parse the `NAME=VALUE` texts of the option `flag`, in their order. A name may occur several
    times, and the value ends at the end of the text. Raises WrongUsage."""
    found: list[tuple[str, bytes]] = []
    for option in options or ():
        name, equals, value = option.partition("=")
        if not equals or not name:
            raise WrongUsage(f"{flag} {printable(option)}: write NAME=VALUE, as in trace=17")
        try:
            name.encode()
        except UnicodeEncodeError:
            raise WrongUsage(f"{flag}: {name!r} is not UTF-8, so it is no name") from None
        found.append((name, argument_bytes(value)))
    return tuple(found)


def argument_bytes(text: str) -> bytes:
    """Return the bytes of an argument as the shell gave them, even if they are not UTF-8."""
    return os.fsencode(text)
