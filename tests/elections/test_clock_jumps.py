"""Wall clocks that jump by hours while another broker comes to lead (replication.md, 3 and 5)."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from horolog import Admin, Consumer, Producer
from horolog.testing.broker import running_broker
from horolog.testing.clock import MovingClock
from horolog.testing.etcd import EtcdProcess

from .inside import Settings, in_sync, leads, until

HOUR_S = 3600
STAMPED = {"message.timestamp.type": "LogAppendTime"}


@pytest.mark.parametrize("hours", [-3, 3])
async def test_times_and_leases_outlive_a_jump(place: Path, etcd: EtcdProcess, hours: int) -> None:
    """The leader's clock jumps, which takes no lease from it; it stops, and the follower, whose
    clock did not jump, gives no message a time before that of the one in front of it."""
    settings = Settings(etcd, 2)
    clock = MovingClock()
    addresses = settings.addresses
    async with AsyncExitStack() as first_running:
        first = await first_running.enter_async_context(
            running_broker(place / "one", clock, **settings.of(1))
        )
        await until(lambda: leads(first))
        async with (
            running_broker(place / "two", **settings.of(2)) as second,
            Admin(addresses) as admin,
            Producer(addresses, acks="all") as producer,
        ):
            await until(lambda: in_sync(second))
            await admin.create_topic("t", settings=STAMPED)
            sent = [await producer.send("t", b"before")]
            cluster = first.services.replication
            epoch = cluster.epoch
            clock.jump(hours * HOUR_S)
            sent.append(await producer.send("t", b"jumped"))
            # Longer than a lease: it was renewed as if nothing had been.
            await asyncio.sleep(2.5)
            sent.append(await producer.send("t", b"renewed"))
            assert (leads(first), cluster.epoch) == (True, epoch)
            await first_running.aclose()
            await until(lambda: leads(second))
            sent.append(await producer.send("t", b"after"))
            times = [one.timestamp_ms or 0 for one in sent]
            assert times == sorted(times)
            assert (times[-1] - times[0] >= HOUR_S * 1000) == (hours > 0)
            async with Consumer(addresses) as consumer:
                consumer.assign("t", 0, offset=0)
                stored = [await anext(consumer) for _ in sent]
            assert [one.value for one in stored] == [b"before", b"jumped", b"renewed", b"after"]
            assert [one.timestamp_ms for one in stored] == times
