"""What followers answer to who reads from them (replication.md, sections 4 and 6)."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from horolog import Admin, Consumer, OffsetOutOfRange
from horolog.client.cluster.route import ANY_REPLICA
from horolog.protocol.api.log.count_by_time import CountByTimeRequest
from horolog.protocol.api.schema import replaced
from horolog.protocol.errors import CodedError, NotLeader, ReplicaNotAvailable
from horolog.testing.requests import create_topic, fetch, list_offsets, message_set, produce
from horolog.testing.requests import result as only_result
from horolog.testing.wire import Wire

from .members import Member, Members, eventually, members
from .test_copying import NOW_MS, PARTITIONS, SEED, some_set

TOPIC = "t"
LATEST = -1
NOT_LEADER, NOT_HERE, OUT_OF_RANGE = NotLeader.code, ReplicaNotAvailable.code, OffsetOutOfRange.code
FOREVER_MS = 3_600_000
"""Longer than a test may take."""
"""Longer than anything that is waited for takes."""


def allowed(request: Any) -> Any:
    return replaced(request, allow_follower=True)


def counted(partition: int = 0, by: str = "", **more: Any) -> CountByTimeRequest:
    return CountByTimeRequest(
        topic=TOPIC,
        partition=partition,
        from_ms=0,
        until_ms=2 * NOW_MS,
        every_ms=NOW_MS // 40,
        by=by,
        **more,
    )


@contextmanager
def refuses(code: int) -> Iterator[None]:
    with pytest.raises(CodedError) as refused:
        yield
    assert refused.value.code == code


async def filled(all_: Members, random: Random, count: int) -> None:
    """A topic with messages of every format, on all."""
    leader = all_[1]
    topic = create_topic(TOPIC, PARTITIONS, segment_bytes=4000, retention_ms=-1)
    await leader.call(topic)
    for _ in range(count):
        part = random.randrange(PARTITIONS)
        answer = await leader.call(produce(TOPIC, some_set(random), partition=part, acks=-1))
        assert only_result(answer).error_code == 0
    await caught_up(all_)


async def caught_up(all_: Members) -> None:
    """Wait until all have everything, and know that it is committed."""
    await all_.in_sync(all_[1])
    for member in list(all_.all.values())[1:]:
        for partition in range(PARTITIONS):
            end = all_[1].log(TOPIC, partition).log_end_offset
            await eventually(partial(shows, member, partition, end))


def shows(member: Member, partition: int, end: int) -> bool:
    found: int = member.log(TOPIC, partition).high_watermark
    return found == end


def plain(answer: Any) -> Any:
    """An answer without who gave it, and what it had to read for it."""
    answer.follower_heard_ms = -1
    if hasattr(answer, "read_bytes"):
        answer.read_bytes = 0
    for topic in getattr(answer, "topics", ()):
        for one in topic.partitions:
            if getattr(one, "records", None) is not None:
                one.records = bytes(one.records)
    return answer


async def test_a_follower_that_has_everything_answers_as_the_leader(place: Path) -> None:
    """Every format, every offset, searches and counts by both times."""
    async with members(place) as all_:
        await all_.start()
        await filled(all_, Random(SEED), 120)
        leader, follower = await Wire.open(all_[1].address), await Wire.open(all_[2].address)
        asked: list[Any] = []
        for partition in range(PARTITIONS):
            end = all_[1].log(TOPIC, partition).log_end_offset
            asked += [fetch(TOPIC, (partition, offset)) for offset in range(end + 1)]
            asked += [counted(partition, by) for by in ("", "append")]
            times = [LATEST, -2, -3, *range(0, NOW_MS, NOW_MS // 50)]
            asked += [list_offsets(TOPIC, (partition, time_ms)) for time_ms in times]
        assert len(asked) > 200
        for request in asked:
            ours = await follower.call(allowed(request))
            theirs = await leader.call(allowed(request))
            assert theirs.follower_heard_ms == -1
            assert ours.follower_heard_ms >= 0
            assert plain(ours) == plain(theirs), request
        leader.close()
        follower.close()


async def test_the_library_finds_the_same_at_a_follower(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        await filled(all_, Random(SEED + 1), 60)
        found = [await what_is_there(one, "any") for one in (all_[1], all_[2])]
        assert found[0] == found[1] == await what_is_there(all_[1], "leader")


async def what_is_there(member: Member, read_from: Any) -> Any:
    start, end = NOW_MS - 2 * 365 * 86_400_000, NOW_MS
    async with (
        Admin(member.address, read_from=read_from) as admin,
        Consumer(member.address, read_from=read_from) as consumer,
    ):
        window = [record async for record in consumer.window(TOPIC, start, end)]
        by_append = consumer.window(TOPIC, None, None, by="append")
        appended = [(record.partition, record.offset) async for record in by_append]
        counts = await admin.count_by_time(TOPIC, start, end, timedelta(days=30))
        found = [
            await admin.find_offset(TOPIC, 0, timestamp_ms=ms) for ms in range(0, end, end // 9)
        ]
        if read_from == "any":
            link = consumer._cluster._links[ANY_REPLICA, consumer._fetches.lane]
            assert link.current is not None
            assert link.current.address == member.address
        assert appended
        assert sum(one.count for one in counts.intervals) == len(window) > 0
        return window, appended, counts.intervals, found


async def test_without_leave_only_the_leader_answers(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        await filled(all_, Random(SEED), 2)
        for request in (fetch(TOPIC, (0, 0)), list_offsets(TOPIC, (0, LATEST)), counted()):
            with refuses(NOT_LEADER):
                await all_[2].call(request)


async def test_what_is_above_the_watermark_is_empty(place: Path) -> None:
    """Section 4: "A fetch above a replica's watermark is empty, never OFFSET_OUT_OF_RANGE"."""
    async with members(place, 3) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        await filled(all_, Random(SEED), 20)
        committed = leader.log(TOPIC).log_end_offset
        await all_[3].stop()  # It is in sync still, so nothing more is committed.
        await leader.call(produce(TOPIC, message_set(5, 6, 7)))
        await eventually(lambda: follower.log(TOPIC).log_end_offset == committed + 3)
        for offset in (committed, committed + 2, committed + 3, committed + 4, 2**62):
            answer = only_result(await follower.call(allowed(fetch(TOPIC, (0, offset)))))
            assert (answer.error_code, answer.high_watermark) == (0, committed)
            assert not answer.records
        answer = only_result(await follower.call(allowed(list_offsets(TOPIC, (0, LATEST)))))
        assert (answer.error_code, answer.offset) == (0, committed)
        response = await follower.call(counted(allow_follower=True))
        assert response.end_offset == committed
        # Who has seen more asks another broker.
        seen = allowed(fetch(TOPIC, (0, 0)))
        seen.topics[0].partitions[0].seen_offset = committed + 1
        later = allowed(list_offsets(TOPIC, (0, LATEST)))
        later.topics[0].partitions[0].seen_offset = committed + 1
        for request in (seen, later, counted(allow_follower=True, seen_offset=committed + 1)):
            with refuses(NOT_HERE):
                await follower.call(request)
        seen.topics[0].partitions[0].seen_offset = committed
        assert only_result(await follower.call(seen)).records


async def test_what_is_below_the_log_start_is_out_of_range(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        await filled(all_, Random(SEED), 20)
        async with Admin(all_[1].address) as admin:
            await admin.delete_records(TOPIC, 0, before=3)
        await eventually(lambda: all_[2].log(TOPIC).log_start_offset == 3)
        answer = only_result(await all_[2].call(allowed(fetch(TOPIC, (0, 2)))))
        assert answer.error_code == OUT_OF_RANGE


@pytest.mark.parametrize("ahead", [0, 1, 3])
async def test_a_fetch_that_waits_is_woken_by_the_watermark(place: Path, ahead: int) -> None:
    async with members(place) as all_:
        await all_.start()
        await filled(all_, Random(SEED), 4)
        leader, follower = all_[1], all_[2]
        end = leader.log(TOPIC).log_end_offset
        request = fetch(TOPIC, (0, end + ahead), max_wait_ms=FOREVER_MS, min_bytes=1)
        waiting = asyncio.create_task(follower.call(allowed(request)))
        await eventually(lambda: len(follower.broker.services.fetches))  # type: ignore[union-attr]
        await leader.produce(TOPIC, *"abcd")
        answer = only_result(await waiting)
        assert answer.records
        assert answer.high_watermark > end + ahead


async def test_nothing_is_answered_that_was_read_while_a_log_was_cut(place: Path) -> None:
    async with members(place) as all_:
        await all_.start()
        await filled(all_, Random(SEED), 10)
        follower = all_[2]
        end = follower.log(TOPIC).log_end_offset
        request = fetch(TOPIC, (0, end), max_wait_ms=1500, min_bytes=1)
        waiting = asyncio.create_task(follower.call(allowed(request)))
        await eventually(lambda: len(follower.broker.services.fetches))  # type: ignore[union-attr]
        follower.cluster.stored.logs[TOPIC, 0].truncate(2)
        with refuses(NOT_HERE):
            await waiting


async def test_a_copy_that_is_not_there_yet_is_not_read(place: Path) -> None:
    """Neither of who has not heard from its leader, nor of what cannot be copied."""
    async with members(place) as all_:
        await all_.start()
        await filled(all_, Random(SEED), 4)
        leader, follower = all_[1], all_[2]
        await leader.stop()
        request = allowed(fetch(TOPIC, (0, 0)))
        # It goes on while the leader is away ...
        answer = await follower.call(request)
        assert only_result(answer).records
        await asyncio.sleep(0.05)
        assert (await follower.call(request)).follower_heard_ms > answer.follower_heard_ms
        # ... and says nothing after a start, because it may lack what it has shown.
        await follower.stop()
        await follower.start(follow=leader)
        with refuses(NOT_HERE):
            await follower.call(request)
        await leader.start()
        await eventually(lambda: follower.cluster.node.follower.has_reached((TOPIC, 0)))
        assert only_result(await follower.call(request)).records
        follower.cluster.stored.failing[TOPIC, 0] = "it is damaged"
        with refuses(NOT_HERE):
            await follower.call(request)


async def test_a_reader_sees_nothing_but_what_the_leader_has(place: Path) -> None:
    """While messages come, what a follower gives is the beginning of what its leader gives."""
    async with members(place) as all_:
        await all_.start()
        leader, follower = all_[1], all_[2]
        await leader.call(create_topic(TOPIC, segment_bytes=2000))
        await eventually(lambda: TOPIC in follower.cluster.directory.topics())
        names = [f"{number:05}" for number in range(300)]
        writing = asyncio.create_task(leader.produce(TOPIC, *names))
        async with Consumer(follower.address, read_from="any", max_wait_ms=50) as consumer:
            consumer.assign(TOPIC, 0)
            read: list[str] = []
            while len(read) < len(names):
                found = await consumer.fetch()
                ends = [one.log(TOPIC).high_watermark for one in (follower, leader)]
                assert not found or found[-1].offset < ends[0] <= ends[1]
                read += [(record.value or b"").decode() for record in found]
                assert read == names[: len(read)]
        await writing


async def test_a_reader_learns_that_messages_were_lost(place: Path) -> None:
    """After an unclean promotion a follower is cut below what it has shown. Its reader waits there,
    and is told by the leader that there is no such offset; it gets nothing that was cut."""
    async with members(place, 3) as all_:
        await all_.start()
        first, second, third = all_[1], all_[2], all_[3]
        await first.call(create_topic(TOPIC))
        await first.produce(TOPIC, *(f"both {number}" for number in range(5)))
        await all_.in_sync(first)
        await second.stop()
        with first.impatient():
            await eventually(lambda: first.cluster.admin.describe().in_sync == [1, 3])
        await first.produce(TOPIC, *(f"alone {number}" for number in range(20)))
        third_only = Consumer(third.address, read_from="any", max_wait_ms=50, retry_timeout_ms=0)
        async with third_only as consumer:
            consumer.assign(TOPIC, 0)
            read: list[bytes | None] = []
            while len(read) < 25:
                read += [record.value for record in await consumer.fetch()]
            await first.stop()
            await third.stop()
            await second.start(follow=first)
            await second.promote(accept_loss=True)
            await third.start(follow=second)
            await second.produce(TOPIC, "after")
            await eventually(lambda: third.log(TOPIC).high_watermark == 6)
            answer = only_result(await third.call(allowed(fetch(TOPIC, (0, 25)))))
            assert (answer.error_code, answer.high_watermark, bytes(answer.records)) == (0, 6, b"")
            with pytest.raises(OffsetOutOfRange):
                await eventually(consumer.fetch)
            consumer.seek(TOPIC, 0, 0)
            values = [record.value for record in await consumer.fetch()]
            assert values == [*(b"both %d" % number for number in range(5)), b"after"]
