"""Record sets that are sent from their files: the bytes, the order, and what goes wrong."""

import asyncio
import errno
import io
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from horolog.config.address import split_address
from horolog.protocol.api.log.fetch import FETCH
from horolog.protocol.api.log.produce import PRODUCE
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.server.broker import Broker
from horolog.server.network.connection import Connection
from horolog.server.network.file_sending import MIN_FILE_RANGE_BYTES, FileSender
from horolog.storage.files import SystemFiles
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.files import FaultyFiles
from horolog.testing.logs import delete_due
from horolog.testing.requests import create_topic, fetch, message_set, produce, result, results
from horolog.testing.waiting import until
from horolog.testing.wire import Wire, wire

NOW = ManualClock().now_ms()
MIB = 1 << 20
SET_BYTES = 900_000
ALL_BYTES = 8 * SET_BYTES

pytestmark = pytest.mark.both_loops


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(SystemFiles())


@pytest.fixture
async def broker(tmp_path: Path, files: FaultyFiles) -> AsyncIterator[Broker]:
    async with running_broker(
        tmp_path,
        files=files,
        log_stream=io.StringIO(),
        http_listen="off",
        retention_ms=-1,
        file_delete_delay_ms=0,
    ) as started:
        yield started


@pytest.fixture
async def filled(broker: Broker, client: Wire) -> bytes:
    """The stored bytes of topic a, all in one segment."""
    await client.call(create_topic("a"))
    for number in range(8):
        value = bytes([number]) * (SET_BYTES - len(message_set(NOW, value=b"")))
        await client.call(produce("a", message_set(NOW, value=value)))
    data = stored(broker)
    assert len(data) == ALL_BYTES
    return data


def stored(broker: Broker) -> bytes:
    (segment,) = broker.directory.log("a", 0).segments
    return segment.log_path.read_bytes()


def everything(max_bytes: int = ALL_BYTES) -> bytes:
    """A request for all of topic a, cut without regard to messages."""
    request = fetch("a", (0, 0), partition_max_bytes=max_bytes)
    return native.encode_request(FETCH, 2, 1, "c", request)


async def lazy(broker: Broker) -> socket.socket:
    """A connected socket that takes only little before it is read from."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    address = split_address(broker.addresses.native)
    await asyncio.get_running_loop().sock_connect(client, address)
    return client


async def read_all(client: socket.socket) -> bytes:
    """Everything up to the end of the connection."""
    data = bytearray()
    try:
        while piece := await asyncio.get_running_loop().sock_recv(client, MIB):
            data += piece
    except ConnectionError:
        pass
    return bytes(data)


async def under_way(broker: Broker, client: socket.socket) -> Connection:
    """Ask for everything; the connection when a part of it is sent and the socket is full."""
    peer = peer_of(client)
    await until(lambda: peer in by_peer(broker))
    connection = by_peer(broker)[peer]
    assert connection._transport is not None
    shown = connection._transport.get_extra_info("socket")
    # Else the system may let the socket grow until it holds all that is left.
    shown.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
    await asyncio.get_running_loop().sock_sendall(client, everything())
    await until(lambda: bool(connection._outgoing.unsent) and connection._outgoing.unread)
    return connection


def by_peer(broker: Broker) -> dict[str, Connection]:
    return {each.peer: each for each in broker._connections._open}


def peer_of(client: socket.socket) -> str:
    host, port = client.getsockname()
    return f"{host}:{port}"


@pytest.mark.parametrize(
    "size", [MIN_FILE_RANGE_BYTES - 1, MIN_FILE_RANGE_BYTES, 65_536, ALL_BYTES - 1, ALL_BYTES]
)
async def test_the_bytes_are_those_of_a_copy(
    client: Wire, files: FaultyFiles, filled: bytes, size: int
) -> None:
    """F-36."""
    client.send_bytes(everything(size) * 2)
    sent = await client.frame()
    assert await client.frame() == sent
    files.fail("duplicate", errno.EMFILE)
    client.send_bytes(everything(size))
    assert await client.frame() == sent
    assert files.heal() == (size < MIN_FILE_RANGE_BYTES)
    assert filled[: min(size, MIB)] in sent


async def test_several_partitions_and_what_stands_between_them(client: Wire) -> None:
    await client.call(create_topic("a", partitions=20))
    sets = [message_set(NOW, value=bytes([number]) * 140_000) for number in range(20)]
    for number, record_set in enumerate(sets):
        await client.call(produce("a", record_set, partition=number))
    places = [(number, 0) for number in range(20)] + [(99, 0)]
    *found, unknown = results(await client.call(fetch("a", *places, max_bytes=1 << 24)))
    assert [each.records for each in found] == sets
    assert unknown.error_code


async def test_answers_keep_their_order(broker: Broker, client: Wire, filled: bytes) -> None:
    """Parked fetches, small answers and some from files, all in flight at once."""
    waiting = fetch("a", (0, 8), max_wait_ms=50_000, min_bytes=1)
    small = fetch("a", (0, 0), partition_max_bytes=1, max_bytes=1)
    sent = []
    for _ in range(5):
        sent += [client.send(FETCH, 3, fetch("a", (0, 1), partition_max_bytes=ALL_BYTES))]
        sent += [client.send(FETCH, 2, small), client.send(FETCH, 3, waiting)]
        sent += [client.send(PRODUCE, 2, produce("a", message_set(NOW), acks=-1))]
    async with wire(broker.addresses.native) as other:
        await until(lambda: len(broker.services.fetches) > 0)
        await other.call(produce("a", message_set(NOW)))
        for place, number in enumerate(sent):
            received, response = await client.receive()
            assert received == number
            if place % 4 == 0:
                assert result(response).records[: 7 * SET_BYTES] == filled[SET_BYTES:]


async def test_a_slow_reader_gets_everything_and_costs_no_memory(
    broker: Broker, filled: bytes
) -> None:
    with await lazy(broker) as client:
        connection = await under_way(broker, client)
        assert connection.held_bytes() < 100_000
        data = bytearray()
        while len(data) < len(filled):
            data += await asyncio.get_running_loop().sock_recv(client, 300_000)
        assert data.endswith(filled)
    assert not broker.figures.connections_dropped


async def test_a_segment_may_be_deleted_while_it_is_sent(
    broker: Broker, client: Wire, filled: bytes
) -> None:
    with await lazy(broker) as slow:
        await under_way(broker, slow)
        await client.call(DeleteTopicsRequest(topic_names=["a"]))
        delete_due(broker.directory.deletions)
        data = bytearray()
        while len(data) < len(filled):
            data += await asyncio.get_running_loop().sock_recv(slow, MIB)
        assert data.endswith(filled)


@pytest.mark.parametrize("how", ["cut by the log", "cut by somebody"])
async def test_a_file_that_was_cut_ends_the_connection(
    broker: Broker, filled: bytes, how: str
) -> None:
    """F-36, TR-9."""
    with await lazy(broker) as client:
        await under_way(broker, client)
        if how == "cut by the log":
            log = broker.directory.log("a", 0)
            log.truncate(0)
            for _ in range(8):
                log.appender.append(message_set(NOW, value=b"other" * 190_000))
        else:
            (segment,) = broker.directory.log("a", 0).segments
            os.truncate(segment.log_path, 10_000)
        data = await read_all(client)
    # A log that is shorter because it was cut is not damaged.
    damages = [one.damaged for one in broker.directory.log("a", 0).segments]
    if how == "cut by the log":
        assert damages == [None]
    else:
        (damage,) = damages
        assert damage is not None
        assert "the file was cut short: it ends at byte 10000" in damage.text
    # Nothing but a beginning of the answer was sent, and then an end that no client overlooks.
    assert len(data) < len(filled)
    assert b"other" not in data
    assert broker.figures.connections_dropped == {"file": 1}


async def test_a_file_that_cannot_be_read_in_the_end(
    broker: Broker, files: FaultyFiles, filled: bytes
) -> None:
    with await lazy(broker) as client:
        await under_way(broker, client)
        files.fail("pread", errno.EIO, name=".log")
        assert len(await read_all(client)) < len(filled)
    assert broker.figures.connections_dropped == {"file": 1}


async def test_handles_go_with_the_connection(
    broker: Broker, files: FaultyFiles, filled: bytes
) -> None:
    before = files.open_count
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        client = await lazy(broker)
        await asyncio.get_running_loop().sock_sendall(client, everything() * 20)
        await until(lambda: files.open_count > before)
        assert files.open_count <= before + 10
        await until(lambda: broker.connections() == 2)
        client.close()
        await until(lambda: broker.connections() == 1)
    # A thread may be reading a part of an answer that is not sent any more.
    await until(lambda: files.open_count <= before)
    # The loop closes a socket after it has said that the connection is lost.
    await until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)


async def test_without_free_handles_it_is_read(
    client: Wire, files: FaultyFiles, filled: bytes
) -> None:
    files.fail("duplicate", errno.EMFILE)
    client.send_bytes(everything())
    assert (await client.frame()).endswith(filled)


async def test_what_is_not_in_memory_is_read_in_a_thread(
    broker: Broker, files: FaultyFiles, client: Wire, filled: bytes
) -> None:
    files.fail("in_memory", errno.EAGAIN, passing=2, name=".log")
    held = files.hold("load", ".log")
    async with wire(broker.addresses.native) as other:
        client.send_bytes(everything())
        await asyncio.to_thread(held.reached.wait)
        await other.call(MetadataRequest())  # the loop goes on
        held.let_go()
    assert (await client.frame()).endswith(filled)
    assert files.did("load") == 1


async def test_parts_take_memory_until_they_are_sent_or_given_up() -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    transport, _ = await loop.create_unix_connection(asyncio.Protocol, sock=ours)

    def in_thread(_: Callable[[], None]) -> asyncio.Future[None]:
        raise AssertionError("nothing has to be read")

    sender = FileSender(transport, in_thread, lambda: None)
    with theirs:
        sender.add([b"head", memoryview(b"messages")], 12)
        assert sender.memory_bytes == 12
        sender.send()
        assert (len(sender.parts), sender.memory_bytes) == (0, 0)
        theirs.setblocking(False)
        received = b""
        while len(received) < 12:
            received += await loop.sock_recv(theirs, 100)
        assert received == b"headmessages"
        sender.add([b"given up"], 8)
        sender.close()
        assert sender.memory_bytes == 0
        transport.close()


async def test_a_reader_that_is_not_slow_any_more_has_the_usual_limits(
    broker: Broker, filled: bytes
) -> None:
    """Else every later answer that the socket does not take at once would stop the connection."""
    with socket.create_connection(split_address(broker.addresses.native)) as client:
        client.setblocking(False)
        connection = await under_way(broker, client)
        transport = connection._transport
        assert transport is not None
        assert transport.get_write_buffer_limits()[1] == 0
        loop = asyncio.get_running_loop()
        received = 0
        while received < len(filled):
            received += len(await loop.sock_recv(client, MIB))
        await until(lambda: not connection._outgoing.unsent)
        limit_bytes = connection._limits.buffer_bytes
        assert transport.get_write_buffer_limits() == (limit_bytes // 2, limit_bytes)
