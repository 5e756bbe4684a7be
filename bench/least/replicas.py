"""A leader and its follower that do the least for `acks=all`: what the machine leaves of a rate
when all of it is copied to another process before it is answered.

`python -m horolog.bench.least.replicas FOLDER` prints `listening HOST:PORT` and appends what
produce requests bring (`appending.py`), with files that are synced and removed like a broker's.
With `python -m horolog.bench.least.replicas FOLDER HOST:PORT` another one follows it: the leader
sends it the bytes that it has appended, from memory and without being asked; the follower checks
and writes them, and says up to where it has them; requests up to there are answered then. Without a
follower they are answered at once. There is no index, no epoch, no metadata, nothing to look up.

    leader to follower    length (4 bytes), the offset behind the messages (8), messages
    follower to leader    length (4 bytes), that offset (8); the first one, 0, says that it follows
"""

import asyncio
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from struct import Struct
from typing import Final

import uvloop

from ...config.address import split_address
from ...protocol.api.native import frames as native
from ...storage.files import Buffer
from ..brokers import RETENTION_LIMIT
from ..raw_client import RawClient
from .appending import Appending
from .listening import listen_on, process
from .numbering import numbered
from .receiving import Receiving

_OFFSET: Final = Struct(">q")
_HEAD: Final = Struct(">iq")


@contextmanager
def leading(folder: Path, *, followed: bool) -> Iterator[RawClient]:
    """A client of such a leader, which has its files in `folder`, a new one."""
    for name in ("leader", "follower"):
        (folder / name).mkdir(parents=True)
    with ExitStack() as ends:
        leader = ends.enter_context(process(__name__, [str(folder / "leader")]))
        if followed:
            ends.enter_context(process(__name__, [str(folder / "follower"), leader.address]))
        yield ends.enter_context(closing(RawClient(leader.address)))


class _LeastLog(Appending):
    """A log that rolls, and knows what was written last."""

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
        """Take produce requests, or what a follower says."""
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


async def main(folder: Path, leader: str = "") -> None:
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


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), *sys.argv[2:]))
