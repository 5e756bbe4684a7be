"""Leader epochs as Kafka's clients see them (replication.md, sections 3 and 6; KIP-320)."""

import asyncio
from functools import partial
from pathlib import Path
from random import Random
from shutil import copytree
from typing import Any

import pytest

from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.log.fetch import FETCH
from horolog.protocol.api.log.offset_for_leader_epoch import (
    OffsetForLeaderEpochPartition,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochTopic,
)
from horolog.protocol.api.topics.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from horolog.protocol.api.topics.metadata import MetadataRequest, MetadataTopic
from horolog.protocol.errors import FencedLeaderEpoch, NotLeader, UnknownLeaderEpoch
from horolog.storage.log.epoch_history import decode_epochs
from horolog.testing.broker import running_broker
from horolog.testing.ports import free_port
from horolog.testing.requests import create_topic, fetch, list_offsets, message_set, produce
from horolog.testing.requests import result as only_result
from horolog.testing.wire import Wire, wire

from .members import Member, Members, eventually, members
from .readers import Java, KafkaPython, Librdkafka

TOPIC = "t"
SEED = 23
GOLDEN = Path(__file__).parents[1] / "golden" / "kafka-2.1" / "v2-plain" / "clean"
T0 = 1_600_000_000_000
FENCED, UNKNOWN = FencedLeaderEpoch.code, UnknownLeaderEpoch.code
UNDEFINED = (-1, -1)
DEADLINE_S = 40.0


def kafka_at(member: Member) -> str:
    assert member.broker is not None
    return str(member.broker.addresses.kafka)


def asking(epoch: int, current: int = -1) -> OffsetForLeaderEpochRequest:
    wanted = OffsetForLeaderEpochPartition(
        partition=0, leader_epoch=epoch, current_leader_epoch=current
    )
    return OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderEpochTopic(name=TOPIC, partitions=[wanted])]
    )


async def end_of(client: Wire, epoch: int, version: int = 3) -> tuple[int, int]:
    found = only_result(await client.call(asking(epoch), version))
    assert found.error_code == 0
    return found.leader_epoch, found.end_offset


async def epoch_told(client: Wire) -> int:
    told = await client.call(MetadataRequest(topics=[MetadataTopic(name=TOPIC)]), 7)
    epoch: int = told.topics[0].partitions[0].leader_epoch
    return epoch


def of_epoch(request: Any, epoch: int) -> Any:
    request.topics[0].partitions[0].current_leader_epoch = epoch
    return request


async def test_who_means_another_leader_is_told(place: Path) -> None:
    async with members(place, kafka_listen="127.0.0.1:0") as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        await leader.call(create_topic(TOPIC))
        await leader.call(produce(TOPIC, message_set(T0, T0 + 1), acks=-1))
        async with wire(kafka_at(leader), kafka) as client:
            epoch = await epoch_told(client)
            assert epoch == (await leader.status()).epoch
            waits = fetch(TOPIC, (0, 2), max_wait_ms=60_000, min_bytes=1)
            for asked, code in ((epoch - 1, FENCED), (0, FENCED), (epoch + 1, UNKNOWN)):
                for request, version in (
                    *((fetch(TOPIC, (0, 0)), version) for version in (9, 10)),
                    *((waits, version) for version in (9, 10)),
                    (list_offsets(TOPIC, (0, -1)), 4),
                    (list_offsets(TOPIC, (0, T0)), 4),
                ):
                    answer = only_result(await client.call(of_epoch(request, asked), version))
                    assert answer.error_code == code, (request, version)
                for version in (2, 3):
                    answer = only_result(await client.call(asking(epoch, asked), version))
                    assert (answer.error_code, answer.end_offset) == (code, -1)
            for current in (-1, epoch):
                read = only_result(await client.call(of_epoch(fetch(TOPIC, (0, 0)), current), 10))
                assert (read.error_code, read.high_watermark) == (0, 2)
            # Versions that have no room for it are not looked at.
            assert only_result(await client.call(fetch(TOPIC, (0, 0)), 8)).error_code == 0
        async with wire(kafka_at(follower), kafka) as client:
            answer = only_result(await client.call(asking(epoch), 3))
            assert answer.error_code == NotLeader.code


async def test_where_epochs_end(place: Path) -> None:
    """The history as it was made, in every version; and the epochs of offsets that are found."""
    random = Random(SEED)
    async with members(place, kafka_listen="127.0.0.1:0") as all_:
        await all_.start()
        leader, other = all_[1], all_[2]
        await leader.call(create_topic(TOPIC))
        starts: dict[int, int] = {}
        end = 0
        for _ in range(5):
            epoch = (await leader.status()).epoch
            count = random.choice([0, 1, 3])
            for _ in range(count):
                starts.setdefault(epoch, end)
                answer = await leader.call(produce(TOPIC, message_set(T0 + end, magic=2), acks=-1))
                assert only_result(answer).base_offset == end
                end += 1
            await _check(leader, starts, epoch, end)
            await all_.in_sync(leader)
            await leader.promote(other.broker_id)
            leader, other = other, leader
            await eventually(partial(_serves, leader))
        assert len(starts) >= 3, f"of seed {SEED}"
        for start in range(1, end + 1):
            trimmed = [DeleteRecordsPartition(partition=0, offset=start)]
            answer = await leader.call(
                DeleteRecordsRequest(
                    topics=[DeleteRecordsTopic(name=TOPIC, partitions=trimmed)], timeout_ms=10_000
                )
            )
            assert only_result(answer).error_code == 0
            await _answers_alike(leader, start, end)


async def _answers_alike(leader: Member, start: int, end: int) -> None:
    """A follower and a client of Kafka's get one answer of a log that begins at `start`."""
    leads = leader.cluster.node.leader
    log = leader.cluster.stored.logs[TOPIC, 0]
    assert (log.log_start_offset, log.log_end_offset) == (start, end)
    async with wire(kafka_at(leader), kafka) as client:
        for asked in range(leads.epoch):
            epoch, offset = leads.divergence(log, end + 1, asked)
            assert start <= offset <= end
            assert await end_of(client, asked) == (asked if epoch < 0 else epoch, offset), asked


async def _check(leader: Member, starts: dict[int, int], current: int, end: int) -> None:
    history = {**starts, current: starts.get(current, end)}
    first = min(history)
    async with wire(kafka_at(leader), kafka) as client:
        for asked in sorted(
            {0, *history, *(one + 1 for one in history), *(one - 1 for one in history)}
        ):
            if asked > current:
                expected = UNDEFINED
            elif asked < first:
                expected = (asked, history[first])
            else:
                found = max(one for one in history if one <= asked)
                expected = (
                    found,
                    min((at for one, at in history.items() if one > found), default=end),
                )
            for version in range(4):
                epoch = expected[0] if version else -1
                assert await end_of(client, asked, version) == (epoch, expected[1])
        for offset in range(end):
            found = only_result(await client.call(list_offsets(TOPIC, (0, T0 + offset)), 4))
            written = max(one for one, at in starts.items() if at <= offset)
            assert (found.offset, found.leader_epoch) == (offset, written)
        latest = only_result(await client.call(list_offsets(TOPIC, (0, -1)), 4))
        assert (latest.offset, latest.leader_epoch) == (end, current)


async def test_a_broker_that_is_alone_knows_what_a_cluster_left(tmp_path: Path) -> None:
    copytree(GOLDEN, tmp_path / "data" / f"{TOPIC}-0")
    (kept,) = decode_epochs((GOLDEN / "leader-epoch-checkpoint").read_bytes()).starts
    async with running_broker(tmp_path / "data", kafka_listen="127.0.0.1:0") as broker:
        end = broker.directory.log(TOPIC, 0).log_end_offset
        assert end > 0
        async with wire(str(broker.addresses.kafka), kafka) as client:
            assert await epoch_told(client) == -1
            assert await end_of(client, kept.epoch) == (kept.epoch, end)
            assert await end_of(client, kept.epoch + 1) == UNDEFINED
            assert await end_of(client, -1) == UNDEFINED
            for epoch in (0, 7):
                read = only_result(await client.call(of_epoch(fetch(TOPIC, (0, 0)), epoch), 10))
                assert read.error_code == 0
            latest = only_result(await client.call(list_offsets(TOPIC, (0, -1)), 4))
            assert (latest.offset, latest.leader_epoch) == (end, -1)
            await client.call(create_topic("new"))
            request = asking(0)
            request.topics[0].name = "new"
            answer = only_result(await client.call(request, 3))
            assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, *UNDEFINED)


# Real clients.


CLIENTS = pytest.mark.parametrize(
    "client", [Librdkafka, KafkaPython, pytest.param(Java, marks=pytest.mark.secure_clients)]
)


async def _read(reader: Any, wanted: int, read: list[bytes]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while len(read) < wanted:
            read += await asyncio.to_thread(reader.poll)


async def _with_fixed_ports(all_: Members) -> tuple[dict[int, dict[str, Any]], str]:
    """Start two, whose ports for Kafka's clients stay; with what to start them again."""
    ports: dict[int, dict[str, Any]] = {
        number: {"kafka_listen": f"127.0.0.1:{free_port()}"} for number in all_.all
    }
    await all_[1].start(cluster_create=True, **ports[1])
    await all_[2].start(follow=all_[1], **ports[2])
    await all_.in_sync(all_[1])
    await all_[1].call(create_topic(TOPIC))
    return ports, ",".join(one["kafka_listen"] for one in ports.values())


def _serves(leader: Member) -> bool:
    """Whether it may show what it has."""
    return leader.cluster.serving.error(FETCH) is None


async def _sent(member: Member, *values: bytes) -> None:
    for value in values:
        made = message_set(T0, value=value, magic=2)
        answer = only_result(await member.call(produce(TOPIC, made, acks=-1)))
        assert answer.error_code == 0


@CLIENTS
async def test_a_consumer_reads_on_across_promotions(place: Path, client: Any) -> None:
    values = [b"%d" % number for number in range(30)]
    async with members(place) as all_:
        _, bootstrap = await _with_fixed_ports(all_)
        leader, other = all_[1], all_[2]
        reader = await asyncio.to_thread(client, bootstrap, TOPIC)
        read: list[bytes] = []
        try:
            for begin in range(0, len(values), 10):
                await _sent(leader, *values[begin : begin + 10])
                await _read(reader, begin + 10, read)
                await all_.in_sync(leader)
                await leader.promote(other.broker_id)
                leader, other = other, leader
                await eventually(partial(_serves, leader))
            await _sent(leader, b"last")
            await _read(reader, len(values) + 1, read)
        finally:
            await asyncio.to_thread(reader.close)
        assert read == [*values, b"last"]
        assert not reader.cut


@CLIENTS
async def test_a_consumer_learns_that_its_log_was_cut(place: Path, client: Any) -> None:
    """It has read what is lost, and there is something else at these offsets by now: only by
    epochs it can know."""
    lost = [b"lost %d" % number for number in range(10)]
    async with members(place) as all_:
        ports, bootstrap = await _with_fixed_ports(all_)
        first, second = all_[1], all_[2]
        await _sent(first, b"both")
        await all_.in_sync(first)
        await second.stop()
        with first.impatient():
            await eventually(lambda: first.cluster.admin.describe().in_sync == [1])
        await _sent(first, *lost)
        reader = await asyncio.to_thread(client, bootstrap, TOPIC)
        read: list[bytes] = []
        try:
            await _read(reader, 11, read)
            assert read == [b"both", *lost]
            await first.stop()
            await second.start(follow=first, **ports[2])
            await second.promote(accept_loss=True)
            instead = [b"instead %d" % number for number in range(20)]
            await _sent(second, *instead)
            async with asyncio.timeout(DEADLINE_S):
                while not reader.cut:
                    read += await asyncio.to_thread(reader.poll)
        finally:
            await asyncio.to_thread(reader.close)
        assert read[11:] == instead[: len(read) - 11]
