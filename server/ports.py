"""The ports of a broker: bound before anything else, so that a taken address costs nothing."""

import socket
from contextlib import ExitStack
from typing import Self

from ..config.broker import BrokerSettings
from ..storage.events import Observer
from ..values import value_class
from .listener import CannotListen, address_of, bind

OFF = "off"
"""What an address may be instead, but for the native protocol's."""


@value_class
class Addresses:
    """Where the broker listens, as `HOST:PORT`; `None` for what is off."""

    native: str
    http: str | None
    kafka: str | None = None


class Ports:
    """Sockets that are bound and do not listen yet; closed at the end of a `with` block."""

    def __init__(self, settings: BrokerSettings, observe: Observer) -> None:
        """Raises `CannotListen`. The port for Kafka's clients is only left out when its address
        is taken and nobody has asked for that address."""
        self._bound = ExitStack()
        with ExitStack() as bound:
            self.native = bound.enter_context(bind(settings.listen, "listen"))
            self.http: socket.socket | None = None
            if settings.http_listen != OFF:
                self.http = bound.enter_context(bind(settings.http_listen, "http.listen"))
            self.kafka: socket.socket | None = None
            if settings.kafka_listen != OFF:
                try:
                    self.kafka = bound.enter_context(bind(settings.kafka_listen, "kafka.listen"))
                except CannotListen as error:
                    if settings.kafka_listen_given:
                        raise
                    address = settings.kafka_listen
                    observe("kafka_port_taken", address=address, cause=str(error))
            self._bound = bound.pop_all()
        self.addresses = Addresses(
            address_of(self.native),
            None if self.http is None else address_of(self.http),
            None if self.kafka is None else address_of(self.kafka),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bound.close()
