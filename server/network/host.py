"""What connections need of the broker that they belong to."""

import asyncio
from collections import deque
from typing import Protocol

from ...values import value_class
from ..metrics.figures import Figures
from .file_sending import InThread
from .held_memory import HeldMemory


@value_class
class ConnectionLimits:
    """What one connection may cost."""

    max_frame_bytes: int
    max_requests_in_flight: int
    buffer_bytes: int
    deadline_seconds: float
    idle_seconds: float | None = None
    """How long it may be idle; `None` for ever."""
    login_seconds: float = 10.0
    """How long a login may take, where one is required."""
    session_seconds: float | None = None
    """How long a login holds; `None` for ever."""


class Host(Protocol):
    """What a connection needs of the broker."""

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
        """Where bytes are received: they are taken out before another connection reads."""
        ...

    @property
    def spares(self) -> deque[bytearray]:
        """Where large requests were received that are answered, for the next ones."""
        ...

    def observe(self, event: str, /, **fields: object) -> None: ...

    def let_in(self, connection: asyncio.BaseProtocol) -> None:
        """The connection has logged in, or need not."""
        ...

    def enter(self, principal: str, address: str) -> int | None:
        """Take a place of a user, until `leave`; or say how many there are, all of them taken."""
        ...

    def leave(self, principal: str) -> None: ...

    def closed(self, connection: asyncio.BaseProtocol) -> None:
        """The connection is gone."""
        ...
