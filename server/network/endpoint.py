"""Endpoints: the protocol of each port, the code that answers its requests, and the interface of
the broker to its connections."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Protocol

from ...protocol.api.framing import Frame
from ...values import value_class
from ..metrics.figures import Figures
from ..security.session import ANONYMOUS, LoginSession
from ..window_memory import WindowMemory
from .file_sending import InThread
from .held_memory import HeldMemory
from .sending import Answer
from .tls_files import TlsPort

Frames = deque[Frame]


@value_class
class ConnectionLimits:
    """Limits of one connection."""

    max_frame_bytes: int
    max_requests_in_flight: int
    buffer_bytes: int
    deadline_seconds: float
    idle_seconds: float | None = None
    """Allowed idle time; None: without limit."""
    login_seconds: float = 10.0
    """Time for a required login."""
    session_seconds: float | None = None
    """Lifetime of a login; None: without end."""


class Host(Protocol):
    """The broker, as its connections see it."""

    @property
    def limits(self) -> ConnectionLimits: ...

    @property
    def figures(self) -> Figures: ...

    @property
    def held_memory(self) -> HeldMemory: ...

    @property
    def in_thread(self) -> InThread: ...

    @property
    def slab(self) -> bytearray:
        """Shared receive buffer: its bytes are taken out before another connection reads."""
        ...

    @property
    def spares(self) -> deque[bytearray]:
        """Buffers of large requests that were answered, for reuse."""
        ...

    def observe(self, event: str, /, **fields: object) -> None: ...

    def let_in(self, connection: asyncio.BaseProtocol) -> None:
        """Record that a connection has logged in, or needs no login."""
        ...

    def enter(self, principal: str, address: str) -> int | None:
        """Take a slot of a user until `leave`. Returns None, or the limit if all slots are
        taken."""
        ...

    def leave(self, principal: str) -> None: ...

    def closed(self, connection: asyncio.BaseProtocol) -> None:
        """Handle the closed connection."""
        ...


class Admit(Protocol):
    """Decides whether there is room for the work on a request."""

    def __call__(self, work_bytes: int, *, begun: bool = False) -> bool:
        """Whether work may begin on a request that takes `work_bytes` with its answer. If not, the
        connection asks again when that may have changed. With `begun`, whether a request at work
        may take so many bytes more."""
        ...


@value_class
class Caller:
    """The client of a connection, as far as it is known."""

    broker_address: tuple[str, int]
    """Address of the broker to tell this client."""
    host: str
    """Address of the client."""
    session: LoginSession | None = None
    """Login of the connection; None where logins are not required."""
    mute: Callable[[float], None] | None = None
    """Stops reading from the connection for the given seconds."""
    admit: Admit | None = None
    windows: WindowMemory = field(default_factory=WindowMemory, compare=False)
    """What is remembered of the windows that the connection reads."""

    @property
    def principal(self) -> str:
        """Current principal of the client."""
        return ANONYMOUS if self.session is None else self.session.principal


Source = tuple[Frames, int, Caller]
"""Frames of a connection, how many may be taken now, and the caller."""


class Answerer(Protocol):
    """Answers the requests of all connections of a port."""

    def waits_for_others(self, frame: Frame) -> bool:
        """Whether a request is handled in bulk with those of all connections that have some in this
        pass of the event loop."""
        ...

    def answer(self, frames: Frames, most: int, caller: Caller) -> Iterable[Answer]:
        """Take the next request off `frames`, or up to `most` of them, and handle them; take none
        if the caller does not admit it. Raises `ProtocolError` or `CloseConnection`."""
        ...

    def answer_in_bulk(self, sources: Sequence[Source]) -> Sequence[tuple[int, Iterable[Answer]]]:
        """Handle the first requests of several connections together, as far as they need not wait
        for each other. Returns for each connection the number of requests taken and their answers;
        iterating over the answers raises what `answer` raises."""
        ...


@value_class
class Endpoint:
    """One port, for all of its connections."""

    protocol: str
    """Name of the port's protocol, for the log."""
    answerer: Answerer
    advertised: tuple[str, int] | None = None
    """Address of the broker that clients are told; None: the address that they have reached."""
    gate: Answerer | None = None
    """Answers clients before their login; None where no login is required."""
    mechanisms: tuple[str, ...] = ()
    """SASL mechanisms that are offered."""
    certificates: bool = False
    """Whether a client certificate gives the principal."""
    tls: TlsPort | None = None
    """Shared state of encrypted connections; None for plaintext."""

    @property
    def makes_wait(self) -> bool:
        """Whether a new connection must wait for a TLS handshake or a login."""
        return self.gate is not None or self.tls is not None

    def caller(
        self,
        local: tuple[str, int],
        host: str,
        session: LoginSession | None = None,
        mute: Callable[[float], None] | None = None,
        admit: Admit | None = None,
    ) -> Caller:
        """Return the caller for a client at `host` that connected to `local`."""
        return Caller(self.advertised or local, host, session, mute, admit)
