"""A leader and its followers, each in a process of its own, on this machine."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...protocol.api.cluster.describe_replicas import (
    DescribeReplicasRequest,
    DescribeReplicasResponse,
)
from ...testing.program import WITH_HTTP, ServerProcess, serving
from ..brokers import data_folder, kernel_choice
from ..raw_client import RawClient, RefusedRequest

_IN_SYNC_SECONDS: Final = 600
_LOOK_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class BenchMember:
    """One of them, and a connection to it."""

    broker_id: int
    server: ServerProcess
    client: RawClient

    def status(self) -> DescribeReplicasResponse:
        """Who leads, and how far the others are, as this one knows."""
        response: DescribeReplicasResponse = self.client.call(DescribeReplicasRequest())
        return response


class Members:
    """Brokers of one cluster, whose first leads. They end with the block of `members`."""

    def __init__(self, folder: Path, ends: ExitStack, count: int, settings: tuple[str, ...]):
        self._folder = folder
        self._ends = ends
        self._own = ("--set", f"cluster.brokers={max(count, 1)}", *settings)
        self.leader = self._start(1, "--create-cluster")

    def follower(self, broker_id: int = 2) -> BenchMember:
        """Start a follower with an empty directory; it copies from now on."""
        return self._start(broker_id, "--follow", self.leader.server.native)

    def _start(self, broker_id: int, *how: str) -> BenchMember:
        data = self._folder / f"broker{broker_id}"
        own = ("--broker-id", str(broker_id), *how, *self._own)
        server = self._ends.enter_context(serving(data, *WITH_HTTP, *own, env=kernel_choice()))
        client = RawClient(server.native)
        self._ends.callback(client.close)
        return BenchMember(broker_id, server, client)

    def wait_in_sync(self, *broker_ids: int) -> None:
        """Wait until these followers have everything; `RefusedRequest` after a time limit."""
        ended = time.monotonic() + _IN_SYNC_SECONDS
        wanted = sorted({1, *broker_ids})
        while True:
            status = self.leader.status()
            lags = {one.lag_messages for one in status.members}
            if sorted(status.in_sync) == wanted and lags == {0}:
                return
            if time.monotonic() > ended:
                raise RefusedRequest(
                    f"in sync are {status.in_sync}, not {wanted}: {status.members}"
                )
            time.sleep(_LOOK_SECONDS)


@contextmanager
def members(*settings: str, count: int = 2) -> Iterator[Members]:
    """A leader on an empty directory, of a cluster of so many; it has no follower yet."""
    with data_folder() as folder, ExitStack() as ends:
        folder.mkdir()
        yield Members(folder, ends, count, settings)
