"""The ports of the broker: each has a protocol, and those who come in by it are answered in it."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from ...values import value_class
from .sending import Answer

Frames = deque[bytes | bytearray]


@value_class
class Caller:
    """Who asks, as far as a connection tells."""

    broker_address: tuple[str, int]
    """Where this client is to find the broker."""
    host: str
    """Where the client is."""


class Answerer(Protocol):
    """Answers the requests of all connections of a port."""

    def answer_at_once(self, frame: bytes | bytearray) -> Answer:
        """The answer to a request that takes next to nothing to answer; `None` leaves the frame to
        `answer`. Never raises."""
        ...

    def answer_burst(self, received: memoryview, most: int) -> tuple[int, Sequence[Answer]]:
        """Answer requests at the front of frames with their lengths, up to so many, if they can be
        answered together: how many bytes they take, and their answers. Never raises."""
        ...

    def answer(self, frames: Frames, most: int, caller: Caller) -> Iterable[Answer]:
        """Take the next request off `frames`, perhaps up to `most` of them, and handle what was
        taken. Raises `ProtocolError` or `CloseConnection`."""
        ...

    def answer_together(self, sources: Sequence[tuple[Frames, int]]) -> Sequence[Sequence[Answer]]:
        """Take requests off the frames of several connections whose answers cost a fraction when
        they are made together; of each connection the first ones, up to so many."""
        ...


@value_class
class Endpoint:
    """One port, for all of its connections."""

    protocol: str
    """What is spoken here, for the log."""
    answerer: Answerer
    advertised: tuple[str, int] | None = None
    """Where clients are told to find the broker; `None`: where they have reached it."""

    def caller(self, local: tuple[str, int], host: str) -> Caller:
        """Who has reached `local` from `host`."""
        return Caller(self.advertised or local, host)
