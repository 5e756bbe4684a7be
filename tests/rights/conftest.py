"""Brokers that look at rights, and whoever asks them: without a login it is User:ANONYMOUS."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from horolog.protocol.api.encodings import Encoding
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.security.acl_terms import (
    CLUSTER_NAME,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from horolog.server.broker import Broker
from horolog.server.security.acls import Acl
from horolog.testing.access import change_access
from horolog.testing.broker import running_broker
from horolog.testing.wire import Wire, wire

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
ANONYMOUS = "User:ANONYMOUS"

Right = tuple[Operation, ResourceType]


def rule(right: Right, name: str = "*", **changed: Any) -> Acl:
    """That User:ANONYMOUS may do something."""
    operation, kind = right
    values: dict[str, Any] = {
        "resource_type": kind,
        "pattern_type": PatternType.LITERAL,
        "resource_name": CLUSTER_NAME if kind is CLUSTER else name,
        "principal": ANONYMOUS,
        "host": "*",
        "operation": operation,
        "permission": Permission.ALLOW,
    }
    return Acl(**{**values, **changed})


def only(broker: Broker, *rules: Acl) -> None:
    """Have these rules and no others."""
    acls = broker.security.acls
    change_access(broker, lambda: acls.plan_removing(lambda acl: acl not in rules))
    change_access(broker, lambda: acls.plan_adding(rules))


def add(broker: Broker, *rules: Acl) -> None:
    """Have these rules beside those that there are."""
    change_access(broker, lambda: broker.security.acls.plan_adding(rules))


Strict = Callable[..., AbstractAsyncContextManager[Broker]]


@pytest.fixture
def strict(tmp_path: Path) -> Strict:
    """Starts brokers with authorization, without a login."""

    @asynccontextmanager
    async def start(**settings: Any) -> AsyncIterator[Broker]:
        given = {
            "kafka_listen": "127.0.0.1:0",
            "http_listen": "off",
            "authorization": "on",
            "log_initial_task_delay_ms": 3_600_000,  # messages of 1970 stay
        }
        async with running_broker(tmp_path / "data", **{**given, **settings}) as broker:
            yield broker

    return partial(start)


def connection(broker: Broker, encoding: Encoding) -> AbstractAsyncContextManager[Wire]:
    addresses = broker.addresses
    address = addresses.native if encoding is native else addresses.kafka
    return wire(str(address), encoding)


ENCODINGS = [pytest.param(native, id="native"), pytest.param(kafka, id="kafka")]


def codes(results: Iterable[Any]) -> list[int]:
    return [result.error_code for result in results]
