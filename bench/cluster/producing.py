"""What a producer gets done at a leader with one follower, beside a broker alone."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Any, Final

from ...testing.requests import create_topic, produce
from ..brokers import ONE_TURN_BYTES, RETENTION_LIMIT, broker, sets
from ..figure import Figure, median_ratio, rates, times_in_turns
from ..raw_client import RawClient, check_end, encoded
from .members import members

IN_FLIGHT: Final = 8
_ROUNDS: Final = 7
_SECONDS: Final = 0.5
SET_BYTES: Final = 64 << 10
_ONES: Final = 50
ALL: Final = -1
WRITTEN: Final[dict[str, Any]] = {"acks_all_durability": "written"}
"""Settings of a topic in which a message is safe once all in sync have it, on disk or not."""


class ClusterFilling:
    """Sends one set again and again into a topic of its own."""

    def __init__(self, client: RawClient, topic: str, set_bytes: int, acks: int) -> None:
        self._client = client
        self._topic = topic
        data, self._count = sets(100, set_bytes)
        self._request = encoded(produce(topic, data, acks=acks))
        self._sent = 0
        client.call(create_topic(topic, **RETENTION_LIMIT, **WRITTEN))

    def send(self, times: int = 64) -> int:
        """Send the set so many times, wait for the answers; how many messages that are."""
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
    """Messages a second with sets of 64 KiB into topics at their retention limit, and the median of
    one message a request, one at a time; in turns with a broker that has no follower."""
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
