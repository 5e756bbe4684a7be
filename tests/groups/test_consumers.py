"""Consumers of our own library that share a group, over both protocols."""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from horolog import (
    Admin,
    ClientClosed,
    ConnectionFailed,
    Consumer,
    ConsumerRecord,
    FencedInstanceId,
    IllegalGeneration,
    InconsistentGroupProtocol,
    Producer,
    UnknownMemberId,
    UnknownTopicOrPartition,
    blocking,
)
from horolog.clock import SystemClock
from horolog.protocol.api.groups.join_group import JOIN_GROUP
from horolog.protocol.api.schema import Api
from horolog.protocol.api.topics.metadata import METADATA
from horolog.server.broker import Broker
from horolog.testing.broker import BrokerThread, running_broker

TOPIC, GROUP = "clicks", "team"
PARTITIONS = 4
COUNT = 120
QUICK: dict[str, Any] = {"heartbeat_interval_ms": 20, "session_timeout_ms": 30_000}
SHORT: dict[str, Any] = {"heartbeat_interval_ms": 100, "session_timeout_ms": 1_000}
"""For a test in which a session ends."""
DEADLINE_S = 30.0

Members = Sequence[Consumer]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(
        tmp_path,
        http_listen="off",
        kafka_listen="127.0.0.1:0",
        num_partitions=PARTITIONS,
        group_min_session_timeout_ms=100,
    ) as broker:
        async with Admin(broker.addresses.native) as admin:
            await admin.create_topic(TOPIC, partitions=PARTITIONS)
        yield broker


@pytest.fixture(params=["native", "kafka"])
def address(broker: Broker, request: pytest.FixtureRequest) -> str:
    native, kafka = broker.addresses.native, broker.addresses.kafka
    return native if request.param == "native" else f"kafka://{kafka}"


async def produce(broker: Broker, first: int, count: int, topic: str = TOPIC) -> None:
    """Append numbers, in turn to each partition."""
    async with Producer(broker.addresses.native) as producer:
        for number in range(first, first + count):
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


def numbers(records: Sequence[ConsumerRecord]) -> list[int]:
    return [int(record.value or b"") for record in records]


async def read(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(found) < count:
            found += numbers(await consumer.fetch(max_wait_ms=50))
    return found


async def settled(members: Members, done: Callable[[list[int]], bool]) -> list[list[int]]:
    """What each member has when `done` with the numbers of partitions of all; what they read
    meanwhile is dropped."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            for member in members:
                await member.fetch(max_wait_ms=10)
            shares = [[partition for _, partition in member.assignment] for member in members]
            if done([len(share) for share in shares]):
                return shares


def evenly(sizes: list[int]) -> bool:
    return sum(sizes) == PARTITIONS and max(sizes) - min(sizes) <= 1


async def test_the_next_one_goes_on_where_the_last_one_stopped(
    broker: Broker, address: str
) -> None:
    await produce(broker, 0, 20)
    async with Consumer(address) as consumer:
        consumer.subscribe(TOPIC, group=GROUP, **QUICK)
        assert sorted(await read(consumer, 20)) == list(range(20))
    await produce(broker, 20, 8)
    async with Consumer(address) as consumer:
        consumer.subscribe([TOPIC], group=GROUP, **QUICK)
        assert sorted(await read(consumer, 8)) == list(range(20, 28))


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
async def test_members_share_and_every_message_comes_once(
    broker: Broker, address: str, assignor: str
) -> None:
    found: list[int] = []
    changes: dict[str, list[tuple[str, list[int]]]] = {"a": [], "b": []}

    def consumer_called(name: str) -> Consumer:
        def noted(what: str) -> Callable[[list[tuple[str, int]]], None]:
            return lambda keys: changes[name].append((what, [number for _, number in keys]))

        consumer = Consumer(address)
        consumer.subscribe(
            TOPIC,
            group=GROUP,
            assignor=assignor,
            on_assigned=noted("+"),
            on_revoked=noted("-"),
            **QUICK,
        )
        return consumer

    async def consume(consumer: Consumer) -> None:
        async for record in consumer:
            found.append(int(record.value or b""))  # noqa: PERF401 - it is cancelled

    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # noqa: ASYNC110 - of other tasks
                await asyncio.sleep(0.01)

    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(consumer_called("a"))
        tasks = [asyncio.create_task(consume(first))]
        await produce(broker, 0, 40)
        await until(lambda: len(found) == 40)
        async with consumer_called("b") as second:
            tasks.append(asyncio.create_task(consume(second)))
            await until(lambda: len(first.assignment) == len(second.assignment) == 2)
            assert not set(first.assignment) & set(second.assignment)
            await produce(broker, 40, 40)
            await until(lambda: len(found) == 80)
            tasks.pop().cancel()
            await asyncio.sleep(0)
        await until(lambda: len(first.assignment) == PARTITIONS)
        await produce(broker, 80, 40)
        await until(lambda: len(found) == 120)
        tasks.pop().cancel()
        await asyncio.sleep(0)
    assert sorted(found) == list(range(120))
    first_kept = [0, 1, 2, 3] if assignor == "range" else [2, 3]
    assert changes["a"][:2] == [("+", [0, 1, 2, 3]), ("-", first_kept)]
    given = [number for what, keys in changes["a"] if what == "+" for number in keys]
    taken = [number for what, keys in changes["a"] if what == "-" for number in keys]
    assert sorted(given) == sorted(taken), "closing revokes what is left"


@pytest.mark.parametrize(
    ("start", "wanted"),
    [
        ("earliest", list(range(8))),
        ("latest", []),
        (timedelta(minutes=5), list(range(4, 8))),
        (datetime, list(range(4, 8))),
    ],
    ids=["earliest", "latest", "before now", "time"],
)
async def test_where_a_new_group_begins(
    broker: Broker, address: str, start: Any, wanted: list[int]
) -> None:
    now_ms = SystemClock().now_ms()
    if start is datetime:
        start = datetime.now(UTC) - timedelta(minutes=5)
    async with Producer(broker.addresses.native) as producer:
        for number in range(8):
            at_ms = now_ms - (600_000 if number < 4 else 60_000)
            await producer.send(
                TOPIC, b"%d" % number, partition=number % PARTITIONS, timestamp_ms=at_ms
            )
    async with Consumer(address) as consumer:
        consumer.subscribe(TOPIC, group=GROUP, start=start, **QUICK)
        if not wanted:
            await settled([consumer], lambda sizes: sizes == [PARTITIONS])
        await produce(broker, 100, PARTITIONS)
        got = await read(consumer, len(wanted) + PARTITIONS)
        assert sorted(got) == [*wanted, *range(100, 100 + PARTITIONS)]


class Stop(Exception):
    """Ends a block as an error of the application does."""


class Application:
    """Calls a consumer at random, and keeps what it got as plain numbers by partition."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.got = dict.fromkeys(range(PARTITIONS), 0)
        self.finished = dict(self.got)
        """What it had got before the last call, which it must have finished then."""

    async def call(self, consumer: Consumer) -> None:
        self.finished = dict(self.got)
        match self._chance.randrange(4):
            case 0:
                most = self._chance.choice([None, 1, 3])
                for record in await consumer.fetch(max_wait_ms=100, max_records=most):
                    self._receive(record.partition, record.offset, 1)
            case 1 if sum(self.got.values()) < COUNT:
                record = await anext(consumer)
                self._receive(record.partition, record.offset, 1)
            case 2:
                for batch in await consumer.fetch_columns(max_wait_ms=100):
                    self._receive(batch.partition, int(batch.offsets[0]), batch.count)
            case _:
                await consumer.commit()

    def _receive(self, partition: int, offset: int, count: int) -> None:
        assert offset == self.got[partition]
        self.got[partition] += count


@pytest.mark.parametrize("fails", [False, True], ids=["ends", "fails"])
async def test_a_commit_never_passes_what_was_not_received(
    broker: Broker, address: str, fails: bool, pytestconfig: pytest.Config
) -> None:
    """Whatever the application calls, and however it ends, what is committed is at most behind the
    messages that it got, and not before those that it finished."""
    chance = random.Random(pytestconfig.getoption("--hypothesis-seed"))
    await produce(broker, 0, COUNT)
    for turn in range(3):
        group, application = f"{GROUP}-{turn}", Application(chance)
        with suppress(Stop):
            async with Consumer(address, partition_max_bytes=300) as consumer:
                consumer.subscribe(TOPIC, group=group, commit_interval_ms=0, **QUICK)
                for _ in range(chance.randint(1, 9)):
                    await application.call(consumer)
                if fails:
                    raise Stop
        least = application.finished if fails else application.got
        async with Admin(address) as admin:
            for partition in range(PARTITIONS):
                position = await admin.position(group, TOPIC, partition)
                offset = 0 if position is None else position.offset
                assert least[partition] <= offset <= application.got[partition]


async def test_one_record_is_committed(broker: Broker, address: str) -> None:
    await produce(broker, 0, 40)
    async with Consumer(address) as consumer:
        consumer.subscribe(TOPIC, group=GROUP, auto_commit=False, **QUICK)
        records: list[ConsumerRecord] = []
        while not records:
            records = await consumer.fetch(max_records=5)
        assert len(records) == 5
        await consumer.commit(records[2])
        chosen = records[2]
    async with Admin(address) as admin:
        for partition in range(PARTITIONS):
            position = await admin.position(GROUP, TOPIC, partition)
            if partition == chosen.partition:
                assert position is not None
                assert position.offset == chosen.offset + 1
            else:
                assert position is None


async def test_another_member_takes_over_from_one_that_was_killed(
    broker: Broker, address: str
) -> None:
    await produce(broker, 0, 40)
    killed, other = Consumer(address), Consumer(address)
    for consumer in (killed, other):
        consumer.subscribe(TOPIC, group=GROUP, auto_commit=False, **SHORT)
    await settled([killed, other], evenly)
    kill(killed)
    (share,) = await settled([other], lambda sizes: sizes == [PARTITIONS])
    assert share == [0, 1, 2, 3]
    await other.seek_to_beginning()
    assert sorted(await read(other, 40)) == list(range(40))
    await other.close()


def kill(consumer: Consumer) -> None:
    """Let it do nothing any more, and its connections end."""
    member: Any = consumer._group and consumer._group.membership
    member._heartbeats.cancel()
    for link in consumer._cluster._links.values():
        if link.current is not None:
            link.current.abort()


async def test_a_member_that_asks_for_nothing_leaves(
    broker: Broker, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    await produce(broker, 0, 40)
    revoked: list[tuple[str, int]] = []
    async with Consumer(address) as slow, Consumer(address) as other:
        slow.subscribe(
            TOPIC,
            group=GROUP,
            auto_commit=False,
            max_poll_interval_ms=300,
            on_revoked=revoked.extend,
            **QUICK,
        )
        records: list[ConsumerRecord] = []
        while not records:
            records = await slow.fetch()
        revoked.clear()  # if it was late once before
        other.subscribe(TOPIC, group=GROUP, **QUICK)
        await settled([other], lambda sizes: sizes == [PARTITIONS])
        with pytest.raises((UnknownMemberId, IllegalGeneration)) as refused:
            await slow.commit(records[0])
        assert "nothing was committed: group team went on without this consumer" in str(
            refused.value
        )
        assert "lost its partitions: it did not ask for messages for max_poll" in caplog.text
        assert revoked == []
        await settled([slow, other], evenly)
        assert sorted(set(revoked)) == [(TOPIC, number) for number in range(PARTITIONS)]
        (elsewhere, *_) = set(range(PARTITIONS)) - {number for _, number in slow.assignment}
        with pytest.raises(IllegalGeneration, match="is not assigned to this member"):
            await slow.commit(records[0]._replace(partition=elsewhere))


async def test_a_pattern_finds_topics_that_are_made_later(broker: Broker, address: str) -> None:
    found: list[list[tuple[str, int]]] = []
    async with Consumer(address, metadata_max_age_ms=50) as consumer:
        consumer.subscribe(re.compile("cl.*"), group=GROUP, on_assigned=found.append, **QUICK)
        await settled([consumer], lambda sizes: sizes == [PARTITIONS])
        async with Admin(broker.addresses.native) as admin:
            await admin.create_topic("other")
            await admin.create_topic("clocks")
            await admin.create_partitions(TOPIC, PARTITIONS + 1)
        await settled([consumer], lambda sizes: sizes == [PARTITIONS + 2])
        assert {topic for topic, _ in consumer.assignment} == {TOPIC, "clocks"}
    assert found[0] == [(TOPIC, number) for number in range(PARTITIONS)]


async def test_a_static_member_comes_back_without_a_rebalance(broker: Broker, address: str) -> None:
    def member(name: str) -> Consumer:
        consumer = Consumer(address)
        consumer.subscribe(TOPIC, group=GROUP, group_instance_id=name, **QUICK)
        return consumer

    async with member("stays") as stays:
        async with member("restarts") as restarts:
            before = await settled([stays, restarts], evenly)
        generation = stays._group and stays._group.membership.generation
        async with member("restarts") as back:
            after = await settled([stays, back], evenly)
            assert after == before
            assert (stays._group and stays._group.membership.generation) == generation
            async with member("restarts") as usurper:
                await settled([usurper], lambda sizes: sizes == [2])
                with pytest.raises(FencedInstanceId, match="another consumer joined group team"):
                    await settled([back], lambda sizes: False)


async def test_a_wait_that_is_cancelled_does_not_end_the_membership(
    broker: Broker, address: str
) -> None:
    await produce(broker, 0, 20)
    async with Consumer(address) as consumer:
        consumer.subscribe(TOPIC, group=GROUP, **QUICK)
        found: list[int] = []
        wait_s = 0.003
        async with asyncio.timeout(DEADLINE_S):
            while len(found) < 20:
                try:
                    async with asyncio.timeout(wait_s):
                        found.append(int((await anext(consumer)).value or b""))
                except TimeoutError:
                    wait_s *= 1.05  # a slow machine gets on, too
        assert sorted(found) == list(range(20))
        assert (consumer._group and consumer._group.membership.generation) == 1


async def test_a_callback_that_fails_is_told_and_the_group_goes_on(
    broker: Broker, address: str
) -> None:
    failures = iter(["first", "second"])

    def fail(_: Any) -> None:
        text = next(failures, None)
        if text is not None:
            raise RuntimeError(text)

    options: dict[str, Any] = {"group": GROUP, "assignor": "cooperative-sticky", **QUICK}
    async with Consumer(address) as one, Consumer(address) as other:
        one.subscribe(TOPIC, on_assigned=fail, on_revoked=fail, **options)
        with pytest.raises(RuntimeError, match="first"):
            await settled([one], lambda sizes: False)
        await settled([one], lambda sizes: sizes == [PARTITIONS])
        other.subscribe(TOPIC, **options)
        with pytest.raises(RuntimeError, match="second"):
            await settled([one, other], lambda sizes: False)
        await settled([one, other], evenly)
    failing = Consumer(address)
    failing.subscribe(TOPIC, on_revoked=lambda keys: 1 // 0, **options)
    await settled([failing], lambda sizes: sizes == [PARTITIONS])
    with pytest.raises(ZeroDivisionError):
        await failing.close()
    with pytest.raises(ClientClosed):
        await failing.fetch()


async def test_what_cannot_be_joined_is_told(broker: Broker, address: str) -> None:
    async with Consumer(address) as consumer:
        consumer.subscribe("clcks", group=GROUP, **QUICK)
        with pytest.raises(UnknownTopicOrPartition, match="group team cannot read 'clcks': "):
            await consumer.fetch()
    async with Consumer(address) as one, Consumer(address) as other:
        one.subscribe(TOPIC, group=GROUP, **QUICK)
        await settled([one], lambda sizes: sizes == [PARTITIONS])
        other.subscribe(TOPIC, group=GROUP, assignor="cooperative-sticky", **QUICK)
        with pytest.raises(InconsistentGroupProtocol, match=r"share none of the assignors coop"):
            await other.fetch()


def fail_once(consumer: Consumer, failing: Api, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the next request of this kind fail as if its connection broke. Returns a list that gets
    the name of the request then."""
    route, failed = consumer._cluster, list[str]()
    request = route.request

    async def broken(api: Api, body: object, **options: Any) -> Any:
        if api is failing and not failed:
            failed.append(api.name)
            raise ConnectionFailed("the connection broke")
        return await request(api, body, **options)

    monkeypatch.setattr(route, "request", broken)
    return failed


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
async def test_a_member_whose_join_failed_joins_again(
    broker: Broker, address: str, assignor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"group": GROUP, "assignor": assignor, **QUICK}
    async with Consumer(address, retry_timeout_ms=0) as one, Consumer(address) as other:
        one.subscribe(TOPIC, **options)
        await settled([one], lambda sizes: sizes == [PARTITIONS])
        fail_once(one, JOIN_GROUP, monkeypatch)
        other.subscribe(TOPIC, **options)
        with pytest.raises(ConnectionFailed, match="the connection broke"):
            await settled([one, other], lambda sizes: False)
        await settled([one, other], evenly)


async def test_an_assignment_that_was_lost_before_its_first_fetch_is_not_read(
    broker: Broker, address: str
) -> None:
    await produce(broker, 0, 40)
    async with Consumer(address) as slow, Consumer(address) as other:
        slow.subscribe(TOPIC, group=GROUP, max_poll_interval_ms=200, **QUICK)
        assert await slow.fetch(max_wait_ms=0) == []  # joins in the background
        group = slow._group
        assert group is not None
        async with asyncio.timeout(DEADLINE_S):
            while group.membership.lost is None:  # noqa: ASYNC110 - of another task
                await asyncio.sleep(0.01)
        other.subscribe(TOPIC, group=GROUP, **QUICK)
        await settled([other], lambda sizes: sizes == [PARTITIONS])
        assert await slow.fetch(max_wait_ms=0) == []
        assert slow.assignment == []
        await settled([slow, other], evenly)


async def test_a_consumer_closes_while_a_fetch_waits_for_the_group(
    broker: Broker, address: str
) -> None:
    async with Consumer(address) as other:
        other.subscribe(TOPIC, group=GROUP, **QUICK)
        await settled([other], lambda sizes: sizes == [PARTITIONS])
        waiting = Consumer(address)
        waiting.subscribe(TOPIC, group=GROUP, **QUICK)
        fetch = asyncio.create_task(waiting.fetch(max_wait_ms=20_000))
        async with asyncio.timeout(DEADLINE_S):
            while waiting._group is None or waiting._group._joining is None:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await waiting.close()
        with pytest.raises(ClientClosed):
            await fetch


async def test_a_broken_connection_does_not_end_the_look_for_new_partitions(
    broker: Broker, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Consumer(address, metadata_max_age_ms=50) as consumer:
        consumer.subscribe(TOPIC, group=GROUP, **QUICK)
        await settled([consumer], lambda sizes: sizes == [PARTITIONS])
        failed = fail_once(consumer, METADATA, monkeypatch)
        async with asyncio.timeout(DEADLINE_S):
            while not failed:
                assert await consumer.fetch(max_wait_ms=10) == []


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"topics": []}, ValueError, "needs the name of a topic"),
        ({"topics": [1]}, TypeError, "each of topics is a str, not int"),
        ({"topics": "^("}, ValueError, r"'\^\(' is no pattern"),
        ({"topics": re.compile(b"a")}, TypeError, "made from a str"),
        ({"group": ""}, ValueError, "group is the name of the consumer group"),
        ({"group": None}, TypeError, "group is a str, not NoneType"),
        ({"start": "now"}, ValueError, "start is 'earliest', 'latest', a timedelta"),
        ({"start": timedelta(-1)}, ValueError, "from 0 on"),
        ({"assignor": "sticky"}, ValueError, "assignor is 'range' or 'cooperative-sticky', not"),
        ({"assignor": ()}, ValueError, "at least one assignor"),
        ({"group_instance_id": ""}, ValueError, "group_instance_id is an id"),
        ({"session_timeout_ms": 0}, ValueError, "session_timeout_ms is from 1"),
        ({"heartbeat_interval_ms": 20_000}, ValueError, "at most a third of session_timeout_ms"),
        ({"max_poll_interval_ms": 1.5}, TypeError, "max_poll_interval_ms is an int"),
        ({"commit_interval_ms": -1}, ValueError, "commit_interval_ms is from 0 on"),
    ],
)
async def test_what_subscribe_refuses(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    consumer = Consumer("127.0.0.1:1")
    given: dict[str, Any] = {"topics": TOPIC, "group": GROUP, **options}
    with pytest.raises(error, match=text):
        consumer.subscribe(given.pop("topics"), **given)
    await consumer.close()


async def test_a_consumer_either_subscribes_or_assigns() -> None:
    consumer = Consumer("127.0.0.1:1")
    consumer.assign(TOPIC)
    with pytest.raises(ValueError, match="either is a member of a group or assigns"):
        consumer.subscribe(TOPIC, group=GROUP)
    consumer.unassign(TOPIC)
    consumer.subscribe(TOPIC, group=GROUP)
    for call in (consumer.assign, consumer.unassign):
        with pytest.raises(ValueError, match=r"\(\) is not for a member of a group"):
            call(TOPIC)
    await consumer.unsubscribe()
    consumer.assign(TOPIC)
    await consumer.close()


def test_the_blocking_client_and_callbacks_that_commit(tmp_path: Path) -> None:
    settings = {"num.partitions": PARTITIONS, "group.min.session.timeout.ms": 100}
    with BrokerThread(tmp_path, settings) as broker:
        with blocking.Producer(broker.address) as producer:
            for number in range(8):
                producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
        changes: list[str] = []
        with blocking.Consumer(broker.address) as consumer:

            def revoked(keys: list[tuple[str, int]]) -> None:
                consumer.commit()
                changes.append(f"-{len(keys)}")

            consumer.subscribe(
                "^cl",
                group=GROUP,
                auto_commit=False,
                on_assigned=lambda keys: changes.append(f"+{len(keys)}"),
                on_revoked=revoked,
                **QUICK,
            )
            found = [int(next(consumer).value or b"") for _ in range(8)]
            assert sorted(found) == list(range(8))
            consumer.unsubscribe()
        assert changes == ["+4", "-4"]
        with blocking.Admin(broker.address) as admin:
            positions = [admin.position(GROUP, TOPIC, number) for number in range(PARTITIONS)]
            assert [one and one.offset for one in positions] == [2, 2, 2, 2]
