"""Failed sends of a producer whose errors the program has not looked at."""

import sys
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, Protocol

from ..errors import SendsFailed

ERRORS_MAX: Final = 10_000
"""Number of different errors that are kept: a few megabytes."""

_CHECKS_PER_FAILURE: Final = 2
"""Results checked for each new one. With 1, those that the program dropped could pile up."""


class SendResult(Protocol):
    """The future of a message that was sent."""

    @property
    def _log_traceback(self) -> bool:
        """Whether the program has not retrieved the error. asyncio keeps this to log errors that
        are never retrieved."""

    def cancelled(self) -> bool: ...

    def exception(self) -> BaseException | None: ...


_Entry = tuple[int, SendResult]
"""Number of the failure, and its result."""


def _references(entry: tuple[int, Any]) -> int:
    return sys.getrefcount(entry[1])


_UNSHARED: Final = _references((0, object()))
"""References to a result that only its entry holds, as `_references` counts them."""


class FailedSends:
    """Results of failed sends, until the program reads them.

    A result that the program dropped unread is only counted, so the memory is bounded by the
    results that the program itself holds.
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._held: deque[_Entry] = deque()
        """Results that the program may still read."""
        self._failures = 0
        self._unread = 0
        """Number of failures that the program can no longer read."""
        self._errors: dict[tuple[type[Exception], str], tuple[int, Exception]] = {}
        """Their different errors, each with the number of its first failure."""

    def add(self, results: Iterable[SendResult], error: Exception) -> None:
        """Add results that failed just now with `error`, or whose wait was cancelled before."""
        for result in results:
            if result.cancelled():
                self.add_unreadable(error)
            else:
                self._failures += 1
                self._held.append((self._failures, result))
            for _ in range(min(_CHECKS_PER_FAILURE, len(self._held))):
                self._check_next()

    def add_unreadable(self, error: Exception) -> None:
        """Add a failed send whose error the program cannot read, because its wait was cancelled."""
        self._failures += 1
        self._count(self._failures, error)

    def error(self) -> SendsFailed | None:
        """Return an error for the failed sends whose errors are still unread, and mark them as
        read; None if there are none."""
        for number, result in self._held:
            if result._log_traceback:
                self._count(number, result.exception())
        return self._summary()

    def dropped(self) -> SendsFailed | None:
        """Return an error as `error` does, without the results that the program still holds."""
        for _ in range(len(self._held)):
            self._check_next()
        return self._summary()

    def _check_next(self) -> None:
        entry = self._held.popleft()
        if not entry[1]._log_traceback:
            return
        if _references(entry) == _UNSHARED:
            self._count(entry[0], entry[1].exception())
        else:
            self._held.append(entry)

    def _count(self, number: int, error: BaseException | None) -> None:
        if not isinstance(error, Exception):
            return
        self._unread += 1
        kind = (type(error), str(error))
        first = self._errors.get(kind)
        if first is not None or len(self._errors) < ERRORS_MAX:
            number = number if first is None else min(first[0], number)
            self._errors[kind] = (number, error)

    def _summary(self) -> SendsFailed | None:
        if not self._unread:
            return None
        failures = tuple(error for _, error in sorted(self._errors.values(), key=_number))
        failed = SendsFailed(_text(self._unread, failures), self._unread, failures)
        failed.__cause__ = failures[0]
        self._forget()
        return failed


def _number(entry: tuple[int, Exception]) -> int:
    return entry[0]


def _text(count: int, errors: tuple[Exception, ...]) -> str:
    sends = "1 send" if count == 1 else f"{count:,} sends"
    first = f"{type(errors[0]).__name__}: {errors[0]}"
    others = f"; there are {len(errors):,} different errors" if len(errors) > 1 else ""
    return f"{sends} failed, first with {first}{others}"
