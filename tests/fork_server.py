"""The process that `forked_brokers` forks brokers from: it has the program's modules loaded.

`python -m horolog.tests.fork_server FD`, where FD is its end of a connection. Each message asks for
one broker, with the files of its standard streams.
"""

import json
import os
import random
import signal
import socket
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from horolog.cli.main import main

MESSAGE_BYTES_MAX: Final = 1 << 20
PARENT_ENDED: Final = b"the parent of the broker has ended"
"""The answer behind the broker's process id: the broker is a child of the process that asked."""

_MODULES: Final = ("horolog.cli.serve", "horolog.server.main", "uvloop")


def _serve(connection: socket.socket) -> None:
    """Fork until the other end is closed. Returns in a broker, which is to begin."""
    while True:
        message, streams, _, _ = socket.recv_fds(connection, MESSAGE_BYTES_MAX, 3)
        if not message:
            sys.exit()
        parent = os.fork()
        if parent == 0:
            broker = os.fork()
            if broker == 0:
                _become(json.loads(message), streams)
                return
            connection.send(str(broker).encode())
            os._exit(0)
        os.waitpid(parent, 0)
        connection.send(PARENT_ENDED)
        for stream in streams:
            os.close(stream)


def _become(asked: dict[str, Any], streams: Sequence[int]) -> None:
    """Have what a process that just started has."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in streams:
        os.close(stream)
    # Python looks at a stream once, when it opens it.
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, "utf-8", "backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["cwd"])
    random.seed()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["horolog", *asked["arguments"]]


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests.
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        for module in _MODULES:
            import_module(module)
        _serve(connection)
    main()


if __name__ == "__main__":
    _main()
