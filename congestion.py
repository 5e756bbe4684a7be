"""TCP congestion control: connections within the machine use Reno, others the system's default.

BBR, where it is the system's default, paces: every 64 KiB sent wait for a kernel timer, at a rate
that BBR finds by trial. A connection within the machine has no such rate, and the timers cost more
than the sending. A connection that began with BBR keeps its timers, so the algorithm of a local
connection is chosen before it is opened. An accepted connection begins with the algorithm of its
listening socket: listening sockets are set to Reno, and connections from other machines are set
back to the system's default once they are accepted.
"""

import contextlib
import socket
from typing import Final

LOCAL: Final = b"reno"
"""Algorithm of connections within the machine. Every Linux has Reno, and lets any user choose it.
"""

_OPTION: Final[int | None] = getattr(socket, "TCP_CONGESTION", None)
"""Socket option that chooses the algorithm; None where the system has no such option."""

_NAME_BYTES: Final = 16


def of(connection: socket.socket) -> bytes:
    """Name of the algorithm of a connection or listening socket; empty if it is not known."""
    if _OPTION is None:
        return b""
    return connection.getsockopt(socket.IPPROTO_TCP, _OPTION, _NAME_BYTES).rstrip(b"\0")


def of_system() -> bytes:
    """Name of the system's default algorithm; empty if the system does not tell."""
    with contextlib.suppress(OSError), socket.socket() as new:
        return of(new)
    return b""


def expect_local(new: socket.socket) -> None:
    """Choose the local algorithm for a socket that is about to connect, or for a listening socket
    and so for the connections it will accept."""
    _choose(new, LOCAL)


def settle(connection: socket.socket, system: bytes) -> None:
    """Set an accepted connection back to `system`, the system's default algorithm, unless it stays
    within the machine: then both of its ends have the same address."""
    if connection.getpeername()[0] != connection.getsockname()[0] and of(connection) == LOCAL:
        _choose(connection, system)


def _choose(connection: socket.socket, name: bytes) -> None:
    if _OPTION is not None:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, _OPTION, name)
