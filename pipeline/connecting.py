"""How the parts of the pipeline that are asyncio connect to a broker."""

from ..client.consume.consumer import Consumer
from .options import Broker


def consumer_at(
    broker: Broker, *, retry_timeout_ms: int | None = None, partition_max_bytes: int = 1024 * 1024
) -> Consumer:
    """One that tries for as long as `broker` says, or for `retry_timeout_ms`."""
    return Consumer(
        broker.address,
        partition_max_bytes=partition_max_bytes,
        client_id="horolog-spark",
        request_timeout_ms=broker.request_timeout_ms,
        retry_timeout_ms=broker.retry_budget_ms if retry_timeout_ms is None else retry_timeout_ms,
        check_units=False,
    )
