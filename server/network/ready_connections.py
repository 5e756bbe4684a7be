"""Connections that have requests in one pass of the loop: these are answered in bulk.

Where many clients send to one partition, a write for each of them costs most of the broker's time:
their sets are written together instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from .endpoint import Source
from .sending import Answer

GATHERED_BYTES: Final = 512 * 1024
"""Connections are gathered until they have brought so many bytes: what a read brings, about."""

REQUEST_BYTES: Final = 512
"""What a request counts for beside its bytes: a thousand small ones are enough for one go."""

BULK_BYTES: Final = 1024 * 1024
"""Requests of one connection are answered in bulk until they have so many bytes: what is received
before it goes on. What were two appends for a client that sends much is one."""

BulkAnswerer = Callable[[Sequence[Source]], Sequence[tuple[int, Iterable[Answer]]]]


class ReadyConnection(Protocol):
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


class ReadyConnections:
    """Those of a port that have requests and have to go on."""

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], answer: BulkAnswerer
    ) -> None:
        """`answer` takes frames of several connections and gives the answers of each with the
        number of its frames; it leaves frames that gain nothing by it."""
        self._call_soon = call_soon
        self._answer = answer
        self._ready: dict[ReadyConnection, None] = {}
        self._size_bytes = 0

    def add(self, connection: ReadyConnection, size_bytes: int) -> None:
        """Have `connection`, which brought so many bytes, go on with all that are ready now."""
        if not self._ready:
            self._call_soon(self._go_on)
        self._ready[connection] = None
        self._size_bytes += size_bytes
        if self._size_bytes >= GATHERED_BYTES:
            self._go_on()

    def _go_on(self) -> None:
        ready = list(self._ready)
        self._ready.clear()
        self._size_bytes = 0
        if len(ready) == 1:
            ready[0].go_on()
            return
        try:
            answers = self._answer([connection.to_be_answered() for connection in ready])
        except Exception as error:
            for connection in ready:
                connection.failed(error)
            return
        for connection, of_connection in zip(ready, answers, strict=True):
            connection.go_on(*of_connection)
