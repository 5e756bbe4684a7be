"""All kinds of clients at once while brokers, etcd and the ways between them fail at random
(replication.md, section 8.2)."""

import asyncio
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import kafka
import kafka.errors
import pytest

from horolog import HorologError, Producer
from horolog.testing.etcd import EtcdProcess
from horolog.testing.ports import free_port

from .brokers import TOPIC, Broker, Cluster, Writer, cluster

PLAIN, RDKAFKA, PYTHON = "plain", "rdkafka", "python"
"""Topics: ours without idempotence, librdkafka's idempotent producer, kafka-python's plain one."""
GROUP: Final = "readers"

pytestmark = [pytest.mark.elections, pytest.mark.timeout(900)]


class Worker:
    """A client in a thread, from the start of a block to its end."""

    def __init__(self, addresses: str) -> None:
        self.addresses = addresses
        self.answered: list[str] = []
        """In the order in which they were sent."""
        self.errors: list[BaseException] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, name=type(self).__name__)

    def _work(self) -> None:
        try:
            self.work(self._end)
        except BaseException as error:
            self.errors.append(error)

    def work(self, end: threading.Event) -> None:
        raise NotImplementedError

    @contextmanager
    def working(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._end.set()
            self._thread.join(120)
            assert not self._thread.is_alive(), type(self).__name__


class OursPlain(Worker):
    """Without idempotence: nothing answered is lost; what was sent again may be there twice."""

    def work(self, end: threading.Event) -> None:
        asyncio.run(self._send(end))

    async def _send(self, end: threading.Event) -> None:
        number = 0
        async with Producer(
            self.addresses, acks="all", idempotent=False, delivery_timeout_ms=60_000
        ) as producer:
            while not end.is_set():
                value = str(number)
                number += 1
                try:
                    await producer.send(PLAIN, value.encode(), partition=0)
                except (HorologError, OSError):
                    continue
                self.answered.append(value)
                await asyncio.sleep(0.005)


class Librdkafka(Worker):
    def work(self, end: threading.Event) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.addresses,
                "broker.address.family": "v4",
                "enable.idempotence": True,
                "delivery.timeout.ms": 120_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 300,
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
            }
        )
        number = 0
        while not end.is_set():
            producer.produce(RDKAFKA, str(number).encode(), on_delivery=self._delivered)
            number += 1
            producer.poll(0.005)
        assert producer.flush(120) == 0

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.answered.append((message.value() or b"").decode())


class KafkaPython(Worker):
    def work(self, end: threading.Event) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self.addresses.split(","),
            acks="all",
            enable_idempotence=False,
            retries=1000,
            delivery_timeout_ms=120_000,
            reconnect_backoff_max_ms=300,
            metadata_max_age_ms=1000,
        )
        number = 0
        while not end.is_set():
            try:
                producer.send(PYTHON, str(number).encode()).get(timeout=60)
            except kafka.errors.KafkaError:
                continue
            else:
                self.answered.append(str(number))
            finally:
                number += 1
            time.sleep(0.005)  # others want to send, too
        producer.close(timeout=10)


class Group(Worker):
    """A member of a group that commits what it has read. It notes commits that went back."""

    def __init__(self, addresses: str) -> None:
        super().__init__(addresses)
        self.wanted = 0
        """How many different messages it reads before it ends, if they come within a minute."""
        self.went_back: list[tuple[int, int]] = []
        self._committed = 0

    def work(self, end: threading.Event) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.addresses,
                "broker.address.family": "v4",
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 10_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 300,
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
            }
        )
        consumer.subscribe([RDKAFKA])
        place = confluent_kafka.TopicPartition(RDKAFKA, 0)
        late_s = float("inf")
        while len(set(self.answered)) < self.wanted or not end.is_set():
            if end.is_set():
                late_s = min(late_s, time.monotonic() + 60)
                if time.monotonic() > late_s:
                    break
            for message in consumer.consume(500, 0.2):
                if message.error() is None:
                    self.answered.append((message.value() or b"").decode())
            try:
                consumer.commit(asynchronous=False)
                (found,) = consumer.committed([place], timeout=5)
            except confluent_kafka.KafkaException:
                continue  # nothing new, or nobody leads now
            if found.offset >= 0:
                if found.offset < self._committed:
                    self.went_back.append((self._committed, found.offset))
                self._committed = found.offset
        consumer.close()


def faults(all_: Cluster, etcd: EtcdProcess) -> dict[str, Callable[[], None]]:
    """Each breaks something, and has it work again."""

    def other(leader: Broker) -> Broker:
        return next(one for one in all_.all.values() if one is not leader)

    def killed(broker: Broker) -> None:
        broker.kill()
        time.sleep(0.5)
        broker.start()

    def stopped(broker: Broker) -> None:
        broker.stop()
        broker.start()

    def paused(broker: Broker, seconds: float) -> None:
        broker.pause()
        time.sleep(seconds)
        broker.go_on()

    def cut_from_etcd(broker: Broker) -> None:
        broker.to_etcd.shut()
        time.sleep(4)
        broker.to_etcd.open()

    def cut_from_others(broker: Broker) -> None:
        broker.to_me.shut()
        time.sleep(3)
        broker.to_me.open()

    def etcd_restarted() -> None:
        etcd.stop(signal.SIGKILL)
        time.sleep(1)
        etcd.start()

    def promoted() -> None:
        to = other(all_.leader())
        all_.program("cluster", "promote", str(to.broker_id))  # or it says why not

    return {
        "leader killed": lambda: killed(all_.leader()),
        "follower killed": lambda: killed(other(all_.leader())),
        "leader stopped": lambda: stopped(all_.leader()),
        "leader stands still": lambda: paused(all_.leader(), 4),
        "follower stands still": lambda: paused(other(all_.leader()), 4),
        "leader cut off from etcd": lambda: cut_from_etcd(all_.leader()),
        "followers cut off from their leader": lambda: cut_from_others(all_.leader()),
        "etcd killed": etcd_restarted,
        "promoted": promoted,
    }


def values(all_: Cluster, topic: str) -> list[str]:
    return [
        one["value"]
        for one in all_.program.ok("consume", topic, "--from", "offset:0", "--json").objects
    ]


def test_nobody_loses_what_was_answered(
    place: Path, etcd: EtcdProcess, request: pytest.FixtureRequest
) -> None:
    """`--hypothesis-seed` brings the same faults back, in the same order."""
    rng = random.Random(int(request.config.getoption("--hypothesis-seed")))
    with cluster(place, etcd, min_insync_replicas=2) as all_:
        for broker in all_.all.values():
            broker.kafka_address = f"127.0.0.1:{free_port()}"
        all_.start()
        all_.program.ok("topic", "create", TOPIC, "--partitions", "2")
        for topic in (PLAIN, RDKAFKA, PYTHON):
            all_.program.ok("topic", "create", topic)
        of_kafka = ",".join(one.kafka_address for one in all_.all.values())
        plain, rdkafka = OursPlain(all_.addresses), Librdkafka(of_kafka)
        python, group = KafkaPython(of_kafka), Group(of_kafka)
        writer, ways = Writer(), faults(all_, etcd)
        names = list(ways)
        rng.shuffle(names)
        with group.working():
            with plain.working(), rdkafka.working(), python.working():
                for name in names:
                    asyncio.run(writer.during(all_, ways[name]))
                    all_.in_sync()
            group.wanted = len(rdkafka.answered)
        assert [worker.errors for worker in (plain, rdkafka, python, group)] == [[]] * 4, names
        writer.check(all_)
        check_once(values(all_, RDKAFKA), rdkafka.answered)
        for topic, worker in ((PLAIN, plain), (PYTHON, python)):
            lost = set(worker.answered) - set(values(all_, topic))
            assert lost == set(), f"{topic}: {len(lost)} lost; {names}"
            assert len(worker.answered) > 50
        assert group.went_back == []
        unread = set(rdkafka.answered) - set(group.answered)
        assert unread == set(), f"{len(unread)} never read; {names}"


def check_once(found: list[str], answered: list[str]) -> None:
    """All that was answered is there, nothing twice, in order."""
    twice = [value for value, count in Counter(found).items() if count > 1]
    assert twice == []
    assert set(answered) <= set(found)
    numbers = [int(value) for value in found]
    assert numbers == sorted(numbers)
