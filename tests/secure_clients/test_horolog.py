"""The clients at a guarded Horolog broker: its own protocol, Kafka's, and the command line."""

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from horolog import (
    Admin,
    Consumer,
    Found,
    HorologError,
    Mechanism,
    Producer,
    SaslAuthenticationFailed,
    Security,
    TlsFailed,
    UnsupportedSaslMechanism,
    blocking,
)
from horolog.testing.broker import BrokerThread
from horolog.testing.program import Program

from .certificates import Pair
from .listeners import PASSWORD, Certificates
from .users import add_user

WRONG = "not-the-password-6602"
COUNT = 60
START_MS = 1_700_000_000_000
FOREVER_MS = 24 * 3_600_000
"""Longer than a test may take: what ends did not wait for it."""


@pytest.fixture(scope="module")
def broker_pair(certificates: Certificates) -> Pair:
    return certificates.authority.signed("horolog", "IP:127.0.0.1")


@pytest.fixture
def broker(
    certificates: Certificates, broker_pair: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerThread]:
    """One for each test: logins that fail make it slow towards their address."""
    data_dir = tmp_path_factory.mktemp("guarded") / "data"
    add_user(data_dir, "alice", PASSWORD)
    settings: dict[str, object] = {
        "listen": "tls://127.0.0.1:0",
        "kafka.listen": "SASL_SSL://127.0.0.1:0",
        "authentication": "required",
        "tls.cert": broker_pair.certificate,
        "tls.key": broker_pair.key,
        "tls.client.ca": certificates.ca,
        "tls.client.auth": "requested",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        "retention.ms": -1,
    }
    with BrokerThread(data_dir, settings) as started:
        yield started


@pytest.fixture(params=["native", "kafka"])
def address(request: pytest.FixtureRequest, broker: BrokerThread) -> str:
    """Either of its ports."""
    if request.param == "native":
        return f"tls://{broker.address}"
    return f"kafka+tls://{broker.kafka_address}"


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"topic-{abs(hash(request.node.name))}"


async def use(address: str, security: Security, topic: str) -> None:
    """Everything that a client does, once."""
    async with (
        Producer(address, security=security) as producer,
        Consumer(address, security=security, name="reader") as consumer,
        Admin(address, security=security) as admin,
    ):
        await admin.create_topic(topic, partitions=2)
        for number in range(COUNT):
            await producer.enqueue(
                topic, b"%d" % number, timestamp_ms=START_MS + number * 1000, partition=number % 2
            )
        await producer.flush()
        consumer.assign(topic)
        await consumer.seek_to_beginning()
        read: set[int] = set()
        while len(read) < COUNT:
            read |= {int(one.value or b"") for one in await consumer.fetch()}
        await consumer.commit()
        found = await admin.find_offset(topic, 1, timestamp_ms=START_MS + 20_500)
        assert isinstance(found, Found)
        start = datetime.fromtimestamp(START_MS / 1000, UTC)
        window = consumer.window(topic, start, start + timedelta(seconds=30))
        assert {int(one.value or b"") async for one in window} == set(range(30))
        counted = await admin.count_by_time(
            topic, start, start + timedelta(seconds=COUNT), every=timedelta(seconds=20)
        )
        assert [one.count for one in counted.intervals] == [20, 20, 20]


@pytest.mark.both_loops
@pytest.mark.parametrize("mechanism", [Mechanism.SCRAM_SHA_512, Mechanism.PLAIN])
async def test_passwords(
    address: str, topic: str, alice: Callable[..., Security], mechanism: Mechanism
) -> None:
    await use(address, alice(mechanism), topic)


async def test_a_client_with_a_certificate(
    broker: BrokerThread, topic: str, certificates: Certificates
) -> None:
    pair = certificates.client
    security = Security(ca=certificates.ca, certificate=str(pair.certificate), key=str(pair.key))
    await use(f"tls://{broker.address}", security, topic)


async def test_blocking_clients(address: str, topic: str, alice: Callable[..., Security]) -> None:
    def work() -> None:
        with blocking.Producer(address, security=alice()) as producer:
            sent = producer.send(topic, b"value")
        with blocking.Consumer(address, security=alice()) as consumer:
            consumer.assign(topic)
            consumer.seek_to_beginning()
            assert next(iter(consumer)).offset == sent.offset

    async with Admin(address, security=alice()) as admin:
        await admin.create_topic(topic)
    await asyncio.to_thread(work)


async def test_refusals(
    address: str, alice: Callable[..., Security], certificates: Certificates
) -> None:
    wrong: list[tuple[Security, type[HorologError], str]] = [
        (alice(password=WRONG), SaslAuthenticationFailed, "did not let the user 'alice' in"),
        (alice(user="mallory"), SaslAuthenticationFailed, "did not let the user 'mallory' in"),
        (alice(Mechanism.SCRAM_SHA_256), UnsupportedSaslMechanism, "it offers SCRAM-SHA-512"),
        (alice(ca=None), TlsFailed, "Set ca to the file"),
        (Security(ca=certificates.ca, token="a.b.c"), UnsupportedSaslMechanism, "OAUTHBEARER"),
    ]
    for security, kind, text in wrong:
        with pytest.raises(kind, match=text) as caught:
            async with Admin(address, security=security):
                pass
        assert WRONG not in str(caught.value)


async def test_nobody_is_told_to_be_somebody(address: str, certificates: Certificates) -> None:
    with pytest.raises(HorologError) as caught:
        async with Admin(
            address, security=Security(ca=certificates.ca), request_timeout_ms=FOREVER_MS
        ) as admin:
            await admin.list_topics()
    assert "user and password" in str(caught.value) or "there was none" in str(caught.value)


async def test_plain_clients_are_told_of_tls(address: str) -> None:
    plain = address.replace("kafka+tls://", "kafka://").replace("tls://", "")
    with pytest.raises(HorologError, match="TLS"):
        async with Admin(plain, request_timeout_ms=FOREVER_MS):
            pass


@pytest.fixture
def files(certificates: Certificates, tmp_path: Path) -> Path:
    """A folder with the password in a file."""
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    (tmp_path / "password").chmod(0o600)
    (tmp_path / "wrong").write_text(WRONG)
    return tmp_path


@pytest.mark.parametrize("address", ["kafka"], indirect=True)
def test_commands_by_options(
    address: str, topic: str, certificates: Certificates, files: Path
) -> None:
    options = ["--server", address, "--ca", certificates.ca, "--user", "alice"]
    options += ["--password-file", str(files / "password")]
    horolog = Program()
    horolog.ok("topic", "create", topic, *options)
    sent = horolog.ok("produce", topic, *options, stdin="one\ntwo\n")
    assert [one["offset"] for one in sent.objects] == [0, 1]
    read = horolog.ok("consume", topic, "--json", *options)
    assert [one["value"] for one in read.objects] == ["one", "two"]
    wrong = horolog("topic", "list", *options[:-1], files / "wrong")
    assert wrong.code == 1
    assert wrong.err.startswith("horolog: SASL_AUTHENTICATION_FAILED: ")
    assert wrong.err.count("\n") == 1
    assert WRONG not in wrong.err


@pytest.mark.parametrize("address", ["native"], indirect=True)
def test_commands_by_variables_and_profiles(
    address: str, certificates: Certificates, files: Path
) -> None:
    env = {"HOROLOG_CA": certificates.ca, "HOROLOG_USER": "alice"}
    env["HOROLOG_PASSWORD_FILE"] = str(files / "password")
    Program(address, env).ok("topic", "list")
    home = {"XDG_CONFIG_HOME": str(files / "config")}
    horolog = Program(None, home)
    horolog.ok(
        *("profile", "add", "prod", "--server", address, "--ca", certificates.ca),
        *("--user", "alice", "--password-command", f"cat {files / 'password'}"),
    )
    horolog.ok("topic", "list")
    # An option wins over a variable, and that over the profile.
    (files / "empty").write_text("")
    refused = Program(None, {**home, "HOROLOG_PASSWORD_FILE": str(files / "wrong")})
    assert "SASL_AUTHENTICATION_FAILED" in refused("topic", "list").err
    refused.ok("topic", "list", "--password-file", str(files / "password"))


@pytest.mark.parametrize("address", ["native", "kafka"], indirect=True)
def test_users_are_added_by_a_user(address: str, certificates: Certificates, files: Path) -> None:
    """The password file of the command is the new user's; the variable has that of who adds."""
    env = {"HOROLOG_CA": certificates.ca, "HOROLOG_USER": "alice"}
    env["HOROLOG_PASSWORD_FILE"] = str(files / "password")
    (files / "new").write_text("password-of-bob-3391")
    alice = Program(address, env)
    alice.ok("user", "add", "bob", "--password-file", files / "new")
    bob = Program(address, {**env, "HOROLOG_USER": "bob", "HOROLOG_PASSWORD_FILE": ""})
    bob.ok("topic", "list", "--password-file", files / "new")


@pytest.mark.parametrize("address", ["native", "kafka"], indirect=True)
def test_the_login_has_a_password_file_of_its_own_beside_a_users(
    address: str, certificates: Certificates, files: Path
) -> None:
    (files / "new").write_text("password-of-bob-3391")
    (files / "newer").write_text("password-of-bob-8816")
    horolog = Program(address, {"HOROLOG_CA": certificates.ca})
    alice = ("--user", "alice", "--login-password-file", files / "password")
    horolog.ok("user", "add", "bob", "--password-file", files / "new", *alice)
    horolog.ok("user", "password", "bob", "--password-file", files / "newer", *alice)
    horolog.ok("topic", "list", "--user", "bob", "--password-file", files / "newer")
    bob = ("--user", "bob", "--login-password-file", files / "new")
    refused = horolog("user", "password", "bob", "--password-file", files / "newer", *bob)
    assert (refused.code, "SASL_AUTHENTICATION_FAILED" in refused.err) == (1, True)


def test_what_doctor_says(address: str, certificates: Certificates, files: Path) -> None:
    options = ["--server", address, "--ca", certificates.ca, "--user", "alice", "--json"]
    good = Program().ok("doctor", *options, "--password-file", files / "password")
    said = {one["check"]: one for one in good.objects}
    assert said["encryption"]["finding"].split(": ")[1].startswith("TLSv1.3")
    assert said["certificate"]["verdict"] == "good"
    assert "let in as alice by SCRAM-SHA-512" in said["login"]["finding"]
    assert "password" not in said
    (files / "password").chmod(0o644)
    open_file = Program().ok("doctor", *options, "--password-file", files / "password")
    assert json.loads(open_file.out.splitlines()[3])["fix"].startswith("chmod 600 ")
    wrong = Program()("doctor", *options, "--password-file", files / "wrong")
    assert wrong.code == 1
    assert [(one["check"], one["verdict"]) for one in wrong.objects] == [("login", "problem")]
    other = Program()("doctor", *options[:2], "--json")
    assert [(one["check"], one["verdict"]) for one in other.objects] == [("encryption", "problem")]
