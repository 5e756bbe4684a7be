"""Opening a connection: TCP or TLS, versions of the requests, authentication."""

import asyncio
import socket
from functools import partial
from typing import Any, Final

from ... import congestion
from ...config.address import is_loopback, split_address
from ...protocol.api.encodings import Encoding
from ...protocol.api.native import frames as native
from ...protocol.errors import HorologError, RequestTimedOut
from ..errors import IN_OPTIONS, ConnectionFailed, TlsFailed
from ..security.security import Security
from .connection import ClientConnection

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
