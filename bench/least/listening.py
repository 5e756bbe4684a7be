"""Starting one of these processes, and how it says where it listens."""

import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from ... import congestion

_LISTENING: Final = "listening "


class Listening(NamedTuple):
    """A process that takes connections."""

    address: str
    pid: int


@contextmanager
def process(module: str, arguments: Sequence[str]) -> Iterator[Listening]:
    """Run a module that calls `listen_on`, and end it. Raises `RuntimeError` when it does not."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        try:
            assert started.stdout is not None
            line = started.stdout.readline().removesuffix("\n")
            if not line.startswith(_LISTENING):
                raise RuntimeError(f"{module} does not listen")
            yield Listening(line.removeprefix(_LISTENING), started.pid)
        finally:
            started.kill()


def listen_on(listening: socket.socket) -> None:
    """Say, in such a process, where it listens; it sends without pauses, as brokers do to clients
    of their machine."""
    congestion.expect_local(listening)
    host, port = listening.getsockname()[:2]
    print(f"{_LISTENING}{host}:{port}", flush=True)
