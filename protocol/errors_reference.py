"""Writes `docs/errors.md` from the error table: `python -m horolog.protocol.errors_reference`."""

import sys
from collections.abc import Iterator

from . import cluster_errors
from .errors import ERRORS

_INTRODUCTION = """\
# Error codes

Generated from `protocol/errors.py` and `protocol/cluster_errors.py` by `make docs`.

Codes and names are Kafka's. 0 is no error. An answer carries the code and, in the native protocol,
a text that says what was wrong, the value, the allowed range and the setting to change. Retriable
means that the same request may succeed later without being changed. Those marked * are not sent by
Horolog's broker: clients get them from a Kafka cluster.

| code | name | retriable | when |
|---:|---|---|---|
"""


def lines() -> Iterator[str]:
    """The lines of the page."""
    yield from _INTRODUCTION.splitlines()
    for code, error in sorted(ERRORS.items()):
        when = " ".join((error.__doc__ or "").split())
        mark = " *" if error.__module__ == cluster_errors.__name__ else ""
        yield f"| {code} | `{error.name}`{mark} | {'yes' if error.retriable else 'no'} | {when} |"


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()) + "\n")
