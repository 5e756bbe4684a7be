"""Ports of this machine: free ones for processes that have to know theirs before they listen, and
whose a connection is."""

import os
import random
import socket
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

_LOOKS: Final = 10
"""Attempts: the system's table may leave out a connection while others come and go."""

_LOWEST: Final = 10_000
_OUTGOING: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_OUTGOING_LOWEST: Final = 32_768
"""Used if the system does not report it."""
_ATTEMPTS: Final = 1_000


def free_ports(count: int) -> list[int]:
    """Return different ports on which nothing listens or is connected, at any IPv4 address.

    They are below the range from which the system takes ports for outgoing connections. So a port
    stays free until its process listens, whatever connects meanwhile. They are chosen at random,
    because several processes may look for ports at once. Raises `RuntimeError` if there are too
    few.
    """
    drawing = random.SystemRandom()
    highest = _outgoing_lowest()
    found: list[int] = []
    with ExitStack() as held:
        for _ in range(_ATTEMPTS):
            if len(found) == count:
                return found
            port = drawing.randrange(_LOWEST, highest)
            bound = held.enter_context(socket.socket())
            try:
                bound.bind(("", port))
            except OSError:
                continue
            found.append(port)
    raise RuntimeError(f"{count} free ports were not found from {_LOWEST} to {highest}")


def free_port() -> int:
    """One of `free_ports`."""
    return free_ports(1)[0]


def _outgoing_lowest() -> int:
    """Return the lowest port for outgoing connections, if it leaves enough ports below it;
    otherwise a default."""
    try:
        lowest = int(_OUTGOING.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        lowest = _OUTGOING_LOWEST
    return lowest if lowest > 2 * _LOWEST else _OUTGOING_LOWEST


def connected_by(port: int, pids: Mapping[str, int]) -> str | None:
    """Return the name of the process, of `pids`, that has a connection from 127.0.0.1:`port`; empty
    if another process has it, `None` if there is no such connection."""
    inode = next(filter(None, (_inode_of(port) for _ in range(_LOOKS))), "")
    if not inode:
        return None
    for name, pid in pids.items():
        folder = Path(f"/proc/{pid}/fd")
        with suppress(OSError):  # The process may have ended meanwhile.
            for descriptor in os.listdir(folder):
                with suppress(OSError):
                    if os.readlink(folder / descriptor) == f"socket:[{inode}]":
                        return name
    return ""


def _inode_of(port: int) -> str:
    """Return the inode of the socket that is bound to this port of 127.0.0.1 and connected; empty
    if there is none."""
    local = f"0100007F:{port:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1] == local and fields[9] != "0":
            return fields[9]
    return ""
