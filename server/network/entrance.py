"""Login of a connection, required before its requests are answered.

When the session ends, the connection must log in again.
"""

import asyncio
from typing import Final, Protocol

from ..security.session import LoginSession
from .deadline import Deadline
from .endpoint import Answerer, ConnectionLimits, Endpoint

UNAUTHENTICATED_FRAME_BYTES: Final = 64 * 1024
"""Largest request before a login; SASL tokens have a few KiB."""


class Entering(Protocol):
    """A connection that can be admitted or locked."""

    def let_in(self) -> None: ...

    def lock(self, gate: Answerer) -> None:
        """Let only `gate` answer requests."""
        ...

    def login_is_late(self) -> None: ...

    def finish(self) -> None: ...


class EntranceUsers(Protocol):
    """Counts connections per user; see `Host`."""

    def enter(self, principal: str, address: str) -> int | None: ...

    def leave(self, principal: str) -> None: ...


class Entrance:
    """Login of one connection."""

    def __init__(
        self,
        entering: Entering,
        endpoint: Endpoint,
        limits: ConnectionLimits,
        loop: asyncio.AbstractEventLoop,
        users: EntranceUsers,
    ) -> None:
        self._entering = entering
        self._endpoint = endpoint
        self._limits = limits
        self._loop = loop
        self._deadline = Deadline(loop, limits.login_seconds, entering.login_is_late)
        self._users = users
        self._host = ""
        self._gone = False
        self._counted = ""
        """Principal for which this connection holds a slot; empty for none."""
        self._session: LoginSession | None = None
        self._session_end: asyncio.TimerHandle | None = None

    def meet(self, transport: asyncio.Transport, host: str) -> LoginSession | None:
        """Return the session of a new connection; None for a connection that needs no login and has
        no name."""
        endpoint = self._endpoint
        self._host = host
        session = LoginSession(
            host,
            endpoint.mechanisms,
            logged_in=self._logged_in,
            failed=self._entering.finish,
            longest_seconds=self._limits.session_seconds,
            enter=self._enter,
        )
        self._session = session
        tls = transport.get_extra_info("tls") if endpoint.certificates else None
        name = None if tls is None else tls.peer_name
        if name is not None and not session.by_certificate(name):
            self._entering.finish()
            return session
        if endpoint.gate is None or name is not None:
            self._entering.let_in()
            return session if name is not None else None
        self._wait_for_login(endpoint.gate)
        return session

    def close(self) -> None:
        """Cancel all timers."""
        self._deadline.stop()
        if self._session_end is not None:
            self._session_end.cancel()

    def leave(self) -> None:
        """Release the slot of a connection that is gone."""
        self._gone = True
        self.close()
        if self._counted:
            self._users.leave(self._counted)
            self._counted = ""

    def _enter(self, principal: str) -> int | None:
        if self._gone or principal == self._counted:
            return None  # the login ended too late, or the user logs in again
        most = self._users.enter(principal, self._host)
        if most is None:
            self._counted = principal
        return most

    def _wait_for_login(self, gate: Answerer) -> None:
        self._entering.lock(gate)
        self._deadline.start()

    def _logged_in(self) -> None:
        """Admit the connection after its first login, or after a later one that renews the
        session."""
        if self._gone:
            return
        self.close()
        self._entering.let_in()
        assert self._session is not None
        seconds = self._session.lifetime_seconds
        if seconds is not None:
            self._session_end = self._loop.call_later(seconds, self._end_session)

    def _end_session(self) -> None:
        """Answer only a new login from now on, and wait for it."""
        assert self._endpoint.gate is not None
        self._wait_for_login(self._endpoint.gate)
