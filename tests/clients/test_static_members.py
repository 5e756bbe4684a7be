"""Members with a `group.instance.id`, and what tools do with groups."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Final

from confluent_kafka import Consumer
from confluent_kafka.cimpl import KafkaError
from kafka import KafkaAdminClient, TopicPartition

from horolog.testing.waiting import wait_until

from .apache_tools import ApacheTools
from .client import Client, Message
from .conftest import Start
from .matrix import JAVA
from .test_groups import polled

PARTITIONS: Final = 4
POLL_SECONDS: Final = 0.05

_FENCED: Final = (KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL)


class StaticMember:
    """A static member of librdkafka."""

    def __init__(self, address: str, group: str, topic: str, name: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "broker.address.family": "v4",
                "group.id": group,
                "group.instance.id": name,
                "heartbeat.interval.ms": 100,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> bool:
        """Whether another member took its place."""
        found = self._consumer.poll(POLL_SECONDS)
        error = None if found is None else found.error()
        return error is not None and error.code() in _FENCED

    def share(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


def shared(members: Sequence[StaticMember]) -> list[set[int]] | None:
    """What each has, once they share all partitions."""
    for member in members:
        member.poll()
    shares = [member.share() for member in members]
    whole = sum(map(len, shares)) == PARTITIONS and set().union(*shares) == set(range(PARTITIONS))
    return shares if whole and all(shares) else None


def ids_of(address: str, group: str) -> Mapping[str, str]:
    """The member ids of a group by their instance ids."""
    with closing(KafkaAdminClient(bootstrap_servers=address)) as admin:
        described = admin.describe_groups([group])[group]
    return {member["group_instance_id"]: member["member_id"] for member in described["members"]}


def test_a_restart_is_no_rebalance_and_a_second_member_fences_the_first(
    other: Client, address: str
) -> None:
    topic, group = "static", "of static"
    other.create_topic(topic, PARTITIONS, {})
    with closing(StaticMember(address, group, topic, "stays")) as stays:
        with closing(StaticMember(address, group, topic, "restarts")) as leaves:
            before = wait_until(lambda: shared([stays, leaves]))
            ids = ids_of(address, group)
        with closing(StaticMember(address, group, topic, "restarts")) as back:
            assert wait_until(lambda: shared([stays, back])) == before
            after = ids_of(address, group)
            with closing(StaticMember(address, group, topic, "restarts")) as second:
                wait_until(lambda: second.poll() or back.poll() or None)
                assert wait_until(lambda: shared([stays, second])) == before
    assert ids.keys() == after.keys() == {"stays", "restarts"}
    assert ids["stays"] == after["stays"]
    assert ids["restarts"] != after["restarts"]


@JAVA
def test_positions_that_tools_delete(start: Start, other: Client, address: str) -> None:
    for topic in ("deleted", "kept"):
        other.create_topic(topic, 1, {})
        other.produce(topic, [Message(b"a")] * 3)
        with other.member("of tools", topic) as member:
            polled(member, 3)
            member.commit()
    tools = start(ApacheTools)
    assert isinstance(tools, ApacheTools)
    with closing(KafkaAdminClient(bootstrap_servers=address)) as admin:
        for delete in (
            lambda: admin.delete_group_offsets("of tools", [TopicPartition("deleted", 0)]),
            lambda: tools.delete_positions("of tools", "kept"),
        ):
            before = admin.list_group_offsets({"of tools": None})["of tools"]
            delete()
            after = admin.list_group_offsets({"of tools": None})["of tools"]
            assert len(after) == len(before) - 1
    assert after == {}
