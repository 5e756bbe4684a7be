"""The ports of a broker: bound before anything else, so that a taken address costs nothing."""

import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Final, Self

from ...config.address import OFF, Scheme, is_loopback, listen_addresses
from ...config.broker import BrokerSettings
from ...storage.events import Observer
from ...values import value_class
from .listener import (
    BACKLOG,
    CannotListen,
    SameAddress,
    Unprotected,
    address_of,
    bind,
    cannot_listen,
)

NATIVE: Final = "listen"
HTTP: Final = "http.listen"
KAFKA: Final = "kafka.listen"

ANYWHERE: Final = frozenset({"0.0.0.0", "::"})


@value_class
class Addresses:
    """Where the broker listens, as `HOST:PORT`, the first address of each; `None` for what is
    off."""

    native: str
    http: str | None
    kafka: str | None = None


@value_class
class Port:
    """One bound socket, and what holds for connections to it."""

    setting: str
    scheme: Scheme
    bound: socket.socket
    certificate: bool
    """Whether who shows a client certificate has logged in by that."""
    login: bool
    """Whether others have to log in."""
    client_certificate_required: bool

    @property
    def encrypted(self) -> bool:
        return self.scheme.encrypted

    @property
    def lacks(self) -> Sequence[str]:
        """What keeps it from being one that strangers may reach."""
        lacking = [] if self.encrypted else ["TLS"]
        if not (self.login or (self.certificate and self.client_certificate_required)):
            lacking.append("a login")
        return lacking

    def __str__(self) -> str:
        return f"{self.scheme}{address_of(self.bound)} ({self.setting})"


class Ports:
    """Sockets that are bound, and listen from `listen` on; closed at the end of a `with` block."""

    def __init__(self, settings: BrokerSettings, observe: Observer) -> None:
        """Raises `CannotListen`. The port for Kafka's clients is only left out when its address
        is taken and no setting asks for that address."""
        self._settings = settings
        self._observe = observe
        self._closing = ExitStack()
        self._bound: list[Port] = []
        with ExitStack() as closing:
            self._closing = closing
            self._bind_all(NATIVE, settings.listen)
            if settings.http_listen != OFF:
                self._bind_all(HTTP, settings.http_listen)
            if settings.kafka_listen != OFF:
                try:
                    self._bind_all(KAFKA, settings.kafka_listen)
                except CannotListen as error:
                    self._leave_out_kafka(error)
            self._check()
            self._closing = closing.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def of(self, setting: str) -> Sequence[Port]:
        """The ports that a setting asks for."""
        return [port for port in self._bound if port.setting == setting]

    @property
    def addresses(self) -> Addresses:
        return Addresses(
            address_of(self.of(NATIVE)[0].bound), self._first(HTTP), self._first(KAFKA)
        )

    def _first(self, setting: str) -> str | None:
        return next((address_of(port.bound) for port in self.of(setting)), None)

    @property
    def open_to_others(self) -> Sequence[Port]:
        """Ports that others can reach although they lack something."""
        return [
            port for port in self._bound if port.lacks and not is_loopback(_place(port.bound)[0])
        ]

    @property
    def any_encrypted(self) -> bool:
        return any(port.encrypted for port in self._bound)

    @property
    def any_guarded(self) -> bool:
        """Whether a login is required somewhere."""
        return any(port.login for port in self._bound)

    def listen(self) -> None:
        """Let clients connect; who does waits until its connection is accepted.

        Raises `CannotListen`: an address that could be bound may be listened on by another process
        since, because neither of the two listened then.
        """
        send_bytes = self._settings.socket_send_buffer_bytes
        for port in list(self._bound):
            try:
                if send_bytes >= 0:
                    # The sockets of its connections inherit it.
                    port.bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
                port.bound.listen(BACKLOG)
            except OSError as os_error:
                error = cannot_listen(address_of(port.bound), port.setting, os_error)
                if port.setting != KAFKA:
                    raise error from os_error
                self._leave_out_kafka(error)

    def _bind_all(self, setting: str, text: str) -> None:
        settings = self._settings
        for wanted in listen_addresses(text):
            bound = self._closing.enter_context(bind(wanted.address, setting))
            for other in self._bound:
                if _overlap(bound, other.bound):
                    raise SameAddress(
                        f"cannot listen on {wanted.address} ({setting}): {other.setting} has the "
                        f"same address, {address_of(other.bound)}; each needs its own port"
                    )
            scheme = wanted.scheme
            required = settings.authentication == "required"
            certificates = scheme.encrypted and settings.tls_client_auth != "none"
            self._bound.append(
                Port(
                    setting=setting,
                    scheme=scheme,
                    bound=bound,
                    certificate=certificates and scheme is not Scheme.SASL_SSL,
                    login=required if scheme.login is None else scheme.login,
                    client_certificate_required=settings.tls_client_auth == "required",
                )
            )

    def _check(self) -> None:
        """Raise `Unprotected` for what must not be opened."""
        settings = self._settings
        for port in self._bound:
            if port.encrypted and not settings.tls_cert:
                raise Unprotected(f"cannot listen on {port}: tls.cert is not set")
        if settings.tls_client_auth != "none" and not settings.tls_client_ca:
            raise Unprotected(
                f"tls.client.auth = {settings.tls_client_auth} needs tls.client.ca, which is not "
                "set"
            )
        for port in () if settings.allow_plaintext else self.open_to_others:
            raise Unprotected(
                f"cannot listen on {port}: others can reach it, and it has not "
                f"{_and_not(port.lacks)}. Give it tls:// (tls.cert, tls.key) and "
                "authentication=required, or a loopback address, or set allow.plaintext=true"
            )

    def _leave_out_kafka(self, error: CannotListen) -> None:
        """Do without the port for Kafka's clients, unless it was asked for."""
        if self._settings.kafka_listen_given:
            raise error
        for port in self.of(KAFKA):
            self._bound.remove(port)
            port.bound.close()
        self._observe("kafka_port_taken", address=self._settings.kafka_listen, cause=str(error))


def _and_not(lacking: Iterable[str]) -> str:
    return " nor ".join(lacking)


def _overlap(one: socket.socket, other: socket.socket) -> bool:
    """Whether two sockets cannot both listen where they are bound."""
    (host, port), (other_host, other_port) = (_place(bound) for bound in (one, other))
    if port != other_port:
        return False
    if host == other_host:
        return True
    anywhere = {host, other_host} & ANYWHERE
    # An address of IPv6 is out of the reach of 0.0.0.0; :: reaches both kinds.
    return "::" in anywhere or (bool(anywhere) and ":" not in host + other_host)


def _place(bound: socket.socket) -> tuple[str, int]:
    host, port = bound.getsockname()[:2]
    return str(host).removeprefix("::ffff:"), port


def advertised(text: str, nothing: str) -> Iterator[tuple[Scheme, str]]:
    """The addresses that Kafka's clients get, by what stands before those in kafka.listen."""
    if text != nothing:
        for each in listen_addresses(text):
            yield each.scheme, each.address
