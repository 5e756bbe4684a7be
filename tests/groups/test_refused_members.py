"""Members of our own library whose group changes while they have messages that were fetched before:
what the next call returns, and what it does for the group."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from horolog import (
    Admin,
    Consumer,
    ConsumerRecord,
    FencedInstanceId,
    Producer,
    RebalanceInProgress,
    UnknownMemberId,
)
from horolog.protocol.api.groups.leave_group import LEAVE_GROUP, LeaveGroupRequest, LeavingMember
from horolog.protocol.api.groups.offset_commit import OFFSET_COMMIT
from horolog.protocol.api.schema import Api
from horolog.server.broker import Broker
from horolog.testing.broker import running_broker

TOPIC, GROUP = "clicks", "team"
PARTITIONS = 2
COUNT = 40
QUICK: dict[str, Any] = {"heartbeat_interval_ms": 20, "session_timeout_ms": 30_000}
SILENT: dict[str, Any] = {"heartbeat_interval_ms": 10_000, "session_timeout_ms": 30_000}
"""For a member that no heartbeat tells what the group did."""
DEADLINE_S = 30.0


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, http_listen="off", kafka_listen="127.0.0.1:0") as broker:
        async with Admin(broker.addresses.native) as admin:
            await admin.create_topic(TOPIC, partitions=PARTITIONS)
        async with Producer(broker.addresses.native) as producer:
            for number in range(COUNT):
                await producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
        yield broker


@pytest.fixture(params=["native", "kafka"])
def address(broker: Broker, request: pytest.FixtureRequest) -> str:
    native, kafka = broker.addresses.native, broker.addresses.kafka
    return native if request.param == "native" else f"kafka://{kafka}"


async def fetched(consumer: Consumer, max_records: int) -> list[ConsumerRecord]:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            records = await consumer.fetch(max_records=max_records)
            if records:
                return records


async def owns(consumer: Consumer, count: int, others: Sequence[Consumer] = ()) -> None:
    """Fetch until the group has given the consumer so many partitions."""
    async with asyncio.timeout(DEADLINE_S):
        while len(consumer.assignment) != count:
            for each in (consumer, *others):
                await each.fetch(max_wait_ms=10)


def membership(consumer: Consumer) -> Any:
    assert consumer._group is not None
    return consumer._group.membership


async def put_out(consumer: Consumer) -> None:
    """Let the member leave its group without noticing, as if its session had ended."""
    member_id = membership(consumer).member_id
    request = LeaveGroupRequest(
        group_id=GROUP,
        member_id=member_id,
        members=[LeavingMember(member_id=member_id, group_instance_id=None)],
    )
    await consumer._cluster.request(LEAVE_GROUP, request, to=membership(consumer)._coordinator)


def refuse_commits(
    consumer: Consumer, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Let the coordinator answer the next commit with an error. Returns the names of the requests
    that got it."""
    request, refused = consumer._cluster.request, list[str]()

    async def answer(api: Api, body: object, **options: Any) -> Any:
        if api is OFFSET_COMMIT and not refused:
            refused.append(api.name)
            raise error
        return await request(api, body, **options)

    monkeypatch.setattr(consumer._cluster, "request", answer)
    return refused


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
async def test_messages_that_are_ready_do_not_keep_a_member_from_a_rebalance(
    address: str, assignor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Consumer(address) as one, Consumer(address) as two:
        options: dict[str, Any] = {"group": GROUP, "assignor": assignor, **QUICK}
        one.subscribe(TOPIC, **options)
        two.subscribe(TOPIC, **options)
        await anext(one)
        assert one._group is not None
        poll, polls = one._group.poll, 0

        async def counted(wait_ms: int) -> bool:
            nonlocal polls
            polls += 1
            assert polls < 1_000, "the member polls without end: the event loop stands still"
            return await poll(wait_ms)

        async def read_slowly() -> None:
            async for _ in one:
                await asyncio.sleep(0.002)

        monkeypatch.setattr(one._group, "poll", counted)
        reading = asyncio.create_task(read_slowly())
        joining = asyncio.create_task(owns(two, 1))
        done, _ = await asyncio.wait((reading, joining), return_when=asyncio.FIRST_COMPLETED)
        reading.cancel()
        joining.cancel()
        await asyncio.gather(reading, joining, return_exceptions=True)
        assert done == {joining}, [task.exception() for task in done]
        assert one.assignment != two.assignment


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
async def test_after_a_refused_commit_the_next_fetch_joins_again(
    address: str, assignor: str
) -> None:
    options: dict[str, Any] = {"group": GROUP, "assignor": assignor, "auto_commit": False}
    async with Consumer(address) as one, Consumer(address) as two:
        revoked: list[tuple[str, int]] = []
        one.subscribe(TOPIC, on_revoked=revoked.extend, **options, **SILENT)
        await fetched(one, 2)
        await put_out(one)
        two.subscribe(TOPIC, **options, **QUICK)
        await owns(two, PARTITIONS)
        for _ in range(2):
            with pytest.raises(UnknownMemberId, match="the next fetch joins again"):
                await one.commit()
        assert await one.fetch(max_records=2, max_wait_ms=0) == []
        assert revoked == [(TOPIC, 0), (TOPIC, 1)]
        assert one.assignment == []
        async with asyncio.timeout(DEADLINE_S):
            while not membership(one).is_member:
                for each in (one, two):
                    await each.fetch(max_wait_ms=10)


async def test_a_refused_commit_by_itself_drops_what_others_read(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Consumer(address) as one, Consumer(address) as two:
        one.subscribe(TOPIC, group=GROUP, commit_interval_ms=0, **SILENT)
        await fetched(one, 2)
        await put_out(one)
        two.subscribe(TOPIC, group=GROUP, auto_commit=False, **QUICK)
        await owns(two, PARTITIONS)
        assert await one.fetch(max_records=2, max_wait_ms=0) == []
        assert one.assignment == []
        await owns(one, 1, [two])
        assert caplog.text.count("nothing was committed") == 1


async def test_a_commit_in_a_rebalance_lets_the_next_fetch_take_part(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Consumer(address) as one:
        one.subscribe(TOPIC, group=GROUP, auto_commit=False, **SILENT)
        await fetched(one, 2)
        generation = membership(one).generation
        assert refuse_commits(one, RebalanceInProgress("a member joins"), monkeypatch) == []
        with pytest.raises(RebalanceInProgress, match="the next fetch takes part"):
            await one.commit()
        await one.fetch(max_wait_ms=0)
        await owns(one, PARTITIONS)
        assert membership(one).generation == generation + 1


async def test_a_fenced_member_returns_nothing_more(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Consumer(address) as one:
        one.subscribe(TOPIC, group=GROUP, auto_commit=False, group_instance_id="a", **SILENT)
        await fetched(one, 2)
        assert refuse_commits(one, FencedInstanceId("taken"), monkeypatch) == []
        for call in (one.commit, one.fetch):
            with pytest.raises(FencedInstanceId, match="another consumer joined group team"):
                await call()


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
async def test_a_task_that_reads_lets_another_one_unsubscribe(
    address: str, assignor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that waits for this member, and messages that are ready, keep neither task."""
    revoked: list[tuple[str, int]] = []
    async with Consumer(address) as one:
        one.subscribe(TOPIC, group=GROUP, assignor=assignor, on_revoked=revoked.extend, **SILENT)
        await fetched(one, 2)
        assert one._group is not None
        poll, polls = one._group.poll, 0

        async def counted(wait_ms: int) -> bool:
            nonlocal polls
            polls += 1
            assert polls < 1_000, "the member polls without end: the event loop stands still"
            return await poll(wait_ms)

        monkeypatch.setattr(one._group, "poll", counted)
        membership(one).rebalances = True
        leaving = asyncio.create_task(one.unsubscribe())
        await asyncio.sleep(0)
        reading = asyncio.ensure_future(anext(one))
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(ValueError, match="nothing is assigned"):
                await reading
            await leaving
        assert revoked == [(TOPIC, 0), (TOPIC, 1)]
        assert one.assignment == []
