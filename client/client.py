"""Base class of producer, consumer and admin."""

from types import TracebackType
from typing import Final, Literal, Self

from ..compiled import warn_of_reference
from ..protocol.records.kernel import FORM
from .cluster.route import Route
from .cluster.servers import Servers, parse_servers, with_security
from .security.security import Security

DEFAULT_ADDRESS: Final = "127.0.0.1:7070"

ReadFrom = Literal["leader", "any"]
"""Which brokers messages are read from: only partition leaders, or any replica."""


class Client:
    """Client of a Horolog broker, of several, or of a Kafka cluster. Use it in `async with`, or
    close it."""

    def __init__(
        self,
        address: str | Servers = DEFAULT_ADDRESS,
        *,
        client_id: str | None = "horolog",
        request_timeout_ms: int = 30_000,
        check_units: bool = True,
        security: Security | None = None,
        read_from: ReadFrom = "leader",
    ) -> None:
        """`address` is `HOST:PORT` of a Horolog broker, or `kafka://HOST:PORT[,HOST:PORT...]` with
        some brokers of a Kafka cluster; `tls://` and `kafka+tls://` are the same over TLS.

        `request_timeout_ms` bounds connecting, and each request in addition to the wait that the
        request asks for. `check_units=False` accepts timestamps that look like seconds or
        microseconds. `security` holds the client's credentials and the servers that the client
        trusts.

        `read_from="any"` reads, searches and counts messages at any member of the cluster, up to
        the last message that this broker has. The client changes to another broker when the
        connection is lost or the broker falls behind.
        """
        warn_of_reference(FORM)
        self._cluster = route_to(
            with_security(address, security),
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            read_from=read_from,
        )
        self._check_units = check_units

    async def __aenter__(self) -> Self:
        await self._cluster.open()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Requests in flight fail."""
        await self._cluster.close()


def route_to(
    address: str | Servers,
    *,
    client_id: str | None,
    request_timeout_ms: int,
    read_from: ReadFrom = "leader",
) -> Route:
    """Return the route to the brokers at an address, without connections yet. Raises ValueError for
    an invalid address or an unknown `read_from`."""
    servers = parse_servers(address)
    if read_from not in ("leader", "any"):
        raise ValueError(f"read_from is 'leader' or 'any', not {read_from!r}")
    if read_from == "any" and servers.kafka:
        raise ValueError(
            f"read_from='any' is for Horolog's own protocol; at {servers} messages are read from "
            "the brokers that lead"
        )
    return Route(
        servers,
        client_id=client_id,
        request_timeout_ms=request_timeout_ms,
        any_replica=read_from == "any",
    )
