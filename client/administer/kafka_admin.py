"""Looking after topics in a Kafka cluster, where the brokers learn of a change one by one."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from ...protocol.api.topics.alter_configs import AlterableConfig
from ...protocol.api.topics.describe_configs import FROM_DEFAULT, FROM_TOPIC, DescribedConfig
from ...protocol.errors import NO_ERROR, LeaderNotAvailable
from ..cluster.backoff import Backoff
from ..cluster.kafka_cluster import KafkaCluster
from ..cluster.targets import NodeById
from ..errors import ConnectionFailed
from ..results import TopicSetting

_SETTLING_S: Final = 10.0
"""How long the brokers may take to learn of a change; tenths of a second are usual."""


async def settle(cluster: KafkaCluster, topic: str, *, partitions: int) -> None:
    """Wait until every broker that is up knows `topic` with so many partitions that have a leader;
    0: until none knows it. Gives up after a while, as the change itself is made."""
    end = asyncio.get_running_loop().time() + _SETTLING_S
    backoff = Backoff()
    cluster.forget(topic)
    for node_id in await cluster.node_ids():
        while not await _knows(cluster, node_id, topic, partitions):
            if asyncio.get_running_loop().time() > end:
                return
            await asyncio.sleep(backoff.next_s())


async def _knows(cluster: KafkaCluster, node_id: int, topic: str, partitions: int) -> bool:
    try:
        response = await cluster.topics([topic], at=NodeById(node_id))
    except (ConnectionFailed, LeaderNotAvailable):
        return True  # it is gone
    (found,) = response.topics
    led = [one for one in found.partitions if one.leader_id >= 0]
    return (len(led) if found.error_code == NO_ERROR else 0) == partitions


def sourced(config: DescribedConfig) -> str:
    """Where a setting's value comes from, in the words of the native protocol."""
    if config.source:
        return config.source
    return {FROM_TOPIC: "topic", FROM_DEFAULT: "default"}.get(config.config_source, "broker")


def merged(
    settings: Sequence[TopicSetting], changes: Mapping[str, str | None]
) -> list[AlterableConfig]:
    """All settings that a topic is to have of its own, when these are changed.

    Kafka's request takes no others, so a change that another makes meanwhile gets lost.
    """
    own = {one.name: one.value for one in settings if one.source == "topic"}
    kept = {**own, **changes}
    return [
        AlterableConfig(name=name, value=value) for name, value in kept.items() if value is not None
    ]
