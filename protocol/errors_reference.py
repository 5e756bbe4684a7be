"""Writes `docs/errors.md` from the error table: `python -m horolog.protocol.errors_reference`."""

import sys
from collections.abc import Iterator

from .errors import ERRORS

_INTRODUCTION = """\
# Error codes

Generated from `protocol/errors.py` by `make docs`.

Codes and names are Kafka's. 0 is no error. An answer carries the code and, in the native protocol,
a text that says what was wrong, the value, the allowed range and the setting to change. Retriable
means that the same request may succeed later without being changed.

| code | name | retriable | when |
|---:|---|---|---|
"""


def lines() -> Iterator[str]:
    """The lines of the page."""
    yield from _INTRODUCTION.splitlines()
    for code, error in sorted(ERRORS.items()):
        when = " ".join((error.__doc__ or "").split())
        yield f"| {code} | `{error.name}` | {'yes' if error.retriable else 'no'} | {when} |"


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()) + "\n")
