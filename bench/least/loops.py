"""A process with the event loop of the broker (uvloop, one `BufferedProtocol` for a connection)
that does the least for a request: what the loop takes, and what the broker's own code adds to it.

`python -m horolog.bench.least.loops DOES FOLDER` prints `listening HOST:PORT`, takes any number of
connections, and ends when the first one does. FOLDER has the file `answer`, which is what each
frame gets that is received. What is done before, for all frames that came with one read:

    answers    nothing
    writes     they are written to a file, and 12 bytes for each of them to another one, with a call
               each, as a broker writes sets and their append times
    appends    the requests are decoded, their sets checked and numbered with the broker's kernel,
               these written as above, and answers encoded instead of that of the file: what no
               broker can leave out that stores what it understands. There is one topic with one
               partition, nothing is looked up, refused, indexed, counted or timed
    reads      8 KiB of the file `read` are read for each of them, as for a search by time
    fetches    64 KiB of that file are read for each, and sent behind `answer`
"""

import asyncio
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import repeat
from pathlib import Path
from struct import Struct
from typing import Final, cast

import uvloop

from ...protocol.api.log.produce import (
    PRODUCE,
    ProducePartitionResult,
    ProduceResponse,
    ProduceTopicResult,
)
from ...protocol.api.native.frames import answers_encoder, reader
from ...protocol.api.writing import in_memory
from ..raw_client import RawClient
from .listening import listen_at, process
from .numbering import numbered

DOES: Final = ("answers", "writes", "appends", "reads", "fetches")

_BUFFER_BYTES: Final = 1 << 20
_LENGTH_BYTES: Final = 4
_SEARCHED_BYTES: Final = 8 << 10
FETCHED_BYTES: Final = 64 << 10
"""That `fetches` reads for a frame."""
_READ_BYTES: Final = 1 << 20
_APPEND_TIME: Final = Struct(">iq")


@contextmanager
def looping(folder: Path, does: str, answer: bytes) -> Iterator[tuple[RawClient, int]]:
    """A client of such a process, which gives `answer`, a whole frame; and its number."""
    path = folder / does
    path.mkdir()
    (path / "answer").write_bytes(answer)
    (path / "read").write_bytes(bytes(_READ_BYTES))
    with process(__name__, [does, str(path)]) as it, closing(RawClient(it.address)) as client:
        yield client, it.pid


class _Work:
    """What is done for the frames that came with one read."""

    def __init__(self, does: str, folder: Path) -> None:
        self.answers = getattr(self, f"_{does}")
        """Takes all bytes, and the frames in them; gives all answers."""
        self._answer = (folder / "answer").read_bytes()
        self._read = os.open(folder / "read", os.O_RDONLY)
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        self._log, self._times = (os.open(folder / name, flags) for name in ("log", "times"))
        self._size_bytes = self._offset = self._sets = 0
        version = PRODUCE.last_version(native=True)
        self._request = reader(PRODUCE, version)
        self._encoded = answers_encoder(PRODUCE, version)

    def _answers(self, data: memoryview, frames: Sequence[memoryview]) -> bytes:
        return self._answer * len(frames)

    def _writes(self, data: memoryview, frames: Sequence[memoryview]) -> bytes:
        self._write(data, range(len(frames)), 0)
        return self._answer * len(frames)

    def _write(self, data: memoryview, offsets: Sequence[int], now_ms: int) -> None:
        self._size_bytes += os.pwrite(self._log, data, self._size_bytes)
        times = b"".join(map(_APPEND_TIME.pack, offsets, repeat(now_ms)))
        os.pwrite(self._times, times, self._sets * _APPEND_TIME.size)
        self._sets += len(offsets)

    def _appends(self, data: memoryview, frames: Sequence[memoryview]) -> bytes:
        requests = list(map(self._request, frames))
        sets = [one.body.topics[0].partitions[0].records for one in requests if one is not None]
        now_ms = time.time_ns() // 1_000_000
        found = numbered(sets, self._offset, now_ms)
        self._write(found.data, found.first_offsets, now_ms)
        self._offset = found.last_offset + 1
        responses: list[ProduceResponse] = []
        for request, offset in zip(requests, found.first_offsets, strict=True):
            assert request is not None
            topic = request.body.topics[0]
            result = ProducePartitionResult(
                partition=topic.partitions[0].partition, base_offset=offset
            )
            responses.append(
                ProduceResponse(topics=[ProduceTopicResult(name=topic.name, partitions=[result])])
            )
        ids = [one.correlation_id for one in requests if one is not None]
        return b"".join(map(in_memory, self._encoded(ids, responses)))

    def _reads(self, data: memoryview, frames: Sequence[memoryview]) -> bytes:
        for _ in frames:
            os.pread(self._read, _SEARCHED_BYTES, _SEARCHED_BYTES)
        return self._answer * len(frames)

    def _fetches(self, data: memoryview, frames: Sequence[memoryview]) -> bytes:
        read = [os.pread(self._read, FETCHED_BYTES, FETCHED_BYTES) for _ in frames]
        return b"".join(part for fetched in read for part in (self._answer, fetched))


class _Connection(asyncio.BufferedProtocol):
    def __init__(self, work: _Work, over: asyncio.Event) -> None:
        self._answers = work.answers
        self._over = over
        self._view = memoryview(bytearray(_BUFFER_BYTES))
        self._end = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._over.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        view, end = self._view, self._end
        frames: list[memoryview] = []
        begin = 0
        while (behind := begin + _LENGTH_BYTES) <= end:
            behind += int.from_bytes(view[begin:behind], "big")
            if behind > end:
                break
            frames.append(view[begin + _LENGTH_BYTES : behind])
            begin = behind
        if frames and self._transport is not None:
            self._transport.write(self._answers(view[:begin], frames))
        view[: end - begin] = bytes(view[begin:end])
        self._end = end - begin


async def main(does: str, folder: Path) -> None:
    over = asyncio.Event()
    work = _Work(does, folder)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(work, over), "127.0.0.1", 0)
    listen_at(*server.sockets[0].getsockname())
    await over.wait()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], Path(sys.argv[2])))
