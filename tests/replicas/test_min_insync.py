"""`min.insync.replicas` of topics: what is refused, and that it holds at once when altered."""

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest

from horolog import Admin
from horolog.protocol.api.broker.describe_broker import DescribeBrokerResponse
from horolog.protocol.errors import CodedError, NotEnoughReplicas
from horolog.server.web.server import HttpState
from horolog.testing.broker import running_broker
from horolog.testing.requests import create_topic, message_set, produce
from horolog.testing.requests import result as only_result
from horolog.testing.waiting import until
from horolog.testing.wire import Wire

from .members import Member, eventually, members

TOPIC, OTHER = "t", "other"
SETTING = "min.insync.replicas"
NOT_ENOUGH, NOT_ENOUGH_AFTER = 19, 20


async def outcome(member: Member, topic: str, acks: int = -1) -> int:
    answer = await member.call(produce(topic, message_set(5), acks=acks, timeout_ms=60_000))
    code: int = only_result(answer).error_code
    return code


async def outcome_without(leader: Member, topic: str) -> int:
    """Of a message that is in the log, and then its follower is found to be gone."""
    assert leader.broker is not None
    waiting = asyncio.create_task(outcome(leader, topic))
    await eventually(lambda: len(leader.broker.services.produces))  # type: ignore[union-attr]
    with leader.impatient():
        return await waiting


async def value_of(admin: Admin, topic: str) -> tuple[str | None, str]:
    described = await admin.describe_topic(topic)
    return next((one.value, one.source) for one in described.settings if one.name == SETTING)


async def test_each_topic_has_its_own(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        await leader.call(create_topic(TOPIC, min_insync_replicas=2))
        await leader.call(create_topic(OTHER))
        await all_.in_sync(leader)
        assert [await outcome(leader, topic) for topic in (TOPIC, OTHER)] == [0, 0]
        await follower.stop()
        assert await outcome_without(leader, TOPIC) == NOT_ENOUGH_AFTER
        assert await outcome(leader, TOPIC) == NOT_ENOUGH
        assert leader.log(TOPIC).log_end_offset == 2
        assert await outcome(leader, TOPIC, acks=1) == 0
        assert await outcome(leader, OTHER) == 0
        async with Admin(leader.address) as admin:
            assert await value_of(admin, TOPIC) == ("2", "topic")
            assert await value_of(admin, OTHER) == ("1", "default")
            await admin.alter_topic(TOPIC, {SETTING: "1"})
            assert await outcome(leader, TOPIC) == 0
            await admin.alter_topic(TOPIC, {SETTING: "3"})
            await follower.start(follow=leader)
            await all_.in_sync(leader)
            assert await outcome(leader, TOPIC) == NOT_ENOUGH
        assert leader.log(TOPIC).log_end_offset == 4


async def test_no_topic_has_less_where_every_follower_may_lead(place: Path) -> None:
    """A follower is promoted without a word of loss there: it may not know what a topic asked."""
    async with members(place, min_insync_replicas=2) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        await leader.call(create_topic(TOPIC, min_insync_replicas=1))
        await all_.in_sync(leader)
        assert await outcome(leader, TOPIC) == 0
        await follower.stop()
        assert await outcome_without(leader, TOPIC) == NOT_ENOUGH_AFTER
        assert await outcome(leader, TOPIC) == NOT_ENOUGH


async def test_more_than_there_are_brokers_is_refused_at_the_start(place: Path) -> None:
    async with members(place) as all_:
        with pytest.raises(CodedError, match=r"min\.insync\.replicas is 3, and there are 2"):
            await all_[1].start(cluster_create=True, min_insync_replicas=3)


@pytest.mark.parametrize("at", ["topic", "broker"])
async def test_a_broker_that_is_alone_is_one(tmp_path: Path, at: str) -> None:
    defaults: dict[str, Any] = {"min_insync_replicas": 2} if at == "broker" else {}
    async with running_broker(tmp_path / "data", **defaults) as broker:
        wire = await Wire.open(broker.addresses.native)
        own = {"min_insync_replicas": 2} if at == "topic" else {}
        await wire.call(create_topic(TOPIC, **own))
        answer = only_result(await wire.call(produce(TOPIC, message_set(5), acks=-1)))
        assert answer.error_code == NOT_ENOUGH
        assert f"{SETTING} of {TOPIC} is 2" in answer.error_message
        assert broker.directory.log(TOPIC, 0).log_end_offset == 0
        answer = only_result(await wire.call(produce(TOPIC, message_set(5), acks=1)))
        assert answer.error_code == 0
        async with Admin(broker.addresses.native) as admin:
            assert await value_of(admin, TOPIC) == ("2", at)
            await admin.alter_topic(TOPIC, {SETTING: "1"})
        answer = only_result(await wire.call(produce(TOPIC, message_set(5), acks=-1)))
        assert (answer.error_code, answer.base_offset) == (0, 1)
        wire.close()


async def test_a_large_set_that_is_checked_beside_the_loop_is_refused_too(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data", min_insync_replicas=2) as broker:
        wire = await Wire.open(broker.addresses.native)
        await wire.call(create_topic(TOPIC, max_message_bytes=50_000_000))
        large = message_set(*[5] * 100_000)
        answer = only_result(await wire.call(produce(TOPIC, large, acks=-1)))
        assert answer.error_code == NOT_ENOUGH
        assert broker.directory.log(TOPIC, 0).log_end_offset == 0
        wire.close()


async def test_topics_and_positions_go_by_the_value_of_the_broker(place: Path) -> None:
    async with members(place, 3, min_insync_replicas=2) as all_:
        await all_.start()
        leader = all_[1]
        await leader.call(create_topic(TOPIC, min_insync_replicas=1))
        await all_.in_sync(leader)
        for number in (2, 3):
            await all_[number].stop()
        with leader.impatient():
            await eventually(lambda: leader.cluster.admin.describe().in_sync == [1])
        assert await outcome(leader, TOPIC) == 0
        before = leader.cluster.directory.topics()
        async with Admin(leader.address, request_timeout_ms=2_000) as admin:
            for change in (
                admin.create_topic(OTHER),
                admin.alter_topic(TOPIC, {SETTING: "2"}),
                admin.delete_topic(TOPIC),
            ):
                with pytest.raises(NotEnoughReplicas, match=r"min\.insync\.replicas"):
                    await change
            with pytest.raises(CodedError, match=r"min\.insync\.replicas"):
                await admin.commit_position("billing", TOPIC, 0, 1)
        assert leader.cluster.directory.topics() == before
        await all_[2].start(follow=leader)
        await eventually(lambda: leader.cluster.admin.describe().in_sync == [1, 2])
        async with Admin(leader.address) as admin:
            await admin.commit_position("billing", TOPIC, 0, 1)
            await admin.delete_topic(TOPIC)


async def broker_facts(address: str) -> DescribeBrokerResponse:
    async with Admin(address) as admin:
        return await admin.describe_broker()


def warnings(stream: io.StringIO) -> list[tuple[object, ...]]:
    """Of each warning of this since the last call: topic, brokers asked for, brokers there."""
    lines = map(json.loads, stream.getvalue().splitlines())
    stream.seek(0)
    stream.truncate()
    return [
        (one.get("topic"), one["min_insync_replicas"], one["brokers"])
        for one in lines
        if one["event"] == "min_insync_unmet"
    ]


async def test_a_broker_alone_warns_of_what_it_cannot_meet(tmp_path: Path) -> None:
    """At its start, and when a topic is made or altered, by whatever client."""
    log = io.StringIO()
    json_log = {"log_stream": log, "log_format": "json"}
    async with (
        running_broker(tmp_path / "data", **json_log) as broker,  # type: ignore[arg-type]
        Admin(broker.addresses.native) as admin,
    ):
        await admin.create_topic("met", settings={SETTING: "1"})
        await admin.create_topic(TOPIC, settings={SETTING: "3"})
        assert warnings(log) == [(TOPIC, 3, 1)]
        await admin.alter_topic("met", {SETTING: "2"}, validate_only=True)
        await admin.create_topic(OTHER, settings={SETTING: "2"}, validate_only=True)
        await admin.alter_topic("met", {"retention.ms": "1"})
        assert warnings(log) == []
        await admin.alter_topic("met", {SETTING: "2"})
        assert warnings(log) == [("met", 2, 1)]
        await admin.alter_topic("met", {SETTING: None})
    assert warnings(log) == []
    json_log["min_insync_replicas"] = 2
    async with running_broker(tmp_path / "data", **json_log) as broker:  # type: ignore[arg-type]
        await until(lambda: broker._state() is HttpState.READY)
        assert warnings(log) == [(None, 2, 1), (TOPIC, 3, 1)]
        found = await broker_facts(broker.addresses.native)
        assert (found.in_sync_most, found.min_insync_replicas) == (1, 2)
        assert (found.unmet_topics, found.unmet_topic) == (1, TOPIC)


async def test_a_leader_goes_by_the_brokers_there_are_to_be(place: Path) -> None:
    log = io.StringIO()
    async with members(place, log_stream=log, log_format="json") as all_:
        leader = all_[1]
        await leader.start(cluster_create=True)
        async with Admin(leader.address) as admin:
            await admin.create_topic(TOPIC, settings={SETTING: "2"})
            assert warnings(log) == []  # its follower is away for now
            await admin.create_topic(OTHER, settings={SETTING: "3"})
        assert warnings(log) == [(OTHER, 3, 2)]
        found = await broker_facts(leader.address)
        assert (found.in_sync_most, found.unmet_topics, found.unmet_topic) == (2, 1, OTHER)
