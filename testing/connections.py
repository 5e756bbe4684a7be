"""Whose a TCP connection on this machine is."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

_LOOKS: Final = 10
"""The system's table may leave out a connection while others come and go."""


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
