"""Listening ports of a broker. They are bound before anything else starts, so that an address in
use is detected early."""

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
    """First listening address of each protocol as `HOST:PORT`; None for a protocol that is off."""

    native: str
    http: str | None
    kafka: str | None = None


@value_class
class Port:
    """One bound socket, with the rules for its connections."""

    setting: str
    scheme: Scheme
    bound: socket.socket
    certificate: bool
    """Whether a client certificate counts as a login."""
    login: bool
    """Whether clients without such a certificate must log in."""
    client_certificate_required: bool

    @property
    def encrypted(self) -> bool:
        return self.scheme.encrypted

    @property
    def lacks(self) -> Sequence[str]:
        """What the port lacks to be open to other machines: TLS, a login."""
        lacking = [] if self.encrypted else ["TLS"]
        if not (self.login or (self.certificate and self.client_certificate_required)):
            lacking.append("a login")
        return lacking

    def __str__(self) -> str:
        return f"{self.scheme}{address_of(self.bound)} ({self.setting})"


class Ports:
    """Bound sockets, which listen after `listen` is called. They close at the end of a `with`
    block."""

    def __init__(self, settings: BrokerSettings, observe: Observer) -> None:
        """Raises `CannotListen`. A Kafka port whose address is in use is only left out if no
        setting names that address."""
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
        """Return the ports of a setting."""
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
        """Ports that other machines can reach although they lack TLS or a login."""
        return [
            port for port in self._bound if port.lacks and not is_loopback(_place(port.bound)[0])
        ]

    @property
    def any_encrypted(self) -> bool:
        return any(port.encrypted for port in self._bound)

    @property
    def any_guarded(self) -> bool:
        """Whether any port requires a login."""
        return any(port.login for port in self._bound)

    def listen(self) -> None:
        """Start listening; clients that connect wait until their connection is accepted.

        Raises `CannotListen`: another process may listen by now on an address that both could bind.
        """
        send_bytes = self._settings.socket_send_buffer_bytes
        for port in list(self._bound):
            try:
                if send_bytes >= 0:
                    # The sockets of its connections inherit this.
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
        """Raise `Unprotected` for a port that must not be opened."""
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
        """Leave out the Kafka port. Raises the error if a setting names its address."""
        if self._settings.kafka_listen_given:
            raise error
        for port in self.of(KAFKA):
            self._bound.remove(port)
            port.bound.close()
        self._observe("kafka_port_taken", address=self._settings.kafka_listen, cause=str(error))


def _and_not(lacking: Iterable[str]) -> str:
    return " nor ".join(lacking)


def _overlap(one: socket.socket, other: socket.socket) -> bool:
    """Whether two sockets cannot both listen at their addresses."""
    (host, port), (other_host, other_port) = (_place(bound) for bound in (one, other))
    if port != other_port:
        return False
    if host == other_host:
        return True
    anywhere = {host, other_host} & ANYWHERE
    # 0.0.0.0 does not include IPv6 addresses; :: includes both kinds.
    return "::" in anywhere or (bool(anywhere) and ":" not in host + other_host)


def _place(bound: socket.socket) -> tuple[str, int]:
    host, port = bound.getsockname()[:2]
    return str(host).removeprefix("::ffff:"), port


def advertised(text: str, nothing: str) -> Iterator[tuple[Scheme, str]]:
    """Yield the addresses that Kafka clients are given, each with its scheme; `nothing` is the
    value without any."""
    if text != nothing:
        for each in listen_addresses(text):
            yield each.scheme, each.address
