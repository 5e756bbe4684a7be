"""Brokers in processes of their own that need not load the program's modules first.

To load them takes most of the start, a third of a second of a processor. One process, the fork
server, loads them once, and each broker is a fork of it. The broker becomes a child of the process
of the tests, which waits for it and sends it signals as to any other.
"""

import ctypes
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any, Final

import pytest

from horolog.testing.program import Process, brokers_started_by, clean_environment

from .fork_server import MESSAGE_BYTES_MAX, PARENT_ENDED

_SET_CHILD_SUBREAPER: Final = 36
"""Of `prctl`: a descendant whose parent ends becomes a child of this process."""


@pytest.fixture(scope="session", autouse=True)
def forked_brokers() -> Iterator[None]:
    """Brokers of `serving` are forked. What tests the start itself takes `own_process=True`."""
    if sys.platform != "linux":
        yield
        return
    with ExitStack() as ends:
        servers: list[_ForkServer] = []

        def start(arguments: Sequence[str], stderr: IO[str], environment: Mapping[str, str]) -> Any:
            if not servers:
                servers.append(ends.enter_context(_fork_server()))
            return servers[0].start(arguments, stderr, environment)

        with brokers_started_by(start):
            yield


class _ForkServer:
    """The process that forks brokers, at the other end of `connection`."""

    def __init__(self, connection: socket.socket, environment: Mapping[str, str]) -> None:
        self._connection = connection
        self._interpreter = _of_interpreter(environment)

    def start(
        self, arguments: Sequence[str], stderr: IO[str], environment: Mapping[str, str]
    ) -> Process | None:
        """A broker that begins to start; `None` where its interpreter needs other variables."""
        if _of_interpreter(environment) != self._interpreter:
            return None
        return _Forked(
            [*arguments],
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment,
            text=True,
            fork_server=self,
        )

    def fork(
        self, arguments: Sequence[str], environment: Mapping[str, str], streams: Sequence[int]
    ) -> int:
        """The process id of a new broker, a child of this process."""
        ask = {"arguments": arguments, "environment": dict(environment), "cwd": os.getcwd()}
        with _adopting():
            socket.send_fds(self._connection, [json.dumps(ask).encode()], streams)
            process_id = int(self._connection.recv(MESSAGE_BYTES_MAX))
            assert self._connection.recv(MESSAGE_BYTES_MAX) == PARENT_ENDED
        return process_id


class _Forked(subprocess.Popen[str]):
    """A process that a fork server starts, with a pipe for its standard output and a file for its
    standard error; otherwise as any other."""

    def __init__(self, arguments: list[str], *, fork_server: _ForkServer, **options: Any) -> None:
        self._fork_server = fork_server
        super().__init__(arguments, **options)

    def _execute_child(self, arguments: list[str], *options: Any) -> None:
        environment = options[5]
        stdout, stderr = options[12], options[14]
        self.pid = self._fork_server.fork(arguments, environment, [0, stdout, stderr])
        self._child_created = True
        os.close(stdout)


def _of_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that count when Python starts."""
    prefixes = ("PYTHON", "LD_", "HOROLOG_KERNEL", "LC_", "LANG", "PATH")
    return {name: text for name, text in environment.items() if name.startswith(prefixes)}


@contextmanager
def _adopting() -> Iterator[None]:
    """Orphans among the descendants become children of this process in the block."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@contextmanager
def _fork_server() -> Iterator[_ForkServer]:
    environment = clean_environment()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        command = [sys.executable, "-m", "horolog.tests.fork_server", str(theirs.fileno())]
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
        )
        theirs.close()
        try:
            yield _ForkServer(ours, environment)
        finally:
            ours.close()
            process.wait()
