"""Fault 42: what librdkafka's own suite asks of a broker, through its Python binding.

The cases are those of its suite that need nothing of its inner parts and are not among what
`tests/clients` asks of every client: odd messages, odd places, and what changes under a consumer.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from horolog.testing.program import serving

WAIT_SECONDS = 30
POLL_SECONDS = 0.1

Make = Callable[..., Any]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("broker") / "data"
    settings = ("group.min.session.timeout.ms=100", "retention.ms=-1")
    options = [text for setting in settings for text in ("--set", setting)]
    with serving(data, "--kafka-listen", "127.0.0.1:0", *options) as server:
        assert server.kafka is not None
        yield server.kafka


@pytest.fixture
def common(address: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "broker.address.family": "v4",
        "topic.metadata.refresh.interval.ms": 100,
        "log_level": 0,
    }


@pytest.fixture
def admin(common: dict[str, Any]) -> AdminClient:
    return AdminClient(common)


@pytest.fixture
def topic(admin: AdminClient, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions."""
    name = re.sub(r"\W+", ".", request.node.name.removeprefix("test_")).strip(".")
    create(admin, name, 2)
    return name


@pytest.fixture
def consumer(common: dict[str, Any], topic: str) -> Iterator[Make]:
    """`consumer(**settings)` is one of the topic's group, closed in the end."""
    made: list[Consumer] = []

    def make(**settings: Any) -> Consumer:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        own = {"group.id": f"of {topic}", "enable.auto.commit": False, "heartbeat.interval.ms": 100}
        made.append(Consumer(common | own | {"auto.offset.reset": "earliest"} | given))
        return made[-1]

    yield make
    for one in made:
        one.close()


def create(admin: AdminClient, name: str, partitions: int, **settings: str) -> None:
    config = {key.replace("_", "."): value for key, value in settings.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(WAIT_SECONDS)


def send(
    common: dict[str, Any],
    topic: str,
    messages: Sequence[tuple[bytes | None, bytes | None]],
    partition: int = 0,
    **settings: Any,
) -> list[Any]:
    """Send messages, given as key and value; the error or None of each, in their order."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer(common | {"linger.ms": 5} | given)
    told: dict[int, Any] = {}
    for number, (key, value) in enumerate(messages):

        def delivered(error: Any, _message: Any, number: int = number) -> None:
            told[number] = error

        producer.produce(topic, value, key, partition=partition, on_delivery=delivered)
    assert producer.flush(WAIT_SECONDS) == 0
    return [told[number] for number in range(len(messages))]


def numbered(count: int) -> list[tuple[None, bytes]]:
    return [(None, b"%d" % number) for number in range(count)]


def polled(consumer: Consumer, count: int) -> list[Any]:
    """So many messages; errors raise."""
    found: list[Any] = []
    while len(found) < count:
        for one in consumer.consume(count - len(found), POLL_SECONDS):
            if one.error() is not None:
                raise KafkaException(one.error())
            found.append(one)
    return found


def first_error(consumer: Consumer) -> int:
    """The code of the first error that a poll tells."""
    while True:
        one = consumer.poll(POLL_SECONDS)
        error = None if one is None else one.error()
        if error is not None:
            return error.code()


def test_null_and_empty(common: dict[str, Any], topic: str, consumer: Make) -> None:
    sent = [(None, None), (b"", b""), (b"k", None), (None, b"v"), (b"", None), (None, b"")]
    assert send(common, topic, sent) == [None] * len(sent)
    reading = consumer()
    reading.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert [(one.key(), one.value()) for one in polled(reading, len(sent))] == sent


def test_unknown_partition(common: dict[str, Any], topic: str) -> None:
    (error,) = send(common, topic, [(None, b"a")], partition=7, message_timeout_ms=3000)
    assert error.code() in (KafkaError._UNKNOWN_PARTITION, KafkaError._MSG_TIMED_OUT)
    assert send(common, topic, [(None, b"a")]) == [None]


def test_too_large(common: dict[str, Any], admin: AdminClient, topic: str, consumer: Make) -> None:
    create(admin, "small", 1, max_message_bytes="2000")
    values = [b"a", b"x" * 5000, b"b"]
    errors = [send(common, "small", [(None, value)])[0] for value in values]
    assert [error and error.code() for error in errors] == [
        None,
        KafkaError.MSG_SIZE_TOO_LARGE,
        None,
    ]
    reading = consumer()
    reading.assign([TopicPartition("small", 0, OFFSET_BEGINNING)])
    assert [one.value() for one in polled(reading, 2)] == [b"a", b"b"]


def test_partial_fetches(common: dict[str, Any], topic: str, consumer: Make) -> None:
    values = [b"%d" % number + b"x" * 1000 * number for number in range(40)]
    for value in values:
        send(common, topic, [(None, value)])
    reading = consumer(fetch_message_max_bytes=2000)  # less than most of them
    reading.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert [one.value() for one in polled(reading, len(values))] == values


def test_reading_again(common: dict[str, Any], topic: str, consumer: Make) -> None:
    send(common, topic, numbered(50))
    reading = consumer()
    reading.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    for first in (0, 49, 17, 0):
        reading.seek(TopicPartition(topic, 0, first))
        assert [one.offset() for one in polled(reading, 50 - first)] == list(range(first, 50))


def test_ends(common: dict[str, Any], topic: str, consumer: Make) -> None:
    reading = consumer(enable_partition_eof=True)
    reading.assign([TopicPartition(topic, 1, OFFSET_END)])
    assert first_error(reading) == KafkaError._PARTITION_EOF
    send(common, topic, numbered(3), partition=1)
    assert [one.offset() for one in polled(reading, 3)] == [0, 1, 2]
    assert first_error(reading) == KafkaError._PARTITION_EOF
    assert reading.get_watermark_offsets(TopicPartition(topic, 1), WAIT_SECONDS) == (0, 3)
    assert reading.get_watermark_offsets(TopicPartition(topic, 0), WAIT_SECONDS) == (0, 0)


@pytest.mark.parametrize(("reset", "first"), [("earliest", 4), ("latest", 9), ("error", None)])
def test_out_of_range(
    common: dict[str, Any],
    admin: AdminClient,
    topic: str,
    consumer: Make,
    reset: str,
    first: int | None,
) -> None:
    send(common, topic, numbered(9))
    place = TopicPartition(topic, 0, 4)
    deleted = admin.delete_records([place])
    assert next(iter(deleted.values())).result(WAIT_SECONDS).low_watermark == 4
    reading = consumer(auto_offset_reset=reset, enable_partition_eof=True)
    reading.assign([TopicPartition(topic, 0, 2)])
    if first is None:
        assert first_error(reading) == KafkaError._AUTO_OFFSET_RESET
        return
    if first == 9:
        assert first_error(reading) == KafkaError._PARTITION_EOF
        send(common, topic, numbered(1))
    assert polled(reading, 1)[0].offset() == first


def test_metadata_of_commits(common: dict[str, Any], topic: str, consumer: Make) -> None:
    reading = consumer()
    asked = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert [one.offset for one in reading.committed(asked, WAIT_SECONDS)] == [-1001, -1001]
    reading.commit(offsets=[TopicPartition(topic, 0, 5, "where I was")], asynchronous=False)
    found = consumer().committed(asked, WAIT_SECONDS)
    assert [(one.offset, one.metadata) for one in found] == [(5, "where I was"), (-1001, None)]


def test_commits_by_the_clock(common: dict[str, Any], topic: str, consumer: Make) -> None:
    send(common, topic, numbered(10))
    reading = consumer(enable_auto_commit=True, auto_commit_interval_ms=100)
    reading.subscribe([topic])
    polled(reading, 10)
    place = [TopicPartition(topic, 0)]
    asking = consumer()
    while asking.committed(place, WAIT_SECONDS)[0].offset != 10:
        reading.poll(POLL_SECONDS)


def test_more_partitions(
    common: dict[str, Any], admin: AdminClient, topic: str, consumer: Make
) -> None:
    reading = consumer()
    reading.subscribe([topic])
    while {one.partition for one in reading.assignment()} != {0, 1}:
        reading.poll(POLL_SECONDS)
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(WAIT_SECONDS)
    while {one.partition for one in reading.assignment()} != {0, 1, 2, 3}:
        reading.poll(POLL_SECONDS)
    for partition in range(4):
        assert send(common, topic, [(None, b"%d" % partition)], partition) == [None]
    assert sorted(one.value() for one in polled(reading, 4)) == [b"0", b"1", b"2", b"3"]


def test_topics_that_match_come_and_go(
    common: dict[str, Any], admin: AdminClient, topic: str, consumer: Make
) -> None:
    reading = consumer()
    reading.subscribe([f"^{topic}.[ab]$"])
    for wanted in ({f"{topic}.a"}, {f"{topic}.a", f"{topic}.b"}):
        for name in sorted(wanted - set(admin.list_topics(timeout=WAIT_SECONDS).topics)):
            create(admin, name, 1)
        while {one.topic for one in reading.assignment()} != wanted:
            reading.poll(POLL_SECONDS)
    admin.delete_topics([f"{topic}.a"])[f"{topic}.a"].result(WAIT_SECONDS)
    while {one.topic for one in reading.assignment()} != {f"{topic}.b"}:
        reading.poll(POLL_SECONDS)  # it may tell that the topic is not there any more
    send(common, f"{topic}.b", numbered(1))
    while (found := reading.poll(POLL_SECONDS)) is None or found.error() is not None:
        pass  # that may be told as late as now
    assert found.topic() == f"{topic}.b"


def test_a_subscription_changes(
    common: dict[str, Any], admin: AdminClient, topic: str, consumer: Make
) -> None:
    names = [f"{topic}.{number}" for number in range(3)]
    for name in names:
        create(admin, name, 1)
        send(common, name, [(None, name.encode())])
    reading = consumer()
    for subscribed in (names[:1], names[:2], names[2:], names):
        reading.subscribe(subscribed)
        while {one.topic for one in reading.assignment()} != set(subscribed):
            reading.poll(POLL_SECONDS)
    reading.unsubscribe()
    while reading.assignment():
        reading.poll(POLL_SECONDS)


def test_pauses(common: dict[str, Any], topic: str, consumer: Make) -> None:
    for partition in (0, 1):
        send(common, topic, numbered(100), partition)
    reading = consumer()
    places = [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in (0, 1)]
    reading.assign(places)
    reading.pause(places[:1])
    assert {one.partition() for one in polled(reading, 100)} == {1}
    reading.resume(places[:1])
    assert [one.offset() for one in polled(reading, 100)] == list(range(100))


def test_groups_are_listed_and_deleted(
    admin: AdminClient, common: dict[str, Any], topic: str, consumer: Make
) -> None:
    group = f"of {topic}"
    reading = consumer()
    reading.subscribe([topic])
    while not reading.assignment():
        reading.poll(POLL_SECONDS)
    reading.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    described = admin.describe_consumer_groups([group])[group].result(WAIT_SECONDS)
    assert (described.state.name, len(described.members)) == ("STABLE", 1)
    with pytest.raises(KafkaException) as caught:
        admin.delete_consumer_groups([group])[group].result(WAIT_SECONDS)
    assert caught.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    reading.unsubscribe()
    reading.close()
    listed = admin.list_consumer_groups().result(WAIT_SECONDS).valid
    assert group in [one.group_id for one in listed]
    admin.delete_consumer_groups([group])[group].result(WAIT_SECONDS)
    listed = admin.list_consumer_groups().result(WAIT_SECONDS).valid
    assert group not in [one.group_id for one in listed]


def test_a_member_that_stops_polling_is_left_out(
    common: dict[str, Any], topic: str, consumer: Make
) -> None:
    settings = {"session_timeout_ms": 500, "max_poll_interval_ms": 500}
    silent, working = consumer(**settings), consumer(**settings)
    silent.subscribe([topic])
    while len(silent.assignment()) != 2:
        silent.poll(POLL_SECONDS)
    working.subscribe([topic])
    while len(working.assignment()) != 2:
        working.poll(POLL_SECONDS)
    while [len(one.assignment()) for one in (silent, working)] != [1, 1]:
        silent.poll(POLL_SECONDS)  # it comes back
        working.poll(POLL_SECONDS)


def test_transactions_are_refused(common: dict[str, Any], topic: str) -> None:
    producer = Producer(common | {"transactional.id": topic})
    with pytest.raises(KafkaException):
        producer.init_transactions(3)
    assert send(common, topic, numbered(1)) == [None]


def test_numbered_producers_side_by_side(
    common: dict[str, Any], topic: str, consumer: Make
) -> None:
    settings = common | {"enable.idempotence": True, "linger.ms": 1, "batch.num.messages": 7}
    producers = [Producer(settings) for _ in range(5)]
    for number in range(200):
        for name, producer in enumerate(producers):
            producer.produce(topic, b"%d.%d" % (name, number), partition=0)
            producer.poll(0)
    assert [producer.flush(WAIT_SECONDS) for producer in producers] == [0] * 5
    reading = consumer()
    reading.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = [one.value().decode().split(".") for one in polled(reading, 1000)]
    for name in range(5):
        assert [int(number) for by, number in found if int(by) == name] == list(range(200))
