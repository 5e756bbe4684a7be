"""A broker that is stopped in order leaves the ISR before it closes, and enters it anew."""

import json
import shutil
from pathlib import Path

import pytest

from horolog.protocol.api.cluster.replicate import ReplicaPosition, ReplicateRequest, Says
from horolog.replication.effects import Close, Send
from horolog.replication.partition_log import Identity
from horolog.server.replication.cluster import merged
from horolog.server.replication.member_files import NOT_RECORDED, IdentityFile, boot_id
from horolog.storage.files import SystemFiles
from horolog.testing.directories import copy_as_killed
from horolog.testing.requests import create_topic, message_set, produce
from horolog.testing.requests import result as only_result

from .members import Member, eventually, members

TOPIC = "t"


async def test_a_follower_that_is_stopped_is_out_of_the_isr_before_it_closes(place: Path) -> None:
    """`acks=all` does not wait for it, however long a silent follower would be waited for."""
    async with members(place) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        await leader.call(create_topic(TOPIC))
        await follower.leave()
        isr = leader.cluster.node.leader.isr
        assert [one.broker_id for one in isr.counted] == [1]
        answer = await leader.call(produce(TOPIC, message_set(5), acks=-1, timeout_ms=60_000))
        assert only_result(answer).error_code == 0


async def test_a_follower_enters_the_isr_with_another_number_after_each_start(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        before = set(leader.cluster.node.leader.isr.members)
        for stop in (follower.stop, follower.leave):
            await stop()
            await follower.start(follow=leader)
            entered = follower.cluster.node.member
            assert entered not in before
            await eventually(lambda: is_in_sync(leader, follower))
            before = {*before, entered}


def is_in_sync(leader: Member, follower: Member) -> bool:
    return follower.cluster.node.member in leader.cluster.node.leader.isr.members


async def test_a_follower_tells_its_leader_once_more_that_it_stays(place: Path) -> None:
    """A word of leaving ends with its connection: the broker that comes back is not kept out."""
    async with members(place) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        follower.cluster.node.leave()
        follower.cluster.settle()
        await leader.call(create_topic(TOPIC))
        await follower.leave()
        await follower.start(follow=leader)
        await all_.in_sync(leader)


async def test_a_copy_of_a_directory_is_in_doubt(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        await leader.call(create_topic(TOPIC))
        await all_.in_sync(leader)
        # A hot copy: the broker runs, and is in sync.
        copy = place / "copy"
        copy_as_killed(follower.data_dir, copy)
        nonce = IdentityFile(SystemFiles(), copy, 2).identity.nonce
        assert nonce == follower.cluster.node.member.nonce
        await leader.produce(TOPIC, "not in the copy")
        await follower.stop()
        shutil.rmtree(follower.data_dir)
        copy.rename(follower.data_dir)
        await leader.stop()
        # Without a leader it does not know what it lacks, and does not lead.
        await follower.start(follow=leader)
        node = follower.cluster.node
        assert node.identity.in_doubt
        assert node.member.nonce != nonce
        assert "not caught up" in node.why_not_promote()
        await leader.start()
        await all_.in_sync(leader)
        assert follower.log(TOPIC).log_end_offset == 1


def test_a_directory_knows_its_own_place(tmp_path: Path) -> None:
    files, directory = SystemFiles(), tmp_path / "data"
    directory.mkdir()
    IdentityFile(files, directory, 2).store(Identity(5))
    assert not IdentityFile(files, directory, 2).copied
    moved = directory.rename(tmp_path / "moved")
    assert not IdentityFile(files, moved, 2).copied
    shutil.copytree(moved, directory)
    copy = IdentityFile(files, directory, 2)
    assert copy.copied
    # Stored once, it is a directory of its own.
    copy.store(Identity(6))
    assert not IdentityFile(files, directory, 2).copied


@pytest.mark.parametrize("rebooted", [False, True])
def test_a_device_may_have_another_number_after_a_start_of_the_machine(
    tmp_path: Path, rebooted: bool
) -> None:
    files = SystemFiles()
    IdentityFile(files, tmp_path, 2).store(Identity(5))
    path = tmp_path / "replication-identity"
    document = json.loads(path.read_bytes())
    device, inode = files.inode(tmp_path)
    assert (document["device"], document["inode"]) == (device, inode)
    document["device"] = device + 1
    document["boot_id"] = "another" if rebooted else boot_id(files)
    path.write_text(json.dumps(document))
    assert IdentityFile(files, tmp_path, 2).copied is not rebooted


def test_a_file_without_a_place_gets_one(tmp_path: Path) -> None:
    files = SystemFiles()
    IdentityFile(files, tmp_path, 2).store(Identity(5))
    path = tmp_path / "replication-identity"
    document = json.loads(path.read_bytes())
    del document["device"], document["inode"], document["next_nonce"]
    path.write_text(json.dumps(document))
    assert not IdentityFile(files, tmp_path, 2).copied
    written = json.loads(path.read_bytes())
    assert (written["device"], written["inode"]) == files.inode(tmp_path) != NOT_RECORDED


def test_a_confirmation_that_says_that_the_follower_leaves_says_so_when_it_is_merged() -> None:
    def confirm(*positions: ReplicaPosition, leaving: bool = False) -> Send:
        request = ReplicateRequest(says=Says.CONFIRM, connection=0, epoch=3, leaving=leaving)
        request.positions = list(positions)
        return Send(1, request)

    leaving = confirm(leaving=True)
    position = ReplicaPosition(
        topic="t", partition=0, end_offset=5, last_epoch=3, synced_offset=5, log_start_offset=0
    )
    later = confirm(position)
    assert list(merged([leaving, Close(1)])) == [leaving, Close(1)]
    (both,) = merged([leaving, later])
    assert both == confirm(position, leaving=True)
