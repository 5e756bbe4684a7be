"""Brokers with quotas whose clock stands still, and their clients."""

import asyncio
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
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.server.broker import Broker
from horolog.server.network.connection import Connection
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


FOREVER_SECONDS = 3600.0
"""Longer than a test may take."""


class Muted:
    """Connections that are not listened to, until the test ends that."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        """For how long each was not to be listened to."""
        self._connections: list[Connection] = []

    def begin(self, connection: Connection, seconds: float) -> None:
        self.seconds.append(seconds)
        self._connections.append(connection)

    def end(self) -> None:
        """The time is over for all of them."""
        for connection in self._connections:
            if connection._muted is not None:
                connection._muted.cancel()
                connection._unmute()
        self._connections.clear()


@pytest.fixture
def muted(monkeypatch: pytest.MonkeyPatch) -> Muted:
    """Nothing but `muted.end()` has connections listened to again."""
    found, mute = Muted(), Connection.mute

    def begin(connection: Connection, seconds: float) -> None:
        found.begin(connection, seconds)
        mute(connection, FOREVER_SECONDS)

    monkeypatch.setattr(Connection, "mute", begin)
    return found


async def answered_after(muted: Muted, other: Wire, waiting: "asyncio.Future[Any]") -> Any:
    """The answer to a request that has none until its client is listened to again, however often
    another client has been answered."""
    other.client_id = "another"
    for _ in range(20):
        await other.call(MetadataRequest(topics=[]))
    assert not waiting.done()
    muted.end()
    return await waiting


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
