"""Clients that know the addresses of several brokers find the one that leads, and follow it."""

import asyncio
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from horolog import Admin, Consumer, Producer
from horolog.protocol.api.broker.describe_cluster import DescribeClusterRequest
from horolog.protocol.api.groups.find_coordinator import FindCoordinatorRequest
from horolog.protocol.api.groups.list_groups import ListGroupsRequest
from horolog.protocol.api.groups.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from horolog.protocol.api.groups.offset_delete import (
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
)
from horolog.protocol.api.kafka import frames as kafka_frames
from horolog.protocol.api.topics.create_topics import (
    CreatableAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from horolog.protocol.api.topics.metadata import MetadataRequest, MetadataTopic
from horolog.protocol.errors import (
    CoordinatorNotAvailable,
    InvalidReplicationFactor,
    NotCoordinator,
    NotLeader,
)
from horolog.server.replication import followers
from horolog.testing.ports import free_port
from horolog.testing.requests import result
from horolog.testing.wire import wire

from .members import Member, eventually, members

TOPIC = "t"
SENT = 300


def both(*of: Member) -> str:
    return ",".join(one.address for one in of)


@pytest.mark.parametrize("how", ["handed over", "gone"])
async def test_a_producer_follows_the_leader(place: Path, how: str) -> None:
    """All that it sends is there once and in order, and what it reads goes on."""
    async with members(place, min_insync_replicas=2 if how == "gone" else 1) as all_:
        await all_.start()
        first, second = all_[1], all_[2]
        async with Admin(both(second, first)) as admin:
            await admin.create_topic(TOPIC)
        await all_.in_sync(first)
        async with (
            Producer(both(first, second), linger_ms=1) as producer,
            Consumer(both(second, first), max_wait_ms=100) as consumer,
        ):
            consumer.assign(TOPIC)
            answers = []
            for number in range(SENT):
                answers.append(await producer.enqueue(TOPIC, b"%d" % number))
                await asyncio.sleep(0.001)  # so that it happens among the messages
                if number == SENT // 3:
                    changing = asyncio.create_task(_change(how, first, second))
            await changing
            results = await asyncio.gather(*answers)
            offsets = [one.offset for one in results if one.offset is not None]
            assert offsets == sorted(set(offsets))
            read = [(await anext(consumer)).value for _ in range(SENT)]
        assert read == [b"%d" % number for number in range(SENT)]


async def _change(how: str, first: Member, second: Member) -> None:
    if how == "handed over":
        await first.promote(second.broker_id)
        return
    await first.stop()
    await second.promote()
    await first.start(follow=second)


async def test_a_follower_tries_its_addresses_in_turn_until_one_leads(place: Path) -> None:
    """At its start, and after another broker was promoted."""
    async with members(place, 3) as all_:
        await all_[1].start(cluster_create=True)
        await all_[2].start(follow=all_[1])
        nobody = f"127.0.0.1:{free_port()}"
        given = ",".join((nobody, all_[3].address, all_[2].address, all_[1].address))
        await all_[3].start(cluster_follow=given)
        await all_.in_sync(all_[1])
        await all_[1].promote(2)
        await all_.in_sync(all_[2])
        assert all_[3].cluster.fetcher.address == all_[2].address


async def test_what_each_broker_says_of_the_others(place: Path) -> None:
    async with members(place, kafka_listen="127.0.0.1:0") as all_:
        await all_.start()
        first, second = all_[1], all_[2]
        async with Admin(first.address) as admin:
            await admin.create_topic(TOPIC)
        await all_.in_sync(first)
        directory = second.cluster.directory
        await eventually(lambda: TOPIC in directory.topics())
        asked = MetadataRequest(topics=[MetadataTopic(name=TOPIC)])
        epoch = (await first.status()).epoch
        for member in (first, second):
            async with wire(member.address) as client:
                told = await client.call(asked)
            assert told.node_id == member.broker_id
            assert told.controller_id == first.broker_id
            ports = {one.node_id: f"{one.host}:{one.port}" for one in told.brokers}
            assert ports == {1: first.address, 2: second.address}
            (partition,) = told.topics[0].partitions
            assert (partition.leader_id, partition.replica_nodes) == (1, [1, 2])
            assert partition.isr_nodes == [1, 2]
        for member in (first, second):
            assert member.broker is not None
            found = await asyncio.to_thread(_by_librdkafka, str(member.broker.addresses.kafka))
            assert found == (1, {1, 2}, 1)
        kafka = [str(one.broker.addresses.kafka) for one in (first, second) if one.broker]
        async with wire(kafka[1], kafka_frames) as client:
            response = await client.call(FindCoordinatorRequest(key="g"), 0)
        assert (response.error_code, response.node_id) == (0, 1)
        assert f"{response.host}:{response.port}" == kafka[0]
        for address in kafka:
            async with wire(address, kafka_frames) as client:
                described = await client.call(DescribeClusterRequest())
            assert described.controller_id == 1
            ports = {one.broker_id: f"{one.host}:{one.port}" for one in described.brokers}
            assert ports == {1: kafka[0], 2: kafka[1]}
        assert epoch > 0


async def test_the_leader_deletes_positions_of_a_group(place: Path) -> None:
    """A follower refuses it as it refuses commits, and forgets with the leader."""
    async with members(place, kafka_listen="127.0.0.1:0") as all_:
        await all_.start()
        first, second = all_[1], all_[2]
        async with Admin(first.address) as admin:
            await admin.create_topic(TOPIC)
        await all_.in_sync(first)
        asked = OffsetDeleteRequest(
            group_id="g",
            topics=[OffsetDeleteTopic(name=TOPIC, partitions=[OffsetDeletePartition(partition=0)])],
        )
        stored = OffsetCommitPartition(partition=0, committed_offset=5)
        commit = OffsetCommitRequest(
            group_id="g", topics=[OffsetCommitTopic(name=TOPIC, partitions=[stored])]
        )
        held = second.cluster.directory.committed
        kafka = [str(one.broker.addresses.kafka) for one in (first, second) if one.broker]
        async with wire(kafka[0], kafka_frames) as leads, wire(kafka[1], kafka_frames) as follows:
            assert result(await leads.call(commit)).error_code == 0
            await eventually(lambda: held.get("g", TOPIC, 0) is not None)
            assert (await follows.call(asked)).error_code == NotCoordinator.code
            assert result(await leads.call(asked)).error_code == 0
            await eventually(lambda: held.get("g", TOPIC, 0) is None)


def _by_librdkafka(bootstrap: str) -> tuple[int, set[int], int]:
    """Controller, brokers, and the leader of the topic's partition."""
    told = AdminClient({"bootstrap.servers": bootstrap}).list_topics(TOPIC, timeout=20)
    return told.controller_id, set(told.brokers), told.topics[TOPIC].partitions[0].leader


async def test_clients_of_kafka_learn_all_brokers_from_a_follower(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of one that came, or went, after it; and who is in sync, as at the leader."""
    monkeypatch.setattr(followers, "LISTED_S", 1.0)
    async with members(place, 3, kafka_listen="127.0.0.1:0") as all_:
        first, second, third = all_[1], all_[2], all_[3]
        await first.start(cluster_create=True)
        await second.start(follow=first)
        async with Admin(first.address) as admin:
            await admin.create_topic(TOPIC)
        await eventually(lambda: TOPIC in second.cluster.directory.topics())
        assert second.broker is not None
        kafka = str(second.broker.addresses.kafka)
        await third.start(follow=first)
        await all_.in_sync(first)

        async def told(brokers: list[int]) -> bool:
            for ask in (_by_librdkafka_all, _by_kafka_python):
                try:
                    leader, found, replicas, in_sync = await asyncio.to_thread(ask, kafka)
                except KafkaError:
                    return False  # It went to one that is gone and was listed a moment ago.
                if not (leader == 1 and found == brokers == in_sync == replicas):
                    return False
            return True

        await eventually(lambda: told([1, 2, 3]))

        async def places() -> dict[int, str]:
            async with wire(second.address) as client:
                there = await client.call(MetadataRequest(topics=[]))
            return {one.node_id: f"{one.host}:{one.port}" for one in there.brokers}

        addresses = {number: one.address for number, one in all_.all.items()}

        async def all_told() -> bool:
            return await places() == addresses

        await eventually(all_told)
        await third.stop()
        del addresses[third.broker_id]
        await eventually(all_told)
        with first.impatient():
            await eventually(lambda: told([1, 2]))
        # A client of our own, too, reads from brokers that it was not given.
        async with Consumer(second.address, read_from="any") as consumer:
            reads = consumer._cluster.reads
            assert reads is not None
            assert set(reads.replicas._avoided_until) == {second.address, first.address}


async def test_a_follower_whose_connection_was_lost_a_moment_ago_is_listed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that knows only the leader would not find it, should the leader go now."""
    async with members(place, 2) as all_:
        first, second = all_[1], all_[2]
        await first.start(cluster_create=True)
        await second.start(follow=first)
        await all_.in_sync(first)
        there = first.cluster.followers
        channel = there.channel_of(2)
        assert channel is not None
        there._gone(channel)
        assert there.there() == [2]
        monkeypatch.setattr(followers, "LISTED_S", -1.0)
        assert there.there() == []


def _by_librdkafka_all(bootstrap: str) -> tuple[int, list[int], list[int], list[int]]:
    """Leader of the topic's partition, brokers, replicas, and in-sync replicas."""
    told = AdminClient({"bootstrap.servers": bootstrap}).list_topics(TOPIC, timeout=20)
    partition = told.topics[TOPIC].partitions[0]
    return partition.leader, sorted(told.brokers), partition.replicas, partition.isrs


def _by_kafka_python(bootstrap: str) -> tuple[int, list[int], list[int], list[int]]:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        brokers = sorted(one["broker_id"] for one in admin.describe_cluster()["brokers"])
        (partition,) = admin.describe_topics([TOPIC])[0]["partitions"]
        return partition["leader_id"], brokers, partition["replica_nodes"], partition["isr_nodes"]
    finally:
        admin.close()


async def test_as_many_copies_as_there_are_brokers_may_be_asked_for(place: Path) -> None:
    """Each broker has every topic, whatever number of copies is asked for."""
    async with members(place, kafka_listen="127.0.0.1:0") as all_:
        await all_.start()
        first = all_[1]
        await all_.in_sync(first)
        async with Admin(first.address) as admin:
            for factor in (-1, 1, 2):
                await admin.create_topic(f"copies{factor}", replication_factor=factor)
            for factor in (0, 3):
                with pytest.raises(InvalidReplicationFactor, match="it must be 1 to 2"):
                    await admin.create_topic("none", replication_factor=factor)
        async with wire(first.address) as client:
            told = await client.call(MetadataRequest(topics=None))
            replicas = {
                topic.name: topic.partitions[0].replica_nodes
                for topic in told.topics
                if topic.name.startswith("copies")
            }
            assert replicas == {f"copies{factor}": [1, 2] for factor in (-1, 1, 2)}
            for ids, code in (([1, 2], 0), ([2], 0), ([1, 3], 39), ([1, 1], 39), ([], 39)):
                assignment = CreatableAssignment(partition=0, broker_ids=ids)
                topic = CreatableTopic(name="assigned", assignments=[assignment])
                request = CreateTopicsRequest(topics=[topic], validate_only=True)
                (made,) = (await client.call(request)).topics
                assert made.error_code == code, (ids, made.error_message)


async def test_groups_are_listed_by_clients_that_ask_every_broker(place: Path) -> None:
    """Of a group's brokers only the leader knows it; Kafka's clients put the lists together."""
    async with members(place, kafka_listen="127.0.0.1:0") as all_:
        await all_.start()
        first = all_[1]
        await all_.in_sync(first)
        async with Admin(first.address) as admin:
            await admin.create_topic(TOPIC)
            await admin.commit_position("g", TOPIC, 0, 0)
        listens = [str(each.broker.addresses.kafka) for each in all_.all.values() if each.broker]
        for servers in (*listens, ",".join(listens)):
            async with Admin(f"kafka://{servers}") as admin:
                assert [each.name for each in await admin.list_groups()] == ["g"]
                assert await admin.position_names() == ["g"]
            valid, errors = await asyncio.to_thread(_groups_by_librdkafka, servers)
            assert (valid, errors) == (["g"], [])
        async with Admin(all_[2].address) as admin:
            with pytest.raises(NotLeader):
                await admin.list_groups()


async def test_a_broker_that_knows_no_leader_lists_no_groups(place: Path) -> None:
    """It says so, because groups that no broker lists seem to be gone."""
    async with members(place, kafka_listen="127.0.0.1:0") as all_:
        await all_.start()
        second = all_[2]
        await all_[1].stop()
        await second.stop()
        await second.start(follow=all_[1])
        assert second.broker is not None
        async with wire(str(second.broker.addresses.kafka), kafka_frames) as client:
            response = await client.call(ListGroupsRequest(), 0)
        assert response.error_code == CoordinatorNotAvailable.code


def _groups_by_librdkafka(bootstrap: str) -> tuple[list[str], list[str]]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.list_consumer_groups(request_timeout=20).result()
    return [one.group_id for one in found.valid], [str(error) for error in found.errors]
