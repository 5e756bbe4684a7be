"""Damage that is found while brokers run (replication.md, section 4), at both sides."""

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from horolog import Consumer
from horolog.protocol.api.cluster.replicate import ReplicaPosition
from horolog.protocol.errors import PolicyViolation, StorageError
from horolog.replication import hand_node
from horolog.replication.messages import partition_of
from horolog.replication.partition_log import Identity
from horolog.server.replication import replica_fetcher
from horolog.server.replication.replica_directory import METADATA
from horolog.storage.files import SystemFiles
from horolog.storage.replica.copy_facts import ReceivedSets, Stored
from horolog.storage.replica.replica_log import ReplicaLog
from horolog.testing.files import FaultyFiles
from horolog.testing.requests import create_topic
from horolog.testing.waiting import content_of

from .members import Member, Members, eventually, members, reading_link

TOPIC, OTHER = "t", "other"
COUNT = 5


async def with_topics(all_: Members) -> None:
    await all_.start()
    for topic in (TOPIC, OTHER):
        await all_[1].call(create_topic(topic))
    await all_[1].produce(TOPIC, *map(str, range(COUNT)))
    await all_.in_sync(all_[1])


def flip(member: Member, at: int, topic: str = TOPIC) -> None:
    """Change a byte of what is stored, counted from the beginning of the log file."""
    path = member.log(topic).segments[0].log_path
    stored = bytearray(path.read_bytes())
    stored[at] ^= 0x40
    path.write_bytes(stored)


def size_of_second(member: Member) -> int:
    """Where the second set of the log says how large it is: reading from there meets the damage."""
    sets = member.log(TOPIC).segments[0].log_path.read_bytes()
    return 12 + int.from_bytes(sets[8:12], "big") + 8


async def in_sync_are(leader: Member, *brokers: int) -> None:
    await eventually(lambda: leader.cluster.admin.describe().in_sync == list(brokers))


async def left_by_its_follower(all_: Members) -> tuple[Member, Member]:
    """The leader, which has the topics and is the only one in sync; and who followed it."""
    await with_topics(all_)
    leader, follower = all_[1], all_[2]
    await follower.stop()
    with leader.impatient():
        await in_sync_are(leader, 1)
    return leader, follower


async def read_all(member: Member, count: int) -> list[bytes | None]:
    async with Consumer(member.address, read_from="any", max_wait_ms=100) as consumer:
        consumer.assign(TOPIC)
        consumer.seek(TOPIC, 0, 0)
        return [(await anext(consumer)).value for _ in range(count)]


async def scrub(member: Member) -> None:
    """Read all that is stored at a broker once."""
    assert member.broker is not None
    scrubber = member.broker.services.scrubber
    rounds = member.broker.figures.scrub_rounds
    scrubber._next_round_s = 0.0
    while member.broker.figures.scrub_rounds == rounds:
        await scrubber.run_pass()


def damages(member: Member) -> list[str]:
    assert member.broker is not None
    return list(member.broker.services.scrubber.damages())


@pytest.mark.parametrize("found_by", ["reader", "scrub"])
async def test_a_follower_that_meets_damage_copies_the_segment_again(
    place: Path, monkeypatch: pytest.MonkeyPatch, found_by: str
) -> None:
    """It is out of sync, and in doubt, until it has."""
    monkeypatch.setattr(hand_node, "LEAVING_S", 0.1)
    async with members(place, min_insync_replicas=2) as all_:
        await with_topics(all_)
        leader, follower = all_[1], all_[2]
        assert follower.cluster.election.promise == ""
        flip(follower, size_of_second(follower) if found_by == "reader" else 30)
        seen: list[bool] = []
        node = follower.cluster.node
        remember = node.remember

        def noted(identity: Identity) -> None:
            seen.append(identity.in_doubt)
            remember(identity)

        node.remember = noted
        # A consumer that was sent there gets its message from another broker.
        async with Consumer(follower.address, read_from="any", max_wait_ms=100) as consumer:
            consumer.assign(TOPIC)
            while found_by == "reader" and not follower.cluster.stored.hurt():
                consumer.seek(TOPIC, 0, COUNT - 1)
                assert (await anext(consumer)).value == b"%d" % (COUNT - 1)
                link, reads = reading_link(consumer), consumer._cluster.reads
                assert link is not None
                assert reads is not None
                reads._leave(link, await link.connection())  # Chance brings it there, or not.
        if found_by == "scrub":
            await scrub(follower)
        assert follower.cluster.stored.hurt() == [(TOPIC, 0)]
        # It confirms nothing of that log any more: it is no member of what acks=all waits for.
        await in_sync_are(leader, 1)
        assert await read_all(follower, COUNT) == [b"%d" % n for n in range(COUNT)]
        await in_sync_are(leader, 1, 2)
        await eventually(lambda: follower.cluster.election.promise == "")
        assert seen[0]
        assert not seen[-1]
        log = follower.log(TOPIC)
        assert log.log_end_offset == COUNT
        assert [one for one in log.segments if one.damaged is not None] == []
        stored, copied = (one.log(TOPIC).segments[0].log_path for one in (leader, follower))
        assert stored.read_bytes() == copied.read_bytes()
        await eventually(lambda: follower.cluster.states.not_ready() == "")


async def test_a_follower_keeps_a_damaged_log_while_its_leader_s_is_damaged_too(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them may have the only good copy of some messages."""
    monkeypatch.setattr(hand_node, "LEAVING_S", 0.1)
    async with members(place) as all_:
        await with_topics(all_)
        leader, follower = all_[1], all_[2]
        flip(leader, 30)
        await scrub(leader)
        assert leader.cluster.leads  # By hand, no other broker is elected.
        sets = follower.log(TOPIC).segments[0].log_path
        flip(follower, sets.stat().st_size - 1)
        kept = sets.read_bytes()
        await scrub(follower)
        await in_sync_are(leader, 1)
        await eventually(lambda: follower.cluster.node.follower._welcomed)
        assert sets.read_bytes() == kept
        assert follower.cluster.stored.hurt() == leader.cluster.stored.hurt() == [(TOPIC, 0)]
        assert f"{TOPIC}-0 is damaged here" in follower.cluster.states.not_ready()


async def test_a_follower_copies_its_damaged_metadata_log_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its topics stay as they are, and no message of them is copied again."""
    monkeypatch.setattr(hand_node, "LEAVING_S", 0.1)
    async with members(place) as all_:
        await with_topics(all_)
        leader, follower = all_[1], all_[2]
        copied = follower.log(TOPIC)
        log = follower.cluster.stored.metadata.log
        await eventually(lambda: log.flusher.synced_offset == log.log_end_offset)
        path = log.segments[0].log_path
        good = path.read_bytes()
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        await scrub(follower)
        await eventually(lambda: content_of(path) == good)
        await all_.in_sync(leader)
        assert follower.cluster.stored.hurt() == []
        assert follower.log(TOPIC) is copied
        assert copied.log_end_offset == COUNT
        await leader.call(create_topic("new"))
        await leader.produce("new", "a")
        await eventually(lambda: follower.log("new").log_end_offset == 1)


async def test_a_leader_by_hand_reports_its_damage_and_leads_on(place: Path) -> None:
    async with members(place) as all_:
        await with_topics(all_)
        leader = all_[1]
        events = observed(leader)
        flip(leader, 30)
        await scrub(leader)
        ((_, fields),) = [one for one in events if one[0] == "segment_damaged"]
        assert "promote one that is" in fields["advice"]
        assert leader.cluster.leads
        assert leader.cluster.admin.figures().not_copied == 1
        (text,) = damages(leader)
        assert text.startswith(f"{TOPIC}-0 is damaged at byte 0")
        # The follower keeps its good copy.
        await leader.produce(OTHER, "a")
        await in_sync_are(leader, 1, 2)
        assert all_[2].log(TOPIC).log_end_offset == COUNT


async def test_a_leader_appends_nothing_behind_a_file_that_was_cut_short(place: Path) -> None:
    async with members(place) as all_:
        await with_topics(all_)
        leader = all_[1]
        path = leader.log(TOPIC).segments[0].log_path
        left = path.stat().st_size // 2
        os.truncate(path, left)
        with pytest.raises(StorageError, match="the file was cut short"):
            await leader.produce(TOPIC, "behind a hole")
        assert path.stat().st_size == left
        assert leader.cluster.stored.hurt() == [(TOPIC, 0)]
        (text,) = damages(leader)
        assert f"the file was cut short: it ends at byte {left}" in text
        await leader.produce(OTHER, "elsewhere")


async def test_a_file_cut_short_under_a_leader_is_named_at_both_sides(place: Path) -> None:
    """And to the consumer, behind the messages that are left."""
    async with members(place) as all_:
        leader, follower = await left_by_its_follower(all_)
        shutil.rmtree(follower.data_dir)
        path = leader.log(TOPIC).segments[0].log_path
        os.truncate(path, path.stat().st_size // 2)
        await follower.start(follow=leader)
        await eventually(lambda: follower.cluster.fetcher.unreadable)
        cause = f"{path}: damaged at byte "
        assert cause in follower.cluster.states.not_ready()
        for member in (leader, follower):
            unreadable = (await member.status()).unreadable
            assert unreadable.startswith(f"{TOPIC}-0: ")
            assert cause in unreadable
            assert "the file was cut short: it ends at byte " in unreadable
        assert leader.cluster.admin.figures().not_copied == 1
        left = follower.log(TOPIC).log_end_offset
        assert 0 < left < COUNT
        async with Consumer(leader.address, max_wait_ms=100) as consumer:
            consumer.assign(TOPIC, 0, offset=0)
            found = [(await anext(consumer)).value for _ in range(left)]
            with pytest.raises(StorageError, match="the file was cut short"):
                await anext(consumer)
        assert found == [b"%d" % number for number in range(left)]


async def test_damage_that_a_start_finds_is_copied_again(place: Path) -> None:
    async with members(place) as all_:
        await with_topics(all_)
        leader, follower = all_[1], all_[2]
        await follower.stop()
        path = follower.data_dir / f"{TOPIC}-0" / f"{0:020d}.log"
        stored = path.read_bytes()
        path.write_bytes(stored[:20] + bytes([stored[20] ^ 1]) + stored[21:])
        (follower.data_dir / "clean-shutdown").unlink(missing_ok=True)
        for file in path.parent.glob("*.index"):
            file.unlink()
        await follower.start(follow=leader)
        assert follower.broker is not None
        assert follower.broker.figures.topic(TOPIC).damaged_segments == 1
        await all_.in_sync(leader)
        assert path.read_bytes() == stored


@pytest.mark.parametrize("harm", ["offset", "content"])
async def test_a_metadata_log_that_cannot_be_read_at_the_start_is_copied_again(
    place: Path, harm: str
) -> None:
    """The follower goes by none of it before."""
    async with members(place) as all_:
        await with_topics(all_)
        leader, follower = all_[1], all_[2]
        path = follower.cluster.stored.metadata.log.segments[0].log_path
        folder = follower.log(TOPIC).path
        folder_before = folder.stat().st_ino
        await follower.stop()
        good = path.read_bytes()
        if harm == "offset":
            spoil_last_offset(path)
        else:
            path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        await follower.start(follow=leader)
        await all_.in_sync(leader)
        assert path.read_bytes() == good
        await leader.call(create_topic("new"))
        await leader.produce("new", "a")
        await eventually(lambda: follower.log("new").log_end_offset == 1)
        assert follower.log(TOPIC).log_end_offset == COUNT
        assert folder.stat().st_ino == folder_before
        await eventually(lambda: follower.cluster.states.not_ready() == "")


def spoil_last_offset(path: Path) -> None:
    """Change the offset of the last entry of a log file, which no CRC covers."""
    stored = bytearray(path.read_bytes())
    position = following = 0
    while following < len(stored):
        position = following
        following += 12 + int.from_bytes(stored[position + 8 : position + 12], "big")
    stored[position] ^= 0x10
    path.write_bytes(stored)


@pytest.mark.parametrize("how", ["alone", "promoted"])
async def test_a_leader_whose_epochs_cannot_be_read_keeps_its_messages(
    place: Path, how: str
) -> None:
    """They may be the only copies. Whoever follows has nothing in common, and copies them anew."""
    async with members(place) as all_:
        leader, follower = await left_by_its_follower(all_)
        await leader.produce(TOPIC, "last")
        await leader.stop()
        spoil_epochs(leader)
        await leader.start()
        assert not leader.cluster.leads
        assert "something may be missing" in (await leader.status()).waits_for
        assert leader.log(TOPIC).log_end_offset == COUNT + 1
        if how == "alone":
            await leader.stop()
            await leader.start(cluster_alone=True)
        else:
            await leader.promote(accept_loss=True)
        assert leader.cluster.leads
        await leader.produce(TOPIC, "next")
        (line,) = leader.log(TOPIC).epochs.history.starts
        assert line == (leader.cluster.epoch, 0)
        await follower.start(follow=leader)
        await all_.in_sync(leader)
        expected = [*map(str, range(COUNT)), "last", "next"]
        assert await leader.values(TOPIC, COUNT + 2) == expected
        await leader.promote(2)
        await eventually(lambda: follower.cluster.leads)
        assert await follower.values(TOPIC, COUNT + 2) == expected


async def test_a_leader_whose_metadata_log_has_lost_its_epochs_keeps_its_topics(
    place: Path,
) -> None:
    async with members(place) as all_:
        leader, follower = await left_by_its_follower(all_)
        folder = leader.cluster.stored.metadata.log.path
        await leader.stop()
        (folder / "leader-epoch-checkpoint").write_text("garbage\n")
        await leader.start(cluster_alone=True)
        assert leader.cluster.leads
        log = leader.cluster.stored.metadata.log
        assert log.log_end_offset > log.segment_list.first.base_offset
        (line,) = log.epochs.history.starts
        assert line == (leader.cluster.epoch, log.segment_list.first.base_offset)
        await leader.call(create_topic("new"))
        await leader.produce("new", "a")
        await follower.start(follow=leader)
        await all_.in_sync(leader)
        await eventually(lambda: follower.log("new").log_end_offset == 1)
        assert follower.log(TOPIC).log_end_offset == COUNT
        assert follower.cluster.stored.metadata.log.epochs.history == log.epochs.history


async def test_a_follower_whose_epochs_cannot_be_read_is_emptied_when_a_leader_answers(
    place: Path,
) -> None:
    async with members(place, min_insync_replicas=2) as all_:
        await with_topics(all_)
        leader, follower = all_[1], all_[2]
        await leader.stop()
        await follower.stop()
        spoil_epochs(follower)
        await follower.start(follow=leader)
        assert follower.log(TOPIC).log_end_offset == COUNT
        with pytest.raises(PolicyViolation, match="has not caught up since it may have lost"):
            await follower.promote()
        await leader.start(cluster_alone=True)
        await all_.in_sync(leader)
        await eventually(lambda: follower.cluster.election.promise == "")
        log = follower.log(TOPIC)
        assert log.epochs.history == leader.log(TOPIC).epochs.history
        assert log.log_end_offset == COUNT
        assert [one.name for one in log.path.glob("*.deleted")]


def spoil_epochs(member: Member) -> None:
    (member.data_dir / f"{TOPIC}-0" / "leader-epoch-checkpoint").write_text("garbage\n")


def never_connects_again(member: Member) -> None:
    """What a follower could not copy it does not ask for on another connection."""
    member.cluster.fetcher.look = lambda: None


async def test_a_leader_checks_what_a_follower_gets_damaged(place: Path) -> None:
    """Messages go to followers unlooked at. The follower asks for the check in its next fetch."""
    async with members(place) as all_:
        leader, follower = all_[1], all_[2]
        await leader.start(cluster_create=True)
        for topic in (TOPIC, OTHER):
            await leader.call(create_topic(topic))
        await leader.produce(TOPIC, *map(str, range(COUNT)))
        flip(leader, 20)
        events = observed(leader)
        await follower.start(follow=leader)
        never_connects_again(follower)
        found = await eventually(lambda: [one for one in events if one[0] == "segment_damaged"])
        assert found[0][1]["position"] == 0
        assert leader.cluster.stored.hurt() == [(TOPIC, 0)]
        follower.cluster.node.follower.drop()
        follower.cluster.settle()
        failing = await eventually(lambda: leader.cluster.stored.failing.get((TOPIC, 0)))
        assert "damaged at byte 0" in failing
        assert leader.cluster.admin.figures().not_copied == 1
        assert leader.cluster.leads  # Nobody else has it.
        await leader.produce(OTHER, "a")
        await eventually(lambda: follower.log(OTHER).log_end_offset == 1)
        assert leader.cluster.admin.describe().in_sync == [1]
        assert len([one for one in events if one[0] == "segment_damaged"]) == 1
        (text,) = damages(leader)
        assert text.startswith(f"{TOPIC}-0 is damaged at byte 0")


async def test_a_leader_checks_its_metadata_log_for_a_follower(place: Path) -> None:
    async with members(place) as all_:
        leader, follower = await left_by_its_follower(all_)
        shutil.rmtree(follower.data_dir)
        log = leader.cluster.stored.metadata.log
        path = log.segments[0].log_path
        stored = path.read_bytes()
        path.write_bytes(stored[:-1] + bytes([stored[-1] ^ 1]))
        await follower.start(follow=leader)
        never_connects_again(follower)
        await eventually(lambda: leader.cluster.stored.hurt())
        assert leader.cluster.stored.hurt() == [METADATA]
        (text,) = damages(leader)
        assert text.startswith("__metadata-0 is damaged at byte ")


SIZE_AT = 8
"""Where an entry says how large it is."""


class DamagingNetwork:
    """Damages a byte of what a follower gets of a partition, so many times."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, topic: str, times: int, at: int = -1
    ) -> None:
        self.left = times
        append = ReplicaLog.append_stored

        def damaged(stored_log: ReplicaLog, stored: Stored) -> bool:
            stretch = stored.data
            if self.left and stored_log.partition[0] == topic and stretch and stretch.records:
                self.left -= 1
                records = bytearray(stretch.records)
                records[at] ^= 0x40
                stored = stored._replace(data=ReceivedSets(bytes(records), stretch.facts))
            return append(stored_log, stored)

        monkeypatch.setattr(ReplicaLog, "append_stored", damaged)


def told_of(member: Member, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What the cluster of a broker tells from now on."""
    events: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(
        member.cluster, "observe", lambda name, **fields: events.append((name, fields))
    )
    return events


@pytest.mark.parametrize(("topic", "at"), [(TOPIC, -1), (METADATA[0], -1), (TOPIC, SIZE_AT)])
async def test_messages_that_were_damaged_on_the_way_are_copied_at_once(
    place: Path, monkeypatch: pytest.MonkeyPatch, topic: str, at: int
) -> None:
    """The leader finds its own good, and says so. By a size that is wrong none may be whole."""
    async with members(place) as all_:
        leader, follower = await left_by_its_follower(all_)
        shutil.rmtree(follower.data_dir)
        events = told_of(leader, monkeypatch)
        DamagingNetwork(monkeypatch, topic, 1, at)
        await follower.start(follow=leader)
        never_connects_again(follower)
        await all_.in_sync(leader)
        found = await eventually(lambda: [one for one in events if one[0] == "damaged_on_the_way"])
        assert [(one["topic"], one["offset"], one["broker"]) for _, one in found] == [(topic, 0, 2)]
        assert leader.cluster.stored.hurt() == []
        assert follower.cluster.stored.failing == {}
        assert follower.log(TOPIC).log_end_offset == COUNT


async def test_a_follower_that_always_gets_damaged_messages_has_them_checked_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection asks for one check, and all of them get the result of the first."""
    monkeypatch.setattr(replica_fetcher, "AGAIN_S", 0.1)
    async with members(place) as all_:
        leader, follower = await left_by_its_follower(all_)
        shutil.rmtree(follower.data_dir)
        assert leader.broker is not None
        events = told_of(leader, monkeypatch)
        asked: list[ReplicaPosition] = []
        doubted = leader.cluster.damage.doubted

        def noted(broker_id: int, positions: Sequence[ReplicaPosition]) -> None:
            asked.extend(one for one in positions if one.check)
            doubted(broker_id, positions)

        leader.cluster.damage.doubted = noted
        network = DamagingNetwork(monkeypatch, TOPIC, -1)
        await follower.start(follow=leader)
        await eventually(lambda: len(asked) >= 4)
        connections = [one for one in events if one[0] == "follower_came"]
        assert len(asked) <= len(connections)
        assert {(partition_of(one), one.end_offset) for one in asked} == {((TOPIC, 0), 0)}
        size_bytes = leader.log(TOPIC).size_bytes
        figures = leader.broker.figures
        await eventually(lambda: figures.scrubbed_bytes)
        assert figures.scrubbed_bytes == size_bytes
        assert [one[0] for one in events].count("damaged_on_the_way") == 1
        assert follower.cluster.admin.figures().not_copied == 1
        assert "CORRUPT_MESSAGE" in follower.cluster.states.not_ready()
        network.left = 0
        await all_.in_sync(leader)


async def test_a_leader_finds_nothing_wrong_with_a_follower_s_full_disk(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower cannot take what is good; when it can, it is in sync and read from again."""
    monkeypatch.setattr(replica_fetcher, "AGAIN_S", 0.3)
    async with members(place) as all_:
        files = FaultyFiles(SystemFiles())
        all_[2].files = files
        await with_topics(all_)
        leader, follower = all_[1], all_[2]
        events = observed(leader)
        files.fail("pwrite", errno.ENOSPC, times=-1, name=".log")
        with leader.impatient():
            await leader.produce(TOPIC, "more")
            await in_sync_are(leader, 1)
        tries = follower.cluster.fetcher
        tried_s = await eventually(lambda: tries._tried_s)
        await eventually(lambda: tries._tried_s > tried_s + 0.5)
        assert (TOPIC, 0) in follower.cluster.stored.failing
        assert follower.cluster.admin.figures().not_copied == 1
        assert [one for one in events if one[0] == "segment_damaged"] == []
        files.heal()
        await all_.in_sync(leader)
        assert follower.cluster.stored.failing == {}
        assert follower.cluster.admin.figures().not_copied == 0
        assert await read_all(follower, COUNT + 1)
        await eventually(lambda: follower.cluster.states.not_ready() == "")


def observed(member: Member) -> list[tuple[str, dict[str, Any]]]:
    """What a broker's logs and its cluster tell from now on."""
    events: list[tuple[str, dict[str, Any]]] = []
    segments = member.log(TOPIC).segment_list
    told = segments._observe

    def observe(name: str, **fields: Any) -> None:
        events.append((name, fields))
        told(name, **fields)

    segments._observe = observe
    return events
