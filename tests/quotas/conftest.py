"""Brokers with quotas whose clock stands still, and those who ask them."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from horolog.protocol.api.encodings import Encoding
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.security.client_quotas import (
    AlterClientQuotasRequest,
    QuotaAlteration,
    QuotaEntityPart,
    QuotaOp,
)
from horolog.server.broker import Broker
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.wire import Wire, wire

ENCODINGS = [pytest.param(native, id="native"), pytest.param(kafka, id="kafka")]

Serving = Callable[..., AbstractAsyncContextManager[Broker]]
Parts = Mapping[str, str | None]
"""Names by type of entity; `None` is the default."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def serving(tmp_path: Path, clock: ManualClock) -> Serving:
    """Starts brokers on one data directory, with the clock of the test."""

    @asynccontextmanager
    async def start(**settings: Any) -> AsyncIterator[Broker]:
        given = {"kafka_listen": "127.0.0.1:0", "http_listen": "off", **settings}
        async with running_broker(tmp_path / "data", clock=clock, **given) as broker:
            yield broker

    return partial(start)


def connection(broker: Broker, encoding: Encoding = native) -> AbstractAsyncContextManager[Wire]:
    addresses = broker.addresses
    address = addresses.native if encoding is native else addresses.kafka
    return wire(str(address), encoding)


def alteration(parts: Parts, **values: float | None) -> QuotaAlteration:
    return QuotaAlteration(
        entity=[
            QuotaEntityPart(entity_type=kind, entity_name=name) for kind, name in parts.items()
        ],
        ops=[
            QuotaOp(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in values.items()
        ],
    )


async def set_quota(client: Wire, parts: Parts, **values: float | None) -> None:
    """Set quotas, or take them away with `None`."""
    request = AlterClientQuotasRequest(entries=[alteration(parts, **values)], validate_only=False)
    (result,) = (await client.call(request)).entries
    assert (result.error_code, result.error_message) == (0, None)
