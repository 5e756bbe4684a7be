"""A broker inside the running event loop, on free ports, for tests."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TextIO

from ..clock import Clock
from ..config.broker import BrokerSettings, broker_settings
from ..server.broker import Broker
from ..storage.files import Files
from ..storage.log.log import Log


@asynccontextmanager
async def running_broker(
    data_dir: Path,
    clock: Clock | None = None,
    files: Files | None = None,
    log_stream: TextIO | None = None,
    **settings: object,
) -> AsyncIterator[Broker]:
    """A started broker on `data_dir`; it is stopped cleanly in the end.

    `settings` are settings of the broker, and defaults for its topics, with underscores for dots:
    `running_broker(path, retention_ms=1000, http_listen="off")`.
    """
    chosen = _settings(data_dir, settings)
    broker = Broker(chosen, clock=clock, files=files, log_stream=log_stream)
    async with _running(broker):
        yield broker


def _settings(data_dir: Path, settings: Mapping[str, object]) -> BrokerSettings:
    return broker_settings(
        {
            "listen": "127.0.0.1:0",
            "http.listen": "127.0.0.1:0",
            "kafka.listen": "off",
            **{name.replace("_", "."): _text(value) for name, value in settings.items()},
            "data.dir": str(data_dir),
        }
    )


@asynccontextmanager
async def _running(broker: Broker) -> AsyncIterator[None]:
    await broker.start()
    try:
        yield
    finally:
        await broker.stop()


async def synced(broker: Broker, *logs: Log) -> None:
    """Sync these logs by the broker's own threads, one at a time. Return when no sync is under way
    or requested."""
    for log in logs:
        broker.services.commits.request(log.flusher)
    done = asyncio.Event()
    broker.services.commits.when_idle(done.set)
    await done.wait()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
