"""Ports for processes that have to know theirs before they listen."""

import random
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

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
