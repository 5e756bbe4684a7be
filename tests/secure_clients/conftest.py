"""Users and topics of the Apache Kafka that tests share, at its guarded listeners."""

import itertools
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from horolog import Admin, Security
from horolog.bench.apache_kafka import ApacheKafka
from horolog.client.security.security import Mechanism

from .listeners import PASSWORD, Certificates

_NUMBERS: Final = itertools.count()

NewTopic = Callable[..., Awaitable[str]]


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
        name = f"guarded-{next(_NUMBERS)}"
        async with Admin(f"kafka://{apache.bootstrap}") as admin:
            await admin.create_topic(name, partitions=partitions)
        return name

    return make
