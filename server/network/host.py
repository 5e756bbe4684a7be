"""Interface of the broker to its connections."""

import asyncio
from collections import deque
from typing import Protocol

from ...values import value_class
from ..metrics.figures import Figures
from .file_sending import InThread
from .held_memory import HeldMemory


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
