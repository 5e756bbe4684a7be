"""Whoever has not logged in cannot break a broker, nor hold it up; nor can a broker its client."""

import asyncio
import contextlib
import struct
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from horolog import Admin, SaslAuthenticationFailed, Security
from horolog.clock import SystemClock
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.security.sasl_handshake import SaslHandshakeRequest
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.protocol.sasl import scram
from horolog.server.broker import Broker
from horolog.testing.access import log_in
from horolog.testing.logs import RecordedEvents
from horolog.testing.waiting import until
from horolog.testing.wire import Wire, wire

from .conftest import PASSWORD, Authority, Guarded, openssl_client
from .test_tls import client_hello, resident_bytes

BUGS = {"connection_failed", "loop_error", "request_failed"}
FUZZ_SECONDS = 1.0
MIB = 1 << 20


def recorded(broker: Broker) -> RecordedEvents:
    """What happens to connections and requests from now on."""
    events = RecordedEvents()
    broker.services.outcomes.observe = broker._connections._observe = events
    broker.security._observe = events
    return events


def bugs(events: RecordedEvents) -> list[str]:
    return [event for event, _ in events.seen if event in BUGS]


async def still_serves(broker: Broker, authority: Authority) -> None:
    broker.security.logins._throttle._failures.clear()
    async with asyncio.timeout(60):
        async with wire(broker.addresses.native, tls=authority.trusting()) as client:
            await log_in(client, "alice", PASSWORD)
            await client.call(MetadataRequest())


@pytest.mark.parametrize("length", [(64 << 10) + 1, 1 << 30, 2**31 - 1, 2**32 - 1])
@pytest.mark.parametrize("encoding", [native, kafka], ids=["native", "kafka"])
async def test_frames_that_say_they_are_giant(
    guarded: Guarded, authority: Authority, encoding: Any, length: int
) -> None:
    """They end the connection by their first four bytes, and no room is made for them."""
    async with guarded() as broker:
        before = resident_bytes()
        address = broker.addresses.native if encoding is native else str(broker.addresses.kafka)
        clients = [
            await Wire.open(address, encoding=encoding, tls=authority.trusting()) for _ in range(8)
        ]
        for client in clients:
            client.send_bytes(struct.pack(">I", length))
        for client in clients:
            async with asyncio.timeout(30):
                await client.reader.read()  # perhaps an answer that says why
                assert await client.at_end()
            client.close()
        assert resident_bytes() - before < 32 * MIB
        await still_serves(broker, authority)


@pytest.mark.parametrize("length", [(64 << 10) + 1, 2**31 - 1, 2**32 - 1])
async def test_giant_messages_without_a_head(
    guarded: Guarded, authority: Authority, length: int
) -> None:
    """Behind sasl-handshake 0, where frames are messages of the mechanism."""
    async with guarded() as broker:
        async with wire(str(broker.addresses.kafka), kafka, authority.trusting()) as client:
            await client.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 0)
            client.send_bytes(struct.pack(">I", length))
            async with asyncio.timeout(30):
                assert await client.at_end()
        await still_serves(broker, authority)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
async def test_any_bytes_as_messages_without_a_head(
    guarded: Guarded, authority: Authority, mechanism: str, pytestconfig: pytest.Config
) -> None:
    random = Random(pytestconfig.getoption("--hypothesis-seed"))
    texts = [b"n,,n=alice,r=abc", b"\0alice\0wrong", b"c=biws,r=abc,p=AAAA", b"x"]
    async with guarded() as broker:
        events = recorded(broker)
        clock, began = SystemClock(), SystemClock().monotonic()
        while clock.monotonic() - began < FUZZ_SECONDS:
            broker.security.logins._throttle._failures.clear()
            async with wire(str(broker.addresses.kafka), kafka, authority.trusting()) as client:
                await client.call(SaslHandshakeRequest(mechanism=mechanism), 0)
                for _ in range(random.randrange(1, 4)):
                    said = bytearray(random.choice(texts) + random.randbytes(random.randrange(9)))
                    for _ in range(random.randrange(3)):
                        said[random.randrange(len(said))] = random.randrange(256)
                    client.send_bytes(struct.pack(">I", len(said)) + bytes(said))
                async with asyncio.timeout(60):
                    with contextlib.suppress(ConnectionError):
                        await client.reader.read(1)
        assert (mechanism, "done") not in broker.figures.logins
        assert bugs(events) == []
        await still_serves(broker, authority)


@pytest.mark.parametrize("seed", [1, 2])
async def test_any_bytes_as_a_handshake(guarded: Guarded, authority: Authority, seed: int) -> None:
    """What is nearly a client's hello, on each port."""
    random = Random(seed)
    hello = client_hello(authority)
    async with guarded(authentication_deadline_ms=500) as broker:
        events = recorded(broker)
        addresses = [str(each) for each in (broker.addresses.native, broker.addresses.kafka)]
        clock, began = SystemClock(), SystemClock().monotonic()
        while clock.monotonic() - began < FUZZ_SECONDS:
            said = bytearray(hello)
            for _ in range(random.randrange(1, 6)):
                said[random.randrange(len(said))] = random.randrange(256)
            if random.random() < 0.3:
                said = said[: random.randrange(1, len(said))]
            async with wire(random.choice(addresses)) as client:
                client.send_bytes(bytes(said) + random.randbytes(random.randrange(3) * 20))
                client.writer.write_eof()
                async with asyncio.timeout(60):
                    with contextlib.suppress(ConnectionError):
                        await client.reader.read()
        await until(lambda: broker.connections() == 0)
        assert bugs(events) == []
        await still_serves(broker, authority)


async def test_a_handshake_that_drips(guarded: Guarded, authority: Authority) -> None:
    """A byte now and then does not prolong it: the connection is closed before the last one."""
    hello = client_hello(authority)
    async with guarded(authentication_deadline_ms=400) as broker:
        async with wire(broker.addresses.native) as client:
            closed, sent = asyncio.ensure_future(client.at_end()), 0
            for byte in hello:
                client.send_bytes(bytes([byte]))
                sent += 1
                done, _ = await asyncio.wait([closed], timeout=0.02)
                if done:
                    break
            assert await closed
            assert sent < len(hello)
        await until(lambda: broker.connections() == 0)
        assert broker.figures.tls_failures == {"handshake_late": 1}


async def test_a_client_that_asks_for_new_keys_without_end(
    guarded: Guarded, authority: Authority
) -> None:
    """TLS 1.3 has key updates in the place of renegotiation: they cost little and answer nothing,
    and the connection ends with its time for a login."""
    async with guarded(authentication_deadline_ms=3000) as broker:
        events = recorded(broker)
        process = await openssl_client(broker.addresses.native, "-tls1_3")
        assert process.stdin is not None
        await until(lambda: broker.connections() == 1)
        before = resident_bytes()
        asking = asyncio.ensure_future(_ask_again_and_again(process.stdin))
        for _ in range(5):
            await still_serves(broker, authority)
        await until(lambda: broker.connections() == 0)
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await asking
        said, _ = await process.communicate()
        assert b"KEYUPDATE" in said
        assert resident_bytes() - before < 16 * MIB
        assert bugs(events) == []


async def _ask_again_and_again(stdin: asyncio.StreamWriter) -> None:
    while True:
        stdin.write(b"K\n")
        await stdin.drain()
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("scheme", ["tls", "kafka+tls"])
async def test_a_server_that_asks_for_two_billion_iterations(
    guarded: Guarded, authority: Authority, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """The client refuses before it begins to count: it would be busy for minutes."""
    async with guarded() as broker:
        users = broker.security.users
        honest = users.credentials("alice")["SCRAM-SHA-512"]
        asking = replace(honest, iterations=2**31)
        monkeypatch.setattr(type(users), "credential", lambda *_, **__: asking)
        counted: list[int] = []
        monkeypatch.setattr(scram, "salted_password", lambda *given: counted.append(given[-1]))
        address = broker.addresses.native if scheme == "tls" else broker.addresses.kafka
        security = Security(ca=str(authority.cert), user="alice", password=PASSWORD)
        with pytest.raises(SaslAuthenticationFailed, match="2147483648 iterations"):
            async with Admin(f"{scheme}://{address}", security=security) as admin:
                await admin.list_topics()
        assert counted == []
