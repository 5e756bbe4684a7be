"""Bulk answers for connections that have requests in the same pass of the event loop.

Where many clients send to one partition, one write per client would take most of the broker's time.
Their record sets are written together instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from .endpoint import Source
from .sending import Answer

GATHERED_BYTES: Final = 512 * 1024
"""Bytes after which gathering ends, about as many as one read brings."""

REQUEST_BYTES: Final = 512
"""Size counted for a request in addition to its bytes: a thousand small requests are enough for one
bulk."""

BULK_BYTES: Final = 1024 * 1024
"""Bytes of one connection's requests that are answered in one bulk, as many as are received before
the connection continues. So two appends of a client that sends much become one."""

BulkAnswerer = Callable[[Sequence[Source]], Sequence[tuple[int, Iterable[Answer]]]]


class ReadyConnection(Protocol):
    """A connection with requests that wait to be handled."""

    def to_be_answered(self) -> Source:
        """Return the waiting frames, how many may be handled now, and the caller."""
        ...

    def go_on(self, taken: int = 0, answers: Iterable[Answer] = ()) -> None:
        """Send or queue the answers of `taken` frames that were removed from the front, and
        continue with the other frames."""
        ...

    def failed(self, error: Exception) -> None:
        """Close after an unexpected error in handling the frames."""
        ...


class ReadyConnections:
    """Connections of a port that have requests to be answered."""

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], answer: BulkAnswerer
    ) -> None:
        """`answer` handles frames of several connections. It returns, for each connection, the
        number of frames taken and their answers. Frames that gain nothing from a bulk are left."""
        self._call_soon = call_soon
        self._answer = answer
        self._ready: dict[ReadyConnection, None] = {}
        self._size_bytes = 0

    def add(self, connection: ReadyConnection, size_bytes: int) -> None:
        """Gather `connection`, which received this many bytes, with the others of this pass."""
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
