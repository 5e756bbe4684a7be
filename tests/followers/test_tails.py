"""Followers that keep up: what follows where the log ended is not looked for, and is the same."""

from random import Random

import pytest

from horolog.storage.index.append_time_lookup import known_times
from horolog.storage.log.log import Log
from horolog.storage.replica import copying
from horolog.storage.replica.copying import Copied
from horolog.storage.replica.replica_log import ReplicaLog
from horolog.testing.logs import LogFolder

from .copies import MAX_BYTES, Filling, copy_once, replica_of, seeds

SEEDS = seeds(20, of=40)
STEPS = 60


def shown(copied: Copied) -> tuple[object, ...]:
    found = copied.found
    base = None if found.segment is None else found.segment.base_offset
    return base, found.position, found.size, found.magic, copied.facts, copied.next_offset


def assert_one_time(log: Log, offset: int, seed: int) -> None:
    """What is said to be the one append time from an offset on is that, if something is said."""
    times = log.segment_list.active.append_times
    only_ms = times.only_since(offset)
    if only_ms is not None:
        known = known_times(times, offset, times.end_offset)
        assert {ms for first, ms in known.spans if first >= offset} <= {only_ms}, seed
        assert known.spans[0][1] == only_ms, seed


@pytest.mark.parametrize("seed", SEEDS)
def test_a_tail_is_what_a_search_finds(leader: LogFolder, seed: int) -> None:
    random = Random(seed)
    leader.open()
    filling = Filling(leader, random)
    filling.lead()
    at = 0
    for _ in range(STEPS):
        filling.step()
        log = leader.log
        if random.random() < 0.05 and log.log_start_offset < log.log_end_offset:
            ReplicaLog(log).cut(random.randint(log.log_start_offset, log.log_end_offset))
            filling = Filling(leader, random, epoch=filling.epoch)
            filling.lead()
        at = min(max(at, log.segment_list.first.base_offset), log.log_end_offset)
        max_bytes = random.choice([1, 200, 2000, MAX_BYTES])
        tail = replica_of(log).read(at, max_bytes)
        assert shown(tail) == shown(ReplicaLog(log).read(at, max_bytes)), seed
        assert_one_time(log, at, seed)
        if tail.next_offset >= 0 and random.random() < 0.9:
            at = tail.next_offset


@pytest.mark.parametrize("seed", SEEDS)
def test_a_copy_knows_when_its_tail_was_appended(
    leader: LogFolder, follower: LogFolder, seed: int
) -> None:
    """Also where sets of several times come with one answer: it may lead one day."""
    random = Random(seed)
    leader.open(follows=True)
    follower.open(high_watermark=0, follows=True)
    filling = Filling(leader, random)
    filling.lead()
    for _ in range(STEPS):
        filling.step()
        if random.random() < 0.3:
            copy_once(leader, follower, random.choice([200, 2000, MAX_BYTES]))
            log = follower.log
            for offset in range(log.segment_list.active.base_offset, log.log_end_offset):
                assert_one_time(log, offset, seed)


def test_what_is_behind_the_end_is_not_looked_for(
    leader: LogFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader.open()
    ReplicaLog(leader.log).begin_to_lead(1)
    leader.append(1)
    at = replica_of(leader.log).read(0, MAX_BYTES).next_offset

    def look(*_: object, **__: object) -> None:
        raise AssertionError("it is looked for")

    monkeypatch.setattr(copying, "read_slice", look)
    for number in range(1, 20):
        leader.append(*range(number % 3 + 1))
        found = replica_of(leader.log).read(at, MAX_BYTES)
        assert found.found.position > 0
        at = found.next_offset
        assert at == leader.log.log_end_offset
    with pytest.raises(AssertionError, match="looked for"):
        replica_of(leader.log).read(0, MAX_BYTES)
