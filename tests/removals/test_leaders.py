"""The journal in a cluster: a new leader shows what left the logs before and after, and what was
cut off at a broker is shown by that broker alone."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from horolog import blocking
from horolog.protocol.api.log.describe_removals import DescribedRemoval, DescribeRemovalsRequest
from horolog.testing.broker import BrokerThread
from horolog.testing.cluster import BrokerCluster
from horolog.testing.wire import wire

T0 = 1_479_144_272_000
FOR_EVER = {"retention.ms": -1}


def send(address: str, *times: int, acks: Literal["all", 1] = "all") -> None:
    with blocking.Producer(address, acks=acks, idempotent=False) as producer:
        for time_ms in times:
            producer.send("clicks", b"v", timestamp_ms=T0 + time_ms)


def shown_by(broker: BrokerThread) -> Sequence[DescribedRemoval]:
    async def ask() -> Sequence[DescribedRemoval]:
        async with wire(broker.address) as client:
            answer = await client.call(DescribeRemovalsRequest(topic="clicks"))
            assert answer.error_code == 0
            found: Sequence[DescribedRemoval] = answer.removals
            return found

    return asyncio.run(ask())


def test_a_new_leader_goes_on_with_the_journal(tmp_path: Path) -> None:
    with BrokerCluster(tmp_path, FOR_EVER, brokers=2) as cluster:
        first, second = cluster.brokers
        send(cluster.address, 0, 1, 2, 3, 4)
        with blocking.Admin(cluster.address) as admin:
            admin.delete_records("clicks", 0, 2)
        cluster.wait_in_sync()
        (before,) = shown_by(first)
        assert list(shown_by(second)) == [before]
        assert (before.cause, before.first_offset, before.end_offset) == ("trim", 0, 2)

        second.stop()
        send(first.address, 5, 6, 7, acks=1)
        first.stop()
        second.start({"cluster.follow": first.address})
        cluster.promote(second, accept_loss=True)
        assert list(shown_by(second)) == [before]
        with blocking.Admin(second.address) as admin:
            admin.delete_records("clicks", 0, 4)
        (both,) = shown_by(second)
        assert (both.first_offset, both.end_offset, both.times) == (0, 4, 2)
        assert both.largest_timestamp_ms == T0 + 3
        with blocking.Consumer(second.address) as consumer:
            window = consumer.window("clicks", T0, None)
            assert [record.offset for record in window] == [4]
            assert window.complete_from_ms == T0 + 4

        cluster.rejoin(first)
        cluster.wait_in_sync()
        assert list(shown_by(second)) == [both]
        cut, trimmed = sorted(shown_by(first), key=lambda each: each.cause == "trim")
        assert trimmed == both
        assert (cut.cause, cut.first_offset, cut.end_offset) == ("truncation", 5, 8)
