"""A process that does the least that a broker has to do for sets that are to be on the disk before
they are answered: `python -m horolog.bench.least.syncs FOLDER`.

It prints `listening HOST:PORT` and takes any number of connections. All produce requests that are
complete when no sync is under way are appended together (`appending.py`) to files in FOLDER, synced
in a thread, and answered then; what comes meanwhile waits for the next sync. It begins no file
behind another. It ends when the first connection does.
"""

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final, cast

import uvloop

from ..raw_client import RawClient
from .appending import Appending
from .listening import listen_on, process

_BUFFER_BYTES: Final = 64 << 10
_LENGTH_BYTES: Final = 4


@contextmanager
def syncing(folder: Path, connections: int) -> Iterator[list[RawClient]]:
    """So many clients of such a process."""
    (folder / "synced").mkdir()
    with process(__name__, [str(folder / "synced")]) as it, ExitStack() as stack:
        yield [stack.enter_context(closing(RawClient(it.address))) for _ in range(connections)]


class _Connection(asyncio.BufferedProtocol):
    def __init__(self, rounds: "_Rounds") -> None:
        self._rounds = rounds
        self._buffer = bytearray(_BUFFER_BYTES)
        self._end = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._rounds.over.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        size = _LENGTH_BYTES + int.from_bytes(self._buffer[:_LENGTH_BYTES], "big")
        if self._end >= size:  # one frame at a time
            self._rounds.take(self, bytes(memoryview(self._buffer)[_LENGTH_BYTES:size]))
            self._end = 0


class _Rounds:
    """Appends, syncs and answers the requests received, until there are none."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1)
        self._log = Appending(folder)
        self._waiting: list[tuple[_Connection, bytes]] = []
        self._under_way = False
        self.over = asyncio.Event()

    def take(self, connection: _Connection, frame: bytes) -> None:
        self._waiting.append((connection, frame))
        if not self._under_way:
            self._under_way = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        asked, self._waiting = self._waiting, []
        self._under_way = bool(asked)
        if asked:
            answers = self._log.append([frame for _, frame in asked])
            self._thread.submit(self._sync, [connection for connection, _ in asked], answers)

    def _sync(self, asked: Sequence[_Connection], answers: bytes) -> None:
        os.fdatasync(self._log.log)
        self._loop.call_soon_threadsafe(self._end, asked, answers)

    def _end(self, asked: Sequence[_Connection], answers: bytes) -> None:
        self._begin()
        begin = 0
        for connection in asked:
            size = _LENGTH_BYTES + int.from_bytes(answers[begin : begin + _LENGTH_BYTES], "big")
            if connection.transport is not None:
                connection.transport.write(answers[begin : begin + size])
            begin += size


async def main(folder: Path) -> None:
    rounds = _Rounds(folder)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(rounds), "127.0.0.1", 0)
    listen_on(server.sockets[0])
    await rounds.over.wait()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1])))
