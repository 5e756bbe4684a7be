"""Which client does which step: what is tested and what docs/clients.md says."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from .aio_kafka import AioKafka
from .apache_tools import ApacheTools
from .client import Client
from .kafka_js import KafkaJs
from .kafka_python import KafkaPython, KafkaPythonAs010, KafkaPythonAs09
from .kcat import Kcat
from .librdkafka import ConfluentKafka, ConfluentKafkaAs09
from .steps import Step

CLIENTS: Final[tuple[type[Client], ...]] = (ConfluentKafka, Kcat, KafkaPython, AioKafka, KafkaJs)
"""Those of today, as they are."""

SHOWN: Final[tuple[type[Client], ...]] = (*CLIENTS, ApacheTools)
"""The columns of docs/clients.md: those, and one that starts a Java for everything it does."""

OLD_CLIENTS: Final[tuple[type[Client], ...]] = (
    ConfluentKafkaAs09,
    KafkaPythonAs09,
    KafkaPythonAs010,
)
"""Clients that were told of an old broker. They do one step: they read and write old formats."""

PROGRAMS: Final = {Kcat: ("kcat",), KafkaJs: ("node", "npm")}
"""What has to be installed beside Python packages."""

PROVED: Final[set[Step]] = set()
"""Steps that some test is declared to prove."""

JAVA: Final = pytest.mark.timeout(900)
"""Of tests with a Java: it starts again and again, and Maven fetches it the first time."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def able(step: Step) -> Sequence[type[Client]]:
    """The clients that can do a step."""
    return [one for one in SHOWN if step not in one.unable and step not in one.untried]


def proves(step: Step) -> Decorator:
    """Runs the test, which takes a `client`, for every client that can do a step."""
    PROVED.add(step)
    return pytest.mark.parametrize(
        "client",
        [
            pytest.param(one, id=one.name, marks=[JAVA] if one is ApacheTools else [])
            for one in able(step)
        ],
        indirect=True,
    )
