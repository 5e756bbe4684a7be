"""What brokers that have the same data do for clients and for people, and what they refuse."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog import Admin, HorologError, InvalidConfig
from horolog.client.administer.admin import ReplicaAdmin
from horolog.protocol.api.cluster.replicate import (
    Answers,
    EpochBegin,
    ReplicaPosition,
    ReplicatedPart,
    ReplicateRequest,
    ReplicateResponse,
    Says,
)
from horolog.protocol.api.security.client_quotas import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    QuotaAlteration,
    QuotaEntityPart,
    QuotaOp,
)
from horolog.protocol.api.topics.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from horolog.protocol.api.topics.metadata import MetadataRequest, MetadataTopic
from horolog.protocol.errors import CodedError, InvalidRequest, StorageError
from horolog.replication.partition_log import Identity
from horolog.replication.settings import Member as KnownMember
from horolog.server.replication.member_files import IdentityFile, boot_id
from horolog.server.replication.wire import take_response
from horolog.storage.files import SystemFiles
from horolog.storage.read import reader
from horolog.storage.read.slices import Slice
from horolog.testing.broker import running_broker
from horolog.testing.program import Program
from horolog.testing.requests import create_topic, fetch, list_offsets, message_set, produce
from horolog.testing.requests import result as only_result
from horolog.testing.wire import Wire
from horolog.tests.properties.examples import examples
from horolog.times import format_time

from .members import Member, eventually, members

TOPIC = "t"
NOT_LEADER, NOT_ENOUGH, NOT_ENOUGH_AFTER = 6, 19, 20


def code_of(error: pytest.ExceptionInfo[CodedError]) -> int:
    return error.value.code


async def not_led(member: Member) -> None:
    with pytest.raises(CodedError) as refused:
        await member.call(produce(TOPIC, message_set(5)))
    assert code_of(refused) == NOT_LEADER


async def test_a_follower_serves_no_clients(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        await all_[1].call(create_topic(TOPIC))
        await all_.in_sync(all_[1])
        follower = all_[2]
        await eventually(lambda: TOPIC in follower.cluster.directory.topics())
        for request in (
            produce(TOPIC, message_set(5)),
            fetch(TOPIC, (0, 0)),
            list_offsets(TOPIC, (0, -1)),
            create_topic("other"),
            AlterClientQuotasRequest(
                entries=[
                    QuotaAlteration(
                        entity=[QuotaEntityPart(entity_type="user", entity_name="carol")],
                        ops=[QuotaOp(key="producer_byte_rate", value=1000.0, remove=False)],
                    )
                ],
                validate_only=False,
            ),
        ):
            with pytest.raises(CodedError) as refused:
                await follower.call(request)
            assert code_of(refused) == NOT_LEADER
            assert "follows the leader at" in refused.value.message
        # What counts for clients of a follower may be asked of it.
        found = await follower.call(DescribeClientQuotasRequest(components=[]))
        assert (found.error_code, found.entries) == (0, [])
        await follower.call(MetadataRequest(topics=[MetadataTopic(name="made")]))
        assert list(follower.cluster.directory.topics()) == [TOPIC]


async def test_topics_are_those_of_the_leader(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        async with Admin(leader.address) as admin:
            await admin.create_topic("a", partitions=3, settings={"retention.ms": "1000"})
            await admin.create_topic("b")
            await admin.create_partitions("b", 2)
            await admin.alter_topic("a", {"segment.bytes": "5000"})
            await admin.create_topic("gone")
            await eventually(lambda: "gone" in follower.cluster.directory.topics())
            await admin.delete_topic("gone")

        def same() -> bool:
            ours, theirs = follower.cluster.directory.topics(), leader.cluster.directory.topics()
            return bool(dict(ours) == dict(theirs))

        await eventually(same)
        assert set(leader.cluster.directory.topics()) == {"a", "b"}
        # A topic of the same name is another one.
        await follower.stop()
        with leader.impatient():
            async with Admin(leader.address) as admin:
                await admin.delete_topic("b")
                await admin.create_topic("b")
            await leader.produce("b", "new")
        await follower.start(follow=leader)
        await eventually(same)
        await all_.in_sync(leader)
        assert follower.log("b").log_end_offset == 1


async def test_nothing_expires_at_a_follower_by_itself(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        await leader.call(create_topic(TOPIC, segment_bytes=200, retention_ms=-1))
        for number in range(20):
            await leader.produce(TOPIC, str(number))
        await all_.in_sync(leader)
        assert follower.log(TOPIC).segment_count == leader.log(TOPIC).segment_count > 3
        trimmed = [DeleteRecordsPartition(partition=0, offset=7)]
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=TOPIC, partitions=trimmed)], timeout_ms=1000
        )
        answer = await leader.call(request)
        assert only_result(answer).error_code == 0
        # An answered trim is in all in-sync replicas.
        assert follower.log(TOPIC).log_start_offset == leader.log(TOPIC).log_start_offset == 7


async def test_a_consumer_gets_what_all_in_sync_replicas_have(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        await leader.call(create_topic(TOPIC))
        await leader.produce(TOPIC, "both")
        await follower.stop()
        answer = await leader.call(produce(TOPIC, message_set(5), acks=1))
        assert only_result(answer).base_offset == 1
        assert only_result(await leader.call(fetch(TOPIC, (0, 0)))).high_watermark == 1
        await follower.start(follow=leader)
        await all_.in_sync(leader)
        assert only_result(await leader.call(fetch(TOPIC, (0, 0)))).high_watermark == 2


@pytest.mark.parametrize("durability", ["fsync", "written"])
async def test_writes_are_refused_while_too_few_are_in_sync(place: Path, durability: str) -> None:
    async with members(place, min_insync_replicas=2, acks_all_durability=durability) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        await leader.call(create_topic(TOPIC))
        await leader.produce(TOPIC, "a")
        await follower.stop()
        wire = await Wire.open(leader.address)
        # It is in the log, and then the follower is found to be gone.
        waiting = asyncio.create_task(
            wire.call(produce(TOPIC, message_set(5), acks=-1, timeout_ms=60_000))
        )
        await eventually(lambda: len(leader.broker.services.produces))  # type: ignore[union-attr]
        with leader.impatient():
            assert only_result(await waiting).error_code == NOT_ENOUGH_AFTER
        answer = await wire.call(produce(TOPIC, message_set(5), acks=-1))
        assert only_result(answer).error_code == NOT_ENOUGH
        assert leader.log(TOPIC).log_end_offset == 2
        answer = await wire.call(produce(TOPIC, message_set(5), acks=1))
        assert only_result(answer).error_code == 0
        wire.close()
        await follower.start(follow=leader)
        await all_.in_sync(leader)
        await leader.produce(TOPIC, "c")


async def test_a_planned_promotion_hands_over(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        first, second = all_[1], all_[2]
        await first.call(create_topic(TOPIC))
        await first.produce(TOPIC, *"abc")
        with pytest.raises(CodedError, match="broker 3 is not in sync"):
            await first.promote(3)
        before = first.cluster.epoch
        await first.promote(2)
        await eventually(lambda: second.cluster.leads)
        assert second.cluster.epoch > before
        status = await all_.in_sync(second)
        assert [(one.broker_id, one.state) for one in status.members] == [
            (1, "in-sync"),
            (2, "leader"),
        ]
        assert await second.values(TOPIC, 3) == list("abc")
        with pytest.raises(HorologError):
            await first.produce(TOPIC, "d")
        await second.produce(TOPIC, "d")
        await all_.in_sync(second)
        assert first.log(TOPIC).log_end_offset == 4


async def test_a_promotion_without_the_leader_says_what_may_be_missing(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        first, second = all_[1], all_[2]
        await first.call(create_topic(TOPIC))
        await first.stop()
        with pytest.raises(CodedError, match=r"up to [0-9.]+ s, about [0-9,]+ messages"):
            await second.promote()
        assert not second.cluster.leads
        assert await second.promote(accept_loss=True) > 1
        assert second.cluster.leads
        assert (await second.status()).in_sync == [2]


async def test_what_is_missing_is_not_known_before_a_leader_has_answered(place: Path) -> None:
    """Nothing is said of what was answered while this broker was not there."""
    async with members(place) as all_:
        await all_.start()
        first, second = all_[1], all_[2]
        await first.call(create_topic(TOPIC))
        await first.produce(TOPIC, *"ab")
        await all_.in_sync(first)
        await second.stop()
        with first.impatient():
            await eventually(lambda: first.cluster.admin.describe().in_sync == [1])
        await first.produce(TOPIC, *"cdefg")
        await first.stop()
        await second.start(follow=first)
        last_ms = reader.append_time_ms(second.log(TOPIC), 1)
        expected = f"not known; its last message came at {format_time(last_ms)}, its log end"
        status = await second.status()
        assert status.missing == f"{expected} offsets add up to 2"
        assert (status.missing_messages, status.missing_ms) == (-1, -1)
        program = Program(second.address)
        result = await asyncio.to_thread(program, "cluster", "status", "--json")
        (shown,) = json.loads(result.out)["members"]
        assert (shown["lag_messages"], shown["lag_seconds"]) == (None, None)
        result = await asyncio.to_thread(program, "cluster", "status")
        assert f"what may be missing there: {expected}" in result.out
        with pytest.raises(CodedError, match=f"What may be missing here: {expected}"):
            await second.promote()
        events: list[tuple[str, dict[str, Any]]] = []
        second.cluster.observe = lambda name, **fields: events.append((name, fields))
        await second.promote(accept_loss=True)
        loss = {"last_message": format_time(last_ms), "ends": 2}
        assert ("promoted_with_loss", {"messages": None, "seconds": None, **loss}) in events
        # What it heard as a follower says nothing once it has led.
        assert (await second.status()).missing == ""
        await first.start(follow=second)
        await all_.in_sync(second)
        assert "not known" not in str(first.cluster.fetcher.missing())
        assert "not known" in str(second.cluster.fetcher.missing())


async def test_a_promotion_is_without_loss_where_all_had_to_be_in_sync(place: Path) -> None:
    async with members(place, min_insync_replicas=2) as all_:
        await all_.start()
        first, second = all_[1], all_[2]
        await first.call(create_topic(TOPIC))
        await first.produce(TOPIC, "a")
        await first.stop()
        await second.promote()
        assert await second.values(TOPIC, 1) == ["a"]


async def test_a_leader_waits_for_the_others_after_a_start(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        first, second = all_[1], all_[2]
        await first.call(create_topic(TOPIC))
        await second.stop()
        await first.stop()
        await first.start(cluster_create=True)  # which only counts for the first start
        assert "--alone" in (await first.status()).waits_for
        await not_led(first)
        await second.start(follow=first)
        await all_.in_sync(first)
        await first.produce(TOPIC, "a")
        await second.stop()
        await first.stop()
        await first.start(cluster_alone=True)
        await first.produce(TOPIC, "b")


async def test_an_old_leader_does_not_lead_beside_a_new_one(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        first, second = all_[1], all_[2]
        await first.call(create_topic(TOPIC))
        await first.stop()
        await second.promote(accept_loss=True)
        await second.stop()
        await first.start()
        await second.start(follow=first)
        await eventually(lambda: "another broker has led since" in first.cluster.states.waits_for)
        await not_led(first)


async def test_two_followers(place: Path) -> None:
    async with members(place, 3, min_insync_replicas=3) as all_:
        await all_.start()
        first, second, third = all_[1], all_[2], all_[3]
        await first.call(create_topic(TOPIC, 2))
        await first.produce(TOPIC, *map(str, range(30)))
        await first.stop()
        await third.promote()
        await second.stop()
        await second.start(follow=third)
        await first.start(follow=third)
        status = await all_.in_sync(third)
        assert status.in_sync == [1, 2, 3]
        await third.produce(TOPIC, "more", partition=1)
        await all_.in_sync(third)
        assert [one.log(TOPIC, 1).log_end_offset for one in all_.all.values()] == [1, 1, 1]
        assert [one.log(TOPIC).log_end_offset for one in all_.all.values()] == [30, 30, 30]


async def test_who_parks_hears_that_the_leader_is_none_any_more(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        await leader.call(create_topic(TOPIC))
        await leader.produce(TOPIC, "a")
        await follower.stop()
        writer, reader = await Wire.open(leader.address), await Wire.open(leader.address)
        waiting = asyncio.create_task(
            writer.call(produce(TOPIC, message_set(5), acks=-1, timeout_ms=60_000))
        )
        reading = asyncio.create_task(
            reader.call(fetch(TOPIC, (0, 1), max_wait_ms=500, min_bytes=1))
        )
        await eventually(lambda: len(leader.broker.services.produces))  # type: ignore[union-attr]
        hello = ReplicateRequest(
            says=Says.HELLO, connection=1, broker_id=2, nonce=9, highest_epoch=70_002
        )
        answer = await leader.call(hello)
        assert (answer.answers, answer.epoch) == (Answers.REFUSAL, 70_002)
        assert only_result(await waiting).error_code == NOT_LEADER
        with pytest.raises(CodedError) as refused:
            await reading
        assert code_of(refused) == NOT_LEADER
        writer.close()
        reader.close()


# Who is refused.


async def test_a_broker_that_is_alone_is_followed_by_nobody(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data") as broker:
        wire = await Wire.open(broker.addresses.native)
        hello = ReplicateRequest(says=Says.HELLO, connection=1, broker_id=2)
        with pytest.raises(CodedError, match="--create-cluster") as refused:
            await wire.call(hello)
        assert code_of(refused) == 42
        wire.close()
        async with ReplicaAdmin(broker.addresses.native) as admin:
            with pytest.raises(CodedError, match="it belongs to no cluster"):
                await admin.describe()
            with pytest.raises(CodedError, match="it belongs to no cluster"):
                await admin.promote()


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"broker_id": 0}, "must be 1 to 999"),
        ({"broker_id": 1000}, "must be 1 to 999"),
        ({"broker_id": 1}, "is that of this broker too"),
        ({"epoch": -2}, "epochs are -1 or more"),
        ({"nonce": -1}, "a nonce is 0 or more"),
        ({"cluster_id": "x" * 22}, "this is cluster"),
        ({"says": 4}, "must be 0, 1, 2 or 3"),
        ({"says": -1}, "must be 0, 1, 2 or 3"),
    ],
)
async def test_a_wrong_hello_is_refused(place: Path, wrong: dict[str, Any], text: str) -> None:
    async with members(place) as all_:
        await all_[1].start(cluster_create=True)
        hello = {"says": Says.HELLO, "connection": 1, "broker_id": 2} | wrong
        with pytest.raises(CodedError, match=text):
            await all_[1].call(ReplicateRequest(**hello))
        assert (await all_[1].status()).in_sync == [1]


async def test_one_broker_too_many_is_refused(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        hello = ReplicateRequest(says=Says.HELLO, connection=1, broker_id=3)
        with pytest.raises(CodedError, match=r"cluster\.brokers is 2"):
            await all_[1].call(hello)


async def test_an_old_epoch_is_refused(place: Path) -> None:
    async with members(place) as all_:
        await all_[1].start(cluster_create=True)
        hello = ReplicateRequest(says=Says.HELLO, connection=1, broker_id=2, epoch=0)
        answer = await all_[1].call(hello)
        assert (answer.answers, answer.epoch) == (Answers.REFUSAL, all_[1].cluster.epoch)


@pytest.mark.parametrize(
    "wrong",
    [
        {"end_offset": -1},
        {"last_epoch": -2},
        {"synced_offset": -5},
        {"log_start_offset": 10, "end_offset": 9},
    ],
)
async def test_a_wrong_position_is_refused(place: Path, wrong: dict[str, int]) -> None:
    async with members(place) as all_:
        leader = all_[1]
        await leader.start(cluster_create=True)
        wire = await Wire.open(leader.address)
        await wire.call(ReplicateRequest(says=Says.HELLO, connection=5, broker_id=2))
        position: dict[str, Any] = {
            "topic": TOPIC,
            "partition": 0,
            "end_offset": 0,
            "last_epoch": -1,
            "synced_offset": 0,
            "log_start_offset": 0,
        } | wrong
        request = ReplicateRequest(
            says=Says.FETCH,
            connection=5,
            epoch=leader.cluster.epoch,
            positions=[ReplicaPosition(**position)],
        )
        with pytest.raises(CodedError, match="invalid position"):
            await wire.call(request)
        wire.close()


async def test_a_fetch_on_an_unknown_connection_is_refused(place: Path) -> None:
    async with members(place) as all_:
        await all_[1].start(cluster_create=True)
        answer = await all_[1].call(ReplicateRequest(says=Says.FETCH, connection=8, epoch=1))
        assert answer.answers == Answers.REFUSAL


async def test_a_follower_of_another_cluster_copies_nothing(place: Path) -> None:
    async with members(place / "a") as here, members(place / "b") as there:
        await here.start()
        await there.start()
        await here[1].call(create_topic(TOPIC))
        await here[1].produce(TOPIC, "kept")
        await here.in_sync(here[1])
        follower = here[2]
        await follower.stop()
        await there[2].stop()
        follower.broker = None
        stray = Member(place / "a", 2, {"cluster_brokers": 2})
        await stray.start(follow=there[1])
        await eventually(lambda: stray.cluster.fetcher._reported)
        assert "this is cluster" in stray.cluster.fetcher._reported
        assert stray.log(TOPIC).log_end_offset == 1
        await stray.stop()


async def test_a_directory_with_other_topics_is_not_made_a_follower(place: Path) -> None:
    async with members(place) as all_:
        async with running_broker(all_[2].data_dir) as broker:
            broker.directory.create_topic("mine", 1, {})
        await all_[1].start(cluster_create=True)
        with pytest.raises(InvalidConfig, match="not of the cluster"):
            await all_[2].start(follow=all_[1])


async def test_settings_that_do_not_go_together_are_refused(place: Path) -> None:
    async with members(place) as all_:
        with pytest.raises(InvalidConfig, match="give one of them"):
            await all_[2].start(follow=all_[1], cluster_create=True)
        with pytest.raises(InvalidConfig, match="it can be that at most"):
            await all_[1].start(cluster_create=True, min_insync_replicas=3)


async def test_the_directory_of_another_broker_is_refused(place: Path) -> None:
    async with members(place) as all_:
        await all_[1].start(cluster_create=True)
        await all_[1].stop()
        with pytest.raises(HorologError, match="the data of broker 1"):
            await all_[1].start(broker_id=2)


async def test_one_of_several_does_not_start_alone(place: Path) -> None:
    async with members(place) as all_:
        await all_[1].start(cluster_create=True)
        await all_[1].stop()
        with pytest.raises(StorageError, match=r"start it with its broker\.id"):
            await all_[1].start(broker_id=0)


async def test_years_of_idle_partitions_are_not_named_again(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        leader = all_[1]
        await leader.call(create_topic("many", 50))
        await all_.in_sync(leader)
        wire = await Wire.open(leader.address)
        hello = ReplicateRequest(says=Says.HELLO, connection=5, broker_id=2, nonce=4)
        await all_[2].stop()
        welcome = await wire.call(hello)
        topic_id = leader.cluster.directory.topics()["many"].topic_id
        positions = [
            ReplicaPosition(
                topic="many",
                topic_id=topic_id,
                partition=number,
                end_offset=0,
                last_epoch=-1,
                synced_offset=0,
                log_start_offset=0,
            )
            for number in range(50)
        ]
        request = {"says": Says.FETCH, "connection": 5, "epoch": welcome.epoch}
        first = await wire.call(ReplicateRequest(**request, positions=positions))
        assert len(first.parts) == 50
        waiting = asyncio.create_task(wire.call(ReplicateRequest(**request)))
        await leader.call(produce("many", message_set(5), acks=1, partition=7))
        second = await waiting
        assert [(one.topic, one.partition) for one in second.parts] == [("many", 7)]
        stored = leader.log("many", 7).segments[0].log_path.read_bytes()
        assert bytes(second.parts[0].records) == stored
        wire.close()


async def test_a_follower_logs_in(place: Path) -> None:
    horolog = Program()
    secret = place / "secret"
    secret.write_text("copies\nlong enough\n")
    password = place / "password"
    password.write_text("long enough\n")
    guarded: dict[str, Any] = {"authentication": "required", "authorization": "on"}
    async with members(place) as all_:
        leader, follower = all_[1], all_[2]
        where = ("--data-dir", str(leader.data_dir))
        horolog.ok("user", "add", "copies", "--password-file", str(password), *where)
        async with running_broker(leader.data_dir) as broker:
            broker.directory.create_topic(TOPIC, 1, {})
            broker.directory.log(TOPIC, 0).appender.append(bytearray(message_set(5)))
        guarded["super_users"] = "User:copies"
        await leader.start(cluster_create=True, **guarded)
        await follower.start(follow=leader)
        await eventually(lambda: follower.cluster.fetcher._reported)
        assert "NOT_LEADER" not in follower.cluster.fetcher._reported
        assert TOPIC not in follower.cluster.directory.topics()
        await follower.stop()
        await follower.start(follow=leader, cluster_credentials=secret)
        await all_.in_sync(leader)
        assert follower.log(TOPIC).log_end_offset == 1


async def test_a_damaged_partition_keeps_no_other_one_back(place: Path) -> None:
    async with members(place) as all_:
        leader, follower = all_[1], all_[2]
        await leader.start(cluster_create=True)
        await leader.call(create_topic("bad"))
        await leader.call(create_topic("good"))
        for topic in ("bad", "good"):
            await leader.produce(topic, *"abc")
        path = leader.log("bad").segments[0].log_path
        stored = bytearray(path.read_bytes())
        stored[-1] ^= 1
        path.write_bytes(stored)
        await follower.start(follow=leader)
        await eventually(lambda: "good" in follower.cluster.directory.topics())
        await eventually(lambda: follower.log("good").log_end_offset == 3)
        await eventually(lambda: ("bad", 0) in leader.cluster.stored.failing)
        assert follower.log("bad").log_end_offset < 3
        assert (await leader.status()).in_sync == [1]
        await leader.produce("good", "d")
        await eventually(lambda: follower.log("good").log_end_offset == 4)
        stored[-1] ^= 1
        path.write_bytes(stored)
        await leader.stop()
        await leader.start(cluster_alone=True)
        await all_.in_sync(leader)


@examples(250)
@given(st.binary(max_size=200), st.integers(-5, 2**63 - 1), st.integers(-(2**31), 2**31 - 1))
def test_what_a_leader_says_is_looked_at(facts: bytes, number: int, epoch: int) -> None:
    """Whatever comes, it is refused with an error of ours or is within bounds."""
    part = ReplicatedPart(
        topic="t",
        partition=0,
        diverging=[EpochBegin(epoch=epoch, offset=number)],
        records=facts,
        facts=facts,
        log_start_offset=number,
        first_visible_offset=number,
        high_watermark=number,
        sync_to=number,
    )
    response = ReplicateResponse(answers=Answers.FETCHED, epoch=epoch, parts=[part])
    try:
        take_response(response, lambda part: True)
    except InvalidRequest:
        return
    assert number >= 0
    assert epoch >= -1


def test_an_identity_is_read_as_it_was_written(tmp_path: Path) -> None:
    known = Identity(5, True, 1002, 7, frozenset({KnownMember(1, 3), KnownMember(2, 2**62)}))
    file = IdentityFile(SystemFiles(), tmp_path, 2)
    file.store(known)
    again = IdentityFile(SystemFiles(), tmp_path, 2)
    assert again.identity == known
    assert not again.rebooted
    path = tmp_path / "replication-identity"
    whole = path.read_bytes()
    for size in range(len(whole) - 2):
        path.write_bytes(whole[:size])
        with pytest.raises(StorageError, match="not known what this broker has"):
            IdentityFile(SystemFiles(), tmp_path, 2)
    path.write_bytes(whole.replace(boot_id(SystemFiles()).encode(), b"another"))
    assert IdentityFile(SystemFiles(), tmp_path, 2).rebooted


async def test_what_is_not_in_memory_is_read_in_a_thread(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Slice, "read_now", lambda _: None)
    async with members(place) as all_:
        leader, follower = all_[1], all_[2]
        await leader.start(cluster_create=True)
        await leader.call(create_topic(TOPIC, 2))
        for partition in range(2):
            await leader.produce(TOPIC, *"abc", partition=partition)
        await follower.start(follow=leader)
        await all_.in_sync(leader)
        await leader.produce(TOPIC, "d")
        await all_.in_sync(leader)
        ours, theirs = follower.log(TOPIC), leader.log(TOPIC)
        assert ours.segments[0].log_path.read_bytes() == theirs.segments[0].log_path.read_bytes()
        # One that cannot be read is asked for again.
        monkeypatch.setattr(Slice, "read", raises_once(Slice.read))
        await leader.produce(TOPIC, "e")
        await all_.in_sync(leader)
        assert ours.log_end_offset == 5


def raises_once(read: Any) -> Any:
    left = [OSError(5, "the disk does not answer")]

    def reading(found: Slice) -> bytes:
        if left:
            raise left.pop()
        data: bytes = read(found)
        return data

    return reading


async def test_metrics_tell_who_leads_and_who_is_behind(place: Path) -> None:
    async with members(place, min_insync_replicas=2) as all_:
        await all_.start()
        first, second = all_[1], all_[2]

        def figures(member: Member) -> dict[str, str]:
            assert member.broker is not None
            lines = member.broker.metrics_text().decode().splitlines()
            return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))

        found = figures(first)
        assert float(found["horolog_leader"]) == 1
        assert float(found["horolog_in_sync_replicas"]) == 2
        assert float(found['horolog_replica_lag{broker="2"}']) == 0
        assert float(found["horolog_under_min_insync"]) == 0
        assert float(found["horolog_elections_total"]) == 1
        assert float(figures(second)["horolog_leader"]) == 0
        await second.stop()
        with first.impatient():
            await eventually(lambda: float(figures(first)["horolog_under_min_insync"]) == 1)
