"""Messages a second into topics at their retention limit."""

from collections.abc import Iterator
from contextlib import closing
from statistics import median
from typing import Final

from ..protocol.api.encodings import Encoding
from ..protocol.api.kafka import frames as kafka
from ..protocol.api.native import frames as native
from ..testing.requests import create_topic, produce
from .brokers import ONE_TURN_BYTES, RETENTION_LIMIT, batch, broker, sets
from .figure import Figure, median_ratio, rates
from .raw_client import RawClient, check_end, encoded

_IN_FLIGHT: Final = 8
_ROUNDS: Final = 7
_SECONDS: Final = 0.4


class Filling:
    """Sends one set again and again into a topic of its own."""

    def __init__(
        self, client: RawClient, topic: str, data: bytes, count: int, encoding: Encoding = native
    ) -> None:
        """The set has `count` messages. `client` speaks `encoding`."""
        self._client = client
        self._topic = topic
        self._count = count
        self._request = encoded(produce(topic, data, acks=1), encoding=encoding)
        self._sent = 0
        client.call(create_topic(topic, **RETENTION_LIMIT))

    def send(self, times: int = 64) -> int:
        """Send the set so many times, wait for the answers; how many messages that are."""
        self._client.pipeline(self._request, 1, times, _IN_FLIGHT)
        self._sent += times * self._count
        return times * self._count

    def check(self) -> None:
        check_end(self._client, self._topic, self._sent)


def produce_rate(
    name: str,
    value_bytes: int,
    set_bytes: int,
    *,
    turn_bytes: int = ONE_TURN_BYTES,
    rounds: int = _ROUNDS,
    seconds: float = _SECONDS,
) -> Iterator[Figure]:
    """Messages a second into a topic at its retention limit, after one full turn of it."""
    with broker() as (_, client):
        data, count = sets(value_bytes, set_bytes)
        filling = Filling(client, "bench", data, count)
        filling.send(turn_bytes // len(data) + 1)
        found = rates(filling.send, rounds=rounds, seconds=seconds)
        filling.check()
        yield Figure(name, median(found), "msg/s")


def batch_rate(
    name: str,
    value_bytes: int,
    set_bytes: int,
    *,
    turn_bytes: int = ONE_TURN_BYTES,
    rounds: int = _ROUNDS,
    seconds: float = _SECONDS,
) -> Iterator[Figure]:
    """The same with record batches, in turns with the same batches sent to Kafka's port of the
    same broker, into another topic like it."""
    with (
        broker("--kafka-listen", "127.0.0.1:0") as (server, client),
        closing(RawClient(_kafka_address(server.kafka), kafka)) as kafka_client,
    ):
        data, count = batch(value_bytes, set_bytes)
        ours = Filling(client, "native", data, count)
        theirs = Filling(kafka_client, "kafka", data, count, kafka)
        for filling in (ours, theirs):
            filling.send(turn_bytes // len(data) + 1)
        found: dict[Filling, list[float]] = {ours: [], theirs: []}
        for _ in range(rounds):
            for filling in (ours, theirs):
                found[filling] += rates(filling.send, rounds=1, seconds=seconds)
        for filling in (ours, theirs):
            filling.check()
    beside, ratio = f"{name}_kafka", median_ratio(found[ours], found[theirs])
    yield Figure(name, median(found[ours]), "msg/s", beside, ratio)
    yield Figure(beside, median(found[theirs]), "msg/s")


def _kafka_address(address: str | None) -> str:
    assert address is not None
    return address
