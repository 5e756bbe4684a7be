"""A process that writes the bytes that it receives to a new file: the least work for a log.

`python -m horolog.bench.socket_to_file FILE SET_BYTES SETS [checked]` prints `listening HOST:PORT`
and takes one connection. It receives sets of SET_BYTES each, writes each with one call, and sends
one byte after every SETS written sets. It ends when the connection ends. With `checked` it does the
work that no log can avoid: it verifies the checksums of each set, numbers the messages and counts
their latencies.
"""

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..config.address import split_address
from .least import listen_on, numbered, process

_CHECKED: Final = "checked"


@contextmanager
def writing(
    path: Path, data: bytes, times: int, *, checked: bool = False
) -> Iterator[Callable[[int], None]]:
    """Start a process that writes `path`. The yielded function sends `data` `times` times, several
    with one call, and returns when all are written."""
    arguments = [str(path), str(len(data)), str(times)]
    if checked:
        arguments.append(_CHECKED)
    with (
        process(arguments, __name__) as it,
        socket.create_connection(split_address(it.address)) as connection,
    ):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def send(at_once: int) -> None:
            together = memoryview(data * at_once)
            for sent in range(0, times, at_once):
                connection.sendall(together[: min(at_once, times - sent) * len(data)])
            if len(connection.recv(1)) != 1:
                raise RuntimeError(f"{__name__} ended early")

        yield send


def main(path: str, set_bytes: int, sets: int, *, checked: bool) -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listen_on(listener)
        connection, _ = listener.accept()
    received = memoryview(bytearray(set_bytes))
    next_offset = 0
    with connection, open(path, "xb", buffering=0) as file:
        while True:
            for _ in range(sets):
                size = connection.recv_into(received, set_bytes, socket.MSG_WAITALL)
                if size != set_bytes:
                    return 0 if size == 0 else 1
                if checked:
                    now_ms = time.time_ns() // 1_000_000
                    next_offset = numbered([received], next_offset, now_ms).last_offset + 1
                if os.write(file.fileno(), received) != set_bytes:
                    raise OSError("the disk is full")
            connection.sendall(b".")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:4]), checked=sys.argv[4:] == [_CHECKED]))
