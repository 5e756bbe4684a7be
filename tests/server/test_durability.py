"""Which answers wait for what, where sets that came together are not durable together."""

import pytest

from horolog.protocol.api.log.produce import ProduceResponse
from horolog.protocol.errors import NotLeader, RequestTimedOut, StorageError
from horolog.server.broker import Broker
from horolog.server.handlers.produce import (
    ROWS,
    PendingAck,
    ProduceResult,
    when_durable,
    when_set_is_durable,
)
from horolog.server.replication.service import Commit
from horolog.server.requests import PendingAnswer
from horolog.storage.log.log import Log
from horolog.testing.clock import ManualClock
from horolog.testing.requests import message_set, produce
from horolog.testing.wire import Wire

TARGET = ("a", 0)
FOREVER_MS = 60_000


@pytest.fixture
async def log(broker: Broker, client: Wire) -> Log:
    await client.call(produce("a", message_set(ManualClock().now_ms())))
    return broker.directory.log(*TARGET)


def waiting_for(*pending: PendingAck | None) -> tuple[list[ProduceResult], list[ProduceResponse]]:
    """A set for each of them, and the responses to the requests that brought them."""
    rows = ROWS.read([produce("a", b"", acks=-1) for _ in pending], -1)
    assert rows is not None
    by_partition, responses = rows
    sent = by_partition[TARGET]
    for one, waits_for in zip(sent, pending, strict=True):
        one.pending = waits_for
    return sent, responses


@pytest.mark.parametrize("one_timeout", [True, False])
async def test_each_waits_for_its_own_set_alone(
    broker: Broker, log: Log, one_timeout: bool
) -> None:
    commits = Commit(), Commit()
    first, second = (PendingAck(log, TARGET, 1, commit) for commit in commits)
    sent, responses = waiting_for(first, first, None, second, second, second)
    services, lot = broker.services, broker.services.produces
    if one_timeout:
        outcomes = when_set_is_durable(services, FOREVER_MS, sent, responses)
    else:
        outcomes = when_durable(services, [FOREVER_MS] * 6, responses)
    assert len(outcomes) == 6
    assert outcomes[2] is responses[2]
    later = [one for one in outcomes if isinstance(one, PendingAnswer)]
    assert [one.ready.done() for one in later] == [False] * 5
    commits[0].settle(None)
    lot.look_at([commits[1]])
    assert [one.ready.done() for one in later] == [False] * 5
    lot.look_at([commits[0]])
    assert [one.ready.done() for one in later] == [True, True, False, False, False]
    assert [one.make() for one in later[:2]] == responses[:2]
    assert len(lot) == 3
    commits[1].settle(NotLeader("ask broker 2"))
    lot.look_at([commits[1]])
    answers = [one.make() for one in later[2:]]
    assert answers == responses[3:]
    codes = [one.error_code for one in sent]
    assert codes == [0, 0, 0, *[NotLeader.code] * 3]
    assert len(lot) == 0


async def test_what_is_settled_already_waits_for_nothing(broker: Broker, log: Log) -> None:
    commit = Commit()
    commit.settle(None)
    sent, responses = waiting_for(PendingAck(log, TARGET, 1, commit), None)
    assert when_set_is_durable(broker.services, FOREVER_MS, sent, responses) == responses
    assert when_durable(broker.services, [FOREVER_MS] * 2, responses) == responses


async def test_one_that_is_settled_when_its_time_is_over_is_no_failure(
    broker: Broker, log: Log
) -> None:
    commits = Commit(), Commit()
    sent, responses = waiting_for(*(PendingAck(log, TARGET, 1, one) for one in commits))
    outcomes = when_set_is_durable(broker.services, 0, sent, responses)
    for one in outcomes:
        assert isinstance(one, PendingAnswer)
        await one.ready
    commits[0].settle(None)
    assert [one.make() for one in outcomes if isinstance(one, PendingAnswer)] == responses
    assert [one.error_code for one in sent] == [0, RequestTimedOut.code]


async def test_in_a_cluster_a_watermark_that_moved_is_nothing_and_a_failure_is(
    broker: Broker, log: Log
) -> None:
    lot = broker.services.produces
    lot.minds_moves = False
    sent, responses = waiting_for(PendingAck(log, TARGET, 1, Commit()))
    (outcome,) = when_set_is_durable(broker.services, FOREVER_MS, sent, responses)
    assert isinstance(outcome, PendingAnswer)
    assert log.on_advance is not None
    log.on_advance(log)
    assert not lot._advanced
    log.fail(StorageError("the disk is gone"))
    failed = log.failure
    await outcome.ready
    outcome.make()
    assert (failed is not None, sent[0].error_code) == (True, StorageError.code)
    log.failure = None  # The stop of the broker is to be clean.
