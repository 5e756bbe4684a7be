"""Connections of the pipeline to brokers."""

from typing import Final

from ..client.client import ReadFrom, route_to
from ..client.cluster.route import Route
from ..client.cluster.servers import Servers, parse_servers
from ..client.consume.consumer import Consumer
from ..client.security.options import to_options
from .options import BrokerOptions

CLIENT_ID: Final = "horolog-spark"


def connection_options(server: str | Servers) -> dict[str, str]:
    """Return the options with which the source and the sink connect to `server`. Raises
    SecurityError for a secret that cannot be passed as an option."""
    servers = parse_servers(server)
    return {"bootstrap.servers": str(servers), **to_options(servers.security)}


def cluster_of(broker: BrokerOptions, read_from: ReadFrom = "leader") -> Route:
    """Return connections to the broker's cluster. The caller closes them."""
    return route_to(
        broker.servers,
        client_id=CLIENT_ID,
        request_timeout_ms=broker.request_timeout_ms,
        read_from=read_from,
    )


def consumer_at(
    broker: BrokerOptions,
    *,
    retry_timeout_ms: int | None = None,
    partition_max_bytes: int = 1024 * 1024,
) -> Consumer:
    """Return a consumer that retries for `broker.retry_budget_ms`, or for `retry_timeout_ms`."""
    return Consumer(
        broker.servers,
        partition_max_bytes=partition_max_bytes,
        client_id=CLIENT_ID,
        request_timeout_ms=broker.request_timeout_ms,
        retry_timeout_ms=broker.retry_budget_ms if retry_timeout_ms is None else retry_timeout_ms,
        check_units=False,
    )
