"""Kafka's clients for Python at the fixture's broker: time that passes, answers that get lost."""

import pytest

from horolog import blocking
from horolog.testing.broker import BrokerThread
from horolog.testing.cluster import BrokerCluster

from .kafka_sends import CLIENTS, LONG_LIVED, LongLived, Read, Send

DAY = 24 * 3600

each_client = pytest.mark.parametrize(("send", "ends"), CLIENTS.values(), ids=CLIENTS)


@each_client
def test_a_week_of_retention_passes_at_once(
    horolog_broker: BrokerThread, kafka_bootstrap: str, send: Send, ends: Read
) -> None:
    with blocking.Admin(horolog_broker.address) as admin:
        admin.create_topic("clicks", settings={"retention.ms": str(7 * DAY * 1000)})
    send(kafka_bootstrap, "clicks", [b"one", b"two"], True)
    horolog_broker.clock.step(6 * DAY)
    assert ends(kafka_bootstrap, "clicks") == (0, 2)
    horolog_broker.clock.step(DAY)
    assert ends(kafka_bootstrap, "clicks") == (2, 2)


@pytest.mark.parametrize(("idempotent", "copies"), [(False, 2), (True, 1)])
@each_client
def test_an_answer_that_gets_lost_between_sends(
    horolog_broker: BrokerThread,
    kafka_bootstrap: str,
    send: Send,
    ends: Read,
    idempotent: bool,
    copies: int,
) -> None:
    with blocking.Admin(horolog_broker.address) as admin:
        admin.create_topic("clicks")
    horolog_broker.faults.delay("Produce", 0.001)
    horolog_broker.faults.lose_answer("Produce")
    send(kafka_bootstrap, "clicks", [b"one", b"two", b"three"], idempotent)
    assert [each.kind for each in horolog_broker.faults.injected] == ["delay", "lose_answer"]
    stored = horolog_broker.topic("clicks").values()
    assert stored == [b"one", *[b"two"] * copies, b"three"]
    assert ends(kafka_bootstrap, "clicks") == (0, 2 + copies)


@each_client
def test_an_error_that_clients_retry(
    horolog_broker: BrokerThread, kafka_bootstrap: str, send: Send, ends: Read
) -> None:
    with blocking.Admin(horolog_broker.address) as admin:
        admin.create_topic("clicks")
    horolog_broker.faults.fail("Produce", "NOT_LEADER_FOR_PARTITION", times=2)
    send(kafka_bootstrap, "clicks", [b"one"], False)
    assert [each.topics for each in horolog_broker.faults.injected] == [("clicks",)] * 2
    assert horolog_broker.topic("clicks").values() == [b"one"]


@pytest.mark.parametrize("client", LONG_LIVED.values(), ids=LONG_LIVED)
def test_a_producer_that_outlives_a_test_keeps_its_id(
    horolog_broker: BrokerThread, kafka_bootstrap: str, client: LongLived
) -> None:
    """Whether the broker is back at a time before its first message, or between two of them, and
    also after another start."""
    empty = horolog_broker.snapshot()
    with client(kafka_bootstrap, "clicks") as send:
        send(b"first")
        filled = horolog_broker.snapshot()
        send(b"second")
        for number in range(2):
            filled.restore()
            if number:
                horolog_broker.restart()
            send(b"a")
            send(b"b")
            assert horolog_broker.topic("clicks").values() == [b"first", b"a", b"b"]
        restarted = horolog_broker.snapshot()
        horolog_broker.restart()
        closed = horolog_broker.snapshot()  # Its logs were not opened since the start.
        held = [b"first", b"a", b"b"]
        for snapshot, before in ((restarted, held), (closed, held), (empty, [])):
            snapshot.restore()
            send(b"last")
            assert horolog_broker.topic("clicks").values() == [*before, b"last"]


@each_client
def test_a_leader_that_goes_away(horolog_cluster: BrokerCluster, send: Send, ends: Read) -> None:
    with blocking.Admin(horolog_cluster.address) as admin:
        admin.create_topic("clicks")
    send(horolog_cluster.kafka_bootstrap, "clicks", [b"one"], True)
    horolog_cluster.wait_in_sync()
    before = horolog_cluster.stop_leader()
    horolog_cluster.promote()
    assert horolog_cluster.leader is not before
    send(horolog_cluster.kafka_bootstrap, "clicks", [b"two"], True)
    horolog_cluster.rejoin(before)
    horolog_cluster.wait_in_sync()
    assert before.topic("clicks").values() == [b"one", b"two"]
    assert ends(horolog_cluster.kafka_bootstrap, "clicks") == (0, 2)
