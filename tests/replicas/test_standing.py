"""How brokers of a cluster stand: since when, how far behind, and what HTTP says of it."""

import asyncio
import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from horolog.cli import cluster
from horolog.cli.cluster import contested_as_text, ends_as_text, ends_of
from horolog.client.cluster.servers import Servers, parse_servers
from horolog.clock import SystemClock
from horolog.protocol.api.cluster.describe_replicas import (
    DescribeReplicasResponse,
    LogEnd,
    ReplicaMember,
)
from horolog.server.broker import Broker
from horolog.testing.broker import running_broker
from horolog.testing.program import Program
from horolog.testing.requests import create_topic, message_set, produce

from .members import Member, Members, eventually, members

TOPIC = "t"
HTTP = "127.0.0.1:0"


async def get(broker: Broker | None, path: str) -> tuple[int, str]:
    assert broker is not None
    async with (
        aiohttp.ClientSession(f"http://{broker.addresses.http}") as session,
        session.get(path) as response,
    ):
        return response.status, await response.text()


async def until(member: Member, path: str, status: int) -> str:
    """Ask until the status is that; the text."""
    text = ""

    async def asked() -> bool:
        nonlocal text
        found, text = await get(member.broker, path)
        return found == status

    await eventually(asked)
    return text


async def row(asked: Member, broker_id: int) -> ReplicaMember:
    """What a broker says of another, or of itself."""
    status = await asked.status()
    return next(one for one in status.members if one.broker_id == broker_id)


def states_of(all_: Members) -> Callable[[], dict[int, str]]:
    return lambda: {one.broker_id: one.state for one in all_[1].cluster.admin.describe().members}


async def test_since_when_each_is_in_its_state(place: Path) -> None:
    async with members(place) as all_:
        began_ms = SystemClock().now_ms()
        await all_.start()
        leader, follower = all_[1], all_[2]
        before_ms = leader.cluster.clock.now_ms()
        status = await leader.status()
        assert [(one.broker_id, one.state) for one in status.members] == [
            (1, "leader"),
            (2, "in-sync"),
        ]
        since = {one.broker_id: one.since_ms for one in status.members}
        assert all(began_ms <= one <= before_ms for one in since.values())
        seen = await row(follower, 1)
        assert (seen.state, seen.address) == ("leader", leader.address)
        # It is told so with the next answer of its leader.
        await eventually(lambda: follower.cluster.admin.describe().members[1].state == "in-sync")
        assert (await follower.status()).in_sync == [1, 2]
        # What does not change keeps its time.
        await asyncio.sleep(0.3)
        assert {one.broker_id: one.since_ms for one in (await leader.status()).members} == since
        await follower.stop()
        with leader.impatient():
            await eventually(lambda: states_of(all_)()[2] == "down")
            gone = await row(leader, 2)
        assert gone.since_ms >= before_ms
        assert (await row(leader, 1)).since_ms == since[1]


async def test_who_is_gone_is_behind_by_what_came_since(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        await leader.call(create_topic(TOPIC))
        await leader.produce(TOPIC, *"ab")
        await all_.in_sync(leader)
        await follower.stop()
        with leader.impatient():
            await eventually(lambda: states_of(all_)()[2] == "down")
        gone = await row(leader, 2)
        assert (gone.lag_messages, gone.lag_ms) == (0, 0)
        appended_ms = leader.cluster.clock.now_ms()
        # Their own times are of long ago; it is behind since they came.
        await leader.call(produce(TOPIC, message_set(5, 6, 7), acks=1))
        gone = await row(leader, 2)
        assert gone.lag_messages == 3
        assert 0 <= gone.lag_ms <= leader.cluster.clock.now_ms() - appended_ms
        await asyncio.sleep(0.2)
        assert (await row(leader, 2)).lag_ms >= 200
        assert leader.broker is not None
        text = leader.broker.metrics_text().decode()
        assert 'horolog_replica_lag{broker="2"} 3' in text
        assert 'horolog_replica_lag_seconds{broker="2"}' in text
        await follower.start(follow=leader)
        await all_.in_sync(leader)
        # Who is a member no more is shown no more.
        await follower.stop()
        leader.cluster.known.pop(2)
        with leader.impatient():
            await eventually(lambda: 2 not in states_of(all_)())
        assert 'broker="2"' not in leader.broker.metrics_text().decode()


async def test_ready_is_a_follower_in_sync(place: Path) -> None:
    async with members(place, http_listen=HTTP) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        assert await until(leader, "/readyz", 200) == "ok\n"
        assert await until(follower, "/readyz", 200) == "ok\n"
        assert await get(leader.broker, "/leader") == (200, "ok\n")
        status, text = await get(follower.broker, "/leader")
        assert status == 503
        assert text.startswith("broker 1 leads: ")
        assert leader.address in text
        await leader.stop()
        with follower.impatient():
            text = await until(follower, "/readyz", 503)
            assert "has said nothing for" in text
            assert "has said nothing for" in await until(follower, "/leader", 503)
        # It is alive, and no reason to start it again.
        assert await get(follower.broker, "/healthz") == (200, "ok\n")
        await follower.promote(accept_loss=True)
        await until(follower, "/leader", 200)
        await until(follower, "/readyz", 200)


async def test_not_ready_is_who_has_to_catch_up(place: Path) -> None:
    async with members(place, http_listen=HTTP) as all_:
        leader, follower = all_[1], all_[2]
        await leader.start(cluster_create=True)
        # The leader is not there yet, so that nothing was copied.
        await leader.stop()
        await follower.start(follow=leader)
        text = await until(follower, "/readyz", 503)
        assert text.startswith("in doubt: ")
        assert "follows the leader at" in text
        await leader.start(cluster_alone=True)
        await until(follower, "/readyz", 200)
        identity = follower.cluster.node.identity
        follower.cluster.fetcher.in_sync = ()
        assert follower.cluster.states.not_ready().startswith("catching up: ")
        follower.cluster.node.remember(identity._replace(in_doubt=True))
        assert follower.cluster.states.not_ready().startswith("in doubt: ")


async def test_a_broker_that_never_came_is_counted(place: Path) -> None:
    """So that an alert on `horolog_replicas - horolog_in_sync_replicas` says that a copy lacks."""
    async with members(place) as all_:
        leader = all_[1]
        await leader.start(cluster_create=True)
        figures = leader.cluster.admin.figures()
        assert (figures.replicas, figures.in_sync) == (2, 1)


async def test_not_ready_is_who_waits_for_the_others(place: Path) -> None:
    async with members(place, http_listen=HTTP) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        await follower.stop()
        await leader.stop()
        await leader.start()
        for path in ("/leader", "/readyz"):
            assert "cluster.brokers" in await until(leader, path, 503)


async def test_a_broker_that_is_alone_leads(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data") as broker:

        async def ready() -> bool:
            return (await get(broker, "/readyz"))[0] == 200

        await eventually(ready)
        assert await get(broker, "/leader") == (200, "ok\n")


async def test_the_command_shows_it(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        program = Program(all_[2].address)
        result = await asyncio.to_thread(program, "cluster", "status")
        assert result.code == 0, result
        head, _, columns, first, second = result.out.splitlines()
        assert head.endswith("broker 1 leads, epoch 1")
        assert columns.replace("lag in time", "time").split() == [
            *("broker", "state", "address", "lag", "time", "since")
        ]
        assert first.split()[:3] == ["1", "leader", all_[1].address]
        assert second.split()[:2] == ["2", "in-sync"]
        assert all(line.split()[-1].endswith("Z") for line in (first, second))
        result = await asyncio.to_thread(program, "cluster", "status", "--json")
        shown: dict[str, Any] = json.loads(result.out)
        keys = "cluster epoch leader in_sync unreadable members contested_epoch log_ends"
        assert list(shown) == keys.split()
        assert shown["in_sync"] == [1, 2]
        keys = "id address kafka_address state lag_messages lag_seconds since_ms"
        assert [list(one) for one in shown["members"]] == [keys.split()] * 2
        status = await all_[1].status()
        assert [one["since_ms"] for one in shown["members"]] == [
            one.since_ms for one in status.members
        ]


async def test_the_command_shows_what_there_is_while_nobody_leads(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        await all_[1].stop()
        program = Program(f"{all_[1].address},{all_[2].address}")
        result = await asyncio.to_thread(program, "cluster", "status", "--json")
        assert result.code == 0, result
        shown: dict[str, Any] = json.loads(result.out)
        assert shown["epoch"] == all_[2].cluster.node.highest_epoch
        assert [one["id"] for one in shown["members"]] == [1, 2]
        await all_[2].stop()
        result = await asyncio.to_thread(program, "cluster", "status")
        assert (result.code, result.out) == (1, "")
        assert "no leader at" in result.err


async def test_while_none_leads_the_ends_of_all_are_seen_side_by_side(place: Path) -> None:
    """A person is to see in one answer whom to promote, and by which partitions."""
    async with members(place, 3) as all_:
        await all_.start()
        leader, behind, ahead = all_[1], all_[2], all_[3]
        await leader.call(create_topic(TOPIC, partitions=2))
        await leader.produce(TOPIC, *"ab")
        await leader.produce(TOPIC, "x", partition=1)
        await all_.in_sync(leader)
        program = Program(f"{behind.address},{ahead.address}")
        result = await asyncio.to_thread(program, "cluster", "status")
        assert "log ends" not in result.out
        result = await asyncio.to_thread(program, "cluster", "status", "--json")
        assert json.loads(result.out)["log_ends"] == []
        await behind.stop()
        with leader.impatient():
            await eventually(lambda: leader.cluster.admin.describe().in_sync == [1, 3])
        await leader.produce(TOPIC, *"cde")
        await eventually(lambda: ahead.log(TOPIC).log_end_offset == 5)
        await leader.stop()
        await behind.start(follow=leader)
        with ahead.impatient():
            await eventually(lambda: ahead.cluster.states.leader_is_silent)
            result = await asyncio.to_thread(program, "cluster", "status", "--json")
            told = await asyncio.to_thread(program, "cluster", "status")
        same = {"epoch": 1, "contested_from": None}
        shown = {
            (one["topic"], one["partition"]): one for one in json.loads(result.out)["log_ends"]
        }
        assert [shown[TOPIC, number]["brokers"] for number in (0, 1)] == [
            [{"id": 2, "end": 2} | same, {"id": 3, "end": 5} | same],
            [{"id": 2, "end": 1} | same, {"id": 3, "end": 1} | same],
        ]
        assert len(shown) == 3, "and the log of topics and positions"
        lines = [line.split() for line in told.out.splitlines()]
        first = lines.index(["log", "ends", "broker", "2", "broker", "3"])
        assert lines[first + 1 : first + 3] == [
            [f"{TOPIC}-0", "2", "5"],
            ["sum", "of", "all", "topics", "3", "6"],
        ]
        assert "partitions that end alike at all of them: 2\n" in told.out


async def test_after_a_planned_promotion_a_third_broker_names_no_leader(place: Path) -> None:
    """The old leader has told it of a later epoch, and not who leads in it."""
    async with members(place, 3) as all_:
        await all_.start()
        await all_[1].promote(2)
        await eventually(lambda: all_[3].cluster.node.highest_epoch == 2)
        status = await all_[3].status()
        assert (status.leader, [one.broker_id for one in status.members]) == (-1, [3])
        program = Program(",".join(all_[number].address for number in (3, 1, 2)))
        result = await asyncio.to_thread(program, "cluster", "status", "--json")
        shown = json.loads(result.out)
        leaders = [one["id"] for one in shown["members"] if one["state"] == "leader"]
        assert (shown["leader"], leaders) == (2, [2])


def _answer(broker_id: int, epoch: int, leader: int, **states: str) -> DescribeReplicasResponse:
    members_ = [
        ReplicaMember(broker_id=int(name.removeprefix("b")), address="a:1", state=state)
        for name, state in states.items()
    ]
    return DescribeReplicasResponse(
        epoch=epoch, broker_id=broker_id, leader=leader, members=members_
    )


OLD_LEADER = _answer(1, 1, 1, b1="leader", b2="down", b3="in-sync")
NEW_LEADER = _answer(2, 2, 2, b2="leader", b3="in-sync")
FOLLOWER = _answer(3, 2, 2, b2="leader", b3="in-sync")


@pytest.mark.parametrize(
    "answers",
    [
        (OLD_LEADER, NEW_LEADER, FOLLOWER),
        (NEW_LEADER, FOLLOWER, OLD_LEADER),
        (FOLLOWER, OLD_LEADER, NEW_LEADER),
        (FOLLOWER, OLD_LEADER),
    ],
)
async def test_of_several_answers_only_the_latest_leader_is_shown_as_one(
    answers: tuple[DescribeReplicasResponse, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever answers first: an old leader that has not heard of the later epoch is deposed."""
    coming = iter(copy.deepcopy(answers))

    async def describe_at(server: Servers) -> tuple[Servers, DescribeReplicasResponse]:
        return server, next(coming)

    monkeypatch.setattr(cluster, "_describe_at", describe_at)
    servers = parse_servers(",".join(f"127.0.0.1:{port}" for port in range(1, len(answers) + 1)))
    _, found, _ = await cluster._describe_any(servers)
    assert (found.leader, found.epoch) == (2, 2)
    states = {one.broker_id: one.state for one in found.members}
    assert states == {1: "deposed", 2: "leader", 3: "in-sync"}


def test_ends_of_another_epoch_say_which() -> None:
    """An end that is greater counts less where the last message is of an older epoch."""

    def answer(broker_id: int, *ends: tuple[int, int, int]) -> DescribeReplicasResponse:
        return DescribeReplicasResponse(
            epoch=3,
            broker_id=broker_id,
            log_ends=[LogEnd(topic=TOPIC, partition=p, end=e, epoch=of) for p, e, of in ends],
        )

    found = ends_of([answer(3, (0, 900, 3), (1, 1000, 3)), answer(2, (0, 1200, 2))])
    assert [re.split(r"  +", line) for line in ends_as_text(found)[2:]] == [
        ["t-0", "1,200 (epoch 2)", "900 (epoch 3)"],
        ["t-1", "-", "1,000"],
        ["sum of all topics", "1,200", "1,900"],
        ["partitions that end alike at all of them: 0"],
    ]
    assert ends_as_text(ends_of([answer(2)])) == []


def test_an_epoch_that_was_led_twice_is_named_with_whose_messages_each_broker_has() -> None:
    def answer(broker_id: int, *ends: LogEnd) -> DescribeReplicasResponse:
        return DescribeReplicasResponse(
            epoch=7,
            broker_id=broker_id,
            contested_epoch=7,
            contested_leader=broker_id,
            log_ends=list(ends),
        )

    agreed = LogEnd(topic="agreed", partition=0, end=5, epoch=6)
    contested = LogEnd(topic=TOPIC, partition=0, end=2_300, epoch=7, contested_from=2_100)
    shorter = LogEnd(topic=TOPIC, partition=0, end=2_200, epoch=7, contested_from=2_100)
    empty, title, columns, *rows = contested_as_text(
        [answer(2, agreed, shorter), answer(1, agreed, contested)]
    )
    assert empty == ""
    assert title == "epoch 7 was led by two brokers; messages of it, and of later ones:"
    shown = [re.split(r"  +", line) for line in (columns, *rows)]
    assert shown == [
        ["partition", "at broker", "from offset", "until", "led by broker"],
        ["t-0", "1", "2,100", "2,300", "1"],
        ["t-0", "2", "2,100", "2,200", "2"],
    ]
    assert contested_as_text([answer(1, agreed)]) == []
