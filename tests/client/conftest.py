"""A broker that does what a test tells it, and a real one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from horolog.client.cluster.connection import ClientConnection
from horolog.protocol.api.broker.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from horolog.protocol.api.log.init_producer_id import INIT_PRODUCER_ID, InitProducerIdResponse
from horolog.protocol.api.native.frames import (
    RequestHead,
    decode_body,
    encode_response,
    open_request,
)
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.schema import Api
from horolog.protocol.api.topics.describe_configs import DESCRIBE_CONFIGS, DescribeConfigsResponse
from horolog.server.broker import Broker
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock

Reply = Any
"""A response message, the bytes to send instead, or None for no answer."""

Handler = Callable[[RequestHead, Any, asyncio.StreamWriter], Awaitable[Reply]]


@dataclass
class ScriptedBroker:
    """Listens on a real socket and answers as `handler` says; api-versions and init-producer-id by
    itself, and describe-configs with no settings unless the handler `describes`."""

    handler: Handler
    served: list[ApiVersion] = field(
        default_factory=lambda: [
            ApiVersion(
                api_key=api.key,
                min_version=api.min_version,
                max_version=api.last_version(native=True),
            )
            for api in APIS.values()
        ]
    )
    requests: list[tuple[RequestHead, Any]] = field(default_factory=list)
    connections: list[asyncio.StreamWriter] = field(default_factory=list)
    describes: bool = False
    address: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(4), "big")
                head, raw = open_request(await reader.readexactly(length))
                body = decode_body(APIS[head.api_key].request, head.version, raw)
                if head.api_key == API_VERSIONS.key:
                    reply: Reply = ApiVersionsResponse(api_keys=self.served)
                elif head.api_key == DESCRIBE_CONFIGS.key and not self.describes:
                    reply = DescribeConfigsResponse(results=[])
                elif head.api_key == INIT_PRODUCER_ID.key:
                    reply = InitProducerIdResponse(producer_id=1, producer_epoch=0)
                else:
                    self.requests.append((head, body))
                    reply = await self.handler(head, body, writer)
                if reply is None:
                    continue
                if not isinstance(reply, bytes):
                    api = APIS[head.api_key]
                    reply = encode_response(head.correlation_id, api, head.version, reply)
                writer.write(reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


ScriptedBrokers = Callable[..., AbstractAsyncContextManager[ScriptedBroker]]


@pytest.fixture
def scripted_broker() -> ScriptedBrokers:
    """`async with scripted_broker(handler) as broker`; the rest is optional."""

    @asynccontextmanager
    async def start(
        handler: Handler,
        *,
        host: str = "127.0.0.1",
        served: list[ApiVersion] | None = None,
        describes: bool = False,
    ) -> AsyncIterator[ScriptedBroker]:
        broker = ScriptedBroker(handler, describes=describes)
        if served is not None:
            broker.served = served
        server = await asyncio.start_server(broker.serve, host, 0)
        port = server.sockets[0].getsockname()[1]
        broker.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            yield broker
        finally:
            server.close()
            for writer in broker.connections:
                writer.transport.abort()

    return start


Expire = Callable[[Api], None]


@pytest.fixture
def expire(monkeypatch: pytest.MonkeyPatch) -> Expire:
    """`expire(PRODUCE)` ends the time of the produce requests in flight. So a test of a broker that
    does not answer need not wait, and the requests that are answered have all the time they need.
    """
    connections: list[ClientConnection] = []
    made = ClientConnection.connection_made

    def noted(connection: ClientConnection, transport: asyncio.BaseTransport) -> None:
        connections.append(connection)
        made(connection, transport)

    def ended(api: Api) -> None:
        for connection in connections:
            for request in list(connection._pending.values()):
                if request.api is api:
                    connection._expire(request.answer, api, connection._request_timeout_ms)

    monkeypatch.setattr(ClientConnection, "connection_made", noted)
    return ended


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def broker(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    """A real broker with a clock that the test moves."""
    async with running_broker(tmp_path, clock=clock, http_listen="off") as started:
        yield started


@pytest.fixture
def address(broker: Broker) -> str:
    """Where the real broker listens."""
    return str(broker.addresses.native)
