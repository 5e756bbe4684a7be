"""Failed sends of a producer whose errors the program has not looked at."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar

from ..errors import SendsFailed

W = TypeVar("W")

KEPT_MAX: Final = 10_000
"""Number of results that are kept: a few megabytes."""

_PRUNE_AFTER: Final = 64


def is_unread(result: "asyncio.Future[Any]") -> bool:
    """Whether the program has not retrieved the error of a future. asyncio keeps this to log errors
    that are never retrieved."""
    return result._log_traceback


class FailedSends(Generic[W]):
    """Results of failed sends, until the program reads them."""

    def __init__(self, unread: Callable[[W], bool]) -> None:
        """`unread` tells whether the program has not read the error of a result."""
        self._unread = unread
        self._kept: list[W] = []
        self._until_prune = _PRUNE_AFTER
        self._more = 0
        """Number of failed sends that were not kept."""

    def add(self, results: Iterable[W]) -> None:
        """Add results that failed just now."""
        for result in results:
            self._until_prune -= 1
            if not self._until_prune:
                self._kept = list(filter(self._unread, self._kept))
                # As many results later as there are to look at: constant time for each result.
                self._until_prune = max(_PRUNE_AFTER, len(self._kept))
            if len(self._kept) < KEPT_MAX:
                self._kept.append(result)
            else:
                self._more += 1

    def error(self, error_of: Callable[[W], BaseException | None]) -> SendsFailed | None:
        """Return an error for the failed sends whose errors are still unread, and mark them as
        read; None if there are none. `error_of` reads the error of a result.

        Sends that were not kept count as unread only if some of the kept ones are.
        """
        unread = list(filter(self._unread, self._kept))
        found = [error for one in unread if isinstance(error := error_of(one), Exception)]
        if not found:
            return None
        distinct: dict[tuple[type[Exception], str], Exception] = {}
        for error in found:
            distinct.setdefault((type(error), str(error)), error)
        failures = tuple(distinct.values())
        count = len(unread) + self._more
        failed = SendsFailed(_text(count, failures), count, failures)
        failed.__cause__ = failures[0]
        return failed


def _text(count: int, errors: tuple[Exception, ...]) -> str:
    sends = "1 send" if count == 1 else f"{count:,} sends"
    first = f"{type(errors[0]).__name__}: {errors[0]}"
    others = f"; there are {len(errors):,} different errors" if len(errors) > 1 else ""
    return f"{sends} failed, first with {first}{others}"
