"""Writes `docs/errors.md` from the error classes: `python -m horolog.cli.errors_reference`."""

import sys
from collections.abc import Iterator
from typing import Final

from ..client.errors import (
    ClientClosed,
    ConnectionFailed,
    PartlySent,
    SecurityError,
    SendsFailed,
    TlsFailed,
)
from ..client.recordings import NoRecording
from ..pipeline.java import NoJava
from ..pipeline.option_values import OptionError
from ..pipeline.planning import DataLoss
from ..protocol.api.framing import ProtocolError
from ..protocol.errors import (
    ERRORS,
    HorologError,
    NotController,
    ThrottlingQuotaExceeded,
    UnknownProducerId,
)
from ..times import TimeError

WITHOUT_CODE: Final[dict[str, tuple[type[HorologError], ...]]] = {
    "horolog": (
        *(ClientClosed, ConnectionFailed, PartlySent, ProtocolError),
        *(SecurityError, SendsFailed, TimeError, TlsFailed),
    ),
    "horolog.pipeline": (DataLoss, NoJava, OptionError),
    "horolog.testing.broker": (NoRecording,),
}
"""Errors that only clients and jobs raise, by the module that exports them."""

NOT_SENT: Final = (NotController, ThrottlingQuotaExceeded, UnknownProducerId)
"""Errors that clients get only from a Kafka cluster."""

_INTRODUCTION = """\
# Errors

Generated from `protocol/errors.py` and the errors of the client library by `make docs`.

Every error is a `horolog.HorologError`, and has a `message` and `retriable`: whether the same call
may succeed later without being changed. Wrong arguments, such as an address that is none, raise
Python's `ValueError` or `TypeError` before anything is sent.

## Error codes

Codes and names are Kafka's. 0 is no error. An answer carries the code and, in the native protocol,
a text that says what was wrong, the value, the allowed range and the setting to change. Those
marked * are not sent by Horolog's broker: clients get them from a Kafka cluster. In Python each is
a class, a `horolog.CodedError` with a `code` and a `name`.

| code | name | class | retriable | when |
|---:|---|---|---|---|
"""

_WITHOUT_CODE = """
## Errors without a code

Raised by clients and jobs themselves. Where Python has a class that says the same, that is a base
too.

| class | is also | retriable | when |
|---|---|---|---|
"""


def lines() -> Iterator[str]:
    """Yield the lines of the page."""
    yield from _INTRODUCTION.splitlines()
    for code, error in sorted(ERRORS.items()):
        mark = " *" if error in NOT_SENT else ""
        yield (
            f"| {code} | `{error.name}`{mark} | `{error.__name__}` | {_retriable(error)} "
            f"| {_when(error)} |"
        )
    yield from _WITHOUT_CODE.splitlines()
    for module, errors in WITHOUT_CODE.items():
        for local in errors:
            usual = [
                f"`{base.__name__}`"
                for base in local.__bases__
                if not issubclass(base, HorologError)
            ]
            yield (
                f"| `{module}.{local.__name__}` | {', '.join(usual) or '-'} | {_retriable(local)} "
                f"| {_when(local)} |"
            )


def _retriable(error: type[HorologError]) -> str:
    return "yes" if error.retriable else "no"


def _when(error: type[HorologError]) -> str:
    """Return the first paragraph of the class's docstring, as one line."""
    return " ".join((error.__doc__ or "").split("\n\n")[0].split())


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()) + "\n")
