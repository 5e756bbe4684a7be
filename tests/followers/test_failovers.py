"""Logs whose brokers take turns in leading come out equal, whatever each had alone (KIP-279)."""

from random import Random

import pytest

from horolog.storage.replica.replica_log import ReplicaLog
from horolog.testing.logs import LogFolder

from .copies import Filling, agree, assert_equal, copy_all, copy_once, seeds
from .test_copies import settings_of

SEEDS = seeds(30, of=60)


def take_over(first: LogFolder, second: LogFolder, random: Random, epoch: int) -> Filling:
    """Let the first one lead, and the second one agree with it."""
    filling = Filling(first, random, epoch=epoch)
    filling.lead()
    first.log.hold_high_watermark(None)
    # A trim is answered when all have it; here it may have come to one alone.
    first.log.flusher.flush()
    ReplicaLog(first.log).begin_at(second.log.log_start_offset)
    first.log.expiry.drop_expired()
    ReplicaLog(second.log).follow()
    agree(first, second)
    return filling


@pytest.mark.parametrize("seed", SEEDS)
def test_what_only_one_had_is_cut_off_and_the_rest_is_equal(
    leader: LogFolder, follower: LogFolder, seed: int
) -> None:
    random = Random(f"failovers {seed}")
    settings = settings_of(random)
    for folder in (leader, follower):
        folder.set(**settings)
        folder.open(high_watermark=0, follows=True)
    first, second, epoch = leader, follower, 0
    for _ in range(random.randint(2, 5)):
        filling = take_over(first, second, random, epoch)
        for _ in range(random.randint(1, 25)):
            filling.step()
            if random.random() < 0.3:
                copy_once(first, second, random.choice([100, 300, 2000]))
            elif random.random() < 0.1:
                second.kill_and_restart() if random.random() < 0.5 else second.restart()
        if random.random() < 0.5:
            copy_all(first, second, 700)
            second.set(message_timestamp_type="CreateTime")
            assert_equal(first, second, lost=True)
        epoch = filling.epoch
        second.log.hold_high_watermark(None)
        if random.random() < 0.5:
            first.kill_and_restart()
        first, second = second, first
        first.set(retention_bytes=-1)
    take_over(first, second, random, epoch)
    copy_all(first, second, 500)
    second.set(retention_bytes=first.log.settings.retention_bytes)
    assert_equal(first, second, lost=True)
