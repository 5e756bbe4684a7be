"""Whatever comes as a stretch: it is taken whole or changes nothing, and the log can be read."""

from random import Random

import pytest

from horolog.protocol.errors import HorologError
from horolog.storage.replica.copy_facts import CopyFacts, MalformedFacts
from horolog.storage.replica.replica_log import ReplicaLog
from horolog.testing.logs import LogFolder

from .copies import Filling, copied

SEEDS = range(25)


def harmed(random: Random, data: bytes) -> bytes:
    """The bytes with some changed, cut off, doubled or in another order."""
    changed = bytearray(data)
    for _ in range(random.choice([0, 1, 1, 3])):
        if changed:
            at = random.randrange(len(changed))
            changed[at] = random.choice(
                [0, 1, 127, 128, 255, changed[at] ^ 1 << random.randrange(8)]
            )
    match random.randrange(8):
        case 0:
            del changed[random.randrange(len(changed) + 1) :]
        case 1:
            changed += bytes(changed)
        case 2:
            at = random.randrange(len(changed) + 1)
            changed = changed[at:] + changed[:at]
        case 3:
            changed += bytes(random.randrange(100))
    return bytes(changed)


@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_taken_whole_or_not_at_all(leader: LogFolder, follower: LogFolder, seed: int) -> None:
    random = Random(f"hostile {seed}")
    for folder in (leader, follower):
        folder.set(segment_bytes=800, index_interval_bytes=40, max_message_bytes=10_000)
        folder.open(follows=True, retention_ms=-1)
    filling = Filling(leader, random)
    filling.lead()
    for _ in range(20):
        filling.produce()
    log = follower.log
    taken = refused = 0
    for _ in range(60):
        if log.log_end_offset >= leader.log.log_end_offset:
            break
        data = ReplicaLog(leader.log).read(log.log_end_offset, random.choice([100, 400]))
        sent = data.found.read()
        told = data.facts.encode()
        if random.random() < 0.7:
            sent = harmed(random, sent)
        if random.random() < 0.3:
            told = harmed(random, told)
        before, end = follower.content(), log.log_end_offset
        try:
            ReplicaLog(log).append(sent, CopyFacts.decode(told))
        except (HorologError, MalformedFacts):
            refused += 1
            assert follower.content() == before
            assert log.log_end_offset == end
        else:
            taken += 1
        if not leader.bases()[0] <= log.log_end_offset <= leader.log.log_end_offset:
            break  # It was believed that offsets jump: the facts said so.
    assert refused
    assert log.failure is None
    end = log.log_end_offset
    follower.kill_and_restart(checkpointed=False)
    log = follower.log
    log.prepare()
    assert log.log_end_offset == end
    assert all(segment.damaged is None for segment in log.segments)
    assert not follower.names(".broken")


def test_what_is_not_harmed_is_taken(leader: LogFolder, follower: LogFolder) -> None:
    leader.open()
    leader.append(1, 2)
    follower.open(follows=True)
    data, told = copied(leader, 0, 1000)
    assert ReplicaLog(follower.log).append(data, told).count == 2
