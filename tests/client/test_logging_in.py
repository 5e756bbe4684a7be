"""The client's side of a login, with brokers that are who they say and brokers that are not."""

import asyncio
import base64
from collections.abc import Callable
from typing import Any

import pytest

from horolog import (
    Admin,
    ConnectionFailed,
    Mechanism,
    SaslAuthenticationFailed,
    Security,
    SecurityError,
    UnsupportedSaslMechanism,
)
from horolog.client.cluster.link import ClientLink
from horolog.client.security.authentication import _again_in_s
from horolog.protocol.api.broker.api_versions import ApiVersion
from horolog.protocol.api.native.frames import RequestHead, encode_error
from horolog.protocol.api.security.authenticate import (
    AUTHENTICATE,
    AuthenticateRequest,
    AuthenticateResponse,
)
from horolog.protocol.api.topics.metadata import METADATA, MetadataRequest, MetadataResponse
from horolog.protocol.errors import SaslAuthenticationFailed as Refused
from horolog.protocol.errors import UnsupportedSaslMechanism as NotOffered
from horolog.protocol.sasl import scram
from horolog.protocol.sasl.mechanisms import SCRAM_MECHANISMS
from horolog.protocol.sasl.scram import ScramServer

from .conftest import Reply, ScriptedBrokers

PASSWORD = "correct-horse-7213"
ALICE = Security(user="alice", password=PASSWORD, mechanism=Mechanism.SCRAM_SHA_256)
FOREVER_MS = 3_600_000
"""Longer than a test may take: what ends did not wait for it."""


class Door:
    """What a scripted broker asks and answers; others may change what it says."""

    def __init__(self, *, password: str = PASSWORD, lifetime_ms: int = 0) -> None:
        self.password = password
        self.lifetime_ms = lifetime_ms
        self.logins = 0
        self.order: list[str] = []
        """The names of the requests that came."""
        self.changed: Callable[[bytes], bytes] = lambda said: said
        self._exchange: ScramServer | None = None

    async def answer(self, head: RequestHead, body: Any, _: Any) -> Reply:
        if head.api_key == METADATA.key:
            self.order.append("metadata")
            return MetadataResponse(brokers=[], topics=[])
        assert isinstance(body, AuthenticateRequest)
        self.order.append("authenticate")
        if not body.mechanism:
            return AuthenticateResponse(mechanisms=["SCRAM-SHA-256"])
        if body.mechanism not in SCRAM_MECHANISMS or body.mechanism == "SCRAM-SHA-512":
            return encode_error(head.correlation_id, NotOffered.code, "no")
        return self._step(head, body)

    def _step(self, head: RequestHead, body: AuthenticateRequest) -> Reply:
        mechanism = SCRAM_MECHANISMS[body.mechanism]
        if self._exchange is None:
            salt = b"salt-of-a-user-01"
            salted = scram.salted_password(mechanism, self.password, salt, 4096)
            credential = scram.credential_of(mechanism, salted, salt, 4096)
            self._exchange = ScramServer(mechanism, lambda _: credential, "3rfcNHYJY1ZVvWVs7j")
            return AuthenticateResponse(
                auth_bytes=self.changed(self._exchange.first(body.auth_bytes))
            )
        exchange, self._exchange = self._exchange, None
        try:
            said = exchange.last(body.auth_bytes)
        except Refused as error:
            return encode_error(head.correlation_id, error.code, error.message)
        self.logins += 1
        return AuthenticateResponse(
            auth_bytes=self.changed(said), done=True, session_lifetime_ms=self.lifetime_ms
        )


async def refusal(address: str, security: Security, kind: type[Exception]) -> str:
    with pytest.raises(kind) as caught:
        async with Admin(address, security=security, request_timeout_ms=FOREVER_MS):
            pass
    return str(caught.value)


@pytest.mark.both_loops
async def test_a_login(scripted_broker: ScriptedBrokers) -> None:
    door = Door()
    async with (
        scripted_broker(door.answer) as broker,
        Admin(broker.address, security=ALICE) as admin,
    ):
        assert list(await admin.list_topics()) == []
    assert (door.logins, door.order) == (1, ["authenticate", "authenticate", "metadata"])


async def test_a_wrong_password(scripted_broker: ScriptedBrokers) -> None:
    door = Door(password="another")
    async with scripted_broker(door.answer) as broker:
        text = await refusal(broker.address, ALICE, SaslAuthenticationFailed)
    assert "did not let the user 'alice' in by SCRAM-SHA-256" in text
    assert door.order == ["authenticate"] * 2  # not once more


async def test_a_mechanism_that_is_not_offered(scripted_broker: ScriptedBrokers) -> None:
    security = Security(user="alice", password=PASSWORD)
    async with scripted_broker(Door().answer) as broker:
        text = await refusal(broker.address, security, UnsupportedSaslMechanism)
    assert "by SCRAM-SHA-512: it offers SCRAM-SHA-256" in text


async def test_a_broker_without_logins(scripted_broker: ScriptedBrokers) -> None:
    served = [ApiVersion(api_key=METADATA.key, min_version=0, max_version=1)]
    async with scripted_broker(Door().answer, served=served) as broker:
        text = await refusal(broker.address, ALICE, Exception)
    assert "does not serve authenticate" in text


def with_iterations(count: int) -> Callable[[bytes], bytes]:
    return lambda said: said.replace(b"i=4096", b"i=%d" % count)


@pytest.mark.parametrize("count", [2**31, 2**31 - 1, 16_777_217, 4095, 1, 0])
async def test_iterations_that_only_cost_time_are_refused(
    scripted_broker: ScriptedBrokers, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them is done."""
    door = Door()
    door.changed = with_iterations(count)
    done: list[int] = []

    def noting(mechanism: Any, password: str, salt: bytes, iterations: int) -> bytes:
        done.append(iterations)
        return salted_password(mechanism, password, salt, min(iterations, 4096))

    salted_password = scram.salted_password
    monkeypatch.setattr(scram, "salted_password", noting)
    async with scripted_broker(door.answer) as broker:
        text = await refusal(broker.address, ALICE, SaslAuthenticationFailed)
    assert done == [4096], "by the broker"
    assert f"{count} iterations" in text
    assert "allowed are 4096 to 16777216" in text


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(lambda said: b"", id="nothing"),
        pytest.param(lambda said: b"\xff\xfe", id="no-text"),
        pytest.param(lambda said: said.replace(b"s=", b"s=*"), id="salt-no-base64"),
        pytest.param(lambda said: b"r=another,s=c2FsdA==,i=4096", id="nonce-of-another"),
        pytest.param(lambda said: b"r=" + b"x" * 5000 + b",s=c2FsdA==,i=4096", id="long-nonce"),
        pytest.param(
            lambda said: b"v=" + base64.b64encode(b"\0" * 32) if said.startswith(b"v=") else said,
            id="signature",
        ),
        pytest.param(
            lambda said: b"e=other-error" if said.startswith(b"v=") else said, id="error-at-last"
        ),
        pytest.param(
            lambda said: b"" if said.startswith(b"v=") else said, id="no-signature-at-last"
        ),
    ],
)
async def test_a_broker_that_is_not_who_it_says(
    scripted_broker: ScriptedBrokers, changed: Callable[[bytes], bytes]
) -> None:
    door = Door()
    door.changed = changed
    async with scripted_broker(door.answer) as broker:
        await refusal(broker.address, ALICE, SaslAuthenticationFailed)
    assert "metadata" not in door.order


async def test_a_broker_that_says_done_too_early(scripted_broker: ScriptedBrokers) -> None:
    async def answer(head: RequestHead, body: Any, _: Any) -> Reply:
        said = body.auth_bytes.split(b"r=")[1]
        first = b"r=" + said + b"x,s=c2FsdA==,i=4096"
        return AuthenticateResponse(auth_bytes=first, done=True)

    async with scripted_broker(answer) as broker:
        text = await refusal(broker.address, ALICE, SaslAuthenticationFailed)
    assert "before it was done" in text


async def test_a_broker_that_never_ends_asking(scripted_broker: ScriptedBrokers) -> None:
    asked = 0

    async def answer(head: RequestHead, body: Any, _: Any) -> Reply:
        nonlocal asked
        asked += 1
        return AuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}')

    security = Security(token="a.b.c", secrets_without_tls=True)
    async with scripted_broker(answer) as broker:
        text = await refusal(broker.address, security, SaslAuthenticationFailed)
    assert "invalid_token" in text
    assert asked == 2  # the second one ends it (RFC 7628)


async def test_a_response_that_is_too_large_before_the_login(
    scripted_broker: ScriptedBrokers,
) -> None:
    async def answer(head: RequestHead, body: Any, _: Any) -> Reply:
        return (64 * 1024 + 1).to_bytes(4, "big") + b"\0" * 4096

    async with scripted_broker(answer) as broker:
        text = await refusal(broker.address, ALICE, ConnectionFailed)
    assert "a frame of 65537 bytes; allowed are 1 to 65536" in text


async def test_a_large_response_after_the_login(scripted_broker: ScriptedBrokers) -> None:
    door = Door()

    async def answer(head: RequestHead, body: Any, writer: Any) -> Reply:
        if head.api_key != METADATA.key:
            return await door.answer(head, body, writer)
        return MetadataResponse(brokers=[], topics=[], cluster_id="x" * 30_000)

    async with scripted_broker(answer) as broker, Admin(broker.address, security=ALICE) as admin:
        await asyncio.gather(*(admin.list_topics() for _ in range(8)))


async def test_a_session_is_prolonged_behind_what_is_under_way(
    scripted_broker: ScriptedBrokers,
) -> None:
    """The broker takes what comes between two steps of a login for a part of it."""
    door = Door(lifetime_ms=200)
    async with scripted_broker(door.answer) as broker:
        link = ClientLink(broker.address, client_id=None, request_timeout_ms=10_000, security=ALICE)

        async def ask() -> None:
            while door.logins < 5:
                connection = await link.connection()
                await connection.submit(METADATA, MetadataRequest(topics=[]))
                await asyncio.sleep(0.001)

        await asyncio.gather(*(ask() for _ in range(4)))
        await link.close()
        assert len(broker.connections) == 1
    steps = [number for number, name in enumerate(door.order) if name == "authenticate"]
    assert all(second == first + 1 for first, second in zip(steps[::2], steps[1::2], strict=True))


async def test_who_is_not_let_in_again_is_told(scripted_broker: ScriptedBrokers) -> None:
    door = Door(lifetime_ms=100)
    async with scripted_broker(door.answer) as broker:
        link = ClientLink(broker.address, client_id=None, request_timeout_ms=10_000, security=ALICE)
        await link.connection()
        door.password = "changed"
        await asyncio.sleep(0.1)
        with pytest.raises(SaslAuthenticationFailed):
            await link.connection()
        door.password = PASSWORD
        await link.connection()
        await link.close()
        assert len(broker.connections) == 2


def test_when_a_client_logs_in_again() -> None:
    """Before the session ends, and at Kafka not within a second."""
    for _ in range(100):
        native_s, kafka_s = (_again_in_s(20_000, native) for native in (True, False))
        assert native_s is not None
        assert kafka_s is not None
        assert 17 <= native_s <= 19
        assert 17 <= kafka_s <= 19
    assert _again_in_s(1_000, native=False) == 1.05
    assert _again_in_s(0, native=True) is None


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        (lambda: "", "gave a str"),
        (lambda: None, "gave a NoneType"),
        (lambda: 1 // 0, "raised ZeroDivisionError"),
    ],
)
async def test_a_function_that_gives_no_token(
    scripted_broker: ScriptedBrokers, source: Any, wrong: str
) -> None:
    security = Security(token=source, secrets_without_tls=True)
    async with scripted_broker(Door().answer) as broker:
        assert wrong in await refusal(broker.address, security, SecurityError)


async def test_a_token_with_something_else_around_it(scripted_broker: ScriptedBrokers) -> None:
    security = Security(token='"abc.def"', secrets_without_tls=True)
    async with scripted_broker(Door().answer) as broker:
        text = await refusal(broker.address, security, SaslAuthenticationFailed)
    assert "abc" not in text


def test_the_api_has_the_name_of_the_interface() -> None:
    assert AUTHENTICATE.name == "authenticate"
