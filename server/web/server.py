"""HTTP port: `/metrics` for Prometheus; `/healthz`, `/readyz` and `/leader` for programs that
start, stop and find brokers; `/` for people.

aiohttp is imported on use, because its import takes longer than the rest of the broker's start.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from ...clock import SystemClock
from ..network.listener import Listener
from ..network.ports import Port
from ..security.service import SecurityService
from .port import HttpPort

if TYPE_CHECKING:
    from aiohttp import web

    from .authentication import HttpPeer
    from .connection import HttpConnection

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

CACHE_FACTOR = 50
CACHE_SECONDS = 1.0
"""Caching of the metrics: the text is cached for `CACHE_FACTOR` times the time that it took to
make, so that scrapes take little of the event loop, and at most for `CACHE_SECONDS`. With a
thousand topics, making the text takes a good part of a second, in turn with client requests."""


class HttpState(StrEnum):
    """State of the broker, reported by `/healthz` and `/readyz`."""

    STOPPED = "not serving"
    OPENING = "serving, and still opening logs"
    """Requests are answered; some may wait for the recovery of their log."""
    READY = "ok"


class Role(Protocol):
    """Role of a cluster member."""

    def leads_not(self) -> str:
        """Return why this broker does not lead, and which one does; empty for the leader."""
        ...

    def not_ready(self) -> str:
        """Return why clients should ask another broker; empty for a leader and for an in-sync
        follower."""
        ...


class HttpServer:
    """Serves HTTP until `stop`.

    `port` is shared by its connections. `render` makes the text of `/metrics`. `state` decides the
    answers of `/healthz` (good unless stopped) and `/readyz` (good only when ready). `add_page`
    adds more routes. The `role` of a cluster member also affects `/readyz` and decides `/leader`.
    `damage` is the remark of a ready broker about its logs. With `security` a port may use TLS, and
    require a login except for `open_paths`.
    """

    def __init__(
        self,
        port: HttpPort,
        render: Callable[[], Awaitable[bytes]],
        state: Callable[[], HttpState],
        add_page: "Callable[[web.Application], None]" = lambda application: None,
        *,
        security: SecurityService | None = None,
        open_paths: Collection[str] = (),
        role: Role | None = None,
        damage: Callable[[], str] = str,
    ) -> None:
        self._port = port
        self._render = render
        self._state = state
        self._security = security
        self._open_paths = open_paths
        self._role = role
        self._damage = damage
        self._add_page = add_page
        # The cost of making the text is measured in real time, whatever clock the broker uses.
        self._stopwatch = SystemClock()
        self._rendering = asyncio.Lock()
        self._text = b""
        self._good_until = -1.0
        self._runner: web.AppRunner | None = None
        self._listeners: list[Listener] = []

    async def start(self, listening: Sequence[Port]) -> None:
        """Serve on ports that are listening already. This object closes them in the end."""
        from aiohttp import web

        from .authentication import (
            LOGIN_PATH,
            LOGOUT_PATH,
            MAX_BODY_BYTES,
            HttpAuthentication,
        )
        from .connection import HttpConnection, guarded

        application = web.Application(client_max_size=MAX_BODY_BYTES)
        authentication = None
        if self._security is not None:
            authentication = HttpAuthentication(self._security, self._open_paths)
            application.router.add_post(LOGIN_PATH, authentication.log_in)
            application.router.add_post(LOGOUT_PATH, authentication.log_out)
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/healthz", self._health)
        application.router.add_get("/readyz", self._ready)
        application.router.add_get("/leader", self._leader)
        self._add_page(application)
        self._runner = web.AppRunner(application, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        server.request_handler = guarded(server.request_handler, authentication)
        loop = asyncio.get_running_loop()

        def admit(port: Port, address: str) -> "HttpConnection | None":
            if not self._port.admit(address):
                return None
            return HttpConnection(
                *(server, self._port, address, loop),
                needs_login=port.login,
                certificates=port.certificate,
            )

        for port in listening:
            tls = None
            if self._security is not None:
                tls = self._security.tls_port(port, self._port.limits.head_seconds)
            listener = Listener(
                loop,
                port.bound,
                admit=partial(admit, port),
                failed=self._failed,
                refused=self._port.refused,
                tls=tls,
            )
            self._listeners.append(listener)
            listener.start()

    async def stop(self) -> None:
        for listener in self._listeners:
            listener.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def _failed(self, connection: asyncio.BaseProtocol) -> None:
        """Release the slot of a connection that was never established."""
        self._port.gone(connection.address)  # type: ignore[attr-defined]

    async def _metrics(self, request: "web.Request") -> "web.Response":
        from aiohttp import web

        security = self._security
        if security is not None and "/metrics" not in self._open_paths:
            # The metrics name every topic.
            peer = cast("HttpPeer", request.protocol)
            if not security.check_sees_broker(peer.principal, peer.address, "/metrics"):
                text = f"{peer.principal} may not Describe cluster\n"
                return web.Response(status=403, text=text)
        async with self._rendering:
            now = self._stopwatch.monotonic()
            if now > self._good_until:
                self._text = await self._render()
                made_at = self._stopwatch.monotonic()
                self._good_until = made_at + min(CACHE_FACTOR * (made_at - now), CACHE_SECONDS)
            return web.Response(body=self._text, headers={"Content-Type": CONTENT_TYPE})

    async def _health(self, _: "web.Request") -> "web.Response":
        state = self._state()
        return _answer(HttpState.READY if state is HttpState.OPENING else state)

    async def _ready(self, _: "web.Request") -> "web.Response":
        state = self._state()
        if state is not HttpState.READY:
            return _answer(state)
        not_ready = self._role.not_ready() if self._role else ""
        damage = "" if not_ready else self._damage()
        return _answer(state, not_ready, f"{state}, but {damage}" if damage else "")

    async def _leader(self, _: "web.Request") -> "web.Response":
        """Answer `/leader`. A single broker leads, even while it is opening logs."""
        state = self._state()
        if state is HttpState.STOPPED:
            return _answer(state)
        return _answer(HttpState.READY, self._role.leads_not() if self._role else "")


def _answer(state: HttpState, not_so: str = "", more: str = "") -> "web.Response":
    from aiohttp import web

    status = 200 if state is HttpState.READY and not not_so else 503
    return web.Response(status=status, text=f"{not_so or more or state}\n")
