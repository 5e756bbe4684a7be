"""`horolog explain compaction`: what a compacted topic keeps, and its messages without a key."""

from dataclasses import dataclass

from ...client.administer.admin import Admin
from ...client.consume.consumer import Consumer
from ...protocol.api.log.list_offsets import EARLIEST, LATEST
from ..broker_requests import ask, partitions_of
from ..options import DEFAULT_SERVER, Json, Partition, Server, TopicName
from ..output import emit, json_line, not_cleaned_yet, plural
from ..progress import Advance, progress


@dataclass(frozen=True, slots=True)
class PartitionEnds:
    """Offsets of a partition when the command was given."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class KeyCount:
    """Messages of a partition, and how many of them have no key."""

    partition: int
    messages: int
    without_key: int


def compaction(
    topic: TopicName,
    partition: Partition = None,
    server: Server = DEFAULT_SERVER,
    as_json: Json = False,
) -> None:
    """Say what compaction keeps, and count the messages without a key.

    A compacted topic refuses messages without a key; those that it had before it was compacted
    stay. To count them, all messages of the topic are read once.
    """
    policy, ends = ask(Admin, server, lambda admin: _find(admin, topic, partition))
    with progress("messages", sum(one.end - one.start for one in ends)) as advance:
        counts = ask(Consumer, server, lambda reader: _count(reader, topic, ends, advance))
    compacts = "compact" in policy.split(",")
    if as_json:
        emit(_as_json(one, policy, compacts and not server.kafka) for one in counts)
        return
    if not compacts:
        emit([f"cleanup.policy is {policy}: messages need no key."])
    elif not server.kafka:
        emit([not_cleaned_yet(policy)])
    emit(_as_text(topic, one) for one in counts)


async def _find(admin: Admin, topic: str, partition: int | None) -> tuple[str, list[PartitionEnds]]:
    """The topic's policy, and what there is to read."""
    description = await admin.describe_topic(topic)
    values = {setting.name: setting.value for setting in description.settings}
    ends: list[PartitionEnds] = []
    for number in await partitions_of(admin, topic, partition):
        start, end = await admin.list_offsets(topic, number, [EARLIEST, LATEST])
        ends.append(PartitionEnds(number, start.offset or 0, end.offset or 0))
    return values.get("cleanup.policy") or "delete", ends


async def _count(
    consumer: Consumer, topic: str, ends: list[PartitionEnds], advance: Advance
) -> list[KeyCount]:
    return [await _count_in(consumer, topic, one, advance) for one in ends]


async def _count_in(
    consumer: Consumer, topic: str, ends: PartitionEnds, advance: Advance
) -> KeyCount:
    messages = without_key = 0
    position = ends.start
    consumer.assign(topic, ends.partition, offset=position)
    while position < ends.end:
        for batch in await consumer.fetch_columns(columns=["keys"]):
            messages += batch.count
            without_key += batch.keys.nulls
        reached = consumer.position(topic, ends.partition)
        assert reached is not None, "it was assigned with an offset"
        advance(reached - position)
        position = reached
    consumer.unassign(topic, ends.partition)
    return KeyCount(ends.partition, messages, without_key)


def _as_json(count: KeyCount, policy: str, not_cleaned: bool) -> str:
    return json_line(
        partition=count.partition,
        messages=count.messages,
        without_key=count.without_key,
        cleanup_policy=policy,
        not_cleaned_yet=not_cleaned,
    )


def _as_text(topic: str, count: KeyCount) -> str:
    return (
        f"{topic}-{count.partition}: {count.messages} {plural(count.messages, 'message')}, "
        f"{count.without_key} without a key."
    )
