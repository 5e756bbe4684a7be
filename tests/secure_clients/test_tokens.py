"""Tokens at a guarded Horolog broker: our clients, the command line, and two of Kafka's clients."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from horolog import (
    Admin,
    Producer,
    SaslAuthenticationFailed,
    SecretCommand,
    SecretFile,
    Security,
    SecurityError,
)
from horolog.client.security import authentication
from horolog.server.security import logins
from horolog.testing.broker import BrokerThread
from horolog.testing.issuer import Issuer, token_settings
from horolog.testing.program import Program
from horolog.testing.waiting import wait_until

from .certificates import Pair
from .listeners import Certificates
from .test_horolog import use

SESSION_SECONDS = 3.0
MESSAGES = [b"message %d" % number for number in range(100)]


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "FAILED_SECONDS", 0.1)


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer(algorithm="RS256")


@pytest.fixture(scope="module")
def pair(certificates: Certificates) -> Pair:
    return certificates.authority.signed("horolog-tokens", "IP:127.0.0.1")


@pytest.fixture
def broker(
    certificates: Certificates,
    pair: Pair,
    issuer: Issuer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[BrokerThread]:
    """One for each test: logins that fail make it slow towards their address."""
    folder = tmp_path_factory.mktemp("tokens")
    settings: dict[str, object] = {
        "listen": "tls://127.0.0.1:0",
        "kafka.listen": "SASL_SSL://127.0.0.1:0",
        "authentication": "required",
        "tls.cert": pair.certificate,
        "tls.key": pair.key,
        "retention.ms": -1,
    }
    for name, value in token_settings(issuer.write(folder / "keys.json")).items():
        settings[name.replace("_", ".")] = value
    with BrokerThread(folder / "data", settings) as started:
        yield started


@pytest.fixture(params=["native", "kafka"])
def address(request: pytest.FixtureRequest, broker: BrokerThread) -> str:
    """Either of its ports."""
    if request.param == "native":
        return f"tls://{broker.address}"
    return f"kafka+tls://{broker.kafka_address}"


@pytest.mark.parametrize(
    ("address", "source"),
    [
        *(("native", each) for each in ("text", "function", "coroutine", "file", "command")),
        ("kafka", "coroutine"),
    ],
    indirect=["address"],
)
async def test_our_clients(
    address: str, certificates: Certificates, issuer: Issuer, tmp_path: Path, source: str
) -> None:
    path = tmp_path / "token"
    path.write_text(f"{issuer.token()}\n")
    path.chmod(0o600)

    async def later() -> str:
        await asyncio.sleep(0)
        return issuer.token()

    sources: dict[str, Any] = {
        "text": issuer.token(),
        "function": issuer.token,
        "coroutine": later,
        "file": SecretFile(str(path)),
        "command": SecretCommand(("cat", str(path))),
    }
    await use(address, Security(ca=certificates.ca, token=sources[source]), "tokens")


async def test_messages_flow_over_sessions(
    address: str, certificates: Certificates, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function is asked again before a token ends, on the connection that there is."""
    # Long before: a broker that stood still reads what was sent in time after the session.
    monkeypatch.setattr(authentication, "_EARLY", (0.35, 0.4))
    asked: list[str] = []

    def token() -> str:
        asked.append(issuer.token(seconds=SESSION_SECONDS))
        return asked[-1]

    security = Security(ca=certificates.ca, token=token)
    async with (
        Admin(address, security=security) as admin,
        Producer(address, security=security, delivery_timeout_ms=0, idempotent=False) as producer,
    ):
        await admin.create_topic("flow")
        loop = asyncio.get_running_loop()
        until = loop.time() + 1.1 * SESSION_SECONDS
        sent = 0
        while loop.time() < until:
            assert (await producer.send("flow", b"x")).offset == sent
            sent += 1
            await asyncio.sleep(0.02)
    assert len(asked) >= 3  # the connection of the producer asks more than once


async def test_refusals(address: str, certificates: Certificates, issuer: Issuer) -> None:
    stranger = Issuer()
    for token in (issuer.token(seconds=-40), issuer.token(aud="x"), stranger.token()):
        with pytest.raises(SaslAuthenticationFailed, match="did not let the token in") as caught:
            async with Admin(address, security=Security(ca=certificates.ca, token=token)):
                pass
        assert token not in str(caught.value)

    def fails() -> str:
        raise OSError("the issuer cannot be reached")

    with pytest.raises(SecurityError, match="the issuer cannot be reached"):
        async with Admin(address, security=Security(ca=certificates.ca, token=fails)):
            pass


def test_commands(
    broker: BrokerThread, certificates: Certificates, issuer: Issuer, tmp_path: Path
) -> None:
    """By an option, a variable, and a profile whose command prints a token; at either port."""
    native, kafka = f"tls://{broker.address}", f"kafka+tls://{broker.kafka_address}"
    good, bad = tmp_path / "token", tmp_path / "bad"
    good.write_text(f"{issuer.token('carol')}\n")
    bad.write_text(issuer.token(seconds=-100))
    for path in (good, bad):
        path.chmod(0o600)
    options = ["--ca", certificates.ca, "--token-file"]
    horolog = Program()
    horolog.ok("topic", "create", "t", "--server", native, *options, good)
    refused = horolog("topic", "list", "--server", kafka, *options, bad)
    assert refused.code == 1
    assert refused.err.startswith("horolog: SASL_AUTHENTICATION_FAILED: ")
    assert all(part not in refused.err for part in bad.read_text().split("."))
    env = {"HOROLOG_CA": certificates.ca, "HOROLOG_TOKEN_FILE": str(good)}
    Program(kafka, env).ok("produce", "t", stdin="one\n")
    said = {one["check"]: one for one in Program(native, env).ok("doctor", "--json").objects}
    assert "OAUTHBEARER" in said["login"]["finding"]
    of_profile = Program(None, {"XDG_CONFIG_HOME": str(tmp_path / "config")})
    of_profile.ok(
        *("profile", "add", "tokens", "--server", native, "--ca", certificates.ca),
        *("--token-command", f"cat {good}"),
    )
    assert of_profile.ok("consume", "t", "--json").objects[0]["value"] == "one"


class TestKafkasClients:
    @pytest.fixture
    def bootstrap(self, broker: BrokerThread) -> str:
        assert broker.kafka_address is not None
        return broker.kafka_address

    @pytest.mark.parametrize("seconds", [3600.0, 1.5])
    def test_librdkafka(
        self, bootstrap: str, certificates: Certificates, issuer: Issuer, seconds: float
    ) -> None:
        """`oauth_cb`; when a token ends it is asked again, and nothing is lost."""
        asked: list[float] = []

        def token(_: str) -> tuple[str, float]:
            asked.append(time.time())
            return issuer.token(seconds=seconds), time.time() + seconds

        conf: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": certificates.ca,
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": token,
        }
        # What was stored and not answered when a session ended is not stored again.
        producer = ConfluentProducer({**conf, "enable.idempotence": True})
        sent: list[bytes] = []
        until = time.monotonic() + (1.6 * seconds if seconds < 10 else 0)
        while len(sent) < len(MESSAGES) or time.monotonic() < until:
            sent.append(b"message %d" % len(sent))
            producer.produce("clicks", sent[-1])
            producer.poll(0.05 if time.monotonic() < until else 0)
        assert producer.flush(60) == 0
        assert len(asked) >= (2 if seconds < 10 else 1)
        consumer = ConfluentConsumer({**conf, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["clicks"])
        try:
            received: list[bytes | None] = []
            while len(received) < len(sent):
                received += [each.value() for each in consumer.consume(len(sent), 0.2)]
        finally:
            consumer.close()
        assert received == sent

    def test_librdkafka_with_a_bad_token(
        self, bootstrap: str, certificates: Certificates, issuer: Issuer
    ) -> None:
        seen: list[Any] = []
        producer = ConfluentProducer(
            {
                "bootstrap.servers": bootstrap,
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": certificates.ca,
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": lambda _: (issuer.token(aud="x"), time.time() + 3600),
                "error_cb": seen.append,
            }
        )

        def refused() -> bool:
            producer.poll(0.1)
            told = [error.str() for error in seen if error.name() == "_AUTHENTICATION"]
            return any("invalid_token" in text for text in told)

        wait_until(refused, state=lambda: seen)

    def test_kafka_python(self, bootstrap: str, certificates: Certificates, issuer: Issuer) -> None:
        class Provider(AbstractTokenProvider):  # type: ignore[misc]
            def token(self) -> str:
                return issuer.token("carol")

        conf: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "security_protocol": "SASL_SSL",
            "ssl_cafile": certificates.ca,
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": Provider(),
        }
        producer = KafkaProducer(**conf)
        for message in MESSAGES:
            producer.send("clicks", message)
        producer.flush(60)
        producer.close()
        consumer = KafkaConsumer(
            "clicks", group_id="g", auto_offset_reset="earliest", consumer_timeout_ms=60_000, **conf
        )
        try:
            assert [next(consumer).value for _ in MESSAGES] == MESSAGES
        finally:
            consumer.close()
