"""Followers that keep up: what follows where the log ended is not looked for, and is the same."""

from random import Random

import pytest

from horolog.storage.replica import copying
from horolog.storage.replica.copying import Copied
from horolog.storage.replica.replica import Replica
from horolog.testing.logs import LogFolder

from .copies import MAX_BYTES, Filling

SEEDS = range(40)
STEPS = 60


def shown(copied: Copied) -> tuple[object, ...]:
    found = copied.found
    base = None if found.segment is None else found.segment.base_offset
    return base, found.position, found.size, found.magic, copied.facts, copied.next_offset


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
            log.replica.truncate(random.randint(log.log_start_offset, log.log_end_offset))
            filling = Filling(leader, random, epoch=filling.epoch)
            filling.lead()
        at = min(max(at, log.segment_list.first.base_offset), log.log_end_offset)
        max_bytes = random.choice([1, 200, 2000, MAX_BYTES])
        tail = log.replica.read(at, max_bytes)
        assert shown(tail) == shown(Replica(log).read(at, max_bytes)), seed
        times = log.segment_list.active.append_times
        only_ms = times.only_since(at)
        if only_ms is not None:
            known = times.covering(at, times.end_offset)
            assert {ms for first, ms in known.spans if first >= at} <= {only_ms}, seed
            assert known.spans[0][1] == only_ms, seed
        if tail.next_offset >= 0 and random.random() < 0.9:
            at = tail.next_offset


def test_what_is_behind_the_end_is_not_looked_for(
    leader: LogFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader.open()
    leader.log.replica.lead(1)
    leader.append(1)
    at = leader.log.replica.read(0, MAX_BYTES).next_offset

    def look(*_: object, **__: object) -> None:
        raise AssertionError("it is looked for")

    monkeypatch.setattr(copying, "read_slice", look)
    for number in range(1, 20):
        leader.append(*range(number % 3 + 1))
        found = leader.log.replica.read(at, MAX_BYTES)
        assert found.found.position > 0
        at = found.next_offset
        assert at == leader.log.log_end_offset
    with pytest.raises(AssertionError, match="looked for"):
        leader.log.replica.read(0, MAX_BYTES)
