"""A broker for tests: in the running event loop, or in a thread with its own event loop, on free
ports.

With its own loop it serves blocking clients and tests with or without a loop alike. They cannot
keep it from answering, and it cannot keep them from running.
"""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TextIO

from ..clock import Clock
from ..config.address import Scheme
from ..config.broker import BrokerSettings, broker_settings
from ..server.broker import Broker
from ..server.network.ports import HTTP, Addresses, Port
from ..storage.files import Files
from ..storage.log.log import Log
from .clock import MovingClock
from .files import QuickFiles

DEADLINE_SECONDS: Final = 30
"""Maximum time to start, to stop, and to run the tasks that became due in a step of the clock."""


class BrokerThread:
    """A broker that serves from `start` to `stop`, or in a `with` block.

    Its files are real, but syncs do nothing: only a test that cuts the power needs them.
    """

    def __init__(self, data_dir: Path, settings: Mapping[str, object] | None = None) -> None:
        """`settings` are the broker's, and defaults for its topics: `{"retention.ms": 60_000}`.

        There is no HTTP port without `http.listen`, and no port for Kafka's clients without
        `kafka.listen`. Without `listen`, the native protocol gets a free port.
        """
        self.data_dir = data_dir
        self.clock = MovingClock()
        self._settings = {"http.listen": "off", "kafka.listen": "off", **(settings or {})}
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._addresses: Addresses | None = None

    @property
    def address(self) -> str:
        """`HOST:PORT` of the native protocol."""
        return self._known.native

    @property
    def http_address(self) -> str | None:
        """`HOST:PORT` of the HTTP port; None when `http.listen` is off."""
        return self._known.http

    @property
    def kafka_address(self) -> str | None:
        """`HOST:PORT` for Kafka's clients; None when `kafka.listen` is off."""
        return self._known.kafka

    def start(self) -> None:
        """Start the broker, and return when it can serve. Raises the error that prevents the
        start."""
        if self._thread is not None:
            raise RuntimeError("the broker is running already")
        self._started: Future[tuple[Broker, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="horolog broker", daemon=True)
        self._thread.start()
        try:
            self._broker, self._loop, self._asked_to_stop = self._started.result(DEADLINE_SECONDS)
        except BaseException:
            self._thread = None
            raise
        self._addresses = self._broker.addresses
        self.clock.on_passed = self._time_passed

    def stop(self) -> None:
        """Stop the broker cleanly. Raises the error that ended it early. Does nothing if it is
        stopped."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self.clock.on_passed = lambda seconds: None
        if not self._ended.done():  # otherwise it failed, and `result` raises the error
            self._loop.call_soon_threadsafe(self._asked_to_stop.set)
        self._ended.result(DEADLINE_SECONDS)
        thread.join(DEADLINE_SECONDS)

    def restart(self) -> None:
        """Stop cleanly and start again, with the same address, data and clock."""
        self.stop()
        self._settings["listen"] = self.address
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def _known(self) -> Addresses:
        if self._addresses is None:
            raise RuntimeError("the broker was not started")
        return self._addresses

    def _time_passed(self, seconds: float) -> None:
        done = asyncio.run_coroutine_threadsafe(
            self._broker.maintenance.time_passed(seconds), self._loop
        )
        done.result(DEADLINE_SECONDS)

    def _run(self) -> None:
        import uvloop

        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            # The waiting thread raises it.
            (self._ended if self._started.done() else self._started).set_exception(error)
        else:
            self._ended.set_result(None)

    async def _serve(self) -> None:
        asked_to_stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with running_broker(
            self.data_dir, self.clock, QuickFiles(), log_stream=None, **self._settings
        ) as broker:
            loop.set_exception_handler(broker.loop_error)
            self._started.set_result((broker, loop, asked_to_stop))
            await asked_to_stop.wait()


@asynccontextmanager
async def running_broker(
    data_dir: Path,
    clock: Clock | None = None,
    files: Files | None = None,
    log_stream: TextIO | None = None,
    **settings: object,
) -> AsyncIterator[Broker]:
    """Run a broker on `data_dir`, and stop it cleanly at the end of the block.

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
    """Sync these logs in the broker's own threads. Returns when no sync is running or requested."""
    for log in logs:
        broker.services.commits.request(log.flusher)
    done = asyncio.Event()
    broker.services.commits.when_idle(done.set)
    await done.wait()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def plain_port(bound: socket.socket) -> Port:
    """Return an HTTP port without TLS and without logins."""
    return Port(
        setting=HTTP,
        scheme=Scheme.BARE,
        bound=bound,
        certificate=False,
        login=False,
        client_certificate_required=False,
    )
