"""A follower's log comes out as its leader's: bytes, indexes, times, verdicts (FO-1 to FO-11)."""

from random import Random

import pytest

from horolog.testing.logs import LogFolder

from .copies import (
    DAY_MS,
    Filling,
    assert_equal,
    assert_outlook_equal,
    copy_all,
    copy_from_log_start,
    copy_once,
    seeds,
)

SEEDS = seeds(30, of=60)


def settings_of(random: Random) -> dict[str, str]:
    numbers = {
        "segment_bytes": random.choice([800, 1000, 1500, 10_000]),
        "index_interval_bytes": random.choice([0, 40, 100, 300]),
        "segment_index_bytes": random.choice([24, 60, 240, 4096]),
        "segment_ms": random.choice([5, 10_000, 604_800_000]),
        "retention_ms": -1,
        "file_delete_delay_ms": 0,
        "producer_id_expiration_ms": 2**31 - 1,
        "max_message_bytes": 10_000,
    }
    return {name: str(number) for name, number in numbers.items()}


def run(leader: LogFolder, follower: LogFolder, seed: int, *, kills: bool, steps: int = 60) -> None:
    random = Random(f"copies {seed}")
    settings = settings_of(random)
    leader.set(**settings)
    leader.open(follows=True)
    follower.set(**settings)
    # What a follower does not go by.
    follower.set(max_message_bytes=1, max_message_time_difference_ms=0, retention_ms=1)
    follower.set(retention_bytes=0, segment_ms=1, segment_bytes=100)
    follower.open(high_watermark=0, follows=True)
    filling = Filling(leader, random)
    filling.lead()
    for _ in range(steps):
        filling.step()
        chance = random.random()
        if chance < 0.3:
            copy_once(
                leader,
                follower,
                random.choice([1, 50, 300, 2000]),
                whole_first=random.random() < 0.9,
            )
        elif chance < 0.36 and kills:
            follower.kill_and_restart(checkpointed=random.random() < 0.7)
        elif chance < 0.42:
            follower.restart()
        elif chance < 0.5:
            follower.log.flusher.flush()
        elif chance < 0.55:
            follower.log.expiry.maintain(follower.clock.now_ms())
            follower.log.expiry.roll_if_idle(follower.clock.now_ms())
    if kills:
        follower.kill_and_restart()
    copy_all(leader, follower, random.choice([100, 1000]))
    assert_equal(leader, follower, lost=kills)
    follower.restart()
    assert_equal(leader, follower, lost=kills)
    follower.kill_and_restart()
    copy_once(leader, follower, 1)
    assert_equal(leader, follower, lost=True)


@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_copy_is_the_same_log_fo11(
    leader: LogFolder, follower: LogFolder, seed: int, kills: bool
) -> None:
    run(leader, follower, seed, kills=kills)


@pytest.mark.parametrize("seed", seeds(40, of=400))
def test_a_copy_from_the_log_start_on_gives_the_answers_of_its_leader_fo11(
    leader: LogFolder, follower: LogFolder, seed: int
) -> None:
    """Messages below the log start, which the leader's files still hold, change no answer about
    time and no verdict of retention."""
    random = Random(f"trims {seed}")
    settings = settings_of(random) | {"retention_ms": str(DAY_MS)}
    for folder in (leader, follower):
        folder.set(**settings)
        folder.open(high_watermark=0, follows=True)
    leader.log.hold_high_watermark(None)
    filling = Filling(leader, random)
    filling.lead()
    for _ in range(40):
        filling.step()
    filling.trim()
    copy_from_log_start(leader, follower, random.choice([100, 1000]))
    assert_outlook_equal(leader, follower)
    for _ in range(5):
        filling.produce()
    filling.trim()
    copy_all(leader, follower, 1000)
    leader.restart()
    assert_outlook_equal(leader, follower)
