"""What copying costs beside the bytes: no sync in the loop, or for each answer; bounded memory.

replication.md, sections 3 and 5.
"""

import asyncio
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from horolog import Admin
from horolog.protocol.records.messages.sets import NewRecord, build_set
from horolog.replication.follower import Follower
from horolog.replication.settings import ReplicationSettings
from horolog.server.replication.cluster import Cluster
from horolog.server.replication.serving import PART_BYTES, Serving
from horolog.storage.log.leader_epochs import EpochWrite
from horolog.storage.replica.copy_facts import Stored
from horolog.storage.replica.replica_log import ReplicaLog
from horolog.testing.program import ServerProcess
from horolog.testing.requests import create_topic, produce
from horolog.testing.wire import Wire

from .brokers import brokers
from .members import Member, eventually, members

TOPIC = "t"
MIB = 1 << 20


async def fill(member: Member, sets: int, set_bytes: int = 256 << 10) -> int:
    """Sets of so many bytes into one partition, one a request; how many bytes there are."""
    data = bytes(build_set([NewRecord(b"v" * 1000, timestamp_ms=1)] * (set_bytes // 1034)))
    wire = await Wire.open(member.address)
    await wire.call(create_topic(TOPIC, retention_ms=-1))
    for _ in range(sets):
        answer = await wire.call(produce(TOPIC, data, acks=1))
        assert answer.topics[0].partitions[0].error_code == 0
    wire.close()
    return sets * len(data)


async def test_lines_of_new_epochs_are_written_beside_the_loop(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_loop: list[bool] = []
    run = EpochWrite.run

    def noting(write: EpochWrite) -> None:
        in_loop.append(threading.current_thread() is threading.main_thread())
        run(write)

    monkeypatch.setattr(EpochWrite, "run", noting)
    async with members(place) as all_:
        await all_.start()
        async with Admin(all_[1].address) as admin:
            await admin.create_topic(TOPIC, partitions=4)
        for partition in range(4):
            await all_[1].produce(TOPIC, "before", partition=partition)
        await all_.in_sync(all_[1])
        # At the follower, of four partitions and the metadata log; the leader has nothing to go by
        # yet.
        assert in_loop.count(False) == 5
        in_loop.clear()
        await all_[1].promote(2)
        epoch = await eventually(lambda: all_[2].cluster.epoch)
        logs = [all_[2].log(TOPIC, partition) for partition in range(4)]
        # The new leader's lines are there before any message of the epoch.
        await eventually(lambda: len(in_loop) == 5)
        assert not any(in_loop)
        await eventually(lambda: all(f"{epoch} 1" in content(log) for log in logs))
        assert [log.epochs.history.last_epoch < epoch for log in logs] == [True] * 4
        for partition in range(4):
            await all_[2].produce(TOPIC, "after", partition=partition)
        assert not any(in_loop)
        assert [log.epochs.history.last_epoch for log in logs] == [epoch] * 4
        await all_.in_sync(all_[2])
        assert not any(in_loop)


def content(log: Any) -> str:
    text: str = (log.path / "leader-epoch-checkpoint").read_text()
    return text


async def test_what_is_far_behind_is_asked_for_ahead_and_synced_together(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    ahead = Follower.ask_ahead

    def noting(follower: Follower, now_s: float, message: Any) -> None:
        ahead(follower, now_s, message)
        asked.append(follower._ahead)

    monkeypatch.setattr(Follower, "ask_ahead", noting)
    async with members(place) as all_:
        await all_[1].start(cluster_create=True)
        size = await fill(all_[1], 120)
        await all_[2].start(follow=all_[1])
        await all_.in_sync(all_[1])
        ours, theirs = (member.log(TOPIC).segments[-1] for member in (all_[1], all_[2]))
        assert ours.size_bytes == theirs.size_bytes == size
        assert ours.log_path.read_bytes() == theirs.log_path.read_bytes()
        # 30 MiB in answers of 4: all but the last ones were asked for before they were appended.
        assert sum(asked) >= 5
        assert not asked[-1]
        assert all_[2].log(TOPIC).flusher.synced_offset == all_[1].log(TOPIC).log_end_offset


def have_fetches_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower's fetch is answered when there is something for it, and not because of its
    time."""
    settings = Cluster.replication_settings

    def patient(cluster: Cluster) -> ReplicationSettings:
        return settings(cluster)._replace(fetch_wait_s=600.0)

    monkeypatch.setattr(Cluster, "replication_settings", patient)


async def test_a_watermark_comes_without_messages_behind_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetch that waits is answered for it, and not because it has waited for half a second."""
    have_fetches_wait(monkeypatch)
    async with members(place, acks_all_durability="written") as all_:
        await all_.start()
        async with Admin(all_[1].address) as admin:
            await admin.create_topic(TOPIC)
        ends = [0]
        for _ in range(3):
            await all_[1].produce(TOPIC, "v")
            ends.append(ends[-1] + 1)
            await eventually(lambda: all_[2].log(TOPIC).high_watermark == ends[-1])


async def test_sets_that_come_together_are_copied_in_two_parts(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[int] = []
    append = ReplicaLog.append_stored

    def noting(log: ReplicaLog, stored: Stored) -> None:
        if log.partition[0] == TOPIC and stored.size_bytes:
            parts.append(stored.size_bytes)
        append(log, stored)

    monkeypatch.setattr(ReplicaLog, "append_stored", noting)
    have_fetches_wait(monkeypatch)
    data = bytes(build_set([NewRecord(b"v" * 1000, timestamp_ms=1)] * 60))
    async with members(place, acks_all_durability="written") as all_:
        await all_.start()
        wire = await Wire.open(all_[1].address)
        await wire.call(create_topic(TOPIC))
        await eventually(lambda: waits_for_messages(all_[1]))
        wire.send_together(*[produce(TOPIC, data, acks=-1)] * 8)
        for number in range(8):
            _, answer = await wire.receive()
            (result,) = answer.topics[0].partitions
            assert (result.error_code, result.base_offset) == (0, 60 * number)
        wire.close()
        assert len(parts) >= 2
        assert sum(parts) == 8 * len(data)
        ours, theirs = (member.log(TOPIC).segments[-1] for member in (all_[1], all_[2]))
        assert ours.log_path.read_bytes() == theirs.log_path.read_bytes()


def waits_for_messages(leader: Member) -> bool:
    """Whether a fetch of the follower waits, and it has said that it has the topic."""
    (session,) = leader.cluster.node.leader.sessions.values()
    return bool(session.waits and session.ends.get((TOPIC, 0)) == 0)


@pytest.mark.parametrize(
    ("sizes", "first"),
    [
        ([], 0),
        ([1 << 20], 0),
        ([PART_BYTES, PART_BYTES - 1], 0),
        ([PART_BYTES, PART_BYTES], 1),
        ([64 << 10] * 8, 4),
        ([1, 1 << 20], 1),
        ([1 << 20, 1], 1),
        ([1, 1 << 20, 1], 2),
    ],
)
def test_the_first_part_is_half_and_leaves_one(sizes: list[int], first: int) -> None:
    assert Serving.first_part(sizes) == first


def test_memory_is_bounded_beside_a_follower_that_stands_still(place: Path) -> None:
    """A leader keeps only what it sent for a follower; a follower keeps one answer or two."""
    with brokers(place, acks_all_durability="written") as all_:
        all_.start()
        first, second = all_[1], all_[2]
        assert first.server is not None
        assert second.server is not None
        asyncio.run(_fill(first.address, 8))
        all_.in_sync(first)
        before = resident(first.server)
        os.kill(second.server.process.pid, signal.SIGSTOP)
        try:
            asyncio.run(_fill(first.address, 160))
            beside = resident(first.server)
        finally:
            os.kill(second.server.process.pid, signal.SIGCONT)
        idle = resident(second.server)
        all_.in_sync(first)
        # 160 MiB were written meanwhile, and copied then.
        assert beside - before < 48 * MIB
        assert peak(second.server) - idle < 48 * MIB
        assert peak(first.server) - before < 64 * MIB


async def _fill(address: str, mib: int) -> None:
    data = bytes(build_set([NewRecord(b"v" * 1000, timestamp_ms=1)] * 1000))
    wire = await Wire.open(address)
    await wire.call(create_topic(TOPIC, retention_ms=-1))
    for _ in range(mib):
        await wire.call(produce(TOPIC, data, acks=1))
    wire.close()


def resident(server: ServerProcess) -> int:
    return _status(server, "VmRSS")


def peak(server: ServerProcess) -> int:
    return _status(server, "VmHWM")


def _status(server: ServerProcess, name: str) -> int:
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024
