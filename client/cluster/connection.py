"""One TCP connection to a broker: opens it (TCP or TLS, versions of the requests, authentication),
sends requests and matches responses to them by correlation id.

Any number of requests may be in flight. Each one ends: with its response, with the broker's error,
with `RequestTimedOut`, or with `ConnectionFailed` when the connection is lost.
"""

import asyncio
import select
import socket
import ssl
import struct
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol, cast

from ... import congestion
from ...config.address import is_loopback, split_address
from ...protocol.api.broker.api_versions import (
    API_VERSIONS,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from ...protocol.api.encodings import Encoding
from ...protocol.api.framing import FrameReader, ProtocolError
from ...protocol.api.log.produce import PRODUCE
from ...protocol.api.native import frames as native
from ...protocol.api.registry import APIS
from ...protocol.api.schema import Api
from ...protocol.api.writing import InMemory
from ...protocol.errors import (
    NO_ERROR,
    HorologError,
    InvalidRequest,
    RequestTimedOut,
    UnsupportedVersion,
    error_from_code,
)
from ...protocol.limits import (
    MAX_CLIENT_RESPONSE_BYTES,
    MAX_HANDSHAKE_RESPONSE_BYTES,
    SLAB_BYTES,
)
from ..errors import IN_OPTIONS, ConnectionFailed, TlsFailed
from ..security.security import Security
from . import connection_reports
from .connection_reports import IDLE_S, ConnectionReports

_CORRELATION_IDS: Final = 2**31
_LIMIT_NAME: Final = "the client's limit for a response"

_FIRST_REQUEST: Final = 1
"""Correlation id of the first request after the request for versions, which has id 0."""
_CLOSING_TIMEOUT_S: Final = 5
"""Seconds that `close` waits to send remaining data to a broker that does not read."""

_UNUSED_S: Final = 1.0
"""Idle seconds after which a connection is polled before use: if the event loop was busy or not
running, it has not noticed that the broker closed the connection."""

_MAX_IDLE_S: Final = 540.0
"""Idle seconds after which a connection is replaced. Brokers close idle connections after ten
minutes (`connections.max.idle.ms`), perhaps while a request is on its way."""

_TLS_CLOSING_S: Final = 2
"""Seconds to wait for the server's end of a TLS shutdown; all data was exchanged before."""

_OTHER_PORT: Final = {
    (True, False): "is this the port of Horolog's own protocol? A port of Kafka's protocol is "
    "written kafka://HOST:PORT, and one over TLS tls://HOST:PORT",
    (True, True): "is this the port of Horolog's own protocol? A port of Kafka's protocol is "
    "written kafka+tls://HOST:PORT",
    (False, False): "is this a port of Kafka's protocol? The one of Horolog's own is written "
    "HOST:PORT, without kafka://, and a port of Kafka's over TLS kafka+tls://HOST:PORT",
    (False, True): "is this a port of Kafka's protocol? The one of Horolog's own is written "
    "tls://HOST:PORT, without kafka",
}
"""Hints for a server that does not speak the expected protocol, by (native protocol, TLS)."""

_CLOSED: Final = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)

_KEPT_BYTES: Final = 16 * 1024 * 1024
"""Largest response buffer that is kept for the next response: the default limit of a fetch."""


class Awaited(Protocol):
    """Receives the result of a request unless it is `done`; usually a future."""

    def done(self) -> bool: ...

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, exception: Exception, /) -> None: ...


@dataclass(slots=True)
class _Pending:
    """A request in flight."""

    api: Api
    version: int
    answer: Awaited
    timer: asyncio.TimerHandle
    expected_at: float
    """Earliest time at which the answer is late, on the event loop's clock."""


_LOOKED_AT: Final = 32
"""Requests in flight, oldest first, among which the one that is late longest is searched."""


class ClientConnection(asyncio.BufferedProtocol):
    """Connection made by `connect`. Belongs to the event loop in which it was made."""

    def __init__(
        self,
        address: str,
        client_id: str | None,
        request_timeout_ms: int,
        encoding: Encoding = native,
        *,
        guarded: bool = False,
    ) -> None:
        """With `guarded` the client authenticates before it sends any other request."""
        self.address = address
        self._client_id = client_id
        self._encoding = encoding
        self._request_timeout_ms = request_timeout_ms
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(
            MAX_HANDSHAKE_RESPONSE_BYTES if guarded else MAX_CLIENT_RESPONSE_BYTES,
            limit_name=_LIMIT_NAME,
            protocol=encoding.NAME,
        )
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, _Pending] = {}
        self._last_id = -1
        self._used_at = self._loop.time()
        self._versions: dict[int, int] = {API_VERSIONS.key: API_VERSIONS.min_version}
        self._failure: str | None = None
        self._cause: Exception | None = None
        """Error of the transport when the connection was lost."""
        self._guarded = guarded
        self._reauthenticate_at: float | None = None
        self._writable = asyncio.Event()
        self._lost = asyncio.Event()
        self.reports: ConnectionReports | None = None
        """Where the end of the connection and late answers are reported."""
        self._watch: asyncio.TimerHandle | None = None
        self._late = False

    @property
    def failed(self) -> bool:
        """True when the connection can no longer be used."""
        return self._failure is not None

    @property
    def native(self) -> bool:
        """Whether the connection speaks the native protocol, not Kafka's."""
        return self._encoding.NATIVE

    @property
    def ready(self) -> bool:
        """True when a request can be sent without waiting."""
        return (
            self._failure is None
            and self._writable.is_set()
            and not self.session_ends
            and not self.stale
        )

    @property
    def session_ends(self) -> bool:
        """True when the client must authenticate again before it sends any other request."""
        at = self._reauthenticate_at
        return at is not None and self._loop.time() >= at

    @property
    def answered_in_s(self) -> float:
        """Seconds until every request in flight is answered or has timed out."""
        now = self._loop.time()
        return max((one.timer.when() - now for one in self._pending.values()), default=0.0)

    @property
    def tls(self) -> ssl.SSLObject | None:
        """TLS state of the connection; None without TLS."""
        if self._transport is None:
            return None
        return cast("ssl.SSLObject | None", self._transport.get_extra_info("ssl_object"))

    @property
    def stale(self) -> bool:
        """True when the connection was idle for so long that the broker has closed it, or is about
        to."""
        if self._pending or self._transport is None or self._failure is not None:
            return False
        idle_s = self._loop.time() - self._used_at
        return idle_s > _UNUSED_S and (idle_s > _MAX_IDLE_S or _is_closed(self._transport))

    def version(self, api: Api) -> int:
        """Return the highest version that both sides support. Raises UnsupportedVersion if there is
        none."""
        version = self._versions.get(api.key)
        if version is None:
            raise UnsupportedVersion(
                f"{self.address} does not serve {api.name} in any version from "
                f"{api.min_version} to {api.last_version(native=self._encoding.NATIVE)}"
            )
        return version

    async def writable(self) -> None:
        """Wait until the broker accepts more data. Raises ConnectionFailed, RequestTimedOut."""
        if not self._writable.is_set():
            try:
                async with asyncio.timeout(self._request_timeout_ms / 1000):
                    await self._writable.wait()
            except TimeoutError:
                raise RequestTimedOut(
                    f"{self.address} took no more requests in {self._request_timeout_ms} ms"
                ) from None
        self._check()

    def submit(self, api: Api, body: object, *, wait_ms: int = 0) -> asyncio.Future[Any]:
        """Send a request now; the future gets the response, or the error.

        `wait_ms` is how long the request lets the broker wait, in addition to the request timeout.
        Raises ConnectionFailed, UnsupportedVersion, and InvalidRequest for a number or a text that
        cannot be encoded.
        """
        answer: asyncio.Future[Any] = self._loop.create_future()
        self.submit_for(answer, api, body, wait_ms=wait_ms)
        return answer

    def submit_for(self, answer: Awaited, api: Api, body: object, *, wait_ms: int = 0) -> None:
        """Send a request as `submit` does. `answer` gets the response as soon as it arrives; its
        methods must not raise."""
        version = self.version(api)
        correlation_id = self._take_id()
        parts = self._encoded(api, version, correlation_id, body)
        transport = self._check()
        timeout_ms = self._request_timeout_ms + wait_ms
        timer = self._loop.call_later(timeout_ms / 1000, self._expire, answer, api, timeout_ms)
        self._used_at = now = self._loop.time()
        expected_at = now if api is PRODUCE else now + wait_ms / 1000
        self._pending[correlation_id] = _Pending(api, version, answer, timer, expected_at)
        if self._watch is None and self.reports is not None:
            self._watch = self._loop.call_later(connection_reports.SLOW_S, self._look)
        transport.writelines(parts)

    def submit_unanswered(self, api: Api, body: object) -> None:
        """Send a request that the broker does not answer (produce with `acks` 0)."""
        version = self.version(api)
        correlation_id = self._take_id()
        parts = self._encoded(api, version, correlation_id, body)
        self._check().writelines(parts)
        self._used_at = self._loop.time()

    def _encoded(self, api: Api, version: int, correlation_id: int, body: object) -> list[InMemory]:
        try:
            return self._encoding.request_parts(api, version, correlation_id, self._client_id, body)
        except (OverflowError, UnicodeEncodeError, struct.error) as error:
            raise InvalidRequest(
                f"{api.name} has no room for a number, or no form for a text, that it was given: "
                f"{error}"
            ) from None

    async def close(self) -> None:
        """Send the remaining data, and close. Requests in flight fail."""
        if self._transport is None:
            return
        self._fail("the connection was closed")
        self._transport.close()
        try:
            async with asyncio.timeout(_CLOSING_TIMEOUT_S):
                await self._lost.wait()
        except TimeoutError:
            self._transport.abort()

    async def finish(self) -> None:
        """Wait until all requests in flight are answered or have timed out, and close."""
        answers = [request.answer for request in self._pending.values()]
        futures = [one for one in answers if isinstance(one, asyncio.Future)]
        if futures:
            await asyncio.wait(futures)
        await self.close()

    def abort(self, cause: str = "the connection was given up", *, lost: bool = False) -> None:
        """Close at once. Requests in flight fail with this cause. With `lost`, the broker is the
        reason, and this is reported."""
        self._fail(cause, lost=lost)
        if self._transport is not None:
            self._transport.abort()

    def authenticated(self, authenticate_again_in_s: float | None) -> None:
        """Record a successful login, which allows large responses. `session_ends` becomes true
        after this time in seconds; None: never."""
        self._reader.allow(MAX_CLIENT_RESPONSE_BYTES, _LIMIT_NAME)
        self._reauthenticate_at = (
            None if authenticate_again_in_s is None else self._loop.time() + authenticate_again_in_s
        )

    async def learn_versions(self) -> None:
        """Ask which requests the broker serves, and choose a version of each."""
        response: ApiVersionsResponse = await self.submit(API_VERSIONS, ApiVersionsRequest())
        if response.error_code != NO_ERROR:
            raise error_from_code(response.error_code)
        for served in response.api_keys:
            api = APIS.get(served.api_key)
            if api is not None:
                newest = api.last_version(native=self._encoding.NATIVE)
                version = min(newest, served.max_version)
                if version >= max(api.min_version, served.min_version):
                    self._versions[api.key] = version

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        if self._failure is not None:
            return
        try:
            for frame in self._reader.received(nbytes):
                self._take_response(frame)
                if isinstance(frame, bytearray) and SLAB_BYTES < len(frame) <= _KEPT_BYTES:
                    self._reader.give_back(frame)
            if self._reader.fault is not None:
                raise self._reader.fault
        except ProtocolError as error:
            self.abort(f"the broker broke the protocol: {error}", lost=True)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._failure is None:
            self._cause = exc
        cause = f"the connection was lost: {exc}" if exc else "the broker closed the connection"
        if _FIRST_REQUEST in self._pending and not self._guarded:
            cause += (
                ", and answered nothing but which versions it has. Perhaps it asks who the client "
                "is (user and password, or a certificate)"
            )
        self._fail(cause, lost=True)
        self._lost.set()

    # Requests, responses and failures.

    def _take_id(self) -> int:
        self._last_id = (self._last_id + 1) % _CORRELATION_IDS
        return self._last_id

    def _check(self) -> asyncio.Transport:
        if self._failure is not None or self._transport is None:
            raise self._error(self._failure or "not connected")
        return self._transport

    def _error(self, cause: str) -> ConnectionFailed | TlsFailed:
        if self._cause is not None and self.tls is not None:
            from ..security.tls import explained

            refused = explained(self._cause, self.address)
            if refused is not None:
                return refused
        return ConnectionFailed(f"{self.address}: {cause}")

    def _take_response(self, frame: bytes | bytearray) -> None:
        head, raw = self._encoding.open_response(frame)
        pending = self._pending.pop(head.correlation_id, None)
        if pending is None:
            raise ProtocolError(f"a response to no request ({head.correlation_id})")
        pending.timer.cancel()
        self._used_at = self._loop.time()
        if self._late and self.reports is not None:
            self._late = False
            self.reports.answered(self.address, self._used_at)
        if pending.answer.done():
            return
        if head.error_code != NO_ERROR:
            text = self._encoding.error_message(raw)
            pending.answer.set_exception(error_from_code(head.error_code, text))
            return
        try:
            message = self._encoding.decode_response(pending.api.response, pending.version, raw)
        except ProtocolError as error:
            pending.answer.set_exception(self._error(f"the broker broke the protocol: {error}"))
            raise
        pending.answer.set_result(message)

    def _expire(self, answer: Awaited, api: Api, timeout_ms: int) -> None:
        # The entry stays, because a late response must still find its request.
        if not answer.done():
            answer.set_exception(
                RequestTimedOut(f"{self.address} did not answer {api.name} in {timeout_ms} ms")
            )

    def _look(self) -> None:
        """Report the request that is late longest, if one is late for `SLOW_S`."""
        self._watch = None
        if not self._pending or self.reports is None:
            return
        oldest = min(
            islice(self._pending.values(), _LOOKED_AT), key=lambda request: request.expected_at
        )
        now = self._loop.time()
        late_s = now - oldest.expected_at
        left_s = connection_reports.SLOW_S - late_s
        if left_s <= 0:
            self._late = True
            self.reports.waits(self.address, oldest.api.name, oldest.expected_at, now)
        next_s = left_s if 0 < left_s < connection_reports.SLOW_S else connection_reports.SLOW_S
        self._watch = self._loop.call_later(next_s, self._look)

    def _fail(self, cause: str, *, lost: bool = False) -> None:
        """Fail every request in flight. Only the first cause is kept."""
        if self._failure is not None:
            return
        self._failure = cause
        if self._watch is not None:
            self._watch.cancel()
        now = self._loop.time()
        if lost and self.reports and (self._pending or now - self._used_at < IDLE_S):
            self.reports.lost(self.address, cause, now)
        self._writable.set()
        pending, self._pending = self._pending, {}
        for request in pending.values():
            request.timer.cancel()
            if not request.answer.done():
                request.answer.set_exception(self._error(cause))


def _is_closed(transport: asyncio.Transport) -> bool:
    """Whether the other side has closed the connection, even if the event loop has not noticed."""
    connected = transport.get_extra_info("socket")
    if connected is None or connected.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(connected.fileno(), _CLOSED)
    return bool(poll.poll(0))


async def connect(
    address: str,
    *,
    client_id: str | None = None,
    request_timeout_ms: int = 30_000,
    encoding: Encoding = native,
    security: Security | None = None,
) -> ClientConnection:
    """Connect to `HOST:PORT` (`[::1]:7070` for IPv6), negotiate versions, and authenticate.

    Raises ValueError for an invalid address. Raises ConnectionFailed if nothing answers within the
    timeout, or the server speaks another protocol than that of `encoding`. Raises SecurityError if
    `security` cannot be used, and TlsFailed or an authentication error if one side does not accept
    the other.
    """
    host, port = split_address(address)
    loop = asyncio.get_running_loop()
    guarded = security is not None and security.mechanism is not None
    factory = partial(
        ClientConnection, address, client_id, request_timeout_ms, encoding, guarded=guarded
    )
    connection: ClientConnection | None = None
    understood = False
    try:
        async with asyncio.timeout(request_timeout_ms / 1000):
            channel = {} if security is None else await _channel(security, host)
            place = await _local(host, port) or {"host": host, "port": port}
            _, connection = await loop.create_connection(factory, **place, **channel)
            await connection.learn_versions()
            understood = True
            if security is not None and guarded:
                from ..security.authentication import authenticate

                await authenticate(connection, security)
    except BaseException as error:
        if connection is not None:
            connection.abort()
        if isinstance(error, ConnectionFailed) and not understood:
            # The server accepted the connection, and closed it before it answered anything.
            hint = _OTHER_PORT[encoding.NATIVE, security is not None and bool(security.tls)]
            raise ConnectionFailed(f"{error}; {hint}") from None
        if isinstance(error, TimeoutError | RequestTimedOut):
            text = f"{address}: no answer within {request_timeout_ms} ms"
            raise ConnectionFailed(text) from None
        # UnicodeError: a name that DNS cannot have.
        if isinstance(error, OSError | UnicodeError) and not isinstance(error, HorologError):
            tls = security is not None and bool(security.tls)
            raise _worded(_unreachable(error, address, tls=tls), security) from error
        if isinstance(error, TlsFailed):
            raise _worded(error, security) from error
        raise
    return connection


def _worded(error: HorologError, security: Security | None) -> HorologError:
    """Return an error that names the settings as they are given."""
    if isinstance(error, TlsFailed) and security is not None and security.named_as_options:
        return error.in_words(IN_OPTIONS)
    return error


async def _local(host: str, port: int) -> dict[str, Any]:
    """Return the event loop's arguments for a connection to this machine; empty for another
    machine."""
    if not is_loopback(host):
        return {}
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only if it sees that the socket is TCP.
    connecting = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        congestion.expect_local(connecting)
        connecting.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connecting, (host, port))
    except BaseException:
        connecting.close()
        raise
    return {"sock": connecting}


async def _channel(security: Security, host: str) -> dict[str, Any]:
    """Return the event loop's arguments for an encrypted connection; empty without TLS."""
    if not security.tls:
        return {}
    from ..security.tls import client_context

    # Runs in a thread: it reads files, and may run a command for the password of the key.
    context = await asyncio.to_thread(client_context, security)
    return {"ssl": context, "server_hostname": host, "ssl_shutdown_timeout": _TLS_CLOSING_S}


def _unreachable(error: Exception, address: str, *, tls: bool) -> HorologError:
    from ..security.tls import explained

    refused = explained(error, address)
    if refused is not None:
        return refused
    if tls and isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError):
        return ConnectionFailed(
            f"{address} ended the connection when TLS began; is it a plaintext port? Those are "
            "written without tls"
        )
    return ConnectionFailed(f"cannot connect to {address}: {error}")
