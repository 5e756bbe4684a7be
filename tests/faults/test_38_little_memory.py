"""Fault 38: a broker that gets no more memory, and requests that need it."""

import asyncio
import resource
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from horolog.protocol.errors import CodedError
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import records
from horolog.storage.files import SystemFiles
from horolog.storage.open_files import OpenFiles
from horolog.testing.files import Fault, FaultyFiles
from horolog.testing.logs import LogFolder
from horolog.testing.program import ServerProcess, serving
from horolog.testing.requests import create_topic, fetch, message_set, produce, result
from horolog.testing.wire import Wire, wire

MIB = 1 << 20
SET = message_set(*[5] * 9, value=bytes(900_000))
"""About 8 MiB."""

BOMB = message_set(*[5] * 9, value=bytes(900_000), codec=Codec.GZIP)
"""The same, of a few KiB."""


async def outcome(server: ServerProcess, body: object) -> str:
    """What becomes of one request of a client of its own."""
    try:
        async with wire(server.native) as client:
            answer = result(await client.call(body))
    except (ConnectionError, asyncio.IncompleteReadError):
        return "closed"
    except CodedError as error:
        return error.name
    return "done" if answer.error_code == 0 else f"error {answer.error_code}"


async def honest(server: ServerProcess, until: asyncio.Future[list[str]]) -> int:
    """Small requests; every one of them has to be answered right."""
    done = 0
    async with wire(server.native) as client:
        while not until.done():
            got = result(await client.call(produce("small", message_set(5))))
            assert (got.error_code, got.base_offset) == (0, done)
            done += 1
    return done


async def read_whole(client: Wire, topic: str) -> int:
    """How many messages there are; each of them is whole."""
    offset = 0
    while True:
        got = result(await client.call(fetch(topic, (0, offset), partition_max_bytes=MIB)))
        assert got.error_code == 0
        found = list(records(got.records, max_decompressed_bytes=1 << 24, from_offset=offset))
        if not found:
            assert offset == got.high_watermark
            return offset
        assert all(len(record.value or b"") == 900_000 for record in found)
        offset = found[-1].offset + 1


async def squeezed(server: ServerProcess) -> tuple[Counter[str], int]:
    """Forty large requests at a time, far more than fit, and small ones beside them."""
    async with wire(server.native) as client:
        for topic in ("small", "large", "bombs"):
            await client.call(create_topic(topic))
        bodies = [
            produce("large", SET),
            produce("bombs", BOMB),
            fetch("large", (0, 0), partition_max_bytes=32 * MIB),
            produce("large", SET, acks=-1),
        ] * 10
        many = asyncio.gather(*(outcome(server, body) for body in bodies))
        small = await honest(server, many)
        outcomes = Counter(await many)
        large, bombs = await read_whole(client, "large"), await read_whole(client, "bombs")
        assert large % 9 == bombs % 9 == 0, "sets are whole"
        assert large // 9 + bombs // 9 + 10 >= outcomes["done"]
        return outcomes, small


@pytest.mark.parametrize(("event_loop", "limit_mib"), [("uvloop", 250), ("asyncio", 180)])
def test_38_a_lack_of_memory_hits_only_what_needs_it(
    tmp_path: Path, event_loop: str, limit_mib: int, tell: Callable[[str], None]
) -> None:
    settings = ("--set", f"event.loop={event_loop}", "--set", "retention.ms=-1")
    limits = {resource.RLIMIT_AS: limit_mib * MIB}
    # Address space is what can be limited, and each thread would take a share of it for itself.
    env = {"MALLOC_ARENA_MAX": "1"}
    with serving(tmp_path / "data", *settings, limits=limits, env=env) as server:
        outcomes, small = asyncio.run(squeezed(server))
        tell(f"{dict(outcomes)} and {small} small requests, all answered")
        assert server.stop() == 0
        assert "limits_lowered" in server.log.read_text()
    with serving(tmp_path / "data") as server:
        assert server.stop() == 0


class ScarceFiles(FaultyFiles):
    """Files for which memory runs out once, after `left` more operations."""

    left = -1

    def check(self, kind: str, path: Path) -> Fault | None:
        self.left -= 1
        if self.left == -1:
            raise MemoryError
        return super().check(kind, path)


@pytest.mark.parametrize("left", range(25))
def test_38_an_append_without_memory_leaves_no_trace(tmp_path: Path, left: int) -> None:
    """Decision 14: all or nothing, whatever it was that failed."""
    folder = LogFolder(tmp_path / "t-0")
    folder.files = files = ScarceFiles(SystemFiles())
    folder.open_files = OpenFiles(files, 8)
    log = folder.open(segment_bytes=120, index_interval_bytes=30)
    folder.append(1, 2)
    expected = [(0, 1), (1, 2)]
    for timestamp_ms in (3, 4):  # The second of these begins a segment.
        files.left = left
        try:
            folder.append(timestamp_ms)
        except MemoryError:
            pass
        else:
            expected.append((len(expected), timestamp_ms))
        files.left = -1
        assert folder.times() == expected
        assert log.failure is None
    folder.append(5)
    expected.append((len(expected), 5))
    folder.restart()
    assert folder.times() == expected
    assert folder.found(1, 5, 6) == [(1, 0), (5, len(expected) - 1), None]
    folder.kill_and_restart(checkpointed=False)
    assert folder.times() == expected
    assert not folder.names(".broken")
    folder.let_go()
