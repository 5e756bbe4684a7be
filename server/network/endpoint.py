"""The ports of the broker: each has a protocol, and those who come in by it are answered in it."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from ...protocol.api.framing import Frame
from ...values import value_class
from .sending import Answer

Frames = deque[Frame]


@value_class
class Caller:
    """Who asks, as far as a connection tells."""

    broker_address: tuple[str, int]
    """Where this client is to find the broker."""
    host: str
    """Where the client is."""


class Answerer(Protocol):
    """Answers the requests of all connections of a port."""

    def waits_for_others(self, frame: Frame) -> bool:
        """Whether a request goes on with those of all connections that are heard in this pass of
        the loop."""
        ...

    def answer(self, frames: Frames, most: int, caller: Caller) -> Iterable[Answer]:
        """Take the next request off `frames`, perhaps up to `most` of them, and handle what was
        taken. Raises `ProtocolError` or `CloseConnection`."""
        ...

    def answer_together(
        self, sources: Sequence[tuple[Frames, int]]
    ) -> Sequence[tuple[int, Iterable[Answer]]]:
        """Take requests that do not have to wait for each other off the frames of several
        connections, of each the first ones, up to so many, and handle them: how many they are, and
        their answers, which raise what `answer` raises."""
        ...


@value_class
class Endpoint:
    """One port, for all of its connections."""

    protocol: str
    """What is spoken here, for the log."""
    answerer: Answerer
    advertised: tuple[str, int] | None = None
    """The address that clients get for the broker; `None`: where they have reached it."""

    def caller(self, local: tuple[str, int], host: str) -> Caller:
        """Who has reached `local` from `host`."""
        return Caller(self.advertised or local, host)
