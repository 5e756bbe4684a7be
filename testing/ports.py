"""Ports for parts of a broker that are started by themselves, in tests."""

import socket

from ..config.listeners import Scheme
from ..server.network.ports import HTTP, Port


def plain_port(bound: socket.socket) -> Port:
    """A port of HTTP without TLS and without logins."""
    return Port(
        setting=HTTP,
        scheme=Scheme.BARE,
        bound=bound,
        certificate=False,
        login=False,
        client_certificate_required=False,
    )
