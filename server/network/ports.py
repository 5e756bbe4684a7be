"""The ports of a broker: bound before anything else, so that a taken address costs nothing."""

import socket
from contextlib import ExitStack
from typing import Final, Self

from ...config.broker import BrokerSettings
from ...storage.events import Observer
from ...values import value_class
from .listener import BACKLOG, CannotListen, SameAddress, address_of, bind, cannot_listen

OFF = "off"
"""What an address may be instead, but for the native protocol's."""

KAFKA: Final = "kafka.listen"

ANYWHERE: Final = frozenset({"0.0.0.0", "::"})


@value_class
class Addresses:
    """Where the broker listens, as `HOST:PORT`; `None` for what is off."""

    native: str
    http: str | None
    kafka: str | None = None


class Ports:
    """Sockets that are bound, and listen from `listen` on; closed at the end of a `with` block."""

    def __init__(self, settings: BrokerSettings, observe: Observer) -> None:
        """Raises `CannotListen`. The port for Kafka's clients is only left out when its address
        is taken and no setting asks for that address."""
        self._settings = settings
        self._observe = observe
        self._closing = ExitStack()
        self._bound: dict[str, socket.socket] = {}
        """By setting."""
        with ExitStack() as closing:
            self._closing = closing
            self._bind("listen", settings.listen)
            if settings.http_listen != OFF:
                self._bind("http.listen", settings.http_listen)
            if settings.kafka_listen != OFF:
                try:
                    self._bind(KAFKA, settings.kafka_listen)
                except CannotListen as error:
                    self._leave_out_kafka(error)
            self._closing = closing.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    @property
    def native(self) -> socket.socket:
        return self._bound["listen"]

    @property
    def http(self) -> socket.socket | None:
        return self._bound.get("http.listen")

    @property
    def kafka(self) -> socket.socket | None:
        return self._bound.get(KAFKA)

    @property
    def addresses(self) -> Addresses:
        return Addresses(
            address_of(self.native),
            None if self.http is None else address_of(self.http),
            None if self.kafka is None else address_of(self.kafka),
        )

    def listen(self) -> None:
        """Let clients connect; who does waits until its connection is accepted.

        Raises `CannotListen`: an address that could be bound may be listened on by another process
        since, because neither of the two listened then.
        """
        for setting, bound in list(self._bound.items()):
            try:
                bound.listen(BACKLOG)
            except OSError as os_error:
                error = cannot_listen(address_of(bound), setting, os_error)
                if setting != KAFKA:
                    raise error from os_error
                self._leave_out_kafka(error)

    def _bind(self, setting: str, address: str) -> None:
        bound = self._closing.enter_context(bind(address, setting))
        for other, its in self._bound.items():
            if _overlap(bound, its):
                raise SameAddress(
                    f"cannot listen on {address} ({setting}): {other} has the same address, "
                    f"{address_of(its)}; each needs its own port"
                )
        self._bound[setting] = bound

    def _leave_out_kafka(self, error: CannotListen) -> None:
        """Do without the port for Kafka's clients, unless it was asked for."""
        if self._settings.kafka_listen_given:
            raise error
        bound = self._bound.pop(KAFKA, None)
        if bound is not None:
            bound.close()
        self._observe("kafka_port_taken", address=self._settings.kafka_listen, cause=str(error))


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
