"""What takes the connections of clients: endpoints of ports, listeners, and the connections that
all of them share."""

import asyncio
from functools import partial

from ..config.address import OFF, Scheme, split_address
from ..config.broker import BrokerSettings
from ..config.broker_table import AS_REACHED
from ..protocol.api.kafka import frames as kafka
from ..protocol.api.native import frames as native
from ..storage.events import Observer
from .dispatch import Dispatcher
from .metrics.figures import Figures
from .network.connection_slots import ConnectionSlots, address_counts, user_places
from .network.connections import Connections
from .network.endpoint import Endpoint
from .network.host import ConnectionLimits
from .network.listener import (
    HTTP_CONNECTIONS,
    Listener,
    Shares,
    raise_file_limit,
    share_files,
)
from .network.ports import KAFKA, Port, advertised
from .security.service import SecurityService
from .work import Work


def shares_of_files(settings: BrokerSettings, observe: Observer) -> Shares:
    """How many connections there may be beside open segments, in the files of the process."""
    http = 0 if settings.http_listen == OFF else HTTP_CONNECTIONS
    wanted = Shares(settings.max_connections, settings.max_open_files, http)
    shares = share_files(raise_file_limit(), wanted)
    if shares != wanted:
        observe(
            "limits_lowered",
            reason="the process may not open enough files (ulimit -n)",
            max_connections=shares.connections,
            max_open_files=shares.files,
            max_http_connections=shares.http_connections,
        )
    return shares


def make_connections(
    settings: BrokerSettings, connections_max: int, figures: Figures, observe: Observer, work: Work
) -> Connections:
    """No connections yet, of at most `connections_max`."""
    idle_ms = settings.connections_max_idle_ms
    return Connections(
        asyncio.get_running_loop(),
        places=ConnectionSlots(
            *(connections_max, settings.max_connections_per_ip),
            address_counts(settings.max_connections_per_ip_overrides),
        ),
        limits=ConnectionLimits(
            max_frame_bytes=settings.max_frame_bytes,
            max_requests_in_flight=settings.max_requests_in_flight,
            buffer_bytes=settings.connection_buffer_bytes,
            deadline_seconds=settings.request_deadline_ms / 1000,
            idle_seconds=idle_ms / 1000 if idle_ms >= 0 else None,
            login_seconds=settings.authentication_deadline_ms / 1000,
            session_seconds=settings.connections_max_reauth_ms / 1000 or None,
        ),
        max_buffered_bytes=settings.max_buffered_bytes,
        figures=figures,
        observe=observe,
        in_thread=work.in_reading_thread,
        max_unauthenticated=settings.connections_unauthenticated_max,
        users=user_places(settings),
    )


def make_listener(
    port: Port,
    dispatcher: Dispatcher,
    connections: Connections,
    settings: BrokerSettings,
    security: SecurityService,
) -> Listener:
    """Takes the connections that come in by one port, once it is started."""
    endpoint = _endpoint(port, dispatcher, settings, security)
    return Listener(
        asyncio.get_running_loop(),
        port.bound,
        admit=partial(connections.admit, endpoint),
        failed=connections.closed,
        refused=connections.refused,
        tls=endpoint.tls,
    )


def _endpoint(
    port: Port, dispatcher: Dispatcher, settings: BrokerSettings, security: SecurityService
) -> Endpoint:
    """What holds for the connections of one port."""
    encoding = kafka if port.setting == KAFKA else native
    gate = None
    if port.login:
        from .security.gate import Gate

        gate = Gate(dispatcher, encoding, security.logins)
    listeners = dict(advertised(settings.advertised_listeners, AS_REACHED))
    address = (
        (listeners.get(port.scheme) or listeners.get(Scheme.BARE)) if encoding is kafka else None
    )
    return Endpoint(
        encoding.NAME,
        dispatcher,
        None if address is None else split_address(address),
        gate,
        security.mechanisms(port) if port.login else (),
        port.certificate,
        security.tls_port(port, settings.authentication_deadline_ms / 1000),
    )
