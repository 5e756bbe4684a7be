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

_given: Final[set[int]] = set()
"""Ports that this process has given. A broker that is to listen on one may not have started yet, or
may be stopped for a while."""


def free_ports(count: int) -> list[int]:
    """Return different ports on which nothing listens or is connected, at any IPv4 address.

    They are below the range from which the system takes ports for outgoing connections. So a port
    stays free until its process listens, whatever connects meanwhile. No port is given twice, and
    each process of `pytest -n` has a range of its own. They are chosen at random, because other
    processes may look for ports at once. Raises `RuntimeError` if there are too few.
    """
    drawing = random.SystemRandom()
    own = _own_range()
    if len(_given) > len(own) // 2:
        _given.clear()
    found: list[int] = []
    with ExitStack() as held:
        for _ in range(_ATTEMPTS):
            if len(found) == count:
                _given.update(found)
                return found
            port = drawing.randrange(own.start, own.stop)
            if port in _given:
                continue
            bound = held.enter_context(socket.socket())
            try:
                bound.bind(("", port))
            except OSError:
                continue
            found.append(port)
    raise RuntimeError(f"{count} free ports were not found from {own.start} to {own.stop}")


def free_port() -> int:
    """One of `free_ports`."""
    return free_ports(1)[0]


def _own_range() -> range:
    """Return the ports that this process may give."""
    highest = _outgoing_lowest()
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % processes
    size = (highest - _LOWEST) // processes
    return range(_LOWEST + number * size, _LOWEST + (number + 1) * size)


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
