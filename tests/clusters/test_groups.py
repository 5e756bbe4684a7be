"""Groups at a Kafka cluster of three brokers, and at Kafka's port of a Horolog broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from confluent_kafka import Consumer as KafkaConsumer

from horolog import (
    Admin,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    NonEmptyGroup,
    PositionMove,
    Producer,
    UnsupportedVersion,
)

from .conftest import NewTopic

START_MS = 1_500_000_000_000
DEADLINE_S = 60.0

pytestmark = pytest.mark.timeout(1200)


@asynccontextmanager
async def member(address: str, group: str, topic: str) -> AsyncIterator[int]:
    """A member of librdkafka's, once it has its partitions and a message; the message's offset."""
    consumer = KafkaConsumer(
        {
            "bootstrap.servers": address.removeprefix("kafka://"),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        message = None
        while message is None or message.error() is not None:
            message = await asyncio.to_thread(consumer.poll, 0.1)
        offset = message.offset()
        assert offset is not None
        yield offset
    finally:
        await asyncio.to_thread(consumer.close)


async def test_a_group_from_its_creation_to_its_end(address: str, new_topic: NewTopic) -> None:
    topic = await new_topic(address, 2)
    group = f"group-of-{topic}"
    async with Producer(address) as producer, Admin(address) as admin:
        times = [START_MS + 1000 * number for number in range(10)]
        await producer.send_batch(topic, [b"x"] * 10, timestamps_ms=times, partition=0)
        with pytest.raises(GroupIdNotFound):
            await admin.describe_group(group)
        moves = await admin.seek_group(group, timestamp_ms=START_MS + 3500, topic=topic)
        assert moves == [PositionMove(topic, 0, None, 4), PositionMove(topic, 1, None, 0)]
        await admin.seek_group(group, by=-1, topic=topic, partition=0)
        found = await admin.describe_group(group)
        assert (found.state, found.members) == (None, ())
        first, second = found.positions
        assert (first.offset, first.end_offset, first.moved_at_ms) == (3, 10, None)
        assert first.lag is not None
        assert (first.lag.messages, second.offset, second.end_offset) == (7, 0, 0)

        async with member(address, group, topic) as offset:
            assert offset == 3
            found = await admin.describe_group(group)
            (one,) = found.members
            assert (found.state, found.protocol_type) == ("Stable", "consumer")
            assert one.partitions == ((topic, 0), (topic, 1))
            assert one.host
            assert not one.host.startswith("/")
            assert [each.member for each in found.positions] == [one, one]
            (listed,) = [each for each in await admin.list_groups() if each.name == group]
            assert (listed.state, listed.members, listed.moved_at_ms) == ("Stable", 1, None)
            with pytest.raises(NonEmptyGroup, match=one.member_id):
                await admin.seek_group(group, "latest")
            with pytest.raises(NonEmptyGroup, match="meanwhile"):
                await admin.move_group(group, moves)
            with pytest.raises(NonEmptyGroup, match=one.member_id):
                await admin.delete_group(group)
            with pytest.raises(GroupSubscribedToTopic, match=one.member_id):
                await admin.delete_group(group, topic=topic)
        # librdkafka does not wait for the answer to its leave.
        async with asyncio.timeout(DEADLINE_S):
            while (await admin.describe_group(group)).state != "Empty":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await admin.seek_group(group, "latest")
        assert [each.offset for each in (await admin.describe_group(group)).positions] == [10, 0]
        gone = await admin.delete_group(group, topic=topic, partition=1)
        assert gone == [PositionMove(topic, 1, 0, None)]
        await admin.delete_group(group)
        assert group not in [each.name for each in await admin.list_groups()]
        with pytest.raises(UnsupportedVersion, match="does not say when a group was last used"):
            await admin.list_groups(idle_for=timedelta(days=7))
