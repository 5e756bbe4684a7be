"""One connection of the HTTP port, and the checks before a request is answered.

aiohttp parses requests and writes answers. It has no time limit for the head of a request, and logs
a traceback for each malformed request. This module does both itself.
"""

import asyncio
import ipaddress
import re
from collections.abc import Awaitable, Callable, Collection
from types import MappingProxyType
from typing import Final, cast

from aiohttp import hdrs, web

from ..network.deadline import Deadline
from ..security.session import ANONYMOUS, principal_of
from .authentication import HEADERS, HttpAuthentication
from .port import HttpPort, shown

_HOST: Final = re.compile(r"(?:\[([^\[\]]*)\]|([^\[\]:]*))(?::\d*)?", re.ASCII)

MAX_HEADERS: Final = 50
"""Largest number of header lines, each of at most 8 KiB. Browsers send about twenty."""

OF_EVERY_ANSWER: Final = MappingProxyType(
    {hdrs.SERVER: "horolog", "X-Content-Type-Options": "nosniff"}
)
"""Headers of every answer. Without them aiohttp would send its version, and Python's."""

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class HttpConnection(web.RequestHandler):
    """HTTP connection with time limits:

    waiting   for the head of a request: the limit runs from its first byte
    idle      an answer was made, and the next request has not begun
    at work   a request is being answered: no limit
    """

    def __init__(
        self,
        server: web.Server,
        port: HttpPort,
        address: str,
        loop: asyncio.AbstractEventLoop,
        *,
        needs_login: bool = False,
        certificates: bool = False,
    ) -> None:
        """With `certificates`, a client certificate gives the principal."""
        limits = port.limits
        super().__init__(
            server,
            loop=loop,
            logger=port.logger,
            access_log=None,  # type: ignore[arg-type]
            lingering_time=limits.head_seconds,
            max_headers=MAX_HEADERS,
        )
        self.port = port
        self.address = address
        self.needs_login = needs_login
        """Whether clients without a certificate must log in."""
        self.certificate_principal: str | None = None
        self.principal = ANONYMOUS
        """Principal of the current request."""
        self.has_session = False
        """Whether a session gives the principal; a logout ends it."""
        self._knows_certificates = certificates
        self._cancelled_with: asyncio.Task[object] | None = None
        self._head_deadline = Deadline(loop, limits.head_seconds, self._drop_late_head)
        self._idle_deadline = Deadline(loop, limits.idle_seconds, self._close_idle)
        self._wire: asyncio.Transport | None = None
        self._at_work = False
        self._unsent_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # aiohttp drops its reference before the answer is completely sent.
        self._wire = cast(asyncio.Transport, transport)
        tls = transport.get_extra_info("tls") if self._knows_certificates else None
        if tls is not None and tls.peer_name is not None:
            self.certificate_principal = principal_of(tls.peer_name)
        self._head_deadline.start()

    def data_received(self, data: bytes) -> None:
        if not self._at_work:
            self._idle_deadline.stop()
            self._head_deadline.start()
        super().data_received(data)

    def cancel_when_lost(self, task: "asyncio.Task[object] | None") -> None:
        self._cancelled_with = task

    def connection_lost(self, exc: BaseException | None) -> None:
        self._head_deadline.stop()
        self._idle_deadline.stop()
        self._wire = None
        self.port.gone(self.address)
        super().connection_lost(exc)
        if self._cancelled_with is not None:
            self._cancelled_with.cancel()

    def request_begins(self) -> None:
        """Start the request whose head is complete: no time limit applies."""
        self._at_work = True
        self._head_deadline.stop()
        self._idle_deadline.stop()

    def request_ends(self) -> None:
        """End the request whose answer is made but not sent: the idle limit applies."""
        self._at_work = False
        self._unsent_bytes = 0
        if self._wire is not None:
            self._idle_deadline.start()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a malformed request, or one that ran into a bug."""
        if status >= 500:
            self.port.request_failed(exc)
            text = "the broker met something unexpected"
        else:
            text = shown(message or str(exc))
            self.port.request_refused(self.address, "malformed", text)
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the answer is sent already")
        return _closing(status, text)

    def _drop_late_head(self) -> None:
        seconds = self.port.limits.head_seconds
        cause = f"the head of a request was not complete after {seconds:g} s"
        self.port.dropped(self.address, "http_head", cause)
        self._abort()

    def _close_idle(self) -> None:
        unsent = self._wire.get_write_buffer_size() if self._wire is not None else 0
        if unsent and unsent != self._unsent_bytes:
            self._unsent_bytes = unsent
            self._idle_deadline.stop()
            self._idle_deadline.start()
            return
        self.port.count_idle(self.address)
        self._abort()

    def _abort(self) -> None:
        if self._wire is not None:
            self._wire.abort()


def _closing(status: int, text: str) -> web.Response:
    """Return an answer after which the connection is closed."""
    answer = web.Response(status=status, text=f"{text}\n", headers=HEADERS)
    answer.headers.update(OF_EVERY_ANSWER)
    answer.force_close()
    return answer


def guarded(answer: Handler, authentication: HttpAuthentication | None = None) -> Handler:
    """Return `answer` with checks in front that refuse requests which must not be answered."""

    async def checked(request: web.BaseRequest) -> web.StreamResponse:
        try:
            response = await checked_only(request)
        except web.HTTPException as error:  # such as for an unknown path
            error.headers.update(OF_EVERY_ANSWER)
            raise
        response.headers.update(OF_EVERY_ANSWER)
        return response

    async def checked_only(request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, HttpConnection)
        connection.request_begins()
        try:
            refused = _refusal(request, connection.port)
            if refused is not None:
                status, reason, text = refused
                connection.port.request_refused(connection.address, reason, text)
                return _closing(status, text)
            if authentication is not None:
                principal = await authentication.principal(request, connection)
                if principal is None:
                    cause = "the request has no login, or a wrong one"
                    connection.port.request_refused(connection.address, "login", cause)
                    return authentication.refusal(request)
                connection.principal = principal
            return await answer(request)
        finally:
            connection.request_ends()

    return checked


def _refusal(request: web.BaseRequest, port: HttpPort) -> tuple[int, str, str] | None:
    """Return status, reason and text for a request that must be refused; None if it may be
    answered."""
    if not request.raw_path.startswith("/"):
        text = "the target must be a path: this is no proxy, and one in front sends paths"
        return 400, "malformed", text
    hosts = request.headers.getall(hdrs.HOST, [])
    if len(hosts) != 1 and (hosts or request.version >= (1, 1)):
        return 400, "malformed", f"there must be one Host header, not {len(hosts)}"
    if hosts and not is_known_host(hosts[0], port.names):
        text = (
            f"The HTTP port does not answer under the name '{shown(hosts[0][:100])}', which "
            "a stranger could own. Use an address or localhost, add the name to the setting "
            "http.hosts, or have a proxy send one of these as Host."
        )
        return 403, "host", text
    expected = request.headers.get(hdrs.EXPECT, "100-continue")
    if expected.lower() != "100-continue":
        return 417, "expectation", "Expect may only be 100-continue"
    return None


def is_known_host(header: str, names: Collection[str]) -> bool:
    """Whether the `Host` of a request is an address, `localhost` or one of `names`, with a port or
    without.

    A browser lets the page of a site read answers from that site's own name. The owner of a name
    can let it point to this broker (DNS rebinding). So the broker answers only requests for
    addresses, for `localhost`, and for names that the operator has set.
    """
    match = _HOST.fullmatch(header)
    if match is None:
        return False
    in_brackets, plain = match.groups()
    if in_brackets is not None:
        return _is_address(in_brackets, version=6)
    host = plain.lower().removesuffix(".")
    return host == "localhost" or host in names or _is_address(host, version=4)


def _is_address(text: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(text).version == version
    except ValueError:
        return False
