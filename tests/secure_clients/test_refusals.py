"""What keeps a client out: told once, at once, with what is to be done, and without secrets."""

import asyncio
import traceback
from collections.abc import Callable
from dataclasses import replace

import pytest

from horolog import (
    Admin,
    ConnectionFailed,
    Consumer,
    HorologError,
    Mechanism,
    Producer,
    SaslAuthenticationFailed,
    Security,
    SecurityError,
    TlsFailed,
    UnsupportedSaslMechanism,
    blocking,
)
from horolog.bench.apache_kafka import ApacheKafka
from horolog.client.security.options import from_options

from .conftest import NewTopic
from .listeners import PASSWORD, Certificates

pytestmark = [pytest.mark.timeout(1200), pytest.mark.both_loops]

WRONG = "not-the-password-6602"
FOREVER_MS = 24 * 3_600_000
"""Longer than a test may take: what ends did not try again until then."""


async def refusal(address: str, security: Security | None, kind: type[HorologError]) -> str:
    """The text of the error, which is of this kind and does not wait for the time limit."""
    with pytest.raises(kind) as caught:
        async with Admin(address, security=security, request_timeout_ms=FOREVER_MS) as admin:
            await admin.list_topics()
    shown = "".join(traceback.format_exception(caught.value))
    assert PASSWORD not in shown
    assert WRONG not in shown
    return str(caught.value)


@pytest.mark.parametrize("mechanism", [Mechanism.SCRAM_SHA_512, Mechanism.PLAIN])
async def test_a_wrong_password(
    guarded: str, alice: Callable[..., Security], mechanism: Mechanism
) -> None:
    text = await refusal(guarded, alice(mechanism, password=WRONG), SaslAuthenticationFailed)
    assert f"did not let the user 'alice' in by {mechanism}" in text


async def test_an_unknown_user(guarded: str, alice: Callable[..., Security]) -> None:
    text = await refusal(guarded, alice(user="mallory"), SaslAuthenticationFailed)
    assert "the user 'mallory'" in text


async def test_a_mechanism_that_is_not_offered(
    apache: ApacheKafka, certificates: Certificates
) -> None:
    security = Security(ca=certificates.ca, token="a.b.c", secrets_without_tls=True)
    text = await refusal(
        f"kafka://{apache.at('OPEN')}", replace(security, ca=None), UnsupportedSaslMechanism
    )
    assert "does not let clients in by OAUTHBEARER: it offers " in text
    assert "SCRAM-SHA-256" in text
    assert "sasl.mechanism" in text


async def test_a_token_that_is_no_good(guarded: str, certificates: Certificates) -> None:
    security = Security(ca=certificates.ca, token="bm90.YQ.dG9rZW4")
    text = await refusal(guarded, security, SaslAuthenticationFailed)
    assert "did not let the token in by OAUTHBEARER" in text
    assert "bm90.YQ.dG9rZW4" not in text


async def test_a_ca_that_is_not_known(guarded: str, alice: Callable[..., Security]) -> None:
    text = await refusal(guarded, alice(ca=None), TlsFailed)
    assert "no CA that is trusted here has signed its certificate" in text
    assert "Security(ca=FILE)" in text


async def test_a_ca_that_is_not_known_where_security_is_given_as_options(guarded: str) -> None:
    options = {"sasl.username": "alice", "sasl.password": "x"}
    text = await refusal(guarded, from_options(options), TlsFailed)
    assert "no CA that is trusted here has signed its certificate" in text
    assert "Set the option ssl.ca.location" in text
    assert "Security(ca" not in text


async def test_another_ca(
    guarded: str, alice: Callable[..., Security], certificates: Certificates
) -> None:
    stranger = str(certificates.stranger.certificate)
    assert "Set ca to the file" in await refusal(guarded, alice(ca=stranger), TlsFailed)


async def test_a_certificate_for_another_host(
    apache: ApacheKafka, certificates: Certificates
) -> None:
    address = f"kafka+tls://{apache.at('ELSEWHERE')}"
    security = Security(ca=certificates.ca)
    text = await refusal(address, security, TlsFailed)
    assert "its certificate is not for that name" in text
    assert "127.0.0.1" in text
    async with Admin(address, security=replace(security, check_host_name=False)) as admin:
        await admin.list_topics()


async def test_a_certificate_that_has_expired(
    apache: ApacheKafka, certificates: Certificates
) -> None:
    text = await refusal(
        f"kafka+tls://{apache.at('EXPIRED')}", Security(ca=certificates.ca), TlsFailed
    )
    assert "its certificate has expired" in text


async def test_a_client_certificate_that_is_missing(
    apache: ApacheKafka, certificates: Certificates
) -> None:
    text = await refusal(
        f"kafka+tls://{apache.at('MUTUAL')}", Security(ca=certificates.ca), TlsFailed
    )
    assert "Set certificate and key" in text


async def test_a_client_certificate_of_a_stranger(
    apache: ApacheKafka, certificates: Certificates
) -> None:
    pair = certificates.client_of_stranger
    security = Security(ca=certificates.ca, certificate=str(pair.certificate), key=str(pair.key))
    text = await refusal(f"kafka+tls://{apache.at('MUTUAL')}", security, TlsFailed)
    assert "Set certificate and key" in text


async def test_tls_at_a_plain_port(apache: ApacheKafka, certificates: Certificates) -> None:
    address = f"kafka+tls://{apache.bootstrap}"
    text = await refusal(address, Security(ca=certificates.ca), HorologError)
    assert "TLS" in text


async def test_no_tls_at_a_port_of_tls(guarded: str) -> None:
    address = guarded.replace("kafka+tls://", "kafka://")
    text = await refusal(address, None, ConnectionFailed)
    assert "kafka+tls://HOST:PORT" in text


async def test_nobody_at_a_port_that_asks_for_somebody(
    guarded: str, certificates: Certificates
) -> None:
    text = await refusal(guarded, Security(ca=certificates.ca), ConnectionFailed)
    assert "user" in text


async def test_somebody_at_a_port_that_asks_for_nobody(apache: ApacheKafka) -> None:
    security = Security(user="alice", password=PASSWORD)
    with pytest.raises(HorologError, match="knows no users there"):
        async with Admin(f"kafka://{apache.bootstrap}", security=security):
            pass


async def test_who_sends_and_who_reads_do_not_try_for_ever(
    guarded: str, alice: Callable[..., Security], new_topic: NewTopic
) -> None:
    topic, security = await new_topic(), alice(password=WRONG)
    producer = Producer(guarded, security=security, delivery_timeout_ms=FOREVER_MS)
    with pytest.raises(SaslAuthenticationFailed):
        await producer.send(topic, b"value")
    await producer.close()
    consumer = Consumer(guarded, security=security, retry_timeout_ms=FOREVER_MS)
    consumer.assign(topic)
    with pytest.raises(SaslAuthenticationFailed):
        await consumer.fetch()
    await consumer.close()


async def test_the_blocking_client_tells_the_same(
    guarded: str, alice: Callable[..., Security]
) -> None:
    def work() -> None:
        with blocking.Admin(guarded, security=alice()) as admin:
            admin.list_topics()
        with (
            pytest.raises(SaslAuthenticationFailed),
            blocking.Admin(guarded, security=alice(password=WRONG)),
        ):
            pass

    await asyncio.to_thread(work)


async def test_a_password_that_is_changed_in_its_file_is_read_again(
    guarded: str, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from horolog import SecretFile

    path = tmp_path_factory.mktemp("password") / "password"
    path.write_text(WRONG)
    security = Security(ca=certificates.ca, user="alice", password=SecretFile(str(path)))
    await refusal(guarded, security, SaslAuthenticationFailed)
    path.write_text(f"{PASSWORD}\n")
    async with Admin(guarded, security=security) as admin:
        await admin.list_topics()
    path.unlink()
    text = await refusal(guarded, security, SecurityError)
    assert f"{path} cannot be read: No such file" in text
