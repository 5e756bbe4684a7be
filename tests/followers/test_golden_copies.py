"""What Kafka wrote is copied as it is, with its control batches."""

import shutil
from pathlib import Path
from random import Random

import pytest

from horolog.storage.replica.replica_log import ReplicaLog
from horolog.testing.logs import LogFolder

from .copies import assert_answers_equal, copy_once, places

GOLDEN = Path(__file__).parents[1] / "golden"
FOLDERS = sorted(path.parent for path in GOLDEN.glob("kafka-*/*/*/00000000000000000000.log"))


@pytest.mark.parametrize("files", FOLDERS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_folder_of_kafka_is_copied(
    leader: LogFolder, follower: LogFolder, files: Path, request: pytest.FixtureRequest
) -> None:
    shutil.copytree(files, leader.path, dirs_exist_ok=True)
    settings = {"segment_bytes": 16_384, "index_interval_bytes": 512, "retention_ms": -1}
    for folder in (leader, follower):
        folder.set(**settings)
    theirs = leader.open(clean=False, gaps=True, follows=True)
    ReplicaLog(theirs).begin_to_lead(1)
    follower.open(follows=True, high_watermark=0)
    requests = 0
    while follower.log.log_end_offset < theirs.log_end_offset:
        copy_once(leader, follower, 3000)
        requests += 1
        if requests % 7 == 0:
            follower.restart()
        elif requests % 5 == 0:
            follower.kill_and_restart()
    copy_once(leader, follower, 3000)
    ours = follower.log
    assert ours.gaps
    ours.hold_high_watermark(theirs.high_watermark)
    assert [s.base_offset for s in ours.segments] == [s.base_offset for s in theirs.segments]
    for mine, other in zip(ours.segments, theirs.segments, strict=True):
        assert mine.log_path.read_bytes() == other.log_path.read_bytes()
    seed = request.config.option.hypothesis_seed
    assert_answers_equal(theirs, ours, Random(f"{seed} {request.node.name}"))
    known = [(pid, one.epoch, one.batches) for pid, one in ours.producers.states.items()]
    expected = dict(theirs.producers.states.items())
    for pid, epoch, batches in known:
        assert (epoch, batches[-1:]) == (expected[pid].epoch, expected[pid].batches[-1:])
    assert len(known) == len(expected)


def test_transactions_end_at_a_follower_as_at_its_leader(
    leader: LogFolder, follower: LogFolder
) -> None:
    files = GOLDEN / "kafka-2.1" / "v2-transactions" / "clean"
    shutil.copytree(files, leader.path, dirs_exist_ok=True)
    theirs = leader.open(clean=False, gaps=True, follows=True)
    # Cut in the middle of a transaction, so that one never ends.
    offset = next(
        batch.last_offset for batch in theirs.producers.states.aborted if batch.last_offset > 100
    )
    theirs.truncate(offset)
    assert theirs.producers.states.open_count == 1
    ReplicaLog(theirs).begin_to_lead(1)
    assert theirs.producers.states.open_count == 0
    follower.open(follows=True)
    while follower.log.log_end_offset < theirs.log_end_offset:
        copy_once(leader, follower, 700)
        # What is open here may be ended by what is to come.
        follower.restart()
    ours = follower.log
    assert ours.producers.states.open_count == 1
    assert ours.last_stable_offset < ours.log_end_offset
    ReplicaLog(ours).begin_to_lead(2)
    assert ours.last_stable_offset == theirs.last_stable_offset == ours.log_end_offset
    for at in places(theirs):
        assert ours.producers.states.aborted_between(
            at, at + 1
        ) == theirs.producers.states.aborted_between(at, at + 1)
