"""Every way to be let in by a real Kafka, and what is done there then."""

import asyncio
import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from horolog import Admin, Consumer, Found, Mechanism, Producer, Security
from horolog.bench.apache_kafka import ApacheKafka

from .certificates import KEY_PASSWORD, encrypted
from .conftest import NewTopic
from .listeners import PASSWORD, Certificates

pytestmark = pytest.mark.timeout(1200)

COUNT = 60
START_MS = 1_700_000_000_000


def unsecured_token(subject: str) -> str:
    """A JWT without a signature, which Kafka's own handler for tests takes."""
    now_s = int(datetime.now(UTC).timestamp())

    def part(content: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    claims = part({"sub": subject, "iat": now_s, "exp": now_s + 3600})
    return f"{part({'alg': 'none'})}.{claims}."


async def use(address: str, security: Security | None, topic: str) -> None:
    """Write, read, find by time, read a window, count by time, and keep a position."""
    async with (
        Producer(address, security=security) as producer,
        Consumer(address, security=security, name=f"reader-{topic}") as consumer,
        Admin(address, security=security) as admin,
    ):
        for number in range(COUNT):
            await producer.enqueue(
                topic,
                b"%d" % number,
                timestamp_ms=START_MS + number * 1000,
                partition=number % 2,
            )
        await producer.flush()
        consumer.assign(topic)
        await consumer.seek_to_beginning()
        read: set[int] = set()
        while len(read) < COUNT:
            read |= {int(one.value or b"") for one in await consumer.fetch()}
        assert read == set(range(COUNT))
        await consumer.commit()
        positions = [await admin.position(f"reader-{topic}", topic, one) for one in (0, 1)]
        assert [one and one.offset for one in positions] == [COUNT // 2, COUNT // 2]
        found = await admin.find_offset(topic, 1, timestamp_ms=START_MS + 20_500)
        assert isinstance(found, Found)
        assert found.offset == 10
        start = datetime.fromtimestamp(START_MS / 1000, UTC)
        window = consumer.window(
            topic, start + timedelta(seconds=10), start + timedelta(seconds=30)
        )
        assert {int(one.value or b"") async for one in window} == set(range(10, 30))
        counted = await admin.count_by_time(
            topic, start, start + timedelta(seconds=COUNT), every=timedelta(seconds=20)
        )
        assert [one.count for one in counted.intervals] == [20, 20, 20]


@pytest.mark.parametrize(
    "mechanism", [Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512, Mechanism.PLAIN]
)
@pytest.mark.both_loops
async def test_passwords_over_tls(
    guarded: str, alice: Callable[..., Security], new_topic: NewTopic, mechanism: Mechanism
) -> None:
    await use(guarded, alice(mechanism), await new_topic(2))


@pytest.mark.parametrize("mechanism", [Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512])
async def test_passwords_that_are_not_sent_need_no_tls(
    apache: ApacheKafka, new_topic: NewTopic, mechanism: Mechanism
) -> None:
    security = Security(mechanism=mechanism, user="alice", password=PASSWORD)
    await use(f"kafka://{apache.at('OPEN')}", security, await new_topic(2))


async def test_a_password_that_is_sent_without_tls_has_to_be_allowed(
    apache: ApacheKafka, new_topic: NewTopic
) -> None:
    address = f"kafka://{apache.at('OPEN')}"
    security = Security(mechanism=Mechanism.PLAIN, user="alice", password=PASSWORD)
    with pytest.raises(ValueError, match="everybody on the way can read it"):
        Admin(address, security=security)
    allowed = Security(
        mechanism=Mechanism.PLAIN, user="alice", password=PASSWORD, secrets_without_tls=True
    )
    await use(address, allowed, await new_topic(2))


@pytest.mark.both_loops
async def test_a_client_with_a_certificate(
    apache: ApacheKafka, certificates: Certificates, new_topic: NewTopic
) -> None:
    security = Security(
        ca=certificates.ca,
        certificate=str(certificates.client.certificate),
        key=str(certificates.client.key),
    )
    await use(f"kafka+tls://{apache.at('MUTUAL')}", security, await new_topic(2))


async def test_a_key_that_a_password_opens(
    apache: ApacheKafka, certificates: Certificates, new_topic: NewTopic
) -> None:
    pair = encrypted(certificates.client)
    security = Security(
        ca=certificates.ca,
        certificate=str(pair.certificate),
        key=str(pair.key),
        key_password=KEY_PASSWORD,
    )
    await use(f"kafka+tls://{apache.at('MUTUAL')}", security, await new_topic(2))


async def test_a_token_of_a_function(
    guarded: str, certificates: Certificates, new_topic: NewTopic
) -> None:
    asked = 0

    async def token() -> str:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return unsecured_token("alice")

    await use(guarded, Security(ca=certificates.ca, token=token), await new_topic(2))
    # For each connection: those to both brokers, and the ones of fetches beside them.
    assert asked >= 4
