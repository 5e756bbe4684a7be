"""Topics of a Kafka cluster, and what its protocol has not."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import pytest

from horolog import (
    LARGEST,
    LATEST,
    Admin,
    ConnectionFailed,
    Consumer,
    InvalidReplicationFactor,
    Producer,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from horolog.cli.main import run as run_command

from .conftest import NewTopic

DEADLINE_S = 60.0

pytestmark = pytest.mark.timeout(1200)


async def settings(admin: Admin, topic: str) -> dict[str, str | None]:
    """The topic's own ones."""
    found = (await admin.describe_topic(topic)).settings
    return {one.name: one.value for one in found if one.source == "topic"}


async def test_topics_are_made_changed_and_deleted(address: str, new_topic: NewTopic) -> None:
    topic = await new_topic(address, 2, retention_ms="-1", segment_ms="3600000")
    async with Admin(address) as admin:
        assert (await admin.list_topics())[topic] == 2
        with pytest.raises(TopicAlreadyExists):
            await admin.create_topic(topic)
        with pytest.raises(InvalidReplicationFactor):
            await admin.create_topic("too-many-copies", replication_factor=9)
        await admin.alter_topic(topic, {"segment.ms": None, "retention.ms": "1000000"})
        # Each broker of a Kafka cluster hears of it when it can.
        async with asyncio.timeout(DEADLINE_S):
            while await settings(admin, topic) != {"retention.ms": "1000000"}:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await admin.create_partitions(topic, 3)
        assert (await admin.describe_topic(topic)).partitions == 3
        async with Producer(address) as producer:
            await producer.send_batch(topic, [b"a"] * 10, partition=2)
        assert await admin.delete_records(topic, 2, 4) == 4
        sizes = {
            one.partition
            for directory in await admin.describe_log_dirs({topic: [0, 2]})
            for one in directory.partitions
        }
        assert sizes == {0, 2}
        assert any(one.source == "broker" for one in await admin.broker_settings())
        await admin.delete_topic(topic)
        assert topic not in await admin.list_topics()
        with pytest.raises(UnknownTopicOrPartition, match=topic):
            await admin.describe_topic(topic)


async def test_a_partition_that_is_not_there_is_told(address: str, new_topic: NewTopic) -> None:
    topic = await new_topic(address, 2)
    async with Admin(address) as admin:
        with pytest.raises(UnknownTopicOrPartition, match=f"{topic} has no partition 2"):
            await admin.list_offsets(topic, 2, [LATEST])
        with pytest.raises(UnknownTopicOrPartition, match="no-such-topic"):
            await admin.list_offsets("no-such-topic", 0, [LATEST])


async def test_a_cluster_makes_topics_when_they_are_sent_to(cluster: str) -> None:
    async with Producer(cluster) as producer:
        sent = await producer.send("made-by-sending", b"a")
        assert (sent.partition, sent.offset) == (0, 0)


Ask = Callable[[Admin, str], Awaitable[object]]


@pytest.mark.parametrize(
    ("ask", "missing"),
    [
        (lambda admin, topic: admin.describe_log(topic), "describe-log is a request of Horolog's"),
        (lambda admin, _: admin.describe_broker(), "describe-broker is a request of Horolog's"),
        (lambda admin, topic: admin.list_offsets(topic, 0, [LARGEST]), "largest time"),
        (
            lambda admin, topic: admin.find_offset(topic, timestamp_ms=0, by="append"),
            "no search by append time",
        ),
    ],
)
async def test_what_kafka_has_not_is_named(
    port: str, new_topic: NewTopic, ask: Ask, missing: str
) -> None:
    topic = await new_topic(port)
    async with Admin(port) as admin:
        with pytest.raises(UnsupportedVersion, match=missing):
            await ask(admin, topic)


async def test_append_times_are_refused(port: str) -> None:
    with pytest.raises(UnsupportedVersion, match="append_times"):
        Consumer(port, append_times=True)


async def test_nobody_there() -> None:
    with pytest.raises(ConnectionFailed, match=r"no broker of kafka://127.0.0.1:1,127.0.0.1:2"):
        async with Admin("kafka://127.0.0.1:1,127.0.0.1:2"):
            pytest.fail("nobody listens there")


async def test_one_of_several_addresses_is_enough(port: str) -> None:
    async with Admin(port.replace("kafka://", "kafka://127.0.0.1:1,")) as admin:
        assert await admin.list_topics() == {}


async def test_the_native_port_is_no_kafka(port: str) -> None:
    async with asyncio.timeout(30):
        with pytest.raises(ConnectionFailed):
            async with Admin(port.removeprefix("kafka://")):
                pytest.fail("that is not the native port")


def horolog(*arguments: str, code: int = 0) -> tuple[list[str], str]:
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        got = run_command(arguments)
    assert got == code, (out.getvalue(), err.getvalue())
    return out.getvalue().splitlines(), err.getvalue()


def test_the_command_line(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROLOG_SERVER", cluster)
    horolog("topic", "create", "by-hand", "--partitions", "2", "--replication-factor", "2")

    async def feed() -> None:
        async with Producer(cluster) as producer, Consumer(cluster, name="reader") as consumer:
            await producer.send_batch(
                "by-hand", [b"one", b"two"], timestamps_ms=1_500_000_000_000, partition=0
            )
            consumer.assign("by-hand", 0, offset=1)
            await consumer.commit()

    asyncio.run(feed())
    lines, _ = horolog("consume", "by-hand", "--json")
    assert [json.loads(line)["value"] for line in lines] == ["one", "two"]
    lines, _ = horolog("offsets", "by-hand", "--at", "2017-07-14T02:40:00Z", "--json")
    assert [json.loads(line)["offset"] for line in lines] == [0, None]
    lines, _ = horolog("lag", "reader", "--json")
    (lag,) = map(json.loads, lines)
    assert (lag["offset"], lag["lag"], lag["estimated"]) == (1, 1, True)
    assert lag["lag_s"] > 0
    lines, _ = horolog("topic", "describe", "by-hand", "--json")
    assert [one["log_end_offset"] for one in json.loads(lines[0])["partitions"]] == [2, 0]
    lines, _ = horolog("topic", "describe", "by-hand")
    assert lines[0] == "topic by-hand: 2 partitions"
    _, said = horolog("explain", "offset", "by-hand", "--at", "now", code=1)
    assert "describe-log is a request of Horolog's own protocol" in said
    lines, _ = horolog("doctor")
    assert any("Kafka's protocol tells no more" in line for line in lines)
