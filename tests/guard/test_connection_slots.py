"""How many connections there may be from an address, and of a user."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.config.address import split_address
from horolog.config.broker import broker_settings
from horolog.config.setting import counts
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.native import frames as native_frames
from horolog.protocol.api.security.authenticate import AUTHENTICATE, AuthenticateRequest
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.protocol.errors import InvalidConfig, SaslAuthenticationFailed
from horolog.protocol.sasl.mechanisms import PlainClient
from horolog.server.network.connections import (
    ConnectionSlots,
    LoginSlots,
    UserSlots,
    address_counts,
)
from horolog.server.security import logins
from horolog.server.web.server import HttpState
from horolog.testing.access import log_in, log_in_to_kafka
from horolog.testing.broker import running_broker
from horolog.testing.issuer import Issuer, token_settings
from horolog.testing.waiting import until
from horolog.testing.wire import Wire, wire

from .conftest import PASSWORD, USERS, Authority, Guarded


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "FAILED_SECONDS", 0.1)


OVERRIDES = "max.connections.per.ip.overrides"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("127.0.0.1:200, localhost :5", {"127.0.0.1": 200, "localhost": 5}),
        ("::1:3,[fe80::1]:4", {"::1": 3, "fe80::1": 4}),
        ("CN=a:b:0", {"CN=a:b": 0}),
    ],
)
def test_counts(text: str, found: dict[str, int]) -> None:
    assert counts(text) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a", "'a' is not NAME:COUNT"),
        ("a:", "is not NAME:COUNT"),
        (":5", "is not NAME:COUNT"),
        ("a:-1", "is not NAME:COUNT"),
        ("a:1,,b:2", "'' is not NAME:COUNT"),
        ("a:1,a:2", "'a' is there twice"),
        ("a:1000001", "is more than 1000000"),
        ("a:\u0663", "is not NAME:COUNT"),
        (",".join(f"{n}:1" for n in range(700)) + "," * 1, "is not NAME:COUNT"),
    ],
)
@pytest.mark.parametrize("name", [OVERRIDES, "max.connections.per.user.overrides"])
def test_counts_that_are_refused(name: str, text: str, why: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        broker_settings({name: text})
    assert name in refused.value.message
    assert why in refused.value.message or "at most 4096" in refused.value.message


def test_names_are_looked_up() -> None:
    assert address_counts("localhost:5")["127.0.0.1"] == 5
    assert address_counts("::0001:2,::ffff:10.0.0.1:3") == {"::1": 2, "10.0.0.1": 3}
    with pytest.raises(InvalidConfig, match=r"overrides: 'nowhere\.invalid' is no address"):
        address_counts("nowhere.invalid:5")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60))
def test_places_beside_a_plain_count(moves: list[tuple[str, bool]]) -> None:
    """Never more than there may be, and a place that is given back is there again."""
    places, users = ConnectionSlots(8, 3, {"b": 1, "c": 0}), UserSlots(2, {"b": 0, "c": 5})
    of_address, of_user = dict.fromkeys("abc", 0), dict.fromkeys("abc", 0)
    for who, comes in moves:
        if comes:
            free = of_address[who] < {"a": 3, "b": 1, "c": 0}[who]
            assert (places.refusal(who) is None) == free
            if free:
                places.take(who)
                of_address[who] += 1
            free = of_user[who] < {"a": 2, "b": 0, "c": 5}[who]
            assert users.take(who) == free
            of_user[who] += free
            continue
        if of_address[who]:
            places.give_back(who)
            of_address[who] -= 1
        if of_user[who]:
            users.give_back(who)
            of_user[who] -= 1
    assert UserSlots().take("x")


async def test_addresses_of_their_own_number(tmp_path: Path) -> None:
    """The one of the test may have three where others have one; the HTTP port goes by it too."""
    settings: dict[str, Any] = {
        "max_connections_per_ip": 1,
        "max_connections_per_ip_overrides": "127.0.0.1:3",
    }
    async with running_broker(tmp_path, **settings) as broker:
        clients = [await Wire.open(broker.addresses.native) for _ in range(3)]
        for client in clients:
            await client.call(MetadataRequest())
        async with wire(broker.addresses.native) as client:
            assert await client.at_end()
        assert broker.figures.connections_refused == {"max_connections_per_ip": 1}
        clients[0].close()
        await until(lambda: broker.connections() == 2)
        async with wire(broker.addresses.native) as client:
            await client.call(MetadataRequest())
        for client in clients:
            client.close()
        await until(lambda: broker._state() is HttpState.READY)
        http = [await Wire.open(str(broker.addresses.http)) for _ in range(4)]
        assert await http[3].at_end()
        assert broker.figures.connections_refused["http_max_connections_per_ip"] == 1
        for client in http:
            client.close()


async def test_an_address_that_is_shut_out(tmp_path: Path) -> None:
    async with running_broker(
        tmp_path, http_listen="off", max_connections_per_ip_overrides="127.0.0.1:0"
    ) as broker:
        async with wire(broker.addresses.native) as client:
            assert await client.at_end()
        assert broker.figures.connections_refused == {"max_connections_per_ip": 1}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"])
@pytest.mark.parametrize("encoding", ["native", "kafka"])
async def test_users(
    guarded: Guarded, authority: Authority, tmp_path: Path, mechanism: str, encoding: str
) -> None:
    """The one too many is told why, and is no guess; others, and those inside, notice nothing."""
    issuer = Issuer()
    tls = authority.trusting()
    given = token_settings(issuer.write(tmp_path / "keys.json"))
    async with guarded(
        max_connections_per_user=2, max_connections_per_user_overrides="bob:1", **given
    ) as broker:
        native = encoding == "native"
        login: Callable[..., Any] = log_in if native else log_in_to_kafka

        async def enter(name: str) -> Wire:
            address = broker.addresses.native if native else str(broker.addresses.kafka)
            encoding_ = native_frames if native else kafka
            client = await Wire.open(address, encoding=encoding_, tls=tls)
            secret = issuer.token(name) if mechanism == "OAUTHBEARER" else USERS[name]
            try:
                await login(client, name, secret, mechanism)
            except SaslAuthenticationFailed:
                assert await client.at_end()
                client.close()
                raise
            return client

        inside = [await enter("alice") for _ in range(2)]
        with pytest.raises(SaslAuthenticationFailed, match=r"alice has 2 connections.*per\.user"):
            await enter("alice")
        assert broker.security.logins._throttle._failures == {}
        assert broker.figures.connections_refused == {"max_connections_per_user": 1}
        assert (mechanism, "failed") not in broker.figures.logins
        inside.append(await enter("bob"))
        with pytest.raises(SaslAuthenticationFailed, match="bob has 1 connections"):
            await enter("bob")
        # A login on the connection that is there takes no other place.
        secret = issuer.token("bob") if mechanism == "OAUTHBEARER" else USERS["bob"]
        await login(inside[-1], "bob", secret, mechanism)
        inside[0].close()
        await until(lambda: broker.connections() == 2)
        inside.append(await enter("alice"))
        for client in inside:
            client.close()
        await until(lambda: broker.connections() == 0)
        assert broker._connections._users._taken == {}


async def test_a_login_that_ends_behind_its_connection_takes_no_place(
    guarded: Guarded, authority: Authority
) -> None:
    async with guarded(max_connections_per_user=1) as broker:
        for _ in range(5):
            client = await Wire.open(broker.addresses.native, tls=authority.trusting())
            body = AuthenticateRequest(
                mechanism="PLAIN", auth_bytes=PlainClient("alice", PASSWORD).first()
            )
            client.send(AUTHENTICATE, 0, body)
            client.writer.transport.abort()
            client.close()
        await until(lambda: broker.connections() == 0)
        async with wire(broker.addresses.native, tls=authority.trusting()) as client:
            await log_in(client, "alice", PASSWORD, "PLAIN")
        await until(lambda: broker._connections._users._taken == {})


async def test_certificates(guarded: Guarded, authority: Authority) -> None:
    mine = authority.issue("counted", "/CN=counted")
    async with guarded(
        tls_client_auth="required",
        tls_client_ca=authority.cert,
        max_connections_per_user_overrides="CN=counted:1",
    ) as broker:
        tls = authority.trusting(mine)
        async with wire(broker.addresses.native, tls=tls) as inside:
            await inside.call(MetadataRequest())
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                async with wire(broker.addresses.native, tls=tls) as client:
                    await client.call(MetadataRequest())
            assert broker.figures.connections_refused == {"max_connections_per_user": 1}
            await inside.call(MetadataRequest())
        await until(lambda: broker.connections() == 0)
        async with wire(broker.addresses.native, tls=tls) as client:
            await client.call(MetadataRequest())


async def test_the_metric(guarded: Guarded, authority: Authority) -> None:
    async with guarded(max_connections_per_user_overrides="alice:0") as broker:
        async with wire(broker.addresses.native, tls=authority.trusting()) as client:
            with pytest.raises(SaslAuthenticationFailed):
                await log_in(client, "alice", PASSWORD)
        url = f"https://{broker.addresses.http}/metrics"
        await until(lambda: broker._state() is HttpState.READY)
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, ssl=authority.trusting()) as answer,
        ):
            text = await answer.text()
    assert 'horolog_connections_refused_total{reason="max_connections_per_user"} 1' in text


def test_the_oldest_of_the_address_that_has_most_gives_way() -> None:
    places: LoginSlots[str] = LoginSlots(4)
    for connection in ("a1", "b1", "b2", "b3"):
        places.take(connection, connection[0])
    assert places.are_taken
    assert places.surplus("c") == "b1"
    assert places.surplus("a") == "b1"
    assert places.surplus("b") is None, "those that are there notice nothing"
    places.give_back("b1")
    places.take("c1", "c")
    places.give_back("c1")
    places.take("a2", "a")
    assert places.surplus("c") == "a1", "of two that have as many the one that was there first"
    assert places.surplus("a") is None
    for connection in ("a1", "a2", "b2", "b3", "b3"):
        places.give_back(connection)
    assert len(places) == 0


HANDSHAKE_BEGIN = bytes.fromhex("160301020001")


@contextmanager
def crowd(address: str, count: int, first: bytes) -> Iterator[list[socket.socket]]:
    """Connections from 127.0.0.66 that send no more than `first`."""
    source = ("127.0.0.66", 0)
    with ExitStack() as stack:
        made = [
            stack.enter_context(
                socket.create_connection(split_address(address), 10, source_address=source)
            )
            for _ in range(count)
        ]
        for each in made:
            each.sendall(first)
        yield made


@pytest.mark.both_loops
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
async def test_an_address_without_a_login_keeps_no_other_out(
    guarded: Guarded, authority: Authority, encrypted: bool
) -> None:
    """Its oldest connections are closed, in a handshake or before a login."""
    settings: dict[str, object] = {"connections_unauthenticated_max": 3}
    if not encrypted:
        settings |= {"listen": "127.0.0.1:0", "allow_plaintext": True}
    tls = authority.trusting() if encrypted else None
    async with guarded(**settings) as broker:
        address = broker.addresses.native
        with crowd(address, 3, HANDSHAKE_BEGIN if encrypted else b"\0\0") as sockets:
            await until(lambda: broker.unauthenticated() == 3)
            for _ in range(2):
                client = await Wire.open(address, tls=tls)
                await log_in(client, "alice", PASSWORD)
                client.close()
            assert broker.figures.connections_dropped == {"crowded": 1}
            assert broker.unauthenticated() == 2
            with suppress(ConnectionResetError):
                assert await asyncio.to_thread(sockets[0].recv, 1) == b""
            with crowd(address, 2, b"") as others:
                with suppress(ConnectionResetError):
                    assert await asyncio.to_thread(others[1].recv, 1) == b""
                assert broker.figures.connections_refused == {"unauthenticated": 1}
