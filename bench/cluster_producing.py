"""Measures producers at a leader with followers, each in a process of its own: beside a single
broker, and beside least processes. Also measures how much idle brokers use."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from ..protocol.api.cluster.describe_replicas import (
    DescribeReplicasRequest,
    DescribeReplicasResponse,
)
from ..testing.program import WITH_HTTP, ServerProcess, serving
from ..testing.requests import create_topic, produce
from .brokers import (
    ONE_TURN_BYTES,
    RETENTION_LIMIT,
    broker,
    data_folder,
    kernel_choice,
    processor_seconds,
    sets,
)
from .figure import Figure, median_ratio, rates, times_in_turns
from .least import leading
from .raw_client import RawClient, RefusedRequest, check_end, encoded

_PARTITIONS: Final = 3_500
_IDLE_SECONDS: Final = 20.0

_SETTLED_SECONDS: Final = 5.0
"""For this long after the last message, indexes and checkpoints are still written."""
_TIMES: Final = 64
_IN_SYNC_SECONDS: Final = 600
_LOOK_SECONDS: Final = 0.02
IN_FLIGHT: Final = 8
_ROUNDS: Final = 7
_SECONDS: Final = 0.5
SET_BYTES: Final = 64 << 10
_ONES: Final = 50
ALL: Final = -1

WRITTEN: Final[dict[str, Any]] = {"acks_all_durability": "written"}
"""Settings of a topic in which a message is safe once all in-sync replicas have it, on disk or not.
"""


@dataclass(frozen=True, slots=True)
class BenchMember:
    """A cluster member, and a connection to it."""

    broker_id: int
    server: ServerProcess
    client: RawClient

    def status(self) -> DescribeReplicasResponse:
        """Return the leader and the progress of the replicas, as this member knows them."""
        response: DescribeReplicasResponse = self.client.call(DescribeReplicasRequest())
        return response


class Members:
    """The brokers of one cluster. The first leads. They are stopped at the end of the block of
    `members`."""

    def __init__(self, folder: Path, ends: ExitStack, count: int, settings: tuple[str, ...]):
        self._folder = folder
        self._ends = ends
        self._own = ("--set", f"cluster.brokers={max(count, 1)}", *settings)
        self.leader = self._start(1, "--create-cluster")

    def follower(self, broker_id: int = 2) -> BenchMember:
        """Start a follower with an empty directory."""
        return self._start(broker_id, "--follow", self.leader.server.native)

    def _start(self, broker_id: int, *how: str) -> BenchMember:
        data = self._folder / f"broker{broker_id}"
        own = ("--broker-id", str(broker_id), *how, *self._own)
        server = self._ends.enter_context(serving(data, *WITH_HTTP, *own, env=kernel_choice()))
        client = RawClient(server.native)
        self._ends.callback(client.close)
        return BenchMember(broker_id, server, client)

    def wait_in_sync(self, *broker_ids: int) -> None:
        """Wait until these followers are in sync. Raises `RefusedRequest` after a time limit."""
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
    """Start the leader of a cluster of `count` members, with an empty directory and no follower
    yet."""
    with data_folder() as folder, ExitStack() as ends:
        folder.mkdir()
        yield Members(folder, ends, count, settings)


class ClusterFilling:
    """Sends one set repeatedly to a topic of its own."""

    def __init__(self, client: RawClient, topic: str, set_bytes: int, acks: int) -> None:
        self._client = client
        self._topic = topic
        data, self._count = sets(100, set_bytes)
        self._request = encoded(produce(topic, data, acks=acks))
        self._sent = 0
        client.call(create_topic(topic, **RETENTION_LIMIT, **WRITTEN))

    def send(self, times: int = 64) -> int:
        """Send the set `times` times, and wait for the answers; return the number of messages."""
        self._client.pipeline(self._request, 1, times, IN_FLIGHT)
        self._sent += times * self._count
        return times * self._count

    def send_one(self) -> None:
        """Send the set once, and wait for its answer."""
        self._client.exchange(self._request)
        self._sent += self._count

    def check(self) -> None:
        check_end(self._client, self._topic, self._sent)


def producing(
    *,
    turn_bytes: int = ONE_TURN_BYTES,
    rounds: int = _ROUNDS,
    seconds: float = _SECONDS,
    ones: int = _ONES,
) -> Iterator[Figure]:
    """Yield messages a second with sets of 64 KiB into topics at their retention limit, and the
    median of requests with one message, one at a time. Both in turns with a broker without
    followers."""
    with ExitStack() as ends:
        brokers = ends.enter_context(members("--set", "acks.all.durability=written"))
        brokers.follower()
        brokers.wait_in_sync(2)
        _, alone = ends.enter_context(broker())
        clients = {"alone": alone, "led": brokers.leader.client}
        for name, acks in (("acks_1", 1), ("acks_all", ALL)):
            filling = {
                which: ClusterFilling(client, name, SET_BYTES, acks)
                for which, client in clients.items()
            }
            for each in filling.values():
                each.send(turn_bytes // SET_BYTES + 1)
            found: dict[str, list[float]] = {which: [] for which in clients}
            for _ in range(rounds):
                for which, each in filling.items():
                    found[which] += rates(each.send, rounds=1, seconds=seconds)
            # Consumers see what the follower has, which may be far less for a while with acks=1.
            brokers.wait_in_sync(2)
            for each in filling.values():
                each.check()
            beside, ratio = f"produce_{name}_alone", median_ratio(found["led"], found["alone"])
            yield Figure(f"produce_{name}", median(found["led"]), "msg/s", beside, ratio)
            yield Figure(beside, median(found["alone"]), "msg/s")
        yield from _one_at_a_time(clients, rounds, ones)


def _one_at_a_time(clients: dict[str, RawClient], rounds: int, each: int) -> Iterator[Figure]:
    fillings = [ClusterFilling(client, "one", 1, ALL) for client in clients.values()]
    works: list[Callable[[], object]] = [partial(filling.send_one) for filling in fillings]
    alone, led = times_in_turns(works, rounds=rounds, each=each)
    for filling in fillings:
        filling.check()
    yield Figure("produce_one_acks_all", led, "s", "produce_one_acks_all_alone", led / alone)
    yield Figure("produce_one_acks_all_alone", alone, "s")


def least(
    *, turn_bytes: int = ONE_TURN_BYTES, rounds: int = _ROUNDS, seconds: float = _SECONDS
) -> Iterator[Figure]:
    """Yield the figures of `produce_acks_all` for least processes."""
    data, count = sets(100, SET_BYTES)
    request = encoded(produce("bench", data, acks=ALL))
    with (
        data_folder() as folder,
        leading(folder / "led", followed=True) as led,
        leading(folder / "alone", followed=False) as alone,
    ):
        clients = {"led": led, "alone": alone}
        for client in clients.values():
            client.pipeline(request, 1, turn_bytes // SET_BYTES + 1, IN_FLIGHT)

        def send(which: str) -> int:
            clients[which].pipeline(request, 1, _TIMES, IN_FLIGHT)
            return _TIMES * count

        found: dict[str, list[float]] = {which: [] for which in clients}
        for _ in range(rounds):
            for which, rate in found.items():
                rate += rates(partial(send, which), rounds=1, seconds=seconds)
    beside, ratio = "least_acks_all_alone", median_ratio(found["led"], found["alone"])
    yield Figure("least_acks_all", median(found["led"]), "msg/s", beside, ratio)
    yield Figure(beside, median(found["alone"]), "msg/s")


def idle(
    *,
    partitions: int = _PARTITIONS,
    seconds: float = _IDLE_SECONDS,
    settled: float = _SETTLED_SECONDS,
) -> Iterator[Figure]:
    """Yield the processor time of idle brokers, as a share of one core. The topic has a message in
    each partition."""
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
