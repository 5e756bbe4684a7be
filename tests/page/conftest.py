"""A broker with an HTTP port, and its JSON as the page gets it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from horolog.server.broker import Broker
from horolog.server.page import histogram, window
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.wire import Wire, wire


@dataclass(frozen=True)
class Answer:
    """One HTTP answer."""

    status: int
    headers: Mapping[str, str]
    text: str
    body: Any
    """Its JSON, when it is that."""


Get = Callable[..., Awaitable[Answer]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def broker(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Broker]:
    """One whose answers are whole, also on a machine that stands still meanwhile."""
    for module in (histogram, window):
        monkeypatch.setattr(module, "SECONDS", 60.0)
    async with running_broker(tmp_path / "data", clock) as started:
        yield started


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Wire]:
    async with wire(broker.addresses.native) as connected:
        yield connected


@pytest.fixture
async def get(broker: Broker) -> AsyncIterator[Get]:
    """`await get("/page/find", topic="a", at="now")`; `from_` stands for `from`."""
    async with aiohttp.ClientSession(f"http://{broker.addresses.http}") as session:

        async def ask(
            path: str,
            *,
            headers: dict[str, str] | None = None,
            method: str = "GET",
            **query: object,
        ) -> Answer:
            asked = {name.rstrip("_"): str(value) for name, value in query.items()}
            async with session.request(method, path, params=asked, headers=headers) as response:
                text = await response.text()
                is_json = response.content_type == "application/json" and text
                body = await response.json() if is_json else None
                return Answer(response.status, response.headers, text, body)

        yield ask
