"""The ports of the broker: each has a protocol, and its clients are answered in it."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ...protocol.api.framing import Frame
from ...values import value_class
from ..security.session import ANONYMOUS, LoginSession
from .sending import Answer
from .tls_files import TlsPort

Frames = deque[Frame]


@value_class
class Caller:
    """The client of a connection, as far as it is known."""

    broker_address: tuple[str, int]
    """Where this client is to find the broker."""
    host: str
    """Where the client is."""
    session: LoginSession | None = None
    """Its login; `None` where logins are not asked for."""
    mute: Callable[[float], None] | None = None
    """Has the connection not be read from for so many seconds."""
    admit: Callable[[int], bool] | None = None
    """Says whether a request may be worked on that takes so many bytes, with its answer. If not,
    the connection asks for the answer again when that may have changed."""

    @property
    def principal(self) -> str:
        """Who it is, as far as is known now."""
        return ANONYMOUS if self.session is None else self.session.principal


Source = tuple[Frames, int, Caller]
"""The frames of a connection, how many of them may be taken now, and who sent them."""


class Answerer(Protocol):
    """Answers the requests of all connections of a port."""

    def waits_for_others(self, frame: Frame) -> bool:
        """Whether a request goes on with those of all connections that have some in this pass of
        the loop."""
        ...

    def answer(self, frames: Frames, most: int, caller: Caller) -> Iterable[Answer]:
        """Take the next request off `frames`, perhaps up to `most` of them, and handle what was
        taken; or nothing, where the caller does not admit it. Raises `ProtocolError` or
        `CloseConnection`."""
        ...

    def answer_in_bulk(self, sources: Sequence[Source]) -> Sequence[tuple[int, Iterable[Answer]]]:
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
    gate: Answerer | None = None
    """Answers clients that have not logged in, where they have to; else `None`."""
    mechanisms: tuple[str, ...] = ()
    """The ways to log in that are offered."""
    certificates: bool = False
    """Whether a client's certificate names its principal."""
    tls: TlsPort | None = None
    """What encrypted connections share; `None` where they are not."""

    @property
    def makes_wait(self) -> bool:
        """Whether a connection is not let in at once."""
        return self.gate is not None or self.tls is not None

    def caller(
        self,
        local: tuple[str, int],
        host: str,
        session: LoginSession | None = None,
        mute: Callable[[float], None] | None = None,
        admit: Callable[[int], bool] | None = None,
    ) -> Caller:
        """Who has reached `local` from `host`."""
        return Caller(self.advertised or local, host, session, mute, admit)
