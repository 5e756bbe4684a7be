"""What producer, consumer and admin have in common."""

from types import TracebackType
from typing import Final, Self

from .cluster import Cluster

DEFAULT_ADDRESS: Final = "127.0.0.1:7070"


class Client:
    """A client of the broker at one address, to be used in `async with`, or closed."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        client_id: str | None = "horolog",
        request_timeout_ms: int = 30_000,
        check_units: bool = True,
    ) -> None:
        """`request_timeout_ms` bounds connecting, and each request beyond the wait it asks for.

        `check_units=False` accepts timestamps that look like seconds or microseconds.
        """
        self._cluster = Cluster(address, client_id=client_id, request_timeout_ms=request_timeout_ms)
        self._check_units = check_units

    async def __aenter__(self) -> Self:
        await self._cluster.connection()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Requests under way fail."""
        await self._cluster.close()
