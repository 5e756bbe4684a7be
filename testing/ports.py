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
"""The system's table may leave out a connection while others come and go."""

_LOWEST: Final = 10_000
_OUTGOING: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_OUTGOING_LOWEST: Final = 32_768
"""Where the system does not say it."""
_ATTEMPTS: Final = 1_000


def free_ports(count: int) -> list[int]:
    """Different ports that nobody listens on or is connected from, at any address of IPv4.

    They are below those that the system gives to connections: such a port stays free until its
    process listens, whatever connects meanwhile. They are drawn at random, for several processes
    may look for ports at one time. Raises `RuntimeError` if there are too few.
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
    """The lowest port that the system gives to a connection, where that leaves enough below it."""
    try:
        lowest = int(_OUTGOING.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        lowest = _OUTGOING_LOWEST
    return lowest if lowest > 2 * _LOWEST else _OUTGOING_LOWEST


def connected_by(port: int, pids: Mapping[str, int]) -> str | None:
    """The name of the process, of `pids`, that has a connection from 127.0.0.1:`port`; empty where
    another one has, `None` where there is no such connection."""
    inode = next(filter(None, (_inode_of(port) for _ in range(_LOOKS))), "")
    if not inode:
        return None
    for name, pid in pids.items():
        folder = Path(f"/proc/{pid}/fd")
        with suppress(OSError):  # It has ended meanwhile.
            for descriptor in os.listdir(folder):
                with suppress(OSError):
                    if os.readlink(folder / descriptor) == f"socket:[{inode}]":
                        return name
    return ""


def _inode_of(port: int) -> str:
    """Of the socket that is bound to this port of 127.0.0.1, connected, and not closed."""
    local = f"0100007F:{port:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1] == local and fields[9] != "0":
            return fields[9]
    return ""
