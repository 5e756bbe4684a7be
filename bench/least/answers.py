"""A process that does the least that a broker has to do for a request: take it, keep it, answer.

`python -m horolog.bench.least.answers ANSWER HEAD_BYTES BODY_BYTES [WRITTEN]` prints
`listening HOST:PORT`, takes one connection, and gives to each frame that it receives the first
HEAD_BYTES of the file ANSWER, from memory, and BODY_BYTES of what is behind them, with `sendfile`:
from one place after the other, as far apart as those that `fetching.py` asks for. All frames that
came together are written to the end of the file WRITTEN first, with one call. It ends when the
connection does. It knows nothing of what the frames say, so every client gets the answer that it is
to expect.
"""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import cycle, islice, repeat
from pathlib import Path
from typing import Final

from ...protocol.api.encodings import Encoding
from ...protocol.api.native import frames as native
from ..fetching import PLACES
from ..raw_client import RawClient
from .listening import listen_on, process

_RECEIVE_BYTES: Final = 1 << 20
_LENGTH_BYTES: Final = 4
_WRITE_BYTES: Final = 256 << 10


@contextmanager
def answering(
    folder: Path,
    answer: bytes,
    head_bytes: int,
    *,
    written: bool = False,
    encoding: Encoding = native,
    bodies: int = 1,
) -> Iterator[RawClient]:
    """A client of such a process, which gives `answer`, a whole frame; what it has in files takes
    as much as so many bodies."""
    path = folder / "answer"
    with path.open("wb", buffering=0) as file:
        file.write(answer[:head_bytes])
        for body in repeat(memoryview(answer)[head_bytes:], bodies):
            # As a log is written: how large the pages are that the system keeps depends on that.
            for begin in range(0, len(body), _WRITE_BYTES):
                file.write(body[begin : begin + _WRITE_BYTES])
    arguments = [str(path), str(head_bytes), str(len(answer) - head_bytes)]
    if written:
        arguments.append(str(folder / "written"))
    with (
        process(__name__, arguments) as it,
        closing(RawClient(it.address, encoding)) as client,
    ):
        yield client


def main(answer: str, head_bytes: int, body_bytes: int, written: str | None) -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listen_on(listener)
        connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection, open(answer, "rb", buffering=0) as file:
        head = file.read(head_bytes)
        last = os.fstat(file.fileno()).st_size - head_bytes - body_bytes
        places = cycle([head_bytes + last * place // PLACES for place in range(PLACES)])
        log = os.open(written, os.O_CREAT | os.O_EXCL | os.O_WRONLY) if written else -1
        buffer = bytearray(_RECEIVE_BYTES)
        view = memoryview(buffer)
        end = 0
        while received := connection.recv_into(view[end:]):
            end += received
            frames = taken = 0
            while taken + _LENGTH_BYTES <= end:
                behind = taken + _LENGTH_BYTES
                behind += int.from_bytes(view[taken:behind], "big")
                if behind > end:
                    break
                frames, taken = frames + 1, behind
            if log >= 0 and os.write(log, view[:taken]) != taken:
                raise OSError("the disk is full")
            if not body_bytes:
                connection.sendall(head * frames)
            else:
                for place in islice(places, frames):
                    connection.sendall(head, socket.MSG_MORE)
                    _send_file(connection, file.fileno(), place, place + body_bytes)
            buffer[: end - taken] = view[taken:end]
            end -= taken
    return 0


def _send_file(connection: socket.socket, file: int, begin: int, end: int) -> None:
    while begin < end:
        begin += os.sendfile(connection.fileno(), file, begin, end - begin)


if __name__ == "__main__":
    _, path, head, body, *more = sys.argv
    sys.exit(main(path, int(head), int(body), more[0] if more else None))
