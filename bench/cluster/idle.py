"""What a leader and its follower use of a processor while nothing happens."""

import time
from collections.abc import Iterator
from typing import Final

from ...testing.requests import create_topic, produce
from ..brokers import processor_seconds, sets
from ..figure import Figure
from ..raw_client import encoded
from .members import members

_PARTITIONS: Final = 3_500
_SECONDS: Final = 20.0
_SETTLED_SECONDS: Final = 5.0
"""Indexes and checkpoints are written for a while after the last message."""


def idle(
    *, partitions: int = _PARTITIONS, seconds: float = _SECONDS, settled: float = _SETTLED_SECONDS
) -> Iterator[Figure]:
    """Shares of one core, of a topic that has a message in each partition."""
    with members() as brokers:
        leader = brokers.leader
        leader.client.call(create_topic("bench", partitions))
        data, _ = sets(100, 1)
        for partition in range(partitions):
            leader.client.exchange(encoded(produce("bench", data, partition=partition, acks=1)))
        follower = brokers.follower()
        brokers.wait_in_sync(2)
        time.sleep(settled)
        both = (leader.server, follower.server)
        before, began = [processor_seconds(server) for server in both], time.perf_counter()
        time.sleep(seconds)
        taken = time.perf_counter() - began
        used = [processor_seconds(server) for server in both]
        for name, first, last in zip(("leader", "follower"), before, used, strict=True):
            yield Figure(f"idle_{name}_3500", (last - first) / taken, "cores")
