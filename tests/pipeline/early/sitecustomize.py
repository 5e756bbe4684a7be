"""Lets a Python process that Spark starts connect before it imports anything.

Spark gives up on a process that has not connected ten seconds after its start, and no setting
changes that. The imports before it connects take ten times as long as Python itself: on a busy
machine, longer than that. Python runs this module at its start if the folder is in PYTHONPATH.
"""

import os
import socket
import sys
from contextlib import suppress
from typing import Any, Final

_PLACE: Final = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH")
"""The Unix socket at which Spark waits; only of a process that no daemon forks."""


def _connect_early(place: str) -> None:
    """Connect, and let the program have this connection when it connects to `place`."""
    early = socket.socket(socket.AF_UNIX)
    early.connect(place)
    connect = socket.socket.connect

    def take(own: socket.socket, address: Any) -> None:
        if address != place or early.fileno() < 0:
            connect(own, address)
            return
        os.dup2(early.fileno(), own.fileno(), inheritable=False)
        early.close()

    socket.socket.connect = take  # type: ignore[method-assign, assignment]


if _PLACE is not None and any(part.startswith("pyspark.") for part in sys.orig_argv):
    with suppress(OSError):  # The program reports it when it connects itself.
        _connect_early(_PLACE)
