"""Spark reads from any of several brokers what it reads from one (replication.md, section 6)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.sql import SparkSession

from horolog import blocking
from horolog.client.cluster.route import ANY_REPLICA, REQUESTS, Route
from horolog.pipeline import span_readers
from horolog.pipeline.option_values import OptionError
from horolog.pipeline.options import read_options
from horolog.testing.broker import BrokerThread
from horolog.testing.waiting import wait_until
from horolog.tests.pipeline.sources import close_idle

from .sources import T0_MS, read, source

TOPIC = "t"
PARTITIONS = 2
COUNT = 400
DEADLINE_S = 30.0


class Pair:
    """A leader and its follower."""

    def __init__(self, place: Path) -> None:
        common = {"cluster.brokers": 2, "retention.ms": -1, "replica.lag.time.max.ms": 500}
        self.leader = BrokerThread(
            place / "first", {"broker.id": 1, "cluster.create": True, **common}
        )
        self.leader.start()
        follows = {"broker.id": 2, "cluster.follow": self.leader.address, **common}
        self.follower = BrokerThread(place / "second", follows)
        self.follower.start()

    @property
    def addresses(self) -> str:
        return f"{self.leader.address},{self.follower.address}"

    def cluster(self, broker: BrokerThread) -> Any:
        return broker._broker.services.replication

    def send(self, first: int, count: int) -> None:
        with blocking.Producer(self.leader.address, check_units=False) as producer:
            for partition in range(PARTITIONS):
                producer.send_batch(
                    TOPIC,
                    [b"%d" % number for number in range(first, first + count)],
                    partition=partition,
                    timestamps_ms=[T0_MS + number for number in range(first, first + count)],
                )

    def wait(self, condition: Callable[[], bool]) -> None:
        wait_until(condition, within_s=DEADLINE_S)

    def cut_off(self) -> None:
        """Let the follower hear of its leader no more. A connection that is being made goes too:
        on a slow machine a follower may have lost its leader just before."""
        cluster, done = self.cluster(self.follower), Event()

        def cut() -> None:
            cluster.fetcher.connect = lambda broker_id: None
            for connection in list(cluster.fetcher._connections):
                cluster.fetcher.close(connection)
            cluster.happens(lambda _: cluster.node.follower.drop())
            done.set()

        self.follower._loop.call_soon_threadsafe(cut)
        assert done.wait(DEADLINE_S)

    def caught_up(self) -> None:
        logs = self.cluster(self.follower).stored.logs
        ends = self.cluster(self.leader).stored.logs
        keys = [(TOPIC, number) for number in range(PARTITIONS)]
        self.wait(lambda: all(key in logs for key in keys))
        self.wait(
            lambda: all(logs[key].log.high_watermark == ends[key].log_end_offset for key in keys)
        )


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("pair"))
    try:
        with blocking.Admin(made.leader.address) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS, settings={"segment.bytes": "4000"})
        for first in range(0, COUNT, 40):
            made.send(first, 40)
        made.caught_up()
        yield made
    finally:
        close_idle()
        made.follower.stop()
        made.leader.stop()


def used() -> set[str]:
    """The brokers that tasks in this process have read from, by the readers that are kept."""
    found: set[str] = set()
    for kind, readers in span_readers._IDLE.items():
        if kind[-1] == "any":
            routes: list[Route] = [one._cluster for one in readers if hasattr(one, "_cluster")]
            links = [one._links.get((ANY_REPLICA, REQUESTS)) for one in routes]
            open_ = [one.current for one in links if one is not None]
            found |= {one.address for one in open_ if one is not None}
    return found


@pytest.mark.parametrize(
    "bounds",
    [
        {},
        {"startingTimestamp": T0_MS + 30, "endingTimestamp": T0_MS + 333},
        {"includeAppendTime": True, "minPartitions": 7},
    ],
    ids=["all", "window", "append times"],
)
def test_two_replicas_give_what_one_gives(pair: Pair, bounds: dict[str, Any]) -> None:
    one = read(source(pair.leader.address, subscribe=TOPIC, **bounds))
    assert len(one) == PARTITIONS * (303 if "endingTimestamp" in bounds else COUNT)
    places: set[str] = set()

    def from_both() -> bool:
        close_idle()
        assert read(source(pair.addresses, subscribe=TOPIC, readFrom="any", **bounds)) == one
        places.update(used())
        return places == {pair.leader.address, pair.follower.address}

    wait_until(from_both, within_s=DEADLINE_S, state=lambda: places)


def test_tasks_of_spark_spread(pair: Pair, spark: SparkSession) -> None:
    frame = (
        spark.read.format("horolog")
        .option("bootstrap.servers", pair.addresses)
        .option("subscribe", TOPIC)
        .option("readFrom", "any")
        .option("minPartitions", 8)
        .load()
    )
    found = frame.selectExpr("partition", "offset", "CAST(value AS STRING)").collect()
    assert sorted(map(tuple, found)) == [
        (partition, number, str(number))
        for partition in range(PARTITIONS)
        for number in range(COUNT)
    ]


def test_a_replica_that_is_behind_gives_nothing_instead_of_less(pair: Pair) -> None:
    """What was planned is read as a whole, and without that much a follower is not read from."""
    fetcher = pair.cluster(pair.follower).fetcher
    kept = fetcher.connect
    try:
        pair.cut_off()
        pair.send(COUNT, 5)
        leader = pair.cluster(pair.leader)
        pair.wait(lambda: leader.admin.describe().in_sync == [1])
        ends = [leader.stored.logs[TOPIC, number].log for number in range(PARTITIONS)]
        pair.wait(lambda: all(log.high_watermark == COUNT + 5 for log in ends))
        for _ in range(8):
            close_idle()
            found = read(source(pair.addresses, subscribe=TOPIC, readFrom="any"))
            assert len(found) == PARTITIONS * (COUNT + 5)
            assert used() == {pair.leader.address}
        # What it has it gives.
        offsets = {"startingOffsets": "earliest", "endingOffsets": f'{{"{TOPIC}": {{"0": 9}}}}'}
        places: set[str] = set()
        pair.wait(lambda: _reads_nine(pair, offsets, places) and len(places) == 2)
    finally:
        fetcher.connect = kept


def _reads_nine(pair: Pair, offsets: dict[str, str], places: set[str]) -> bool:
    close_idle()
    assign = f'{{"{TOPIC}": [0]}}'
    found = read(source(pair.addresses, assign=assign, readFrom="any", **offsets))
    assert [row["offset"] for row in found] == list(range(9))
    places |= used()
    return True


def test_what_the_option_may_be() -> None:
    for server, value, text in (
        ("h:1", "follower", "readFrom"),
        ("kafka://h:1", "any", "readFrom=any is for Horolog's own protocol"),
    ):
        given = {"bootstrap.servers": server, "subscribe": "t", "readFrom": value}
        with pytest.raises(OptionError, match=text):
            read_options(given, streaming=False, now_ms=T0_MS)
