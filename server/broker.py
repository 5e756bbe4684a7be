"""The broker: its parts put together, started and stopped in order."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib import import_module
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, TextIO

from ..clock import Clock, SystemClock
from ..compiled import PRICE, REMEDY
from ..config.address import host_names
from ..config.broker import BrokerSettings
from ..protocol.api.kafka import frames as kafka
from ..protocol.api.native import frames as native
from ..protocol.errors import InvalidConfig
from ..protocol.records.codecs import codec as codecs
from ..protocol.records.kernel import FORM
from ..storage.directory.directory_opening import open_directory
from ..storage.directory.known_files import UNFINISHED_SETTING_ASIDE
from ..storage.directory.log_directory import LogDirectory
from ..storage.events import Observer
from ..storage.files import Files, SystemFiles
from ..storage.log.log import Log
from .dispatch import Dispatcher
from .events import Events
from .handlers import HANDLERS, HANDLERS_OF_MANY
from .handlers.settings import warn_at_start
from .listening import make_connections, make_listener, shares_of_files
from .metrics.figures import Figures, LoopLag
from .network.connections import address_counts
from .network.held_memory import within_memory
from .network.listener import Shares
from .network.ports import HTTP, KAFKA, NATIVE, Port, Ports
from .quotas.meter import Meter
from .replication.member_files import MemberFiles
from .requests import Handler
from .rights import audited
from .security.service import SecurityService
from .services import ServiceInputs, make_services
from .trusted_time import TrustedTime
from .web.port import HttpLimits, HttpPort
from .web.server import HttpServer, HttpState

if TYPE_CHECKING:
    from aiohttp import web

HTTP_MODULES = (f"{__package__}.page.routes", f"{__package__}.web.connection")
"""Modules that import aiohttp."""

LINES_AT_ONCE = 50
"""Lines of metrics that are made before other requests may get a turn."""

DAMAGES_MAX = 3
"""Damaged segments that `/readyz` names."""

STOP_SECONDS = 5.0
"""How long a stopping broker waits for clients to receive their last answers."""


class Broker:
    """One broker in one event loop, from `start` to `stop`."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        log_stream: TextIO | None = None,
        settled: Callable[[], None] | None = None,
    ) -> None:
        """Nothing is opened yet. Without a `log_stream` events are only counted.

        `settled` is called once, when every log has been opened: the objects in memory then are
        there to stay.
        """
        self.settings = settings
        self.clock = clock or SystemClock()
        self.figures = Figures(self.clock, settings.max_latency_window_ms)
        self.observe = Events(
            self.figures,
            self.clock,
            log_format=settings.log_format,
            log_level=settings.log_level,
            stream=log_stream,
        )
        self._log_stream = log_stream
        self._settled = settled
        self._files = files or SystemFiles(int(settings.data_file_mode, 8))
        self._cleanups = AsyncExitStack()
        self._serving = False
        self._meter: Meter | None = None
        self._replica_files: MemberFiles | None = None
        """The files of a cluster member about its own identity and about leaders."""
        self._all_open = False
        """Whether every log was opened, or could not be opened."""

    async def start(self) -> None:
        """Open the data and serve.

        Raises `CannotListen`, `InvalidConfig`, `StorageError`, `OSError`; everything that was
        opened is closed again then.
        """
        async with AsyncExitStack() as cleanups:
            ports = self._ports = cleanups.enter_context(Ports(self.settings, self.observe))
            if isinstance(self._files, SystemFiles):
                self._files.keep_spare()
                cleanups.callback(self._files.drop_spare)
            self.security = SecurityService(
                *(self.settings, ports, self.figures, self.observe),
                clock=self.clock,
            )
            cleanups.callback(self.security.stop)
            await make_room(self.settings, self._files, self.clock, self.observe)
            shares = self._open_storage(cleanups)
            ports.listen()
            self.addresses = ports.addresses
            self._make_services(cleanups)
            http = self._http_server(shares)
            cleanups.push_async_callback(http.stop)
            self.maintenance.start()
            cleanups.push_async_callback(self.maintenance.stop)
            work = self.services.work
            self._connections = make_connections(
                self.settings, shares.connections, self.figures, self.observe, work
            )
            cleanups.push_async_callback(self._connections.finish, STOP_SECONDS)
            lag = LoopLag(asyncio.get_running_loop(), self.figures.loop_lag)
            cleanups.callback(lag.stop)
            lag.start()
            cleanups.callback(self.services.groups.stop)
            self.directory.cluster_id()  # No request has to wait for the disk because of it later.
            self.security.start()
            cleanups.push_async_callback(self.services.replication.stop)
            await self.services.replication.start()
            for port in ports.of(NATIVE):
                self._listen(port, self.dispatcher, cleanups)
            for port in ports.of(KAFKA):
                self._listen(port, self.kafka_dispatcher, cleanups)
            # Last: nothing after this can fail, and this reports that the broker has started.
            late = asyncio.get_running_loop().create_task(self._finish_start(http, ports.of(HTTP)))
            cleanups.push_async_callback(asyncio.wait, [late])
            self._cleanups = cleanups.pop_all()
        self._serving = True

    async def stop(self) -> None:
        """Answer what was received, sync, and leave the data directory cleanly closed.

        Raises `OSError` or `StorageError` if the disk fails; the next start then recovers the
        logs.
        """
        self._serving = False
        await self._cleanups.aclose()
        self.observe("broker_stopped")

    def read_certificates_again(self) -> None:
        """Read the certificate and key files of TLS again, and use them for new connections."""
        if self._serving:
            self.security.read_certificates_again()

    def metrics_text(self) -> bytes:
        """Return the present text of `/metrics`."""
        return "".join(self._metrics_lines()).encode()

    async def _scrape(self) -> bytes:
        """As `metrics_text`, but other requests get their turns between the lines."""
        await self.services.lags.refresh()
        turns = self.services.work.turns()
        lines = self._metrics_lines()
        made: list[str] = []
        while some := list(islice(lines, LINES_AT_ONCE)):
            made += some
            await turns.give_way()
        return "".join(made).encode()

    def _metrics_lines(self) -> Iterator[str]:
        # A topic may have been counted once more while it was being deleted.
        for name in self.figures.topics.keys() - self.directory.topics().keys():
            self.figures.forget(name)
        from .metrics.families import Gauges, metrics_lines

        services = self.services
        gauges = Gauges(
            logs=self.logs,
            retention_now_ms=self.trusted_time.now_ms(),
            clock_ahead_seconds=self.trusted_time.ahead_ms / 1000,
            connections=self.connections(),
            held_bytes=self._connections.held_memory.count_again(),
            unauthenticated=self.unauthenticated(),
            certificate_days=self.certificate_days(),
            parked=self.parked(),
            positions=services.lags.followed,
            lags_left_out=services.lags.left_out,
            groups=services.groups.figures(),
            positions_bytes=self.positions_bytes(),
            producer_states_bytes=self.producer_states_bytes(),
            replicas=services.replication.figures(),
        )
        return metrics_lines(self.figures, gauges)

    def loop_error(self, _: asyncio.AbstractEventLoop, context: Mapping[str, object]) -> None:
        """Report an exception that nothing caught, as the event loop's exception handler."""
        self.observe("loop_error", message=context.get("message"), error=context.get("exception"))

    # Values for metrics and tests.

    def logs(self) -> Iterable[Log]:
        return self.directory.open_logs()

    def connections(self) -> int:
        return len(self._connections)

    def parked(self) -> Mapping[str, int]:
        return {"fetch": len(self.services.fetches), "produce": len(self.services.produces)}

    def positions_bytes(self) -> int:
        return self.directory.committed.size_bytes

    def producer_states_bytes(self) -> int:
        return self.directory.producer_states_bytes

    def unauthenticated(self) -> int:
        return self._connections.outside

    def certificate_days(self) -> float | None:
        files = self.security.tls_files
        return None if files is None else files.days_left(self.clock.now_ms() / 1000)

    def _open_storage(self, cleanups: AsyncExitStack) -> Shares:
        """Open the data directory. Returns how the file handles are shared between files and
        connections."""
        self.settings = within_memory(self.settings, self.observe)
        settings = self.settings
        shares = shares_of_files(settings, self.observe)
        self.directory = open_directory(
            replace(settings, max_open_files=shares.files),
            clock=self.clock,
            files=self._files,
            observe=self.observe,
            random=Random(),
            member=bool(settings.broker_id),
        )
        cleanups.callback(self.directory.close)
        self._replica_files = open_replica_files(self.directory, settings, self._files)
        self.trusted_time = TrustedTime(
            self.clock,
            self.observe,
            last_seen_ms=self.directory.last_seen_ms,
            step_max_ms=settings.clock_step_max_ms,
            settle_ms=settings.clock_settle_ms,
        )
        cleanups.callback(self._leave_time)
        self._leave_time()
        return shares

    def _leave_time(self) -> None:
        """Store the trusted time, for the next start: the data was in use then."""
        with contextlib.suppress(OSError):
            self.directory.seen(self.trusted_time.trusted_ms)

    def _make_services(self, cleanups: AsyncExitStack) -> None:
        inputs = ServiceInputs(
            settings=self.settings,
            directory=self.directory,
            files=self._files,
            security=self.security,
            clock=self.clock,
            trusted_time=self.trusted_time,
            figures=self.figures,
            observe=self.observe,
            kafka_address=self.addresses.kafka,
        )
        self.services, self.maintenance = make_services(inputs, cleanups)
        if self._replica_files is not None:
            from .replication.membership import join_cluster

            self.services = join_cluster(
                self.services, self._replica_files, self.observe, self.addresses.native
            )
        self._make_dispatchers()

    def _use_quotas(self) -> None:
        """Apply the present quotas; without any, requests are not measured."""
        quotas = self.security.quotas.table
        if self._meter is None and quotas:
            self._meter = Meter(self.services)
        if self._meter is not None:
            self._meter.use(quotas)
        for dispatcher in (self.dispatcher, self.kafka_dispatcher):
            dispatcher.meter = self._meter if quotas else None

    def intercept(
        self, wrap: Callable[[Mapping[int, Handler]], Mapping[int, Handler]] | None
    ) -> None:
        """Have the handlers that `wrap` returns answer requests from now on, one by one; `None`
        ends that. For tests that inject faults."""
        handlers, many = self._handlers, self._handlers_of_many
        if wrap is not None:
            handlers, many = wrap(handlers), {}
        for dispatcher in (self.dispatcher, self.kafka_dispatcher):
            dispatcher.use(handlers, many)

    def _make_dispatchers(self) -> None:
        replication, guard = self.services.replication, None
        handlers = replication.gated(audited(HANDLERS))
        many = replication.gated_many(HANDLERS_OF_MANY)
        if self.security.authorization:
            from .rights import Guard

            guard = Guard(self.services, handlers)
            handlers = guard.handlers
        self._handlers, self._handlers_of_many = handlers, many
        self.dispatcher = Dispatcher(self.services, handlers, native, many, guard=guard)
        self.kafka_dispatcher = Dispatcher(self.services, handlers, kafka, many, guard=guard)
        self.security.quotas_changed = self._use_quotas
        if self.security.any_quotas:
            self._use_quotas()

    def _http_server(self, shares: Shares) -> HttpServer:
        settings = self.settings
        port = HttpPort(
            self.figures,
            self.observe,
            names=host_names(settings.http_hosts) or (),
            limits=HttpLimits(
                *(shares.http_connections, settings.max_connections_per_ip),
                overrides=address_counts(settings.max_connections_per_ip_overrides),
            ),
        )
        open_paths = self.settings.http_open_paths.split(",")
        return HttpServer(
            *(port, self._scrape, self._state, self._add_page),
            security=self.security,
            open_paths=open_paths,
            role=self.services.replication,
            damage=lambda: "; ".join(islice(self.services.scrubber.damages(), DAMAGES_MAX)),
        )

    async def _open_logs(self) -> None:
        await self.maintenance.open_logs()
        self._all_open = True
        if self._settled is not None:
            self._settled()

    def _state(self) -> HttpState:
        if not self._serving:
            return HttpState.STOPPED
        return HttpState.READY if self._all_open else HttpState.OPENING

    def _add_page(self, application: "web.Application") -> None:
        from .page.routes import Page

        Page(self.services).add_to(application)

    async def _finish_start(self, server: HttpServer, listening: Sequence[Port]) -> None:
        """Finish the parts of a start that clients need not wait for: logging, HTTP, and opening
        the logs that are not in use."""
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, _import_late, self._late_modules(listening))
            self.observe(
                "broker_started",
                native=self.addresses.native,
                http=self.addresses.http,
                kafka=self.addresses.kafka,
                data_dir=str(self.settings.data_dir),
                kernel=FORM,
            )
            if FORM != "compiled":
                self.observe(
                    "kernel_not_compiled",
                    hint=f"{PRICE}; {REMEDY}",
                )
            warn_at_start(self.services, self.observe)
            if listening:
                await server.start(listening)
        except Exception as error:
            self.observe("http_failed", error=error)
            for port in listening:
                port.bound.close()
        self.services.work.start(self._open_logs())

    def _late_modules(self, listening: Sequence[Port]) -> list[str]:
        logging = ["structlog"] if self._log_stream is not None else []
        page = ["prometheus_client", *HTTP_MODULES] if listening else []
        return [*codecs.LOADED_LATE, *logging, *page]

    def _listen(self, port: Port, dispatcher: Dispatcher, cleanups: AsyncExitStack) -> None:
        """Accept connections on one port."""
        listener = make_listener(port, dispatcher, self._connections, self.settings, self.security)
        cleanups.callback(listener.close)
        listener.start()


def _import_late(names: Iterable[str]) -> None:
    """Import, in a thread, the modules that would slow down the start."""
    for name in names:
        import_module(name)


async def make_room(
    settings: BrokerSettings, files: Files, clock: Clock, observe: Observer
) -> None:
    """Set aside the data of another cluster, if `--discard` asks for it or an earlier start began
    it."""
    if settings.cluster_discard or files.exists(settings.data_dir / UNFINISHED_SETTING_ASIDE):
        from .replication.membership import make_room as set_aside

        await set_aside(settings, files, clock, observe)


def open_replica_files(
    directory: LogDirectory, settings: BrokerSettings, files: Files
) -> MemberFiles | None:
    """Open the files of a cluster member about its own identity and about leaders; `None` for a
    single broker.

    Raises `InvalidConfig`, `StorageError`, `OSError`.
    """
    if settings.broker_id:
        from .replication.membership import open_as_one

        return open_as_one(settings, directory, files)
    if given := settings.of_several:
        raise InvalidConfig(
            f"{', '.join(given)}: only for a cluster member, and broker.id, its number in the "
            "cluster, must be 1 to 999; it is 0, which is a broker that is alone"
        )
    return None
