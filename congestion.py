"""Which congestion control connections have.

Where BBR is the system's, it paces: each 64 KiB that are sent wait for a timer of the kernel, at a
rate that BBR finds by trial. On a connection that does not leave the machine there is nothing to
find, and the timers cost more than the sending. A connection that began with BBR keeps them, so
what a local one has is chosen before it is made. Accepted ones begin with what their listening
socket has: that is set to what local ones have, and the others get the system's back.
"""

import contextlib
import socket
from typing import Final

LOCAL: Final = b"reno"
"""Linux always has it, and lets everybody choose it."""

_OPTION: Final[int | None] = getattr(socket, "TCP_CONGESTION", None)
"""Not every system lets programs choose."""

_NAME_BYTES: Final = 16


def of(connection: socket.socket) -> bytes:
    """The name of what a connection or listening socket has; empty where that is not known."""
    if _OPTION is None:
        return b""
    return connection.getsockopt(socket.IPPROTO_TCP, _OPTION, _NAME_BYTES).rstrip(b"\0")


def of_system() -> bytes:
    """The name of what a new socket has; empty where the system does not tell."""
    with contextlib.suppress(OSError), socket.socket() as new:
        return of(new)
    return b""


def expect_local(new: socket.socket) -> None:
    """Have a connection that a socket is going to make, or those that are going to be made to it,
    begin as local ones do."""
    _choose(new, LOCAL)


def settle(connection: socket.socket, system: bytes) -> None:
    """Have an accepted connection go on as `system` says, unless it does not leave the machine:
    then it has the same address at both ends."""
    if connection.getpeername()[0] != connection.getsockname()[0] and of(connection) == LOCAL:
        _choose(connection, system)


def _choose(connection: socket.socket, name: bytes) -> None:
    if _OPTION is not None:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, _OPTION, name)
