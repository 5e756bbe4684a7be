"""The findings of a check of stored files."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from ...values import value_class

MAX_FINDINGS_PER_FILE: Final = 100
"""Limit for a file that is wrong all over, so that not each of a million entries is reported."""

NOTHING: Final = "nothing"
REPAIR: Final = "stop the broker and run `horolog repair` on this folder"
TORN: Final = (
    "nothing: the next start sets everything from here on aside as .broken and goes on from here"
)
KEPT_AS_IT_IS: Final = (
    "nothing: its CRC is right, so it was written like this; a start and `horolog repair` keep it "
    "as it is"
)
REBUILD: Final = "stop the broker and delete this file; it is rebuilt from the log"


@value_class
class Finding:
    """One result of a check."""

    path: Path
    position: int | None
    """Byte position in the file; `None` if the finding is about the whole file."""
    rule: str
    """What was found, or which rule is broken, in words."""
    advice: str
    """What to do about it."""
    error: bool = True
    """False if nothing is wrong, and the file is only listed."""


def cannot_read(path: Path, error: OSError) -> Finding:
    """Return the finding that a file cannot be read, with advice."""
    advice = "see the disk"
    if isinstance(error, PermissionError):
        advice = "look as the user that the broker runs as, or make it readable"
    return Finding(path, None, f"it cannot be read: {error}", advice)


def limited(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield at most `MAX_FINDINGS_PER_FILE` findings of one file, and then the number of further
    ones.

    All of `findings` is consumed in any case.
    """
    more = 0
    error = False
    last: Finding | None = None
    for number, finding in enumerate(findings):
        if number < MAX_FINDINGS_PER_FILE:
            yield finding
        else:
            more += 1
            error |= finding.error
            last = finding
    if last is not None:
        yield Finding(last.path, None, f"{more} more findings in this segment", last.advice, error)
