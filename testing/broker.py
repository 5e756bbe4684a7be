"""A broker for tests: in the running event loop, or in a thread with its own event loop, on free
ports.

With its own loop it serves blocking clients and tests with or without a loop alike. They cannot
keep it from answering, and it cannot keep them from running.
"""

import asyncio
import shutil
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TextIO, TypeVar

from ..client.arguments import setting_texts
from ..client.recordings import NoRecording as NoRecording
from ..clock import Clock
from ..config.address import Scheme
from ..config.broker import BrokerSettings, broker_settings
from ..protocol.errors import StorageError
from ..server.broker import Broker
from ..server.network.listener import bind
from ..server.network.ports import HTTP, KAFKA, NATIVE, Addresses, Port
from ..storage.files import Files
from ..storage.log.log import Log
from .clock import ClockWatcher, Instant, MovingClock
from .faults import BrokerFaults
from .files import QuickFiles
from .recorded import LoadedRecording, load_recording
from .snapshots import (
    BrokerSnapshot,
    StateMark,
    copy_directory,
    forget_producers,
    replace_directory,
)
from .stored import StoredTopic

__all__ = ["BrokerThread", "NoRecording", "temporary_broker"]

DEADLINE_SECONDS: Final = 30
"""Maximum time to start, to stop, and to run the tasks that became due in a step of the clock."""

LOAD_SECONDS: Final = 600
"""Maximum time to load a recording."""

TICK_SECONDS: Final = 0.02
"""How often a broker is told the time of a clock that runs faster than the machine's."""

CATCH_UP_SECONDS: Final = 1.0
"""After a shorter stop, a broker starts without running the tasks that fell due during the stop."""

T = TypeVar("T")

_OFF: Final[dict[str, object]] = {HTTP: "off", KAFKA: "off"}

_ANY_PORT: Final = "127.0.0.1:0"

_HOUR_MS: Final = 3_600_000

_FOLLOWING: Final = ("retention", "offset_retention")
"""Tasks that run whenever time passes, whether they are due or not."""


class BrokerThread(ClockWatcher):
    """A broker that serves from `start` to `stop`, or in a `with` block.

    Its files are real, but syncs do nothing: only a test that cuts the power needs them.
    """

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, object] | None = None,
        clock: MovingClock | None = None,
    ) -> None:
        """`settings` are the broker's, and defaults for its topics: `{"retention.ms": 60_000}`.

        There is no HTTP port without `http.listen`, and no port for Kafka's clients without
        `kafka.listen`. Without `listen`, the native protocol gets a free port. Without `clock`, the
        broker has a clock of its own.
        """
        self.data_dir = data_dir
        self.clock = clock or MovingClock()
        self.faults = BrokerFaults(self.clock.now_ms, self._halt)
        self._settings = _named(settings or {})
        self._more_settings: dict[str, object] = {}
        self._ports: dict[str, int] = {}
        """The ports of the first start, by setting."""
        self._held: dict[str, socket.socket] = {}
        """Sockets that are bound to these ports."""
        self._blocks = 0
        """How many `with` blocks use the broker: until their end it may start again."""
        self._thread: threading.Thread | None = None
        self._addresses: Addresses | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._snapshots: list[Path] = []
        self._last: BrokerSnapshot | None = None
        """The snapshot that was taken or restored last."""
        self._stopped: tuple[float, float] | None = None
        """The clock's seconds and its errors at the last stop, unless the data was replaced
        since."""

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

    @property
    def settings(self) -> Mapping[str, object]:
        """The settings that were given, with dots in their names."""
        return dict(self._settings)

    @property
    def is_running(self) -> bool:
        """Whether the broker was started and not stopped since."""
        return self._thread is not None

    def start(self, more_settings: Mapping[str, object] | None = None) -> None:
        """Start the broker, and return when it can serve; `more_settings` hold until it is stopped.
        Raises the error that prevents the start."""
        if self._thread is not None:
            raise RuntimeError("the broker is running already")
        self._more_settings = _named(more_settings or {})
        self._hold_ports()
        self._started: Future[tuple[Broker, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="horolog broker", daemon=True)
        self._thread.start()
        try:
            self._broker, self._loop, self._asked_to_stop = self._started.result(DEADLINE_SECONDS)
        except BaseException:
            self._thread = None
            if not self._blocks:
                self._release_ports()
            raise
        self._addresses = self._broker.addresses
        self.clock.watchers.append(self)
        if self.clock.speed > 1:
            self.speed_changed(self.clock.speed)
        self._catch_up()

    def _catch_up(self) -> None:
        """Follow the clock over the time during which the broker was stopped. A clock that was set
        wrong meanwhile is not believed."""
        stopped, self._stopped = self._stopped, None
        if stopped is not None and stopped[1] == self.clock.error_ms:
            self.was_set()
            seconds = self.clock.monotonic() - stopped[0]
            if seconds >= CATCH_UP_SECONDS:
                self.time_passed(seconds)

    def stop(self) -> None:
        """Stop the broker cleanly. Raises the error that ended it early. Does nothing if it is
        stopped.

        In a `with` block the broker keeps its ports: they refuse connections, no other process gets
        them, and a later `start` has the same addresses.
        """
        try:
            self._halt()
        finally:
            if not self._blocks:
                self._release_ports()

    def _halt(self, *, discards: bool = False) -> None:
        """Stop the broker, which is to start again: no other process gets its ports. `discards`
        says that its data will be replaced: it may be data that a full disk cannot take."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self.clock.watchers.remove(self)
        self._stopped = self.clock.monotonic(), self.clock.error_ms
        failed = self._ended.done()  # Then `result` raises the error.
        if not failed:
            self._loop.call_soon_threadsafe(self._asked_to_stop.set)
        try:
            self._ended.result(DEADLINE_SECONDS)
        except StorageError:
            if failed or not discards:
                raise
        thread.join(DEADLINE_SECONDS)

    def restart(self, settings: Mapping[str, object] | None = None) -> None:
        """Stop cleanly and start again, with the same addresses, data and clock, and with other
        `settings` if they are given."""
        wanted = self._settings if settings is None else _named(settings)
        self._halt()
        self._settings = wanted
        self.start()

    def snapshot(self) -> BrokerSnapshot:
        """Take a snapshot: of topics, messages, positions, groups, settings and users, and of the
        clock. Connections stay open."""
        mark = self.in_loop(state_mark)
        clock = self.clock.offset()
        last = self._last
        if last is not None and last.mark == mark and last.clock == clock:
            return last
        folder = Path(tempfile.mkdtemp(prefix="snapshot-", dir=self.data_dir.parent))
        try:
            mark = self.in_loop(lambda broker: _copy(broker, folder))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._snapshots.append(folder)
        self._last = BrokerSnapshot(self, folder, clock, mark)
        return self._last

    def restore(
        self, snapshot: BrokerSnapshot | None = None, settings: Mapping[str, object] | None = None
    ) -> None:
        """Put the broker back into the state of a snapshot, by default the last one, with its clock
        as far from the machine's as it was then.

        The addresses stay. Connections are closed, and clients connect again. The broker gets other
        `settings` if they are given. Raises `TypeError` for what is no snapshot, `ValueError`
        without a snapshot, and for one of another broker.
        """
        chosen = snapshot or self._last
        if chosen is None:
            raise ValueError("there is no snapshot of this broker: take one with snapshot()")
        self._check_own(chosen)
        wanted = self._settings if settings is None else _named(settings)
        try:
            self._halt(discards=True)
        finally:
            self.replace_data(chosen)
            self._settings = wanted
            self.start()

    @contextmanager
    def borrowed(self, settings: Mapping[str, object] | None = None) -> Iterator[None]:
        """Lend the broker to a test, with more `settings`: at the end of the block it has the
        state, the settings, the clock and the faults that it had before. Snapshots that are taken
        in the block go with it."""
        own, faults = self.settings, self.faults.armed()
        wanted = _named(settings or {})
        if not self.is_running:
            self.start()
        before = self.snapshot()
        kept = len(self._snapshots)
        more = {
            name: value
            for name, value in wanted.items()
            if not (name in own and str(value) == _ANY_PORT)  # It has such a port already.
        }
        self._blocks += 1
        try:
            if more:
                self.restart({**own, **more})
            yield
        finally:
            try:
                self.faults.put_back(faults)
            finally:
                self.restore(before, own)
                self._remove_snapshots(kept)
                self._blocks -= 1

    def replace_data(self, snapshot: BrokerSnapshot) -> None:
        """Give the stopped broker the data and the clock of a snapshot. Raises `ValueError` for a
        snapshot of another broker."""
        self._check_own(snapshot)
        self.clock.take(snapshot.clock)
        replace_directory(self.data_dir, snapshot.folder, self.clock.now_ms())
        self._last = snapshot
        self._stopped = None

    def _check_own(self, snapshot: BrokerSnapshot) -> None:
        if not isinstance(snapshot, BrokerSnapshot):
            raise TypeError(f"snapshot {snapshot!r}: it must be what snapshot() returned")
        if snapshot.folder not in self._snapshots:
            raise ValueError(
                "the snapshot is of another broker, or was taken in a test that has ended"
            )

    def topic(self, name: str) -> StoredTopic:
        """Return a topic, to look at what is stored in it."""
        return StoredTopic(name, self.in_loop)

    def load(
        self, file: str | Path, *, shift_to: Instant | None = None, topic: str | None = None
    ) -> LoadedRecording:
        """Send the messages of a file of `horolog record`, with their keys, headers and partitions.

        The topic is that of the recording or `topic`, and is created if it is missing. Times stay,
        unless `shift_to` says when the recorded window is to begin: a datetime, epoch
        milliseconds, or a text on this broker's clock, such as `now` and `@-1h`. Raises `OSError`,
        `ValueError` if the file is no recording, and the errors of sending.
        """
        now_ms = self.clock.now_ms()
        return self.in_loop(
            lambda broker: load_recording(
                broker.addresses.native, Path(file), shift_to=shift_to, topic=topic, now_ms=now_ms
            ),
            within_s=LOAD_SECONDS,
        )

    def __enter__(self) -> Self:
        self.start()
        self._blocks += 1
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._blocks -= 1
        try:
            self.stop()
        finally:
            self.close()

    def close(self) -> None:
        """Remove the snapshots."""
        self._remove_snapshots(0)

    def _remove_snapshots(self, kept: int) -> None:
        """Remove all snapshots but the first `kept`."""
        for folder in self._snapshots[kept:]:
            shutil.rmtree(folder, ignore_errors=True)
        del self._snapshots[kept:]

    def in_loop(
        self,
        call: Callable[[Broker], Coroutine[Any, Any, T]],
        within_s: float = DEADLINE_SECONDS,
    ) -> T:
        """Run a coroutine in the loop of the broker, and return its result. Raises `RuntimeError`
        if the broker is stopped."""
        if self._thread is None:
            raise RuntimeError("the broker is stopped: start() it first")
        done = asyncio.run_coroutine_threadsafe(call(self._broker), self._loop)
        try:
            return done.result(within_s)
        except TimeoutError:
            done.cancel()
            raise

    # What the clock tells.

    def time_passed(self, seconds: float) -> None:
        self.in_loop(lambda broker: _follow(broker, seconds))

    def was_set(self) -> None:
        async def believe(broker: Broker) -> None:
            broker.trusted_time.believe()

        self.in_loop(believe)

    def speed_changed(self, speed: float) -> None:
        async def change(broker: Broker) -> None:
            if self._ticking is not None:
                self._ticking.cancel()
                self._ticking = None
            if speed > 1:
                self._ticking = self._loop.create_task(_tick(broker))

        self.in_loop(change)

    def _hold_ports(self) -> None:
        """Bind a free port for each setting that names none, without listening. The broker binds it
        too, and while it starts again the system gives the port to no other socket.

        Raises `CannotListen`.
        """
        for setting in (NATIVE, HTTP, KAFKA):
            given, _, _ = self._given(setting).partition(",")
            if setting in self._held or not given.endswith(":0"):
                continue
            wanted = given[:-1] + str(self._ports.get(setting, 0))
            held = self._held[setting] = bind(wanted.rpartition("://")[2], setting)
            self._ports[setting] = held.getsockname()[1]

    def _given(self, setting: str) -> str:
        """Return the addresses that a setting gives to a port, or `off`."""
        return str((_OFF | self._settings).get(setting, _ANY_PORT))

    def _release_ports(self) -> None:
        for held in self._held.values():
            held.close()
        self._held.clear()

    def _listening(self) -> dict[str, object]:
        """Return the addresses with the ports that are held, for the settings that name none."""
        found: dict[str, object] = {}
        for setting, port in self._ports.items():
            given, comma, others = self._given(setting).partition(",")
            if given.endswith(":0"):
                found[setting] = f"{given[:-1]}{port}{comma}{others}"
        return found

    @property
    def _known(self) -> Addresses:
        if self._addresses is None:
            raise RuntimeError("the broker was not started")
        return self._addresses

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
        settings = _OFF | self._settings | self._more_settings | self._listening()
        chosen = _settings(self.data_dir, settings)
        broker = Broker(chosen, clock=self.clock, files=QuickFiles(), log_stream=None)
        async with _running(broker):
            loop.set_exception_handler(broker.loop_error)
            self.faults.attach(broker)
            self._started.set_result((broker, loop, asked_to_stop))
            await asked_to_stop.wait()
            self.faults.attach(None)
            if self._ticking is not None:
                self._ticking.cancel()
                self._ticking = None


@contextmanager
def temporary_broker(settings: Mapping[str, object] | None = None) -> Iterator[BrokerThread]:
    """Run a broker in a temporary directory, with ports for both kinds of clients, for `unittest`,
    notebooks and programs.

    Inside of the block clients connect to `.address`, Kafka's clients to `.kafka_address`.
    """
    with (
        tempfile.TemporaryDirectory(prefix="horolog-") as folder,
        BrokerThread(Path(folder) / "data", {KAFKA: _ANY_PORT, **_named(settings or {})}) as broker,
    ):
        yield broker


def _named(settings: Mapping[str, object]) -> dict[str, object]:
    """Return settings with dots in their names. Raises `TypeError` for what is no mapping of names,
    `ValueError` for a data directory."""
    if not isinstance(settings, Mapping):
        raise TypeError(
            f"settings {settings!r}: they must be a mapping of names to values, such as "
            "{'retention.ms': 60_000}"
        )
    for name in settings:
        if not isinstance(name, str):
            raise TypeError(f"settings: name {name!r}: it must be a str, such as 'retention.ms'")
    named = _dotted(settings)
    if "data.dir" in named:
        raise ValueError(
            f"data.dir {str(named['data.dir'])!r}: the broker of a test has a data directory of "
            "its own, .data_dir: leave this setting out"
        )
    return named


def _dotted(settings: Mapping[str, object]) -> dict[str, object]:
    return {name.replace("_", "."): value for name, value in settings.items()}


async def _follow(broker: Broker, seconds: float) -> None:
    await broker.maintenance.time_passed(seconds, always=_FOLLOWING)


async def _tick(broker: Broker) -> None:
    """Tell a broker again and again how much more time has passed on its clock than on the event
    loop's."""
    loop = asyncio.get_running_loop()
    passed, real = broker.clock.monotonic(), loop.time()
    while True:
        await asyncio.sleep(TICK_SECONDS)
        now_passed, now_real = broker.clock.monotonic(), loop.time()
        more = (now_passed - passed) - (now_real - real)
        passed, real = now_passed, now_real
        if more > 0:
            await _follow(broker, more)


async def state_mark(broker: Broker) -> StateMark:
    """Return up to where the logs of a broker are written."""
    directory = broker.directory
    return StateMark(
        directory.metadata.log.log_end_offset,
        {
            (log.topic, log.partition): (log.log_start_offset, log.log_end_offset)
            for log in directory.open_logs()
        },
    )


async def _copy(broker: Broker, folder: Path) -> StateMark:
    """Copy the data directory as it is now, after everything is in its files."""
    await synced(broker, *broker.directory.open_logs())
    await broker.services.work.in_storage_thread(broker.directory.write_checkpoints)
    mark = await state_mark(broker)
    copy_directory(broker.settings.data_dir, folder)
    forget_producers(folder, broker.directory.open_logs())
    return mark


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
    `running_broker(path, retention_ms=1000, http_listen="off")`. The first pass of retention is due
    after an hour, not in the middle of a block that takes half a minute.
    """
    chosen = _settings(data_dir, {"log_initial_task_delay_ms": _HOUR_MS, **settings})
    broker = Broker(chosen, clock=clock, files=files, log_stream=log_stream)
    async with _running(broker):
        yield broker


def _settings(data_dir: Path, settings: Mapping[str, object]) -> BrokerSettings:
    return broker_settings(
        {
            "listen": _ANY_PORT,
            "http.listen": _ANY_PORT,
            "kafka.listen": "off",
            **{name: _text(name, value) for name, value in _dotted(settings).items()},
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


def _text(name: str, value: object) -> str:
    if isinstance(value, timedelta | datetime):
        return str(setting_texts({name: value})[name])
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
