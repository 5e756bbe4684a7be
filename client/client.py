"""What producer, consumer and admin have in common."""

from types import TracebackType
from typing import Final, Literal, Self

from ..compiled import warn_of_reference
from ..protocol.records.kernel import FORM
from .cluster.cluster import ClusterConnections
from .cluster.kafka_cluster import KafkaCluster
from .cluster.servers import Servers, parse_servers, with_security
from .cluster.several_brokers import OneBroker
from .security.security import Security

DEFAULT_ADDRESS: Final = "127.0.0.1:7070"

ReadFrom = Literal["leader", "any"]
"""Where messages are read: at the broker that leads, or at any that has them."""


class Client:
    """A client of one broker, or of a Kafka cluster, to be used in `async with`, or closed."""

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
        """`address` is that of a Horolog broker, `HOST:PORT`, or `kafka://HOST:PORT[,HOST:PORT...]`
        with some brokers of a Kafka cluster; `tls://` and `kafka+tls://` are the same over TLS.

        `request_timeout_ms` bounds connecting, and each request beyond the wait it asks for.

        `check_units=False` accepts timestamps that look like seconds or microseconds.

        `security` says who the client is, and whom it trusts.

        `read_from="any"` has messages read, searched and counted by whichever of several brokers
        is chosen, up to where that one has them; another one when it is lost, or falls behind.
        """
        warn_of_reference(FORM)
        self._cluster = cluster_at(
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
        """Close all connections. Requests under way fail."""
        await self._cluster.close()


def cluster_at(
    address: str | Servers,
    *,
    client_id: str | None,
    request_timeout_ms: int,
    read_from: ReadFrom = "leader",
) -> ClusterConnections:
    """The way to the broker or brokers at an address. Raises ValueError for one that is none, and
    for another `read_from` than there are."""
    servers = parse_servers(address)
    if read_from not in ("leader", "any"):
        raise ValueError(f"read_from is 'leader' or 'any', not {read_from!r}")
    if read_from == "any":
        return _any_replica(servers, client_id, request_timeout_ms)
    if servers.kafka:
        return KafkaCluster(
            servers.addresses,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            security=servers.channel,
        )
    if len(servers.addresses) > 1:
        from .cluster.several_brokers import SeveralBrokers

        return SeveralBrokers(
            servers.addresses,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            security=servers.channel,
        )
    return OneBroker(
        servers.addresses[0],
        client_id=client_id,
        request_timeout_ms=request_timeout_ms,
        security=servers.channel,
    )


def _any_replica(
    servers: Servers, client_id: str | None, request_timeout_ms: int
) -> ClusterConnections:
    if servers.kafka:
        raise ValueError(
            f"read_from='any' is for Horolog's own protocol; at {servers} messages are read from "
            "the brokers that lead"
        )
    from .cluster.any_replica import AnyReplica

    return AnyReplica(
        servers.addresses,
        client_id=client_id,
        request_timeout_ms=request_timeout_ms,
        security=servers.channel,
    )
