"""Connections that have requests in one pass of the loop are answered in bulk."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path

import pytest

from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.server.broker import Broker
from horolog.server.network.endpoint import Caller, Frames, Source
from horolog.server.network.ready_connections import GATHERED_BYTES, ReadyConnections
from horolog.server.network.sending import Answer
from horolog.storage.files import SystemFiles
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.files import FaultyFiles
from horolog.testing.requests import message_set, produce, result
from horolog.testing.wire import Wire, wire

NOW = ManualClock().now_ms()
ATTEMPTS = 5
"""A system under load may bring to one connection later what was sent to all at once."""


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(SystemFiles())


@pytest.fixture
async def broker(tmp_path: Path, clock: ManualClock, files: FaultyFiles) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path / "data", clock, files, http_listen="off") as started:
        yield started


@pytest.mark.both_loops
@pytest.mark.parametrize("acks", [1, -1])
async def test_one_write_for_what_several_connections_bring(
    broker: Broker, client: Wire, files: FaultyFiles, acks: int
) -> None:
    known = produce("a", message_set(NOW, NOW), acks=acks)
    await client.call(known)
    async with wire(broker.addresses.native) as second, wire(broker.addresses.native) as third:
        for each in (second, third):
            await each.call(MetadataRequest())
        done = []
        for attempt in range(ATTEMPTS):
            written, synced = files.did("pwrite", ".log"), files.did("sync", ".log")
            client.send_together(known)
            second.send_together(known, known, MetadataRequest())
            third.send_together(known)
            offsets = [
                result((await each.receive())[1]).base_offset
                for each in (client, second, second, third)
            ]
            assert (await second.receive())[1].brokers, "what stands behind is answered, too"
            assert sorted(offsets) == [8 * attempt + more for more in (2, 4, 6, 8)]
            assert offsets[1] < offsets[2]
            done.append((files.did("pwrite", ".log") - written, files.did("sync", ".log") - synced))
    assert min(done) == (1, acks == -1)


class Client:
    """A connection with some frames."""

    def __init__(self, *frames: bytes) -> None:
        self.frames: Frames = deque(frames)
        self.got: list[Answer] = []
        self.turns = self.taken = 0
        self.failure: Exception | None = None

    def to_be_answered(self) -> Source:
        return self.frames, 10, Caller(("", 0), "")

    def go_on(self, taken: int = 0, answers: Iterable[Answer] = ()) -> None:
        self.turns += 1
        self.taken += taken
        self.got += answers

    def failed(self, error: Exception) -> None:
        self.failure = error


class Turns:
    """What was asked for with `call_soon`."""

    def __init__(self) -> None:
        self.asked: list[Callable[[], None]] = []

    def __call__(self, callback: Callable[[], None]) -> None:
        self.asked.append(callback)

    def take(self) -> None:
        asked, self.asked = self.asked, []
        for callback in asked:
            callback()


def echoes(sources: Sequence[Source]) -> list[tuple[int, Iterable[Answer]]]:
    return [(len(frames), [bytes(frame) for frame in frames]) for frames, _, _ in sources]


def test_each_gets_its_own_answers_in_one_turn() -> None:
    turns = Turns()
    ready = ReadyConnections(turns, echoes)
    first, second = Client(b"a", b"b"), Client(b"c")
    for connection in (first, second, first):
        ready.add(connection, 10)
    assert len(turns.asked) == 1
    assert not first.turns
    turns.take()
    assert (first.got, second.got) == ([b"a", b"b"], [b"c"])
    assert (first.taken, second.taken) == (2, 1)
    assert (first.turns, second.turns) == (1, 1)


def test_enough_bytes_are_not_left_waiting() -> None:
    turns = Turns()
    ready = ReadyConnections(turns, echoes)
    first, second = Client(b"a"), Client(b"b")
    ready.add(first, GATHERED_BYTES - 1)
    assert not first.turns
    ready.add(second, 1)
    assert (first.turns, second.turns) == (1, 1)
    ready.add(first, 1)
    turns.take()
    assert (first.turns, second.turns) == (2, 1)


def test_what_nobody_foresaw_is_told_to_all() -> None:
    def fails(_: object) -> list[tuple[int, Iterable[Answer]]]:
        raise RuntimeError("a bug")

    turns = Turns()
    ready = ReadyConnections(turns, fails)
    clients = [Client(b"a"), Client(b"b")]
    for connection in clients:
        ready.add(connection, 1)
    turns.take()
    assert [str(connection.failure) for connection in clients] == ["a bug"] * 2
