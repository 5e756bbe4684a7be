"""A process with the event loop of the broker (uvloop, one `BufferedProtocol` for a connection)
that does the least for a request: what the loop takes, and what the broker's own code adds to it.

`python -m horolog.bench.least.loops DOES FOLDER` prints `listening HOST:PORT`, takes any number of
connections, and ends when the first one does. FOLDER has the file `answer`, which is what each
frame gets that is received. What is done before, for all frames that came with one read:

    answers    nothing
    writes     they are written to a file, and 12 bytes for each of them to another one, with a call
               each, as a broker writes sets and their append times
    appends    what no broker can leave out (`appending.py`), with an encoded answer instead of that
               of the file
    rolls      the same; other files are begun when the log has 64 MiB, those before are synced,
               and removed when there are 256 MiB behind them
    kafka      that in Kafka's encoding
    reads      8 KiB of the file `read` are read for each of them, as for a search by time
    fetches    64 KiB of that file are read for each, and sent behind `answer`
"""

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import uvloop

from ...protocol.api.kafka import frames as kafka
from ...protocol.api.native import frames as native
from ..brokers import RETENTION_LIMIT
from ..raw_client import RawClient
from .appending import Appending
from .listening import listen_on, process
from .receiving import Receiving

DOES: Final = ("answers", "writes", "appends", "rolls", "kafka", "reads", "fetches")

_SEARCHED_BYTES: Final = 8 << 10
FETCHED_BYTES: Final = 64 << 10
"""That `fetches` reads for a frame."""
_READ_BYTES: Final = 1 << 20


@contextmanager
def looping(folder: Path, does: str, answer: bytes = b"") -> Iterator[tuple[RawClient, int]]:
    """A client of such a process, which gives `answer`, a whole frame; and its number."""
    path = folder / does
    path.mkdir()
    (path / "answer").write_bytes(answer)
    (path / "read").write_bytes(bytes(_READ_BYTES))
    encoding = kafka if does == "kafka" else native
    with (
        process(__name__, [does, str(path)]) as it,
        closing(RawClient(it.address, encoding)) as client,
    ):
        yield client, it.pid


class _Work:
    """What is done for the frames that came with one read."""

    def __init__(self, does: str, folder: Path) -> None:
        self.answers = getattr(self, f"_{does}")
        """Takes all bytes, and the frames in them; gives all answers."""
        self._answer = (folder / "answer").read_bytes()
        self._read = os.open(folder / "read", os.O_RDONLY)
        encoding = kafka if does == "kafka" else native
        rolls = does in ("rolls", "kafka")
        limits = (RETENTION_LIMIT[f"{of}_bytes"] if rolls else 0 for of in ("segment", "retention"))
        self._log = Appending(folder, encoding, *limits)

    def _answers(self, data: memoryview, frames: Sequence[memoryview]) -> bytes:
        return self._answer * len(frames)

    def _writes(self, data: memoryview, frames: Sequence[memoryview]) -> bytes:
        self._log.write(data, range(len(frames)), 0)
        return self._answer * len(frames)

    def _appends(self, data: memoryview, frames: Sequence[memoryview]) -> bytes:
        return self._log.append(frames)

    _rolls = _kafka = _appends

    def _reads(self, data: memoryview, frames: Sequence[memoryview]) -> bytes:
        for _ in frames:
            os.pread(self._read, _SEARCHED_BYTES, _SEARCHED_BYTES)
        return self._answer * len(frames)

    def _fetches(self, data: memoryview, frames: Sequence[memoryview]) -> bytes:
        read = [os.pread(self._read, FETCHED_BYTES, FETCHED_BYTES) for _ in frames]
        return b"".join(part for fetched in read for part in (self._answer, fetched))


async def main(does: str, folder: Path) -> None:
    over = asyncio.Event()
    work = _Work(does, folder)
    loop = asyncio.get_running_loop()

    def handle(connection: Receiving, data: memoryview, frames: Sequence[memoryview]) -> None:
        connection.transport.write(work.answers(data, frames))

    server = await loop.create_server(lambda: Receiving(handle, over), "127.0.0.1", 0)
    listen_on(server.sockets[0])
    await over.wait()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], Path(sys.argv[2])))
