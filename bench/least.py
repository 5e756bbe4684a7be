"""Processes that do the least work for a figure. The broker is compared with them.

`python -m horolog.bench.least DOES ...` prints `listening HOST:PORT`, takes connections, and ends
when the first connection ends. None of the processes looks up topics, refuses requests, writes an
index or measures latency.

`DOES FOLDER` has the broker's event loop (uvloop, one `BufferedProtocol` per connection). It shows
the cost of the loop, and so the cost of the broker's own code. FOLDER has the file `answer`, which
is sent for each frame. Before that, for all frames of one read:

    answers    nothing
    writes     writes them to a file, and 12 bytes for each of them to another file, with one call
               each, as a broker writes sets and their append times
    appends    does what no broker can avoid that understands what it stores (`Appending`). The
               answer is encoded, not read from the file
    rolls      the same; begins new files when the log has 64 MiB, syncs the files before, and
               removes files when 256 MiB of newer ones exist
    kafka      the same as `rolls`, in Kafka's encoding
    reads      reads 8 KiB of the file `read` for each frame, as for a search by time
    fetches    reads 64 KiB of that file for each frame, and sends them behind `answer`

`syncs FOLDER` appends produce requests to files in FOLDER. All requests that have arrived when no
sync is running are appended together, synced in a thread, and then answered. Later requests wait
for the next sync. It never begins a new file.

`replica FOLDER [HOST:PORT]` is a leader, or, with an address, the follower of the leader there. The
leader appends the sets of produce requests; its files are synced and removed like a broker's. It
sends the appended bytes to the follower from memory, without a request. The follower checks and
writes them, and answers with its log end. The leader then answers the produce requests below that
offset. Without a follower it answers at once. There is no epoch and no metadata.

    leader to follower    length (4 bytes), the offset behind the messages (8), messages
    follower to leader    length (4 bytes), the offset behind its last message (8); the first, 0,
                          announces the follower

`files ANSWER HEAD_BYTES BODY_BYTES [WRITTEN]` takes one connection, without an event loop. For each
frame it sends the first HEAD_BYTES of the file ANSWER, from memory, and BODY_BYTES of the rest of
the file with `sendfile`. The places in the file are as far apart as those of the requests of
`cluster.py`. Before that, all frames of one read are written to the end of the file WRITTEN, with
one call. The process does not decode requests, so each client has to expect these answers.
"""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from itertools import cycle, islice, repeat
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple, cast

import uvloop

from .. import congestion
from ..config.address import split_address
from ..protocol.api.encodings import Encoding
from ..protocol.api.framing import Frame
from ..protocol.api.kafka import frames as kafka
from ..protocol.api.log.produce import (
    PRODUCE,
    ProducePartitionResult,
    ProduceResponse,
    ProduceTopicResult,
)
from ..protocol.api.native import frames as native
from ..protocol.api.writing import in_memory
from ..protocol.records.kernel import UnchangedSets, take_unchanged
from ..storage.files import Buffer
from ..times import INT64_MAX
from .brokers import RETENTION_LIMIT
from .raw_client import RawClient, newest
from .requests import PLACES

_OFFSET: Final = Struct(">q")
_HEAD: Final = Struct(">iq")
_BUFFER_BYTES: Final = 64 << 10
_RECEIVE_BYTES: Final = 1 << 20
_WRITE_BYTES: Final = 256 << 10
_LISTENING: Final = "listening "
_FORMATS: Final = 0b111
_NO_LIMIT: Final = 1 << 30
_APPEND_TIME: Final = Struct(">iq")

BUFFER_BYTES: Final = 1 << 20
"""Largest size of a frame."""
_MOVED_BYTES: Final = 128 << 10
_LENGTH_BYTES: Final = 4
DOES: Final = ("answers", "writes", "appends", "rolls", "kafka", "reads", "fetches")
_SEARCHED_BYTES: Final = 8 << 10

FETCHED_BYTES: Final = 64 << 10
"""Bytes that `fetches` reads for a frame."""
_READ_BYTES: Final = 1 << 20


@contextmanager
def syncing(folder: Path, connections: int) -> Iterator[list[RawClient]]:
    """Start a process that does `syncs`; yield `connections` clients of it."""
    (folder / "synced").mkdir()
    with process(["syncs", str(folder / "synced")]) as it, ExitStack() as stack:
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
    """Appends, syncs and answers rounds of requests, until none are left."""

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


async def syncs_main(folder: Path) -> None:
    rounds = _Rounds(folder)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(rounds), "127.0.0.1", 0)
    listen_on(server.sockets[0])
    await rounds.over.wait()


class Listening(NamedTuple):
    """A process that takes connections."""

    address: str
    pid: int


@contextmanager
def process(arguments: Sequence[str], module: str = __name__) -> Iterator[Listening]:
    """Run a module that calls `listen_on`, and end it. Raises `RuntimeError` if it does not
    listen."""
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
    """Print the address of a socket, in such a process. Sent data is never delayed, like a
    broker's to clients on its own machine."""
    congestion.expect_local(listening)
    host, port = listening.getsockname()[:2]
    print(f"{_LISTENING}{host}:{port}", flush=True)


class Appending:
    """A log of two files, `log` and `times`, in a folder."""

    def __init__(
        self, folder: Path, encoding: Encoding = native, file_bytes: int = 0, kept_bytes: int = 0
    ) -> None:
        """With `file_bytes`, two new files are begun when the log has that size, as segments are. A
        thread syncs the files before, and removes files when `kept_bytes` of newer ones exist."""
        self._folder = folder
        self._file_bytes = file_bytes
        self._kept_files = kept_bytes // file_bytes if file_bytes else 0
        self._thread = ThreadPoolExecutor(1)
        self._closing: list[Future[None]] = []
        self._files = 0
        self.next_offset = 0
        """The offset of the next message."""
        self._begin()
        version = newest(PRODUCE, encoding)
        self._request = encoding.reader(PRODUCE, version)
        self._encoded = encoding.answers_encoder(PRODUCE, version)

    def _paths(self, number: int) -> list[Path]:
        return [self._folder / (f"{name}{number}" if number else name) for name in ("log", "times")]

    def _begin(self) -> None:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        self.log, self._times = (os.open(path, flags) for path in self._paths(self._files))
        self._size_bytes = self._sets = 0

    def _roll(self) -> None:
        closed = (self.log, self._times)
        removed = self._files - self._kept_files
        self._files += 1
        self._begin()
        paths = self._paths(removed) if removed >= 0 else ()
        self._closing = [one for one in self._closing if not one.done() or one.result()]
        self._closing.append(self._thread.submit(_close, closed, paths))

    def close(self) -> None:
        """Wait until the thread has closed and removed its files."""
        for one in self._closing:
            one.result()
        self._thread.shutdown()
        os.close(self.log)
        os.close(self._times)

    def write(self, data: Buffer, offsets: Sequence[int], now_ms: int) -> None:
        """Write sets that begin at `offsets`, and their append times."""
        if 0 < self._file_bytes <= self._size_bytes:
            self._roll()
        if os.pwrite(self.log, data, self._size_bytes) != len(data):
            raise OSError("the disk is full")
        self._size_bytes += len(data)
        times = b"".join(map(_APPEND_TIME.pack, offsets, repeat(now_ms)))
        os.pwrite(self._times, times, self._sets * _APPEND_TIME.size)
        self._sets += len(offsets)

    def append(self, frames: Sequence[Frame]) -> bytes:
        """Append the sets of produce requests; return their answers in one piece. Raises
        `ValueError` for another request."""
        requests = [one for one in map(self._request, frames) if one is not None]
        if len(requests) != len(frames):
            raise ValueError("not a produce request")
        sets = [one.body.topics[0].partitions[0].records for one in requests]
        now_ms = time.time_ns() // 1_000_000
        found = numbered(sets, self.next_offset, now_ms)
        self.write(found.data, found.first_offsets, now_ms)
        self.next_offset = found.last_offset + 1
        responses: list[ProduceResponse] = []
        for request, offset in zip(requests, found.first_offsets, strict=True):
            topic = request.body.topics[0]
            result = ProducePartitionResult(
                partition=topic.partitions[0].partition, base_offset=offset
            )
            responses.append(
                ProduceResponse(topics=[ProduceTopicResult(name=topic.name, partitions=[result])])
            )
        ids = [one.correlation_id for one in requests]
        return b"".join(map(in_memory, self._encoded(ids, responses)))


def _close(synced: Sequence[int], removed: Sequence[Path]) -> None:
    for file in synced:
        os.fdatasync(file)
        os.close(file)
    for path in removed:
        path.unlink()


def numbered(record_sets: list[Buffer], next_offset: int, now_ms: int) -> UnchangedSets:
    """Return the sets with offsets from `next_offset` on. Raises `ValueError` for a set that would
    not be stored as sent."""
    found = take_unchanged(
        record_sets,
        base_offset=next_offset,
        now_ms=now_ms,
        magics=_FORMATS,
        append_time_ms=-1,
        lowest_ms=0,
        highest_ms=INT64_MAX,
        entry_max_bytes=_NO_LIMIT,
        room_bytes=_NO_LIMIT,
        marks_max=_NO_LIMIT,
        interval_bytes=4096,
        since_bytes=0,
        largest_ms=-1,
        magic=-1,
        segment_offset=next_offset,
        segment_position=0,
    )
    if found is None or len(found.first_offsets) < len(record_sets):
        raise ValueError("a set is not one that is stored as it came")
    return found


class Receiving(asyncio.BufferedProtocol):
    """A connection that calls `handle` with the bytes of one read, and with the frames in them.
    Both are valid until `handle` returns. `over` is set when the connection ends."""

    transport: asyncio.Transport

    def __init__(
        self,
        handle: Callable[["Receiving", memoryview, Sequence[memoryview]], None],
        over: asyncio.Event,
    ) -> None:
        self._handle = handle
        self._over = over
        self._view = memoryview(bytearray(BUFFER_BYTES))
        self._end = 0
        self._wanted_end = BUFFER_BYTES
        """Where the receive buffer ends. Behind a large frame nothing more is received until the
        frame is handled, because the bytes behind it have to be moved."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._over.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._end : self._wanted_end]

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
        if frames:
            self._handle(self, view[:begin], frames)
        view[: end - begin] = bytes(view[begin:end])
        self._end = end - begin
        large = behind - begin > _MOVED_BYTES
        self._wanted_end = behind - begin if large else BUFFER_BYTES


@contextmanager
def leading(folder: Path, *, followed: bool) -> Iterator[RawClient]:
    """Start a `replica` leader with its files in the new folder `folder`, and its follower if
    `followed`; yield a client of the leader."""
    for name in ("leader", "follower"):
        (folder / name).mkdir(parents=True)
    with ExitStack() as ends:
        leader = ends.enter_context(process(["replica", str(folder / "leader")]))
        if followed:
            ends.enter_context(process(["replica", str(folder / "follower"), leader.address]))
        yield ends.enter_context(closing(RawClient(leader.address)))


class _LeastLog(Appending):
    """A log that rolls, and keeps the last written bytes."""

    newest: Buffer = b""

    def __init__(self, folder: Path) -> None:
        limits = RETENTION_LIMIT["segment_bytes"], RETENTION_LIMIT["retention_bytes"]
        super().__init__(folder, native, *limits)

    def write(self, data: Buffer, offsets: Sequence[int], now_ms: int) -> None:
        super().write(data, offsets, now_ms)
        self.newest = data


class _Leader:
    def __init__(self, folder: Path) -> None:
        self._log = _LeastLog(folder)
        self._follower: Receiving | None = None
        self._waiting: deque[tuple[int, Receiving, bytes]] = deque()

    def handle(self, one: Receiving, data: memoryview, frames: Sequence[memoryview]) -> None:
        """Handle produce requests, or the log end of the follower."""
        if len(frames[-1]) == _OFFSET.size:
            self._follower = one
            self._answer(*_OFFSET.unpack(frames[-1]))
            return
        answers = self._log.append(frames)
        if self._follower is None:
            one.transport.write(answers)
            return
        end, written = self._log.next_offset, self._log.newest
        self._waiting.append((end, one, answers))
        head = _HEAD.pack(_OFFSET.size + len(written), end)
        self._follower.transport.writelines([head, written])

    def _answer(self, end: int) -> None:
        while self._waiting and self._waiting[0][0] <= end:
            _, client, answers = self._waiting.popleft()
            client.transport.write(answers)


class _Follower:
    def __init__(self, folder: Path) -> None:
        self._log = _LeastLog(folder)

    def handle(self, one: Receiving, data: memoryview, frames: Sequence[memoryview]) -> None:
        """Check and write what the leader sent."""
        log, sent = self._log, [frame[_OFFSET.size :] for frame in frames]
        found = numbered(list(sent), log.next_offset, 0)
        log.write(found.data, found.first_offsets, 0)
        log.next_offset = found.last_offset + 1
        (end,) = _OFFSET.unpack(frames[-1][: _OFFSET.size])
        if end != log.next_offset:
            raise ValueError(f"the follower ends at {log.next_offset}, its leader at {end}")
        one.transport.write(_HEAD.pack(_OFFSET.size, end))


async def replicas_main(folder: Path, leader: str = "") -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    if leader:
        handle = _Follower(folder).handle
        transport, _ = await loop.create_connection(
            lambda: Receiving(handle, over), *split_address(leader)
        )
        transport.write(_HEAD.pack(_OFFSET.size, 0))
        listen_on(transport.get_extra_info("socket"))
    else:
        lead = _Leader(folder)
        server = await loop.create_server(lambda: Receiving(lead.handle, over), "127.0.0.1", 0)
        listen_on(server.sockets[0])
    await over.wait()


@contextmanager
def looping(folder: Path, does: str, answer: bytes = b"") -> Iterator[tuple[RawClient, int]]:
    """Start a process that does `does` and answers with the frame `answer`; yield a client and the
    process id."""
    path = folder / does
    path.mkdir()
    (path / "answer").write_bytes(answer)
    (path / "read").write_bytes(bytes(_READ_BYTES))
    encoding = kafka if does == "kafka" else native
    with (
        process([does, str(path)]) as it,
        closing(RawClient(it.address, encoding)) as client,
    ):
        yield client, it.pid


class _Work:
    """The work for the frames of one read."""

    def __init__(self, does: str, folder: Path) -> None:
        self.answers = getattr(self, f"_{does}")
        """Takes the bytes of one read, and the frames in them; returns all answers."""
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


async def loops_main(does: str, folder: Path) -> None:
    over = asyncio.Event()
    work = _Work(does, folder)
    loop = asyncio.get_running_loop()

    def handle(connection: Receiving, data: memoryview, frames: Sequence[memoryview]) -> None:
        connection.transport.write(work.answers(data, frames))

    server = await loop.create_server(lambda: Receiving(handle, over), "127.0.0.1", 0)
    listen_on(server.sockets[0])
    await over.wait()


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
    """Start a process `files` that sends the frame `answer`; yield a client of it. Its file has
    `bodies` times the body of the answer."""
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
        process(["files", *arguments]) as it,
        closing(RawClient(it.address, encoding)) as client,
    ):
        yield client


def answers_main(answer: str, head_bytes: int, body_bytes: int, written: str | None) -> None:
    """Send, for each frame, `head_bytes` of the file `answer` and `body_bytes` of the rest of the
    file."""
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


def _send_file(connection: socket.socket, file: int, begin: int, end: int) -> None:
    while begin < end:
        begin += os.sendfile(connection.fileno(), file, begin, end - begin)


def main(does: str, *arguments: str) -> None:
    if does == "files":
        answer, head, body, *more = arguments
        answers_main(answer, int(head), int(body), more[0] if more else None)
        return
    folder, *rest = arguments
    if does == "syncs":
        uvloop.run(syncs_main(Path(folder)))
    elif does == "replica":
        uvloop.run(replicas_main(Path(folder), *rest))
    else:
        uvloop.run(loops_main(does, Path(folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
