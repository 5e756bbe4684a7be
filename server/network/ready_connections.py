"""Connections that were heard in one pass of the loop, answered together.

Where many clients send to one partition, a write for each of them costs most of the broker's time:
their sets are written together instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from .endpoint import Source
from .sending import Answer

GATHERED_BYTES: Final = 512 * 1024
"""Connections are heard until they have brought so many bytes: what a read brings, about."""

TOGETHER_BYTES: Final = 1024 * 1024
"""Requests of one connection are answered together until they have so many bytes: what is received
before it goes on. What were two appends for a client that sends much is one."""

TogetherAnswerer = Callable[[Sequence[Source]], Sequence[tuple[int, Iterable[Answer]]]]


class Heard(Protocol):
    """A connection with requests."""

    def to_be_answered(self) -> Source:
        """The frames that wait, how many of them may be taken now, and who sent them."""
        ...

    def go_on(self, taken: int = 0, answers: Iterable[Answer] = ()) -> None:
        """Take the answers to so many frames, which were taken off the front, and go on with the
        others."""
        ...

    def failed(self, error: Exception) -> None:
        """What the frames are taken for failed with an exception that has no answer."""
        ...


class Gathering:
    """Who was heard and has to go on."""

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], answer: TogetherAnswerer
    ) -> None:
        """`answer` takes frames of several connections and gives the answers of each with the
        number of its frames; it leaves frames that gain nothing by it."""
        self._call_soon = call_soon
        self._answer = answer
        self._heard: dict[Heard, None] = {}
        self._size_bytes = 0

    def heard(self, connection: Heard, size_bytes: int) -> None:
        """Have `connection`, which brought so many bytes, go on with all that are heard now."""
        if not self._heard:
            self._call_soon(self._go_on)
        self._heard[connection] = None
        self._size_bytes += size_bytes
        if self._size_bytes >= GATHERED_BYTES:
            self._go_on()

    def _go_on(self) -> None:
        heard = list(self._heard)
        self._heard.clear()
        self._size_bytes = 0
        if len(heard) == 1:
            heard[0].go_on()
            return
        try:
            answers = self._answer([connection.to_be_answered() for connection in heard])
        except Exception as error:
            for connection in heard:
                connection.failed(error)
            return
        for connection, of_connection in zip(heard, answers, strict=True):
            connection.go_on(*of_connection)
