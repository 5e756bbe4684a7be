"""Listening socket and limit of open files.

The event loops' own servers are not used. asyncio accepts up to a hundred connections before it
tells anyone, and floods the log when descriptors run out; uvloop then closes connections silently.
Here each connection is counted before it gets a transport. A connection above the limit is closed
at once and counted. A spare descriptor allows a broker without free descriptors to take surplus
connections out of the backlog and close them.
"""

import asyncio
import contextlib
import errno
import os
import resource
import socket
from collections.abc import Callable

from ... import congestion
from ...config.address import join_address, split_address
from ...values import value_class
from .tls_files import TlsPort

BACKLOG = 1024

ACCEPTS_A_TURN = 64
"""Connections accepted before the event loop serves its other sockets again."""

ACCEPT_REST_SECONDS = 0.5

RESERVED_FILES = 32
"""Descriptors reserved for the standard streams, the event loop, listeners, locks, and short needs
of the log: to sync, to start a segment, to undo a failed write."""

HTTP_CONNECTIONS = 200
"""Connections of the HTTP port, in addition to `max.connections`."""

OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})

# The connection was lost in the backlog; the listener itself is fine.
_GONE = frozenset({errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.ENOTCONN})


class CannotListen(Exception):
    """An address is in use, or does not belong to this machine. The text is for the operator."""


class WrongListeners(CannotListen):
    """The settings of addresses contradict each other."""


class SameAddress(WrongListeners):
    """Two settings have the same address."""


class Unprotected(WrongListeners):
    """An address that other machines can reach lacks TLS or a login, or TLS lacks a certificate."""


def cannot_listen(address: str, setting: str, error: OSError) -> CannotListen:
    """Return the error for an address from `setting`."""
    return CannotListen(f"cannot listen on {address} ({setting}): {error.strerror}")


def raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard limit. Returns the limit now in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


@value_class
class Shares:
    """Division of the process's file descriptors."""

    connections: int
    files: int
    http_connections: int


def share_files(limit: int, wanted: Shares) -> Shares:
    """Divide `limit` descriptors, giving no part more than wanted.

    A low limit is divided among all parts, because a broker that serves few clients is better than
    one that stops half-way through a roll.
    """
    free = max(limit - RESERVED_FILES, 10)
    left_over = free - wanted.connections - wanted.files
    http_connections = min(wanted.http_connections, max(left_over, free // 8, 2))
    free -= http_connections
    files = min(wanted.files, max(free - wanted.connections, free // 2))
    connections = min(wanted.connections, free - files)
    return Shares(max(connections, 1), max(files, 4), http_connections)


def files_wanted(max_connections: int, max_open_files: int) -> int:
    """Return the number of descriptors with which `share_files` reduces nothing."""
    return max_connections + max_open_files + HTTP_CONNECTIONS + RESERVED_FILES


def bind(address: str, setting: str) -> socket.socket:
    """Return a socket bound to `HOST:PORT` from `setting`, not listening yet.

    Raises `CannotListen`.
    """
    host, port = split_address(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, socket_address = found[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            congestion.expect_local(bound)
            bound.setblocking(False)
            bound.bind(socket_address)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise cannot_listen(address, setting, error) from error
    return bound


def address_of(bound: socket.socket) -> str:
    """Return the address of a bound socket as `HOST:PORT`."""
    host, port = bound.getsockname()[:2]
    return join_address(host, port)


class Listener:
    """Accepts connections on one socket until closed.

    `admit` returns the protocol for a new connection from an address (IPv4 addresses in IPv4 form),
    or None to close it at once. `failed` is called with an admitted protocol whose transport could
    not be made. `refused` is called with the reason when a connection was closed or could not be
    accepted without a decision of the broker.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: socket.socket,
        *,
        admit: Callable[[str], asyncio.BaseProtocol | None],
        failed: Callable[[asyncio.BaseProtocol], None],
        refused: Callable[[str], None],
        tls: TlsPort | None = None,
    ) -> None:
        """With `tls`, the protocols get their transports after the handshake."""
        self._loop = loop
        self._socket = listening
        self._admit = admit
        self._failed = failed
        self._refused = refused
        self._tls = tls
        self._congestion_control = congestion.of_system()
        self._starting: set[asyncio.Task[None]] = set()
        self._spare = _open_spare()
        self._pause: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start to accept connections; the socket is listening already."""
        self._accept()

    def _accept(self) -> None:
        self._pause = None
        self._loop.add_reader(self._socket.fileno(), self._readable)

    def close(self) -> None:
        """Stop accepting. Open connections stay."""
        if self._socket.fileno() < 0:
            return
        self._loop.remove_reader(self._socket.fileno())
        if self._pause is not None:
            self._pause.cancel()
        self._socket.close()
        if self._spare >= 0:
            os.close(self._spare)
        for task in self._starting:
            task.cancel()

    def _readable(self) -> None:
        for _ in range(ACCEPTS_A_TURN):
            try:
                connection, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _GONE:
                    continue
                if error.errno in OUT_OF_DESCRIPTORS and self._close_surplus():
                    return
                self._rest()
                return
            self._take(connection, str(peer[0]).removeprefix("::ffff:"))

    def _take(self, connection: socket.socket, address: str) -> None:
        protocol = self._admit(address)
        if protocol is None:
            connection.close()
            return
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Keepalive detects a peer that vanished silently, so that it does not keep its slot.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            congestion.settle(connection, self._congestion_control)
        task = self._loop.create_task(self._connect(protocol, connection))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    def _close_surplus(self) -> bool:
        """Accept connections from the backlog with the spare descriptor, and close them one by one.

        Returns False if even that fails.
        """
        if self._spare >= 0:
            os.close(self._spare)
        try:
            for _ in range(ACCEPTS_A_TURN):
                connection, _ = self._socket.accept()
                connection.close()
                self._refused("no_descriptors")
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            return error.errno in _GONE
        finally:
            self._spare = _open_spare()
        return True

    def _rest(self) -> None:
        """Stop accepting for a while, because the event loop would otherwise retry at once, without
        end."""
        self._refused("accept_failed")
        self._loop.remove_reader(self._socket.fileno())
        self._pause = self._loop.call_later(ACCEPT_REST_SECONDS, self._accept)

    async def _connect(self, protocol: asyncio.BaseProtocol, connection: socket.socket) -> None:
        outer = protocol
        if self._tls is not None:
            from .tls import TlsProtocol

            outer = TlsProtocol(self._tls, protocol, self._failed, self._loop)
        try:
            await self._loop.connect_accepted_socket(lambda: outer, connection)
        except OSError:
            self._failed(protocol)  # the peer is gone already
            connection.close()
        except asyncio.CancelledError:
            self._failed(protocol)
            connection.close()
            raise


def _open_spare() -> int:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
