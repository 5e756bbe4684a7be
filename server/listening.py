"""The parts that accept connections of clients: endpoints of ports, listeners, and the connections
that all ports share."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from ..config.address import OFF, Scheme, split_address
from ..config.broker import BrokerSettings
from ..config.broker_table import AS_REACHED
from ..protocol.api.encodings import Encoding
from ..protocol.api.framing import Frame, ProtocolError
from ..protocol.api.kafka import frames as kafka
from ..protocol.api.native import frames as native
from ..protocol.api.native.frames import RequestHead
from ..protocol.api.registry import APIS
from ..protocol.errors import CodedError, IllegalSaslState, SaslAuthenticationFailed
from ..protocol.limits import LENGTH_BYTES
from ..storage.events import Observer
from .dispatch import Dispatcher
from .metrics.figures import Figures
from .network.connections import Connections, ConnectionSlots, address_counts, user_places
from .network.endpoint import Caller, ConnectionLimits, Endpoint, Frames, Source
from .network.listener import (
    HTTP_CONNECTIONS,
    Listener,
    Shares,
    raise_file_limit,
    share_files,
)
from .network.ports import KAFKA, Port, advertised
from .network.sending import Answer
from .requests import PendingAnswer
from .security.logins import Logins
from .security.service import SecurityService
from .security.session import LoginSession, LoginState, Step
from .work import Work

_ANSWERED: Final = frozenset(api.key for api in APIS.values() if api.before_login)


class Gate:
    """Answers requests of connections that have not logged in, or whose session has ended."""

    def __init__(self, dispatcher: Dispatcher, encoding: Encoding, logins: Logins) -> None:
        self._dispatcher = dispatcher
        self._encoding = encoding
        self._logins = logins

    def waits_for_others(self, frame: Frame) -> bool:
        return False

    def answer(self, frames: Frames, most: int, caller: Caller) -> Iterable[Answer]:
        """Take the next request and answer it. Raises `ProtocolError` for a request that needs a
        login, if the protocol has no answer for that."""
        frame = frames.popleft()
        session = caller.session
        assert session is not None
        if session.state is LoginState.FAILED:
            raise ProtocolError("a request behind a login that failed")
        if session.raw:
            return (self._answer_raw(session, frame),)
        head, _ = self._encoding.open_request(frame)
        if head.api_key in _ANSWERED:
            return (self._dispatcher.answer_one(frame, caller),)
        api = APIS.get(head.api_key)
        name = f"request {head.api_key}" if api is None else api.name
        why = "the login of this connection has ended" if session.name else "there was none"
        error = IllegalSaslState(f"{name} needs a login at this address, and {why}")
        if not self._encoding.NATIVE:
            # As in Kafka, whose clients are configured for SASL or cannot log in.
            raise ProtocolError(error.message)
        return self._refused(head, error)

    def _refused(self, head: RequestHead, error: CodedError) -> Iterator[Answer]:
        """Answer with the error, and close the connection."""
        yield self._encoding.encode_refusal(head, None, None, error.code, error.message)
        raise ProtocolError(error.message)

    def answer_in_bulk(self, sources: Sequence[Source]) -> Sequence[tuple[int, Iterable[Answer]]]:
        return [(0, ()) for _ in sources]

    def _answer_raw(self, session: LoginSession, frame: Frame) -> Answer:
        """Return the answer to a SASL message without a request header. A refused login has no
        answer: the connection is closed."""
        try:
            step = self._logins.step(session, bytes(frame))
        except IllegalSaslState as error:
            raise ProtocolError(error.message) from None
        if isinstance(step, Step):
            return _raw(step)

        def make() -> Answer:
            try:
                return _raw(step.result())
            except SaslAuthenticationFailed:
                session.fail()
                return None

        return PendingAnswer(step, make, alone=True)


def _raw(step: Step) -> bytes:
    return len(step.content).to_bytes(LENGTH_BYTES, "big") + step.content


def shares_of_files(settings: BrokerSettings, observe: Observer) -> Shares:
    """Share the process's file handles between connections and open segments."""
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
    """Make the set of connections, empty, for at most `connections_max`."""
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
    """Make a listener, not yet started, that accepts the connections of one port."""
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
    """Make the endpoint of a port: what all of its connections have in common."""
    encoding = kafka if port.setting == KAFKA else native
    gate = None
    if port.login:
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
