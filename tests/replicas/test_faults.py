"""Disks that are full, slow or broken, at follower and leader (replication.md, section 8.2)."""

import asyncio
import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from horolog.protocol.errors import StorageError
from horolog.replication.partition_log import Identity
from horolog.server.replication.member_files import IdentityFile, decode_identity
from horolog.storage.directory.known_files import IDENTITY_FILE
from horolog.storage.files import SystemFiles
from horolog.testing.files import FaultyFiles
from horolog.testing.requests import create_topic, message_set, produce
from horolog.testing.requests import result as only_result
from horolog.testing.wire import Wire

from .members import Member, Members, eventually, members

TOPIC, OTHER = "t", "other"
LOG = ".log"


def faulty(member: Member) -> FaultyFiles:
    """Files whose operations can be made to fail; to be asked for before the member starts."""
    files = FaultyFiles(SystemFiles())
    member.files = files
    return files


async def with_topics(all_: Members) -> Wire:
    await all_.start()
    leader = all_[1]
    for topic in (TOPIC, OTHER):
        await leader.call(create_topic(topic))
    await leader.produce(TOPIC, "a")
    await all_.in_sync(leader)
    return await Wire.open(leader.address)


async def sent(wire: Wire, topic: str, acks: int = -1) -> int:
    """Send one message; the error code."""
    code: int = only_result(await wire.call(produce(topic, message_set(5), acks=acks))).error_code
    return code


async def in_sync_are(leader: Member, *brokers: int) -> None:
    await eventually(lambda: leader.cluster.admin.describe().in_sync == list(brokers))


async def test_a_follower_with_a_full_disk_holds_nobody_up(place: Path) -> None:
    async with members(place) as all_:
        files = faulty(all_[2])
        wire = await with_topics(all_)
        leader, follower = all_[1], all_[2]
        files.fail("pwrite", errno.ENOSPC, times=-1, name=LOG, written=20)
        # It is waited for as long as it counts as in sync, and then no more.
        with leader.impatient():
            assert await sent(wire, TOPIC) == 0
            await in_sync_are(leader, 1)
        for _ in range(5):
            assert await sent(wire, TOPIC) == 0
        files.heal()
        await all_.in_sync(leader)
        assert follower.log(TOPIC).log_end_offset == leader.log(TOPIC).log_end_offset == 7
        wire.close()
        await leader.promote(2)
        await eventually(lambda: follower.cluster.leads)
        assert len(await follower.values(TOPIC, 7)) == 7


async def test_a_follower_whose_sync_failed_is_not_in_sync_until_it_starts_again(
    place: Path,
) -> None:
    async with members(place) as all_:
        files = faulty(all_[2])
        wire = await with_topics(all_)
        leader, follower = all_[1], all_[2]
        files.fail("sync", errno.EIO, name=LOG)
        with leader.impatient():
            assert await sent(wire, TOPIC) == 0
            await in_sync_are(leader, 1)
        # What was not synced may be gone, whatever a later sync says. The other topic goes on.
        assert await sent(wire, OTHER) == 0
        await eventually(lambda: follower.log(OTHER).log_end_offset == 1)
        assert not files.heal()
        assert await sent(wire, TOPIC) == 0
        assert leader.cluster.admin.describe().in_sync == [1]
        with pytest.raises(StorageError, match="a sync failed"):
            await follower.stop()
        await follower.start(follow=leader)
        await all_.in_sync(leader)
        assert follower.log(TOPIC).log_end_offset == 3
        wire.close()


async def test_a_follower_with_a_slow_disk_is_waited_for_no_longer_than_said(place: Path) -> None:
    async with members(place) as all_:
        files = faulty(all_[2])
        wire = await with_topics(all_)
        leader, follower = all_[1], all_[2]
        slow = files.hold("sync", LOG)
        try:
            waits = asyncio.ensure_future(sent(wire, TOPIC))
            await eventually(slow.reached.is_set)
            second = await Wire.open(leader.address)
            assert await sent(second, TOPIC, acks=1) == 0
            second.close()
            assert not waits.done()
            with leader.impatient():
                assert await waits == 0
            assert leader.cluster.admin.describe().in_sync == [1]
        finally:
            slow.let_go()
        await all_.in_sync(leader)
        assert follower.log(TOPIC).log_end_offset == 3
        wire.close()


async def test_a_leader_whose_sync_failed_hands_over_without_loss(place: Path) -> None:
    async with members(place, min_insync_replicas=2) as all_:
        files = faulty(all_[1])
        wire = await with_topics(all_)
        leader, follower = all_[1], all_[2]
        answered = leader.log(TOPIC).high_watermark
        files.fail("sync", errno.EIO, name=LOG)
        assert await sent(wire, TOPIC) != 0
        assert await sent(wire, TOPIC) != 0
        assert await sent(wire, OTHER) == 0
        wire.close()
        await leader.promote(2)
        await eventually(lambda: follower.cluster.leads)
        assert await follower.values(TOPIC, answered) == ["a"]
        assert follower.log(OTHER).log_end_offset == 1
        with pytest.raises(StorageError, match="a sync failed"):
            await leader.stop()
        await leader.start(follow=follower)
        await all_.in_sync(follower)
        await follower.produce(TOPIC, "b")
        assert leader.log(TOPIC).log_end_offset == follower.log(TOPIC).log_end_offset


@pytest.mark.parametrize("kind", ["pwrite", "sync"])
async def test_a_follower_that_cannot_write_an_epoch_s_line_confirms_nothing(
    place: Path, kind: str
) -> None:
    """A line is synced before the first message of its epoch is written (section 3)."""
    async with members(place) as all_:
        files = faulty(all_[2])
        wire = await with_topics(all_)
        leader, follower = all_[1], all_[2]
        wire.close()
        # Whoever leads again does so in a new epoch.
        await leader.stop()
        files.fail(kind, errno.EIO, times=-1, name="leader-epoch-checkpoint.tmp")
        await leader.start(cluster_alone=True)
        wire = await Wire.open(leader.address)
        assert await sent(wire, TOPIC) == 0
        await in_sync_are(leader, 1)
        assert follower.log(TOPIC).log_end_offset == 1
        files.heal()
        await all_.in_sync(leader)
        assert follower.log(TOPIC).log_end_offset == 2
        wire.close()


class NotInTheLoop(FaultyFiles):
    """Holds nothing up in the loop's thread: nobody would be there to let it go."""

    def check(self, kind: str, path: Path) -> Any:
        in_loop = threading.current_thread() is threading.main_thread()
        return None if in_loop else super().check(kind, path)


async def test_a_follower_that_hears_of_an_epoch_serves_while_it_stores_it(place: Path) -> None:
    """It is synced before anything is confirmed in it (section 3), and no client waits for that."""
    async with members(place) as all_:
        files = all_[2].files = NotInTheLoop(SystemFiles())
        (await with_topics(all_)).close()
        leader, follower = all_[1], all_[2]
        before = follower.cluster.node.highest_epoch
        written = files.did("sync", f"{IDENTITY_FILE}.tmp")
        await leader.stop()
        slow = files.hold("sync", f"{IDENTITY_FILE}.tmp")
        try:
            await leader.start(cluster_alone=True)
            await eventually(slow.reached.is_set)
            assert (await follower.status()).epoch == before
            assert leader.cluster.node.highest_epoch > before
            assert not any(one.ends for one in leader.cluster.node.leader.sessions.values())
        finally:
            slow.let_go()
        await all_.in_sync(leader)
        assert follower.cluster.node.highest_epoch == leader.cluster.node.highest_epoch
        stored = (follower.data_dir / IDENTITY_FILE).read_bytes()
        assert decode_identity(stored).identity == follower.cluster.node.identity
        assert files.did("sync", f"{IDENTITY_FILE}.tmp") == written + 1


@pytest.mark.parametrize("ahead_first", [True, False])
def test_what_is_stored_ahead_is_never_taken_back(tmp_path: Path, ahead_first: bool) -> None:
    """A store of the state machine and one ahead of it, in either order, end with the same file."""
    files = FaultyFiles(SystemFiles())
    file = IdentityFile(files, tmp_path, 2)
    file.store(Identity(nonce=7, highest_epoch=3))
    ahead = file.storing_ahead(Identity(highest_epoch=5, counted_revision=9))
    assert ahead is not None
    assert file.identity.highest_epoch == 3
    if ahead_first:
        ahead()
    file.store(file.identity._replace(in_doubt=True))
    if not ahead_first:
        ahead()
    found = IdentityFile(SystemFiles(), tmp_path, 2).identity
    assert found == Identity(7, True, 5, 9)
    written = files.did("rename")
    file.store(Identity(7, True, 5, 9))
    assert files.did("rename") == written
    assert file.storing_ahead(Identity(highest_epoch=5)) is None
    # What failed is not taken for written.
    files.fail("sync", errno.EIO, name=f"{IDENTITY_FILE}.tmp")
    with pytest.raises(StorageError, match="cannot be written"):
        file.store(Identity(8, True, 5, 9))
    assert file.identity.nonce == 7
    file.store(Identity(7, True, 5, 9))
    assert IdentityFile(SystemFiles(), tmp_path, 2).identity == Identity(7, True, 5, 9)
