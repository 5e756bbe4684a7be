"""What a leader and a follower that do nothing else keep of the rate of one of them alone."""

from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Final

from ...testing.requests import produce
from ..brokers import ONE_TURN_BYTES, data_folder, sets
from ..figure import Figure, median_ratio, rates
from ..least.replicas import leading
from ..raw_client import encoded
from .producing import ALL, IN_FLIGHT, SET_BYTES

_ROUNDS: Final = 7
_SECONDS: Final = 0.5
_TIMES: Final = 64


def least(
    *, turn_bytes: int = ONE_TURN_BYTES, rounds: int = _ROUNDS, seconds: float = _SECONDS
) -> Iterator[Figure]:
    """As `produce_acks_all`, of processes that do nothing else."""
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
