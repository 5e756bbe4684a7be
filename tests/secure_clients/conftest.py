"""An Apache Kafka of two brokers with every kind of guarded listener, and its certificates."""

import itertools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from horolog import Admin, Security
from horolog.bench.apache_kafka import ApacheKafka, apache_kafka
from horolog.client.security.security import Mechanism

from .certificates import Authority, Pair

PASSWORD: Final = "correct-horse-7213"

_NUMBERS: Final = itertools.count()

LISTENERS: Final = {
    "GUARDED": "SASL_SSL",
    "MUTUAL": "SSL",
    "OPEN": "SASL_PLAINTEXT",
    "SHORT": "SASL_PLAINTEXT",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
}
"""What each is for: everything; client certificates; no TLS; sessions of a second and a half; a
certificate that has expired; one that is for another host."""

SESSION_MS: Final = 1_500

NewTopic = Callable[..., Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Certificates:
    """Who trusts whom."""

    authority: Authority
    stranger: Authority
    """One that nobody here trusts."""
    client: Pair
    client_of_stranger: Pair

    @property
    def ca(self) -> str:
        return str(self.authority.certificate)


@pytest.fixture(scope="package")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    authority, stranger = Authority(folder, "authority"), Authority(folder, "stranger")
    return Certificates(
        authority, stranger, authority.signed("client"), stranger.signed("client-of-stranger")
    )


@pytest.fixture(scope="package")
def apache(
    require_apache_kafka: None,
    certificates: Certificates,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ApacheKafka]:
    users = [f"SCRAM-SHA-{n}=[name=alice,password={PASSWORD}]" for n in (256, 512)]
    with apache_kafka(
        tmp_path_factory.mktemp("apache-kafka"),
        brokers=2,
        settings=_settings(certificates),
        listeners=LISTENERS,
        users=users,
    ) as running:
        yield running


def _settings(certificates: Certificates) -> dict[str, str]:
    authority = certificates.authority
    here = "IP:127.0.0.1,DNS:localhost"
    stores = {
        "guarded": authority.signed("broker", here),
        "mutual": authority.signed("mutual", here),
        "expired": authority.signed("expired", here, days=-1),
        "elsewhere": authority.signed("elsewhere", "DNS:elsewhere.example"),
    }
    found = {
        "default.replication.factor": "2",
        "connection.failed.authentication.delay.ms": "20",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates.ca,
        "listener.name.mutual.ssl.client.auth": "required",
    }
    for name, pair in stores.items():
        found[f"listener.name.{name}.ssl.keystore.type"] = "PEM"
        found[f"listener.name.{name}.ssl.keystore.location"] = str(pair.in_one())
    for name in ("guarded", "open", "short"):
        found |= _mechanisms(f"listener.name.{name}", oauth=name == "guarded")
    found["listener.name.short.scram-sha-512.connections.max.reauth.ms"] = str(SESSION_MS)
    return found


def _mechanisms(listener: str, *, oauth: bool) -> dict[str, str]:
    package = "org.apache.kafka.common.security"
    modules = {
        "SCRAM-SHA-256": f"{package}.scram.ScramLoginModule required;",
        "SCRAM-SHA-512": f"{package}.scram.ScramLoginModule required;",
        "PLAIN": f'{package}.plain.PlainLoginModule required user_alice="{PASSWORD}";',
    }
    if oauth:
        modules["OAUTHBEARER"] = (
            f"{package}.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker";'
        )
    found = {f"{listener}.sasl.enabled.mechanisms": ",".join(modules)}
    for mechanism, module in modules.items():
        found[f"{listener}.{mechanism.lower()}.sasl.jaas.config"] = module
    return found


@pytest.fixture
def guarded(apache: ApacheKafka) -> str:
    """The address of the listeners with TLS and passwords."""
    return f"kafka+tls://{apache.at('GUARDED')}"


@pytest.fixture
def alice(certificates: Certificates) -> Callable[..., Security]:
    """`alice(mechanism)` is how the user alice is let in over TLS."""

    def made(mechanism: Mechanism = Mechanism.SCRAM_SHA_512, **changes: object) -> Security:
        given = {"ca": certificates.ca, "user": "alice", "password": PASSWORD, **changes}
        return Security(mechanism=mechanism, **given)  # type: ignore[arg-type]

    return made


@pytest.fixture
def new_topic(apache: ApacheKafka) -> NewTopic:
    """`await new_topic(partitions=1)` makes one."""

    async def make(partitions: int = 1) -> str:
        name = f"topic-{next(_NUMBERS)}"
        async with Admin(f"kafka://{apache.bootstrap}") as admin:
            await admin.create_topic(name, partitions=partitions)
        return name

    return make
