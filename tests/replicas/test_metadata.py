"""Topics and positions of brokers that have the same data: one log for all (replication.md, 2)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from horolog import Admin, HorologError
from horolog.protocol.api.groups.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from horolog.protocol.api.groups.offset_fetch import LIST_POSITIONS, OffsetFetchRequest
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.protocol.errors import CodedError, StorageError
from horolog.server.replication.replica_directory import METADATA
from horolog.storage.metadata import snapshot
from horolog.testing.broker import running_broker
from horolog.testing.requests import create_topic, message_set, produce, result
from horolog.testing.wire import Wire

from .members import Member, Members, eventually, members

TOPIC = "t"
NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, NOT_ENOUGH = 16, 15, 19


def commit(group: str, topic: str, offset: int, text: str = "") -> OffsetCommitRequest:
    partition = OffsetCommitPartition(partition=0, committed_offset=offset, committed_metadata=text)
    topics = [OffsetCommitTopic(name=topic, partitions=[partition])]
    return OffsetCommitRequest(group_id=group, topics=topics)


async def committed(member: Member, group: str, topic: str, offset: int) -> int:
    """The error code of a commit."""
    code: int = result(await member.call(commit(group, topic, offset))).error_code
    return code


async def held(member: Member, group: str) -> dict[str, int]:
    request = OffsetFetchRequest(group_id=group, topics=[], listing=LIST_POSITIONS)
    answer = await member.call(request)
    return {each.name: each.partitions[0].committed_offset for each in answer.topics}


def shown(member: Member) -> tuple[Any, Any]:
    """Topics and positions, as a broker has applied them."""
    assert member.broker is not None
    directory = member.broker.directory
    positions = {name: directory.committed.of(name) for name in directory.committed.names()}
    return dict(directory.topics()), positions


async def same(all_: Members, leader: Member) -> None:
    """Wait until all brokers show the same topics and positions."""
    await all_.in_sync(leader)
    await eventually(lambda: all(shown(one) == shown(leader) for one in all_.all.values()))


async def test_what_is_answered_is_on_all_in_sync(place: Path) -> None:
    """Section 2, 5: also a commit, a setting, more partitions, a deletion."""
    async with members(place, min_insync_replicas=2) as all_:
        await all_.start()
        first, second = all_[1], all_[2]
        async with Admin(first.address) as admin:
            for number in range(12):
                name = f"{TOPIC}{number}"
                await admin.create_topic(name, settings={"retention.ms": "1000"})
                assert await committed(first, "g", name, number) == 0
                await admin.create_partitions(name, 2)
                await admin.alter_topic(name, {"segment.bytes": "5000"})
                if number % 3 == 2:
                    await admin.delete_topic(name)
                # What is applied at the follower comes a moment later; what it has does not.
                ends = [one.cluster.store.metadata.log.log_end_offset for one in (first, second)]
                assert ends[0] == ends[1]
        await same(all_, first)
        before = shown(first)
        await first.stop()
        await second.promote()
        await eventually(lambda: second.cluster.store.knows)
        assert shown(second) == before
        assert await held(second, "g") == {
            f"{TOPIC}{number}": number for number in range(12) if number % 3 != 2
        }


@pytest.mark.parametrize("durability", ["fsync", "written"])
async def test_followers_have_a_topic_soon(place: Path, durability: str) -> None:
    """Also where nobody waits for a sync by all."""
    async with members(place, acks_all_durability=durability) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        for number in range(10):
            await leader.call(create_topic(f"{TOPIC}{number}"))
            await leader.produce(f"{TOPIC}{number}", "a")
            await eventually(lambda: shown(follower) == shown(leader))


async def test_nothing_is_shown_before_all_in_sync_have_it(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        await leader.call(create_topic("a"))
        await same(all_, leader)
        await follower.stop()
        wires = [await Wire.open(leader.address) for _ in range(3)]
        creating = asyncio.ensure_future(wires[0].call(create_topic("b")))
        committing = asyncio.ensure_future(wires[1].call(commit("g", "a", 7)))
        log = leader.cluster.store.metadata.log
        await eventually(lambda: log.recovery_point == 3)
        listed = await wires[2].call(MetadataRequest(topics=None))
        assert [one.name for one in listed.topics] == ["a"]
        assert await held(leader, "g") == {}
        assert not creating.done()
        assert not committing.done()
        await follower.start(follow=leader)
        assert (await creating).topics[0].error_code == 0
        assert result(await committing).error_code == 0
        await same(all_, leader)
        for wire in wires:
            wire.close()


async def test_too_few_in_sync_take_no_changes(place: Path) -> None:
    """`min.insync.replicas` holds for topics and commits too; what there is can be read."""
    async with members(place, min_insync_replicas=2) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        await leader.call(create_topic(TOPIC))
        assert await committed(leader, "g", TOPIC, 5) == 0
        end = leader.cluster.store.metadata.log.log_end_offset
        await follower.stop()
        with leader.impatient():
            await eventually(lambda: len(leader.cluster.node.leader.isr.members) == 1)
        refused = (await leader.call(create_topic("other"))).topics[0]
        assert refused.error_code == NOT_ENOUGH
        assert "min.insync.replicas" in (refused.error_message or "")
        deleted = await leader.call(DeleteTopicsRequest(topic_names=[TOPIC]))
        assert deleted.responses[0].error_code == NOT_ENOUGH
        assert await committed(leader, "g", TOPIC, 6) == COORDINATOR_NOT_AVAILABLE
        assert leader.cluster.store.metadata.log.log_end_offset == end
        assert await held(leader, "g") == {TOPIC: 5}
        await follower.start(follow=leader)
        await all_.in_sync(leader)
        assert await committed(leader, "g", TOPIC, 6) == 0


async def test_who_waits_hears_that_the_leader_is_none_any_more(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        await leader.call(create_topic(TOPIC))
        await same(all_, leader)
        await follower.stop()
        wire, other = await Wire.open(leader.address), await Wire.open(leader.address)
        committing = asyncio.ensure_future(wire.call(commit("g", TOPIC, 7)))
        creating = asyncio.ensure_future(other.call(create_topic("b")))
        log = leader.cluster.store.metadata.log
        await eventually(lambda: log.recovery_point == 3)
        leader.cluster.happens(lambda _: leader.cluster.node.learn(70_002))
        for waiting in (committing, creating):
            with pytest.raises(CodedError, match="does not lead"):
                await waiting
        wire.close()
        other.close()


async def test_the_log_is_shortened_while_a_follower_is_away(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets the leader's stored state, in parts, and makes of its topics what they are."""
    monkeypatch.setattr(snapshot, "PART_BYTES", 5000)
    async with members(place) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        for name in ("stays", "goes", "another"):
            await leader.call(create_topic(name))
            await leader.produce(name, *"abc")
        assert await committed(leader, "g", "another", 1) == 0
        await same(all_, leader)
        await follower.stop()
        with leader.impatient():
            await eventually(lambda: len(leader.cluster.node.leader.isr.members) == 1)
        metadata = leader.cluster.store.metadata
        metadata.min_log_bytes = 20_000
        await leader.call(DeleteTopicsRequest(topic_names=["goes", "another"]))
        await leader.call(create_topic("another", 2))
        await leader.produce("another", *"defgh")
        for number in range(60):
            answer = await leader.call(commit(f"g{number}", "stays", number, "x" * 1000))
            assert result(answer).error_code == 0
        before = metadata.log.log_start_offset
        assert before > 0
        end = follower.data_dir / "metadata-log"
        await follower.start(follow=leader)
        await same(all_, leader)
        assert follower.cluster.store.metadata.log.log_start_offset >= before
        assert (end / "state").stat().st_size > 20_000
        assert not (end / "state.copy").exists()
        assert set(shown(follower)[0]) == {"stays", "another"}
        for name in ("stays", "another"):
            ours, theirs = follower.log(name).segments[0], leader.log(name).segments[0]
            assert ours.log_path.read_bytes() == theirs.log_path.read_bytes()
        # It goes on from there, as a leader too, and after a start.
        await leader.promote(2)
        await eventually(lambda: follower.cluster.leads)
        await all_.in_sync(follower)
        assert await committed(follower, "g", "another", 4) == 0
        await same(all_, follower)
        await leader.stop()
        await leader.start(follow=follower)
        await same(all_, follower)


async def test_followers_shorten_their_logs_too(place: Path) -> None:
    """Behind their own stored state, which they write when the leader's log begins later."""
    async with members(place) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        leader.cluster.store.metadata.min_log_bytes = 5000
        await leader.call(create_topic(TOPIC))
        for number in range(30):
            await leader.call(commit("g", TOPIC, number, "x" * 500))
        start = leader.cluster.store.metadata.log.log_start_offset
        assert start > 10
        ours = follower.cluster.store.metadata
        await eventually(lambda: ours.log.log_start_offset >= start)
        assert ours.state_offset >= start
        status = await leader.status()
        assert status.in_sync == [1, 2]


async def test_another_topic_of_one_name_has_other_messages(place: Path) -> None:
    """Offsets and epochs of both are alike: only the id tells them apart."""
    async with members(place) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        for number in range(4):
            await leader.call(create_topic(TOPIC))
            await leader.produce(TOPIC, *(f"{number} {each}" for each in range(5 - number)))
            await all_.in_sync(leader)
            await follower.stop()
            with leader.impatient():
                await eventually(lambda: len(leader.cluster.node.leader.isr.members) == 1)
            await leader.call(DeleteTopicsRequest(topic_names=[TOPIC]))
            await leader.call(create_topic(TOPIC))
            await leader.produce(TOPIC, *(f"again {number} {each}" for each in range(5)))
            await follower.start(follow=leader)
            await same(all_, leader)
            ours, theirs = follower.log(TOPIC).segments[0], leader.log(TOPIC).segments[0]
            assert ours.log_path.read_bytes() == theirs.log_path.read_bytes()
            await leader.call(DeleteTopicsRequest(topic_names=[TOPIC]))


async def test_who_cannot_make_a_partition_is_not_in_sync(place: Path) -> None:
    async with members(place, min_insync_replicas=2) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        in_the_way = follower.data_dir / f"{TOPIC}-0"
        in_the_way.write_text("not a folder")
        assert (await leader.call(create_topic(TOPIC))).topics[0].error_code == 0
        with leader.impatient():
            await eventually(lambda: len(leader.cluster.node.leader.isr.members) == 1)
        answer = await leader.call(produce(TOPIC, message_set(5), acks=-1))
        assert result(answer).error_code == NOT_ENOUGH
        assert not follower.cluster.stored.complete
        in_the_way.unlink()
        await all_.in_sync(leader)
        await leader.produce(TOPIC, "a")
        await same(all_, leader)


async def test_a_lost_topics_file_is_made_anew_though_nothing_happens(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        await leader.call(create_topic(TOPIC))
        await leader.produce(TOPIC, *"abc")
        await same(all_, leader)
        topic = leader.cluster.directory.topics()[TOPIC]
        await follower.stop()
        (follower.data_dir / "topics.json").write_text("{bad")
        await follower.start(follow=leader)
        await all_.in_sync(leader)
        await eventually(lambda: not follower.cluster.node.identity.in_doubt)
        found = follower.cluster.directory.topics()[TOPIC]
        assert (found.topic_id, found.overrides) == (topic.topic_id, topic.overrides)
        assert topic.topic_id in (follower.data_dir / "topics.json").read_text()
        assert follower.log(TOPIC).log_end_offset == 3


async def test_who_cannot_read_the_metadata_leaves(place: Path) -> None:
    async with members(place, min_insync_replicas=2) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        await leader.call(create_topic(TOPIC))
        await same(all_, leader)
        follower.cluster.store.metadata.failure = StorageError("a record of a later version")
        with leader.impatient():
            await eventually(lambda: len(leader.cluster.node.leader.isr.members) == 1)
        assert follower.cluster.node.identity.in_doubt
        with pytest.raises(CodedError, match="may have lost something"):
            await follower.promote()
        assert follower.cluster.fetcher._reported == "a record of a later version"
        await follower.stop()
        await follower.start(follow=leader)
        await all_.in_sync(leader)
        await eventually(lambda: not follower.cluster.node.identity.in_doubt)


async def test_positions_of_a_new_leader_do_not_expire_at_once(place: Path) -> None:
    """Followers expire nothing; a new leader waits for the members of the old one."""
    async with members(place) as all_:
        await all_.start()
        first, second = all_[1], all_[2]
        service = second.broker.services.groups  # type: ignore[union-attr]
        begun: list[int] = []
        taken_over = service.taken_over
        service.taken_over = lambda: (begun.append(1), taken_over())  # type: ignore[func-returns-value]
        with pytest.raises(CodedError) as refused:
            second.broker.services.metadata.check_coordinates()  # type: ignore[union-attr]
        assert refused.value.code == NOT_COORDINATOR
        await first.promote(2)
        await eventually(lambda: second.cluster.leads)
        assert begun == [1]


async def test_a_directory_of_a_broker_by_itself_becomes_a_cluster(place: Path) -> None:
    """Its topics, settings and positions are in the metadata log from then on, and at followers.
    Epochs of the cluster are above those of messages that came from elsewhere."""
    async with members(place) as all_:
        leader, follower = all_[1], all_[2]
        async with running_broker(leader.data_dir) as broker:
            broker.directory.create_topic("a", 3, {"retention.ms": "-1"})
            broker.directory.create_topic("b", 1, {})
            wire = await Wire.open(broker.addresses.native)
            for partition in range(3):
                await wire.call(produce("a", message_set(5, 6), partition=partition))
            assert result(await wire.call(commit("g", "a", 2))).error_code == 0
            wire.close()
            topics = dict(broker.directory.topics())
        (leader.data_dir / "a-1" / "leader-epoch-checkpoint").write_text("0\n1\n7654 0\n")
        await leader.start(cluster_create=True)
        assert leader.cluster.epoch > 7654
        assert dict(leader.cluster.directory.topics()) == topics
        assert await held(leader, "g") == {"a": 2}
        await follower.start(follow=leader)
        await same(all_, leader)
        await leader.produce("a", "more", partition=1)
        assert await committed(leader, "g", "a", 3) == 0
        await same(all_, leader)
        ours, theirs = follower.log("a", 1).segments[0], leader.log("a", 1).segments[0]
        assert ours.log_path.read_bytes() == theirs.log_path.read_bytes()
        await leader.promote(2)
        await eventually(lambda: follower.cluster.leads and follower.cluster.store.knows)
        assert await held(follower, "g") == {"a": 3}
        await all_.in_sync(follower)
        await leader.stop()
        with pytest.raises(HorologError, match="of a cluster member"):
            await leader.start(broker_id=0)


async def test_epochs_that_are_beyond_what_there_can_be(place: Path) -> None:
    async with members(place) as all_:
        leader = all_[1]
        async with running_broker(leader.data_dir) as broker:
            broker.directory.create_topic("a", 1, {})
            broker.directory.log("a", 0).appender.append(bytearray(message_set(5)))
        checkpoint = leader.data_dir / "a-0" / "leader-epoch-checkpoint"
        checkpoint.write_text(f"0\n1\n{2**31 - 1} 0\n")
        with pytest.raises(StorageError, match="has messages of leader epoch"):
            await leader.start(cluster_create=True)


async def test_a_position_for_a_topic_that_is_not_there_yet_is_kept(place: Path) -> None:
    """A follower may know of a topic before a new leader has made it."""
    async with members(place) as all_:
        await all_.start()
        leader = all_[1]
        assert METADATA in leader.cluster.node.leader.partitions
        channel = leader.cluster.followers.channel_of(2)
        await leader.call(create_topic(TOPIC))
        session = leader.cluster.node.leader.sessions[channel]
        await eventually(lambda: session.ends.get((TOPIC, 0)) == 0)
        assert channel.unplaced == {}
