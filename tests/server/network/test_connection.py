"""Connections: broken framing, slow and greedy clients, order, limits, leaks."""

import asyncio
import io
import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from horolog.config.address import split_address
from horolog.protocol.api.broker.api_versions import ApiVersionsRequest
from horolog.protocol.api.framing import FrameReader
from horolog.protocol.api.log.fetch import FETCH
from horolog.protocol.api.log.produce import PRODUCE
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.topics.metadata import METADATA, MetadataRequest
from horolog.protocol.limits import (
    LENGTH_BYTES,
    REQUESTS_IN_A_TURN,
    SHARED_SLAB_BYTES,
    SLAB_BYTES,
    SPARE_FRAMES,
)
from horolog.protocol.records.messages.sets import NewRecord, build_set, records
from horolog.server.broker import Broker
from horolog.server.network import connections
from horolog.server.network.deadline import LAST_CHANCE_SECONDS
from horolog.storage.read import reader
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.requests import create_topic, fetch, message_set, produce, result
from horolog.testing.waiting import until
from horolog.testing.wire import Wire, wire

NOW = ManualClock().now_ms()
DEADLINE_MS = 150
BUFFER_BYTES = 64 * 1024

UNHURRIED = pytest.mark.parametrize("deadline_ms", [60_000])
"""For clients that send in parts, and may stand still in between."""

pytestmark = pytest.mark.both_loops


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def deadline_ms() -> int:
    return DEADLINE_MS


@pytest.fixture
async def strict(tmp_path: Path, log: io.StringIO, deadline_ms: int) -> AsyncIterator[Broker]:
    """A broker with narrow limits that logs to `log`."""
    async with running_broker(
        tmp_path,
        log_stream=log,
        http_listen="off",
        log_format="json",
        max_frame_bytes=1 << 20,
        request_deadline_ms=deadline_ms,
        connection_buffer_bytes=BUFFER_BYTES,
        max_requests_in_flight=16,
        max_connections=20,
        max_connections_per_ip=20,
        retention_ms=-1,
    ) as started:
        yield started


def causes(log: io.StringIO) -> list[str]:
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    return [line["cause"] for line in lines if line["event"] == "connection_dropped"]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def still_serves(broker: Broker) -> None:
    async with wire(broker.addresses.native) as client:
        await client.call(MetadataRequest())


async def warm_up(broker: Broker) -> None:
    """Have everything imported that a dropped connection needs."""
    async with wire(broker.addresses.native) as client:
        client.send_bytes(b"\0\0\0\0")
        assert await client.at_end()


@pytest.mark.parametrize(
    "length", [0, -1, -(2**31), (1 << 20) + 1, 2**31 - 1], ids=lambda length: f"fault1-{length}"
)
async def test_a_bad_length_closes_with_one_line_and_no_allocation(
    strict: Broker, log: io.StringIO, length: int
) -> None:
    await warm_up(strict)
    async with wire(strict.addresses.native) as client:
        await client.call(MetadataRequest())
        before = resident_bytes()
        client.send_bytes(struct.pack(">i", length))
        assert await client.at_end()
        assert resident_bytes() - before < 1 << 20
    _, cause = causes(log)
    assert str(length) in cause
    assert "max.frame.bytes" in cause
    assert strict.figures.connections_dropped == {"protocol": 2}
    await still_serves(strict)


def produce_frame(frame_bytes: int) -> bytes:
    """A produce request whose frame, without its length, has exactly that size."""
    some = native.encode_request(PRODUCE, 2, 1, "c", produce("a", bytes(100_000)))
    records_bytes = frame_bytes - (len(some) - LENGTH_BYTES - 100_000)
    frame = native.encode_request(PRODUCE, 2, 1, "c", produce("a", bytes(records_bytes)))
    assert len(frame) == LENGTH_BYTES + frame_bytes
    return frame


@UNHURRIED
async def test_the_largest_frame_is_taken(strict: Broker) -> None:
    async with wire(strict.addresses.native) as client:
        client.send_bytes(produce_frame(1 << 20))
        head, _ = native.open_response(await client.frame())
        assert head.correlation_id == 1
        client.send_bytes(produce_frame((1 << 20) + 1))
        assert await client.at_end()


async def test_a_promise_of_a_large_frame_costs_nothing(strict: Broker) -> None:
    await warm_up(strict)
    before = resident_bytes()
    async with AsyncExitStack() as promises:
        for _ in range(15):
            client = await promises.enter_async_context(wire(strict.addresses.native))
            client.send_bytes(struct.pack(">i", 1 << 20) + b"\x95")
        await still_serves(strict)
        assert resident_bytes() - before < 4 << 20


@pytest.mark.parametrize(
    ("hello", "name"),
    [
        pytest.param(bytes.fromhex("1603010200010001fc0303"), "TLS", id="fault2-TLS"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP", id="fault2-HTTP"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", "SSH", id="fault2-SSH"),
    ],
)
async def test_other_protocols_are_named(
    strict: Broker, log: io.StringIO, hello: bytes, name: str
) -> None:
    async with wire(strict.addresses.native) as client:
        client.send_bytes(hello)
        told = bytes.fromhex("15 0303 0002 02 46") if name == "TLS" else b""
        assert await client.reader.read() == told
    (cause,) = causes(log)
    assert name in cause


def requests() -> bytes:
    """Frames of several requests that change nothing, with ids 1, 2, 3."""
    metadata = MetadataRequest(allow_auto_topic_creation=False)
    return b"".join(
        native.encode_request(api, version, number, "c", body)
        for number, (api, version, body) in enumerate(
            [(METADATA, 0, metadata), (FETCH, 3, fetch("a", (0, 0))), (METADATA, 0, metadata)], 1
        )
    )


async def answers(client: Wire, count: int = 3) -> list[bytes]:
    return [await client.frame() for _ in range(count)]


@UNHURRIED
async def test_how_the_bytes_come_does_not_matter(strict: Broker) -> None:
    """fault3: whole, byte by byte, split anywhere."""
    stream = requests()
    async with wire(strict.addresses.native) as client:
        client.send_bytes(stream)
        expected = await answers(client)
        for byte in stream:
            client.send_bytes(bytes([byte]))
            await client.writer.drain()
            await asyncio.sleep(0)
        assert await answers(client) == expected
        for split in range(1, len(stream)):
            client.send_bytes(stream[:split])
            await client.writer.drain()
            await asyncio.sleep(0)
            client.send_bytes(stream[split:])
            assert await answers(client) == expected


@UNHURRIED
async def test_large_frames_among_small_ones(strict: Broker) -> None:
    async with wire(strict.addresses.native) as client:
        small, large = message_set(NOW), message_set(NOW, value=b"x" * (3 * SLAB_BYTES))
        for number in range(12):
            client.send(PRODUCE, 2, produce("a", large if number % 3 == 1 else small))
        for number in range(12):
            _, response = await client.receive()
            assert result(response).base_offset == number


async def test_the_memory_of_a_large_request_is_used_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by other connections, and as they were sent is what all of them bring."""
    memory: list[bytearray] = []
    give_back = FrameReader.give_back

    def noted(self: FrameReader, frame: bytearray) -> None:
        memory.append(frame)
        give_back(self, frame)

    monkeypatch.setattr(FrameReader, "give_back", noted)
    sets = []
    for number in range(6):
        record = NewRecord(b"%d" % number * (SHARED_SLAB_BYTES // 8), timestamp_ms=NOW)
        sets.append(bytes(build_set([record] * 9)))
    for one in sets[:3]:
        async with wire(broker.addresses.native) as client:
            assert result(await client.call(produce("a", one))).error_code == 0
    async with wire(broker.addresses.native) as client:
        client.send_together(*(produce("a", one) for one in sets[3:]))
        for number in range(3, 6):
            assert result((await client.receive())[1]).base_offset == 9 * number
    assert len(memory) >= 3
    assert len(set(map(id, memory))) <= SPARE_FRAMES
    log = broker.services.logs.find("a", 0)
    stored = records(reader.read(log, 0, 1 << 23).read(), max_decompressed_bytes=1)
    values = [one.value for one in stored]
    sent = [one.value for part in sets for one in records(part, max_decompressed_bytes=1)]
    assert values == sent


@pytest.mark.parametrize("in_flight_max", [2, 100])
@pytest.mark.parametrize("seed", range(3))
async def test_what_is_received_behind_requests_that_wait_is_stored_as_it_was_sent(
    tmp_path: Path, seed: int, in_flight_max: int
) -> None:
    """Of connections that share a slab, whatever their sets take of it; in the order of each."""
    random = Random(f"behind others {seed}")
    async with (
        running_broker(tmp_path, http_listen="off", max_requests_in_flight=in_flight_max) as broker,
        wire(broker.addresses.native) as first,
        wire(broker.addresses.native) as second,
    ):
        await first.call(create_topic("a"))
        sent: dict[Wire, list[bytes]] = {first: [], second: []}
        for number in range(40):
            client = random.choice([first, second])
            size = random.choice([100, 20_000, 70_000, 300_000, 990_000])
            value = b"%d %d " % (client is first, number) + random.randbytes(size)
            sent[client].append(value)
            client.send(PRODUCE, 2, produce("a", message_set(NOW, value=value), acks=-1))
        for client, values in sent.items():
            for _ in values:
                assert result((await client.receive())[1]).error_code == 0
        log = broker.services.logs.find("a", 0)
        stored = records(reader.read(log, 0, 1 << 30).read(), max_decompressed_bytes=1)
        found = [one.value for one in stored]
    assert len(found) == 40
    for values in sent.values():
        assert [value for value in found if value in values] == values


@pytest.mark.parametrize("sent", [b"\0", b"\0\0\1\0", struct.pack(">i", 500) + b"\x95\3\0"])
async def test_a_half_sent_request_meets_its_deadline(
    strict: Broker, log: io.StringIO, sent: bytes
) -> None:
    """fault14: silence after a part of a frame."""
    async with wire(strict.addresses.native) as client:
        client.send_bytes(sent)
        assert await client.at_end()
    (cause,) = causes(log)
    assert "request.deadline.ms" in cause
    assert strict.figures.connections_dropped == {"half_sent": 1}


@pytest.mark.parametrize("value_bytes", [10, 40_000])
async def test_a_half_sent_request_behind_answered_ones_meets_its_deadline(
    strict: Broker, value_bytes: int
) -> None:
    """fault14: what came with it is answered; however large that is."""
    body = produce("a", message_set(NOW, value=b"x" * value_bytes))
    whole = native.encode_request(PRODUCE, 2, 1, "test", body)
    async with wire(strict.addresses.native) as client:
        await client.call(MetadataRequest())
        client.send_bytes(whole * 2 + whole[: len(whole) // 2])
        answers = [await client.frame(), await client.frame()]
        assert await client.at_end()
    bodies = [native.open_response(frame)[1] for frame in answers]
    found = [result(native.decode_response(PRODUCE.response, 2, body)) for body in bodies]
    assert [one.base_offset for one in found] == [0, 1]
    assert strict.figures.connections_dropped == {"half_sent": 1}


async def test_the_part_of_a_large_request_that_has_come_counts_as_held(broker: Broker) -> None:
    """From the moment that it comes, and until its client is gone."""
    held_memory = broker._connections.held_memory
    async with wire(broker.addresses.native) as client:
        client.send_bytes(struct.pack(">i", 8 * SLAB_BYTES) + bytes(SLAB_BYTES))
        await until(lambda: held_memory.total_bytes)
        client.send_bytes(bytes(SLAB_BYTES))
        await until(lambda: held_memory.total_bytes >= 2 * SLAB_BYTES)
    await until(lambda: not held_memory.total_bytes)


async def test_a_trickle_does_not_prolong_the_deadline(strict: Broker) -> None:
    """fault14: a byte now and then; an honest client beside it notices nothing."""
    async with wire(strict.addresses.native) as slow, wire(strict.addresses.native) as honest:
        slow.send_bytes(struct.pack(">i", 100_000))
        ended = asyncio.ensure_future(slow.at_end())
        while not ended.done():
            slow.send_bytes(b"x")
            await honest.call(MetadataRequest())
        assert await ended
    assert strict.figures.connections_dropped == {"half_sent": 1}


async def test_an_idle_connection_stays(strict: Broker) -> None:
    async with wire(strict.addresses.native) as idle, wire(strict.addresses.native) as late:
        await idle.call(MetadataRequest())
        late.send_bytes(b"\0")
        assert await late.at_end()
        await idle.call(MetadataRequest())


async def test_completed_frames_give_the_next_one_its_own_deadline(strict: Broker) -> None:
    frame = native.encode_request(METADATA, 0, 1, "c", MetadataRequest())
    loop = asyncio.get_running_loop()
    async with wire(strict.addresses.native) as client:
        started = loop.time()
        client.send_bytes(frame[:5])
        while loop.time() - started < 3 * DEADLINE_MS / 1000:
            # There is always an unfinished frame, but never the same one for long.
            client.send_bytes(frame[5:] + frame[:5])
            await client.frame()


async def test_ten_thousand_requests_at_once_are_answered_in_order(broker: Broker) -> None:
    """fault16."""
    async with wire(broker.addresses.native) as client:
        await client.call(create_topic("a"))
        record_set = message_set(NOW)
        sent = [
            client.send(PRODUCE, 2, produce("a", record_set, acks=-1 if number % 500 == 0 else 1))
            for number in range(10_000)
        ]
        for number in range(10_000):
            received, response = await client.receive()
            assert received == sent[number]
            assert result(response).base_offset == number


async def test_many_requests_at_once_leave_others_their_turns(broker: Broker) -> None:
    """They are handled in as many passes of the loop as it takes, and all are answered."""
    loop = asyncio.get_running_loop()
    requests = broker.figures.requests
    handled: list[int] = []
    watching = True

    def watch() -> None:
        handled.append(sum(requests.values()))
        if watching:
            loop.call_soon(watch)

    watch()
    async with wire(broker.addresses.native) as client:
        sent = client.send_together(*[ApiVersionsRequest()] * (5 * REQUESTS_IN_A_TURN))
        assert [(await client.receive())[0] for _ in sent] == sent
    watching = False
    # Those of a read and those that are left of the one before can fall into one pass.
    assert max(b - a for a, b in pairwise(handled)) <= 2 * REQUESTS_IN_A_TURN


@contextmanager
def sent_at_once(broker: Broker, requests: bytes) -> Iterator[tuple[int, int]]:
    """Send more than four buffers of requests, as much as the system takes: how many bytes the
    broker had received before, and how many when it has all of it."""
    with socket.create_connection(split_address(broker.addresses.native)) as client_socket:
        client_socket.setblocking(False)
        begin = broker.figures.received_bytes
        sent_bytes = client_socket.send(requests)
        assert sent_bytes > 4 * SLAB_BYTES
        yield begin, begin + sent_bytes


async def test_a_client_that_fills_the_buffer_leaves_others_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One buffer of it is received in a turn, however much of it has come."""
    monkeypatch.setattr(connections, "SHARED_SLAB_BYTES", SLAB_BYTES)
    loop = asyncio.get_running_loop()
    async with running_broker(tmp_path, http_listen="off") as broker:
        async with wire(broker.addresses.native) as client:
            await client.call(create_topic("a"))
        received: list[int] = []
        watching = True

        def watch() -> None:
            received.append(broker.figures.received_bytes)
            if watching:
                loop.call_soon(watch)

        body = produce("a", message_set(NOW, value=bytes(20_000)))
        request = native.encode_request(PRODUCE, 2, 1, "test", body)
        with sent_at_once(broker, request * 200) as (_, end):
            watch()
            await until(lambda: broker.figures.received_bytes == end)
            watching = False
        assert max(b - a for a, b in pairwise(received)) <= SLAB_BYTES


async def test_a_client_that_fills_the_buffer_is_not_read_at_the_cap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fault16: its turn is over, and the next one begins once there is room again."""
    monkeypatch.setattr(connections, "SHARED_SLAB_BYTES", SLAB_BYTES)
    in_flight = 4
    async with running_broker(
        tmp_path, http_listen="off", max_requests_in_flight=in_flight
    ) as broker:
        async with wire(broker.addresses.native) as client:
            await client.call(produce("a", message_set(NOW)))
        log = broker.directory.log("a", 0)
        log.hold_high_watermark(1)
        body = produce("a", message_set(NOW, value=bytes(1_000)), acks=-1)
        request = native.encode_request(PRODUCE, 2, 1, "test", body)
        with sent_at_once(broker, request * 1_000) as (begin, end):
            await until(lambda: log.log_end_offset == 1 + in_flight)
            for _ in range(100):
                await asyncio.sleep(0)
            assert broker.figures.received_bytes - begin <= 2 * SLAB_BYTES
            log.hold_high_watermark(None)
            await until(lambda: broker.figures.received_bytes == end)


async def test_reading_pauses_at_the_cap_of_requests_in_flight(strict: Broker) -> None:
    """fault16: what waits is bounded, the rest stays in the socket."""
    async with wire(strict.addresses.native) as client, wire(strict.addresses.native) as other:
        await client.call(produce("a", message_set(NOW)))
        topic_log = strict.directory.log("a", 0)
        topic_log.hold_high_watermark(1)
        for _ in range(5000):
            client.send(PRODUCE, 2, produce("a", message_set(NOW), acks=-1))
        for _ in range(200):
            await other.call(MetadataRequest())
        assert topic_log.log_end_offset == 1 + 16
        assert len(strict.services.produces) == 16
        topic_log.hold_high_watermark(None)
        for number in range(5000):
            _, response = await client.receive()
            assert result(response).base_offset == 1 + number


async def greedy(address: str) -> socket.socket:
    """A connected socket that buffers little."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, split_address(address))
    return client


@pytest.mark.parametrize(
    ("answer_bytes", "setting"),
    [
        pytest.param(30_000, "connection.buffer.bytes", id="answers in memory"),
        pytest.param(1 << 20, "request.deadline.ms", id="answers in files"),
    ],
)
async def test_a_reader_that_never_reads_is_closed(
    strict: Broker, log: io.StringIO, answer_bytes: int, setting: str
) -> None:
    """fault15: what is buffered for it is bounded by one answer more than the limit."""
    loop = asyncio.get_running_loop()
    async with wire(strict.addresses.native) as client:
        await client.call(create_topic("a"))
        for _ in range(4):
            await client.call(produce("a", message_set(*[NOW] * 5000)))
    before = resident_bytes()
    with await greedy(strict.addresses.native) as client_socket:
        request = fetch("a", (0, 0), partition_max_bytes=answer_bytes)
        asked = native.encode_request(FETCH, 3, 1, "c", request)
        await loop.sock_sendall(client_socket, asked * 500)
        while not strict.figures.connections_dropped:
            await still_serves(strict)
            assert resident_bytes() - before < 30 << 20
    (cause,) = causes(log)
    assert setting in cause
    assert strict.figures.connections_dropped == {"slow_reader": 1}
    await no_connections(strict)


async def test_parked_fetches_of_a_client_that_does_not_read_are_not_made(
    strict: Broker,
) -> None:
    """fault15: one append wakes them all, but an answer is made when there is room for it."""
    loop = asyncio.get_running_loop()
    async with wire(strict.addresses.native) as client:
        await client.call(create_topic("a"))
        with await greedy(strict.addresses.native) as client_socket:
            request = fetch("a", (0, 0), max_wait_ms=50_000, min_bytes=1)
            asked = native.encode_request(FETCH, 3, 1, "c", request)
            await loop.sock_sendall(client_socket, asked * 16)
            while len(strict.services.fetches) < 16:
                await still_serves(strict)
            await client.call(produce("a", message_set(NOW, value=b"x" * 900_000)))
            sent = strict.figures.sent_bytes
            while not strict.figures.connections_dropped:
                await client.call(MetadataRequest())
            assert strict.figures.sent_bytes - sent < 4 * 900_000


@pytest.mark.parametrize("deadline_ms", [600])
async def test_a_slow_reader_that_does_read_gets_everything(
    strict: Broker, deadline_ms: int
) -> None:
    loop = asyncio.get_running_loop()
    async with wire(strict.addresses.native) as client:
        await client.call(produce("a", message_set(*[NOW] * 5000)))
    with await greedy(strict.addresses.native) as client_socket:
        asked = native.encode_request(FETCH, 3, 1, "c", fetch("a", (0, 0)))
        # More than the system takes.
        await loop.sock_sendall(client_socket, asked * 60)
        received = 0
        while received < 60 * 5000 * 39:
            part = await loop.sock_recv(client_socket, 10_000)
            assert part, strict.figures.connections_dropped
            received += len(part)
        # It is not late after all that it has read.
        await asyncio.sleep(deadline_ms / 1000 + 2 * LAST_CHANCE_SECONDS)
        await loop.sock_sendall(client_socket, asked)
        assert await loop.sock_recv(client_socket, 10_000)
    assert not strict.figures.connections_dropped


async def no_connections(broker: Broker) -> None:
    """Return when the broker has noticed that every client is gone."""
    await until(lambda: not broker.connections())


@pytest.mark.parametrize("phase", ["connected", "half a frame", "parked", "unread"])
async def test_a_reset_in_any_phase_leaves_nothing_behind(strict: Broker, phase: str) -> None:
    """fault17."""
    loop = asyncio.get_running_loop()
    async with wire(strict.addresses.native) as client:
        await client.call(produce("a", message_set(*[NOW] * 5000)))
    await no_connections(strict)
    files = len(os.listdir("/proc/self/fd"))
    tasks = len(asyncio.all_tasks())
    for _ in range(20):
        client_socket = await greedy(strict.addresses.native)
        if phase == "half a frame":
            await loop.sock_sendall(client_socket, requests()[:-3])
        elif phase == "parked":
            request = fetch("a", (0, 5000), max_wait_ms=50_000, min_bytes=1)
            frame = native.encode_request(FETCH, 3, 1, "c", request)
            await loop.sock_sendall(client_socket, frame)
            await until(lambda: len(strict.services.fetches))
        elif phase == "unread":
            frame = native.encode_request(FETCH, 3, 1, "c", fetch("a", (0, 0)))
            await loop.sock_sendall(client_socket, frame * 20)
        client_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client_socket.close()
        await no_connections(strict)
    await until(lambda: not len(strict.services.fetches))
    # The loop closes a socket after it has said that the connection is lost.
    await until(lambda: len(os.listdir("/proc/self/fd")) <= files)
    await until(lambda: len(asyncio.all_tasks()) <= tasks)


async def test_a_half_close_still_gets_its_answers(strict: Broker) -> None:
    """fault17."""
    async with wire(strict.addresses.native) as client:
        await client.call(create_topic("a"))
        client.send(PRODUCE, 2, produce("a", message_set(NOW), acks=-1))
        client.send(FETCH, 3, fetch("a", (0, 1), max_wait_ms=50_000, min_bytes=1))
        client.send(PRODUCE, 2, produce("a", message_set(NOW), acks=-1))
        client.writer.write_eof()
        received = [(await client.receive())[1] for _ in range(3)]
        assert result(received[0]).base_offset == 0
        assert result(received[2]).base_offset == 1
        assert await client.at_end()


async def test_connections_above_the_cap(strict: Broker, log: io.StringIO) -> None:
    """fault18: closed at once and counted; places that get free are given again."""
    clients = [await Wire.open(strict.addresses.native) for _ in range(20)]
    for client in clients:
        await client.call(ApiVersionsRequest())
    surplus = [await Wire.open(strict.addresses.native) for _ in range(50)]
    assert all([await client.at_end() for client in surplus])
    assert strict.figures.connections_refused == {"max_connections": 50}
    assert strict.connections() == 20
    assert log.getvalue().count("connection_refused") < 50
    clients[0].close()
    await until(lambda: strict.connections() < 20)
    await still_serves(strict)
    for client in (*clients, *surplus):
        client.close()


async def test_a_bug_behind_a_connection_closes_it(
    strict: Broker, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(strict.dispatcher, "_respond", broken)
        patched.setattr(strict.dispatcher, "_guarded", broken)
        async with wire(strict.addresses.native) as client:
            client.send(METADATA, 0, MetadataRequest())
            assert await client.at_end()
    assert "a bug" in log.getvalue()
    assert strict.figures.connections_dropped == {"failed": 1}
    await still_serves(strict)
