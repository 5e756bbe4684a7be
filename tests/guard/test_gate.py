"""What connections may do before a login, and how logins fail."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from horolog.clock import SystemClock
from horolog.protocol.api.broker.api_versions import ApiVersionsRequest
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.security.authenticate import AUTHENTICATE, AuthenticateRequest
from horolog.protocol.api.security.sasl_authenticate import (
    SASL_AUTHENTICATE,
    SaslAuthenticateRequest,
)
from horolog.protocol.api.security.sasl_handshake import SaslHandshakeRequest
from horolog.protocol.api.topics.metadata import METADATA, MetadataRequest
from horolog.protocol.errors import (
    IllegalSaslState,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from horolog.protocol.sasl.mechanisms import SCRAM_MECHANISMS
from horolog.protocol.sasl.scram import ScramClient
from horolog.server.broker import Broker
from horolog.server.security.logins import FAILED_SECONDS, FIRST_SECONDS
from horolog.server.security.users import CredentialRemoval
from horolog.testing.access import change_access, log_in, log_in_to_kafka, sasl_client
from horolog.testing.broker import running_broker
from horolog.testing.logs import RecordedEvents
from horolog.testing.wire import Wire, wire

from .conftest import PASSWORD, add_users, login_waits

MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]
OPEN = {18, 17, 36, 1003}
"""What needs no login."""


@pytest.fixture
def settings() -> dict[str, object]:
    return {}


@pytest.fixture
async def broker(tmp_path: Any, settings: dict[str, object]) -> AsyncIterator[Broker]:
    """On loopback, without TLS: what TLS adds is tested elsewhere."""
    given: dict[str, Any] = {
        "http_listen": "off",
        "kafka_listen": "127.0.0.1:0",
        "authentication": "required",
        "allow_plaintext": True,
        "sasl_enabled_mechanisms": ",".join(MECHANISMS),
        **settings,
    }
    async with running_broker(tmp_path / "data", **given) as started:
        add_users(started, alice=PASSWORD, bob="other")
        yield started


def kafka_wire(broker: Broker) -> Any:
    assert broker.addresses.kafka is not None
    return wire(broker.addresses.kafka, kafka)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_login_by_either_protocol(broker: Broker, mechanism: str) -> None:
    async with wire(broker.addresses.native) as client:
        answer = await log_in(client, "alice", PASSWORD, mechanism)
        assert answer.principal == "User:alice"
        assert (await client.call(MetadataRequest())).brokers
        known = await client.call(AuthenticateRequest())
        assert (known.principal, known.done, known.mechanisms) == ("User:alice", True, MECHANISMS)
    async with kafka_wire(broker) as client:
        await log_in_to_kafka(client, "alice", PASSWORD, mechanism)
        assert (await client.call(MetadataRequest(topics=[]))).brokers
    assert broker.figures.logins == {(mechanism, "done"): 2}
    assert broker.unauthenticated() == 0


@pytest.mark.parametrize("api", [api for api in APIS.values() if api.key not in OPEN])
async def test_no_request_is_answered_before_a_login(broker: Broker, api: Any) -> None:
    for encoding in (native, kafka):
        if not api.versions(native=encoding is native):
            continue
        is_native = encoding is native
        version = api.versions(native=is_native)[0]
        address = broker.addresses.native if is_native else broker.addresses.kafka
        async with wire(str(address), encoding) as client:
            if is_native:
                # The body is not looked at: an empty one is as good as any.
                client.send_bytes(_frame(bytes([0x95, *_packed(api.key), version, 7, 0xC0, 0x80])))
                with pytest.raises(IllegalSaslState, match="there was none"):
                    await client.receive()
            else:
                client.send_bytes(_frame(struct.pack(">hhih", api.key, version, 7, -1)))
            assert await client.at_end()


def _packed(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else b"\xcd" + number.to_bytes(2, "big")


def _frame(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


async def test_what_needs_no_login(broker: Broker) -> None:
    async with wire(broker.addresses.native) as client:
        assert (await client.call(ApiVersionsRequest())).api_keys
        answer = await client.call(AuthenticateRequest())
        assert (answer.principal, answer.done) == ("User:ANONYMOUS", False)
        await log_in(client, "alice", PASSWORD)
    async with kafka_wire(broker) as client:
        assert (await client.call(ApiVersionsRequest(), 2)).api_keys
        await log_in_to_kafka(client, "alice", PASSWORD)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["alice", "nobody"])
async def test_a_login_that_fails(
    broker: Broker, mechanism: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One text, one time and one course for a wrong password and for a user who is not there."""
    waits = login_waits(broker, monkeypatch)
    for connect, login in ((wire, log_in), (None, log_in_to_kafka)):
        opened = wire(broker.addresses.native) if connect else kafka_wire(broker)
        async with opened as client:
            with pytest.raises(SaslAuthenticationFailed) as refused:
                await login(client, name, "wrong", mechanism)
            assert await client.at_end()
        assert refused.value.message == "the user does not exist, or the password is wrong"
        assert sum(waits) == FAILED_SECONDS
        waits.clear()
    assert broker.figures.logins == {(mechanism, "failed"): 2}


async def test_a_login_that_fails_is_told_with_address_and_name(broker: Broker) -> None:
    events = RecordedEvents()
    broker.security.logins._observe = events
    async with wire(broker.addresses.native) as client:
        with pytest.raises(SaslAuthenticationFailed):
            await log_in(client, "mallory", "s3cret-guess")
    ((event, fields),) = events.seen
    assert event == "login_failed"
    assert (fields["peer"], fields["user"]) == ("127.0.0.1", "mallory")
    assert "s3cret-guess" not in str(events.seen)


async def test_who_does_not_exist_is_asked_as_who_does(broker: Broker) -> None:
    """The server's first message: the same salt each time, of the same length, as many rounds."""

    async def first(name: str) -> tuple[str, str]:
        async with wire(broker.addresses.native) as client:
            sasl = ScramClient("SCRAM-SHA-512", name, "x", "nonce")
            request = AuthenticateRequest(mechanism="SCRAM-SHA-512", auth_bytes=sasl.first())
            answer = await client.call(request)
            _, salt, iterations = answer.auth_bytes.decode().split(",")
            return salt, iterations

    assert await first("nobody") == await first("nobody")
    assert (await first("nobody"))[0] != (await first("nobody else"))[0]
    assert (await first("nobody"))[1] == "i=16384"


async def test_the_right_password_waits_too_once_an_address_has_guessed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = login_waits(broker, monkeypatch)
    for _ in range(4):
        broker.security.logins._throttle.failed("127.0.0.1")
    async with wire(broker.addresses.native) as client:
        await log_in(client, "alice", PASSWORD)
    assert sum(waits) == 2 * FIRST_SECONDS


@pytest.mark.parametrize("mechanism", ["GSSAPI", "SCRAM-SHA-1", "", "scram-sha-512"])
async def test_a_mechanism_that_is_not_offered(broker: Broker, mechanism: str) -> None:
    async with kafka_wire(broker) as client:
        answer = await client.call(SaslHandshakeRequest(mechanism=mechanism))
        assert (answer.error_code, answer.mechanisms) == (33, MECHANISMS)
        await log_in_to_kafka(client, "alice", PASSWORD)
    if mechanism:
        async with wire(broker.addresses.native) as client:
            with pytest.raises(UnsupportedSaslMechanism, match="offered are: SCRAM-SHA-256"):
                await client.call(AuthenticateRequest(mechanism=mechanism))


class TestPlainWithoutTls:
    @pytest.fixture
    def settings(self) -> dict[str, object]:
        return {"allow_plaintext": False}

    async def test_it_is_not_offered(self, broker: Broker) -> None:
        async with kafka_wire(broker) as client:
            answer = await client.call(SaslHandshakeRequest(mechanism="PLAIN"))
            assert (answer.error_code, answer.mechanisms) == (33, MECHANISMS[:2])
        async with wire(broker.addresses.native) as client:
            with pytest.raises(UnsupportedSaslMechanism):
                await log_in(client, "alice", PASSWORD, "PLAIN")


async def test_messages_without_a_head(broker: Broker) -> None:
    """Behind sasl-handshake 0 they are frames of their own."""
    async with kafka_wire(broker) as client:
        await client.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0)
        sasl = sasl_client("SCRAM-SHA-256", "alice", PASSWORD)
        said: bytes | None = sasl.first()
        while said is not None:
            client.send_bytes(_frame(said))
            said = sasl.respond(await client.frame())
        assert sasl.complete
        assert (await client.call(MetadataRequest(topics=[]))).brokers
    async with kafka_wire(broker) as client:
        await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        client.send_bytes(_frame(b"\0alice\0wrong"))
        assert await client.at_end()


async def test_who_is_logged_in_cannot_go_over_to_messages_without_a_head(broker: Broker) -> None:
    async with kafka_wire(broker) as client:
        await log_in_to_kafka(client, "alice", PASSWORD)
        handshake = SaslHandshakeRequest(mechanism="SCRAM-SHA-512")
        assert (await client.call(handshake, 0)).error_code == 34
        assert (await client.call(MetadataRequest(topics=[]))).brokers
        await log_in_to_kafka(client, "alice", PASSWORD)


async def test_messages_out_of_turn(broker: Broker) -> None:
    async with kafka_wire(broker) as client:
        answer = await client.call(SaslAuthenticateRequest(auth_bytes=b"x"))
        assert answer.error_code == 34
        await client.call(SaslHandshakeRequest(mechanism="PLAIN"))
        client.send(SASL_AUTHENTICATE, 1, SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"))
        client.send(METADATA, 7, MetadataRequest(topics=[]))
        _, refused = await client.receive()
        assert refused.error_code == 58
        assert await client.at_end()


async def test_large_frames_are_refused_before_a_login_and_taken_behind_it(broker: Broker) -> None:
    name = "x" * 30_000
    for size, taken in ((34_000, True), (36_000, False)):
        async with wire(broker.addresses.native) as client:
            body = AuthenticateRequest(mechanism=name, auth_bytes=bytes(size))
            client.send(AUTHENTICATE, 0, body)
            if taken:
                with pytest.raises(UnsupportedSaslMechanism):
                    await client.receive()
            else:
                assert await client.at_end()
    async with wire(broker.addresses.native) as client:
        await log_in(client, "alice", PASSWORD)
        with pytest.raises(UnsupportedSaslMechanism):
            await client.call(body)


class TestDeadline:
    @pytest.fixture
    def settings(self) -> dict[str, object]:
        return {"authentication_deadline_ms": 300}

    async def test_who_does_not_log_in_is_closed(self, broker: Broker) -> None:
        """Whatever it asks for meanwhile does not prolong it."""
        async with wire(broker.addresses.native) as client:

            async def ask_on() -> None:
                while True:
                    await client.call(ApiVersionsRequest())

            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await ask_on()
        assert broker.figures.connections_dropped == {"login": 1}


class TestBound:
    @pytest.fixture
    def settings(self) -> dict[str, object]:
        return {"connections_unauthenticated_max": 3}

    async def test_those_outside_are_bounded_and_those_inside_are_not(self, broker: Broker) -> None:
        inside = []
        for _ in range(5):
            inside.append(await Wire.open(broker.addresses.native))
            await log_in(inside[-1], "alice", PASSWORD)
        outside = [await Wire.open(broker.addresses.native) for _ in range(3)]
        for client in outside:
            await client.call(ApiVersionsRequest())
        assert broker.unauthenticated() == 3
        async with wire(broker.addresses.native) as client:
            assert await client.at_end()
        assert broker.figures.connections_refused == {"unauthenticated": 1}
        for client in inside:
            await client.call(MetadataRequest())
        for client in (*inside, *outside):
            client.close()


class TestReauthentication:
    @pytest.fixture
    def settings(self) -> dict[str, object]:
        return {"connections_max_reauth_ms": 1000}

    async def test_a_session_ends_unless_it_is_prolonged(self, broker: Broker) -> None:
        async with kafka_wire(broker) as lazy, kafka_wire(broker) as client:
            answer = await log_in_to_kafka(client, "alice", PASSWORD)
            assert answer.session_lifetime_ms == 1000
            await log_in_to_kafka(lazy, "alice", PASSWORD)
            for _ in range(4):
                await asyncio.sleep(0.4)
                await log_in_to_kafka(client, "alice", PASSWORD)
                await client.call(MetadataRequest(topics=[]))
            lazy.send(METADATA, 7, MetadataRequest(topics=[]))
            assert await lazy.at_end()

    async def test_a_session_cannot_become_another_users(self, broker: Broker) -> None:
        async with wire(broker.addresses.native) as client:
            await log_in(client, "alice", PASSWORD)
            with pytest.raises(SaslAuthenticationFailed, match="as another's"):
                await log_in(client, "bob", "other")
            assert await client.at_end()

    async def test_who_was_removed_may_go_on_until_then(self, broker: Broker) -> None:
        async with wire(broker.addresses.native) as client:
            await log_in(client, "alice", PASSWORD)
            removals = [[CredentialRemoval("alice", each)] for each in SCRAM_MECHANISMS.values()]
            change_access(broker, lambda: broker.security.users.planned(removals))
            await client.call(MetadataRequest())
            with pytest.raises(SaslAuthenticationFailed):
                await log_in(client, "alice", PASSWORD)
            assert await client.at_end()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("encoding", [native, kafka], ids=["native", "kafka"])
async def test_any_bytes_before_a_login(broker: Broker, encoding: Any, seed: int) -> None:
    """Frames that are nearly those of a login: each is answered, or ends the connection."""
    events = RecordedEvents()
    broker.services.outcomes.observe = broker._connections._observe = events
    random = Random(seed)
    address = broker.addresses.native if encoding is native else str(broker.addresses.kafka)
    frames = [
        encoding.encode_request(api, version, 7, "c", body)[4:]
        for api, body in _logins(encoding)
        for version in api.versions(native=encoding is native)
    ]
    clock, began = SystemClock(), SystemClock().monotonic()
    while clock.monotonic() - began < 3:
        async with wire(address, encoding) as client:
            for _ in range(random.randrange(1, 4)):
                frame = bytearray(random.choice(frames))
                for _ in range(random.randrange(3)):
                    frame[random.randrange(len(frame))] = random.randrange(256)
                if random.random() < 0.2:
                    frame = frame[: random.randrange(1, len(frame))]
                client.send_bytes(_frame(bytes(frame)))
            client.writer.write_eof()
            async with asyncio.timeout(60):
                with contextlib.suppress(ConnectionError):
                    await client.reader.read()
    assert broker.figures.logins.get(("PLAIN", "done"), 0) == 0
    async with wire(broker.addresses.native) as client:
        broker.security.logins._throttle._failures.clear()
        await log_in(client, "alice", PASSWORD)
    bugs = {"connection_failed", "loop_error", "request_failed"}
    assert not [event for event, _ in events.seen if event in bugs]


def _logins(encoding: Any) -> list[tuple[Any, Any]]:
    first = ScramClient("SCRAM-SHA-512", "alice", "x", "nonce").first()
    if encoding is native:
        return [
            (AUTHENTICATE, AuthenticateRequest(mechanism="SCRAM-SHA-512", auth_bytes=first)),
            (AUTHENTICATE, AuthenticateRequest(mechanism="PLAIN", auth_bytes=b"\0alice\0wrong")),
        ]
    handshake = APIS[17]
    return [
        (handshake, SaslHandshakeRequest(mechanism="SCRAM-SHA-512")),
        (handshake, SaslHandshakeRequest(mechanism="PLAIN")),
        (SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=first)),
        (SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong")),
    ]
