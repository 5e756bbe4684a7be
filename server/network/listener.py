"""The listening socket and the cap on connections.

The loops' own servers are not used: asyncio accepts up to a hundred connections before it tells
anyone, and floods the log when descriptors run out, and uvloop then closes connections without a
word. Here each connection is counted before it gets a transport; one above the cap is closed at
once and counted, and a spare descriptor is kept so that even a broker without descriptors can take
a surplus connection out of the backlog and close it.
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
"""Connections taken before the loop serves its other sockets again."""

ACCEPT_REST_SECONDS = 0.5

RESERVED_FILES = 32
"""Descriptors kept for the standard streams, the loop, listeners, locks, and for what the log needs
for a moment: to sync, to begin a segment, to take back a failed write."""

HTTP_CONNECTIONS = 200
"""Connections of the HTTP port, beside those of `max.connections`."""

OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})

# The connection died in the backlog: nothing is wrong with the listener.
_GONE = frozenset({errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.ENOTCONN})


class CannotListen(Exception):
    """An address is taken, or is none of this machine's. The text is for the operator."""


class WrongListeners(CannotListen):
    """What the settings say about addresses cannot hold together."""


class SameAddress(WrongListeners):
    """Two settings give the same address."""


class Unprotected(WrongListeners):
    """An address that others can reach has no TLS or no login, or TLS has no certificate."""


def cannot_listen(address: str, setting: str, error: OSError) -> CannotListen:
    """The refusal of an address that `setting` gives."""
    return CannotListen(f"cannot listen on {address} ({setting}): {error.strerror}")


def raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard one; returns the limit that holds now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


@value_class
class Shares:
    """What the descriptors of the process are for."""

    connections: int
    files: int
    http_connections: int


def share_files(limit: int, wanted: Shares) -> Shares:
    """Split `limit` descriptors; of nothing there is more than is wanted.

    A low limit is split between them, because a broker that serves few clients is better than one
    that stops half-way through a roll.
    """
    free = max(limit - RESERVED_FILES, 10)
    left_over = free - wanted.connections - wanted.files
    http_connections = min(wanted.http_connections, max(left_over, free // 8, 2))
    free -= http_connections
    files = min(wanted.files, max(free - wanted.connections, free // 2))
    connections = min(wanted.connections, free - files)
    return Shares(max(connections, 1), max(files, 4), http_connections)


def files_wanted(max_connections: int, max_open_files: int) -> int:
    """How many descriptors there have to be for `share_files` to lower nothing."""
    return max_connections + max_open_files + HTTP_CONNECTIONS + RESERVED_FILES


def bind(address: str, setting: str) -> socket.socket:
    """A socket on `HOST:PORT`, where `setting` says so; it does not listen yet.

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
    """Where a socket is bound, as `HOST:PORT`."""
    host, port = bound.getsockname()[:2]
    return join_address(host, port)


class Listener:
    """Accepts connections on one socket until closed.

    `admit` gives the protocol of a new connection from an address (IPv4's in its own form, however
    it came), or `None` to have it closed at once; `failed` is called with an
    admitted protocol whose transport could not be made, and `refused` with the reason for which a
    connection was closed, or could not be taken, without a decision of the broker.
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
        """With `tls`, the protocols get their transports when the handshake is done."""
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
        """Accept connections from now on; the socket listens already."""
        self._accept()

    def _accept(self) -> None:
        self._pause = None
        self._loop.add_reader(self._socket.fileno(), self._readable)

    def close(self) -> None:
        """Stop accepting. Connections that exist stay."""
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
            # A peer that vanished without a word does not keep its place for ever.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            congestion.settle(connection, self._congestion_control)
        task = self._loop.create_task(self._connect(protocol, connection))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    def _close_surplus(self) -> bool:
        """Take what waits in the backlog with the spare descriptor and close it, one by one.

        False when not even that is possible.
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
        """Leave the backlog alone for a while: the loop would call again at once, for ever."""
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
