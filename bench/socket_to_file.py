"""A process that writes what it receives to a new file: the least that a log has to do.

`python -m horolog.bench.socket_to_file FILE SET_BYTES SETS [checked]` prints `listening HOST:PORT`,
takes one connection, receives sets of SET_BYTES each, writes each with one call, and sends one byte
after every SETS sets, when these are written. It ends when the connection does. With `checked` it
does with each set what no log can leave out: its checksums are verified, its messages are given
their offsets, and their latencies are counted.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..config.address import split_address
from ..protocol.records.kernel import take_usual
from ..times import INT64_MAX

_LISTENING: Final = "listening "
_CHECKED: Final = "checked"


@contextmanager
def writing(
    path: Path, data: bytes, times: int, *, checked: bool = False
) -> Iterator[Callable[[int], None]]:
    """A process that writes `path`. What is yielded sends `data` to it `times` times, so many with
    one call, and returns when all of them are written."""
    command = [sys.executable, "-m", __name__, str(path), str(len(data)), str(times)]
    if checked:
        command.append(_CHECKED)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().removesuffix("\n")
            if not line.startswith(_LISTENING):
                raise RuntimeError(f"{__name__} does not listen")
            address = split_address(line.removeprefix(_LISTENING))
            with socket.create_connection(address) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

                def send(at_once: int) -> None:
                    together = memoryview(data * at_once)
                    for sent in range(0, times, at_once):
                        connection.sendall(together[: min(at_once, times - sent) * len(data)])
                    if len(connection.recv(1)) != 1:
                        raise RuntimeError(f"{__name__} ended early")

                yield send
        finally:
            process.kill()


def main(path: str, set_bytes: int, sets: int, *, checked: bool) -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print("{}{}:{}".format(_LISTENING, *listener.getsockname()), flush=True)
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
                    next_offset = _checked(received, next_offset)
                if os.write(file.fileno(), received) != set_bytes:
                    raise OSError("the disk is full")
            connection.sendall(b".")


def _checked(record_set: memoryview, next_offset: int) -> int:
    """The offset behind a set that is checked and numbered from `next_offset` on."""
    found = take_usual(
        [record_set],
        base_offset=next_offset,
        now_ms=time.time_ns() // 1_000_000,
        magics=0b111,
        append_time_ms=-1,
        lowest_ms=0,
        highest_ms=INT64_MAX,
        entry_max_bytes=len(record_set),
        room_bytes=len(record_set),
        marks_max=len(record_set),
        interval_bytes=4096,
        since_bytes=0,
        largest_ms=-1,
        magic=-1,
        segment_offset=next_offset,
        segment_position=0,
    )
    if found is None:
        raise ValueError("the set is not one that is stored as it came")
    return found.last_offset + 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:4]), checked=sys.argv[4:] == [_CHECKED]))
