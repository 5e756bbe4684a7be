"""What a window and a count ask a broker for, and what they make of its answers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from horolog import Admin, Consumer, NewRecord, OffsetOutOfRange, ProtocolError, TimeCounts
from horolog.protocol.api.broker.api_versions import ApiVersion
from horolog.protocol.api.log.count_by_time import (
    COUNT_BY_TIME,
    CountByTimeRequest,
    CountByTimeResponse,
)
from horolog.protocol.api.log.fetch import (
    FETCH,
    FetchPartition,
    FetchPartitionResult,
    FetchResponse,
    FetchTopicResult,
)
from horolog.protocol.api.log.list_offsets import (
    LATEST,
    LIST_OFFSETS,
    ListOffsetsPartitionResult,
    ListOffsetsResponse,
    ListOffsetsTopicResult,
)
from horolog.protocol.api.native.frames import RequestHead
from horolog.protocol.api.registry import APIS
from horolog.protocol.records.messages.sets import build_set

from .conftest import ScriptedBrokers
from .fakes import Log

T0 = 1_479_144_272_000


@dataclass
class Scripted:
    """A topic `t` of one partition; fetches and counts are answered as a test says."""

    end: int = 10
    starts: list[int] = field(default_factory=lambda: [0])
    """The log start at each question for it; the last one from then on."""
    fetched: Callable[[FetchPartition], FetchPartitionResult] | None = None
    counted: Callable[[CountByTimeRequest], CountByTimeResponse] | None = None
    fetches: list[FetchPartition] = field(default_factory=list)
    append_times: list[bool] = field(default_factory=list)

    async def serve(self, head: RequestHead, body: Any, _: Any) -> Any:
        if head.api_key == LIST_OFFSETS.key:
            (asked,) = body.topics[0].partitions
            if asked.timestamp == LATEST:
                offset = self.end
            else:
                offset = self.starts.pop(0) if len(self.starts) > 1 else self.starts[0]
            result = ListOffsetsPartitionResult(partition=0, offset=offset)
            return ListOffsetsResponse(
                topics=[ListOffsetsTopicResult(name="t", partitions=[result])]
            )
        if head.api_key == FETCH.key:
            assert self.fetched is not None
            ((asked,),) = [topic.partitions for topic in body.topics]
            self.fetches.append(asked)
            self.append_times.append(body.include_append_times)
            return FetchResponse(
                topics=[FetchTopicResult(name="t", partitions=[self.fetched(asked)])]
            )
        if head.api_key == COUNT_BY_TIME.key:
            assert self.counted is not None
            return self.counted(body)
        return Log().metadata()


def part(**fields: Any) -> FetchPartitionResult:
    return FetchPartitionResult(partition=0, **fields)


def messages(offset: int, *after_ms: int) -> bytes:
    records = [NewRecord(b"", None, T0 + ms) for ms in after_ms]
    return bytes(build_set(records, base_offset=offset))


async def test_the_broker_is_told_of_the_window_and_says_where_to_go_on(
    scripted_broker: ScriptedBrokers,
) -> None:
    answers = {
        0: part(high_watermark=10, next_offset=3, skipped_bytes=300),
        3: part(high_watermark=10, records=messages(3, 4, 50), next_offset=3, skipped_bytes=0),
        5: part(high_watermark=10, records=messages(7, 1, 6), next_offset=7, skipped_bytes=20),
        9: part(high_watermark=12, next_offset=12, skipped_bytes=30),
    }
    script = Scripted(fetched=lambda asked: answers[asked.fetch_offset])
    async with scripted_broker(script.serve) as broker, Consumer(broker.address) as consumer:
        window = consumer.window("t", T0 + 4, T0 + 7)
        assert [record.offset async for record in window] == [3, 8]
        assert window.skipped_bytes == 350
        assert window.read_bytes == len(messages(3, 4, 50)) + len(messages(7, 1, 6))
    assert sorted({one.fetch_offset for one in script.fetches}) == [0, 3, 5, 9]
    for one in script.fetches:
        assert (one.window_from_ms, one.window_until_ms, one.window_by) == (T0 + 4, T0 + 7, "")
    assert not any(script.append_times)


async def test_a_window_by_append_time_asks_for_append_times(
    scripted_broker: ScriptedBrokers,
) -> None:
    script = Scripted(fetched=lambda asked: part(high_watermark=10, next_offset=10))
    async with scripted_broker(script.serve) as broker, Consumer(broker.address) as consumer:
        assert [one async for one in consumer.window("t", T0, None, by="append")] == []
    (asked,) = script.fetches
    assert (asked.window_from_ms, asked.window_until_ms, asked.window_by) == (T0, -1, "append")
    assert script.append_times == [True]


async def test_a_window_of_what_was_committed_is_asked_for_as_any_other(
    scripted_broker: ScriptedBrokers,
) -> None:
    script = Scripted(end=1, fetched=lambda asked: part(high_watermark=1, records=messages(0, 5)))
    async with (
        scripted_broker(script.serve) as broker,
        Consumer(broker.address, read_committed=True) as consumer,
    ):
        assert [one.offset async for one in consumer.window("t", T0, T0 + 9)] == [0]
    assert {(one.window_from_ms, one.window_until_ms) for one in script.fetches} == {(T0, T0 + 9)}


async def test_a_log_that_got_shorter_is_an_error(scripted_broker: ScriptedBrokers) -> None:
    script = Scripted(fetched=lambda asked: part(high_watermark=4, next_offset=4))
    async with (
        scripted_broker(script.serve) as broker,
        Consumer(broker.address, retry_timeout_ms=0) as consumer,
    ):
        with pytest.raises(OffsetOutOfRange, match=r"t-0 ended at offset 10 .* ends at 4 now"):
            await anext(consumer.window("t", T0, None))


async def test_a_beginning_that_is_deleted_at_that_moment_is_looked_for_again(
    scripted_broker: ScriptedBrokers,
) -> None:
    def fetched(asked: FetchPartition) -> FetchPartitionResult:
        if asked.fetch_offset < 6:
            return part(error_code=OffsetOutOfRange.code)
        return part(high_watermark=10, records=messages(6, 1, 2, 3, 4), next_offset=6)

    script = Scripted(starts=[0, 5, 6], fetched=fetched)
    async with scripted_broker(script.serve) as broker, Consumer(broker.address) as consumer:
        found = [record.offset async for record in consumer.window("t", T0, None)]
    assert found == [6, 7, 8, 9]
    assert [one.fetch_offset for one in script.fetches] == [0, 5, 6]


async def count(scripted_broker: ScriptedBrokers, script: Scripted) -> TimeCounts:
    async with scripted_broker(script.serve) as broker, Admin(broker.address) as admin:
        return await admin.count_by_time("t", T0, T0 + 25, timedelta(milliseconds=10))


async def test_a_count_goes_on_until_all_is_counted(scripted_broker: ScriptedBrokers) -> None:
    asked: list[CountByTimeRequest] = []

    def counted(body: CountByTimeRequest) -> CountByTimeResponse:
        asked.append(body)
        if body.from_offset < 0:
            return CountByTimeResponse(
                counts=[1, 0, 2],
                first_ms=T0 + 3,
                last_ms=T0 + 24,
                untimed=5,
                next_offset=7,
                end_offset=10,
                read_bytes=100,
                log_bytes=1000,
            )
        return CountByTimeResponse(
            counts=[0, 4, 1], first_ms=T0 + 1, last_ms=T0 + 20, untimed=1, log_bytes=50
        )

    found = await count(scripted_broker, Scripted(counted=counted))
    assert [tuple(one) for one in found.intervals] == [
        (T0, T0 + 10, 1),
        (T0 + 10, T0 + 20, 4),
        (T0 + 20, T0 + 25, 3),
    ]
    assert (found.first_ms, found.last_ms, found.untimed) == (T0 + 1, T0 + 24, 6)
    assert (found.read_bytes, found.log_bytes, found.messages) == (100, 1050, 8)
    assert [(one.from_offset, one.end_offset) for one in asked] == [(-1, -1), (7, 10)]
    assert {(one.from_ms, one.until_ms, one.every_ms, one.by) for one in asked} == {
        (T0, T0 + 25, 10, "")
    }


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (CountByTimeResponse(counts=[1, 2]), "2 counts, and 3 were asked for"),
        (CountByTimeResponse(counts=[1, 2, 3], next_offset=0, end_offset=9), "goes on at offset 0"),
    ],
)
async def test_an_answer_that_makes_no_sense_is_an_error(
    scripted_broker: ScriptedBrokers, answer: CountByTimeResponse, text: str
) -> None:
    with pytest.raises(ProtocolError, match=text):
        await count(scripted_broker, Scripted(counted=lambda body: answer))


async def test_a_broker_that_cannot_count_is_read_from(scripted_broker: ScriptedBrokers) -> None:
    script = Scripted(
        end=3, fetched=lambda asked: part(high_watermark=3, records=messages(0, 24, 30, 4))
    )
    earlier = [
        ApiVersion(
            api_key=api.key,
            min_version=api.min_version,
            max_version=api.last_version(native=True),
        )
        for api in APIS.values()
        if api.key != COUNT_BY_TIME.key
    ]
    async with (
        scripted_broker(script.serve, served=earlier) as broker,
        Admin(broker.address) as admin,
    ):
        found = await admin.count_by_time("t", T0, T0 + 25)
    assert [one.count for one in found.intervals] == [2]
    assert (found.first_ms, found.last_ms) == (T0 + 4, T0 + 24)
    assert found.read_bytes == len(messages(0, 24, 30, 4))


@pytest.mark.parametrize(
    ("start", "end", "every", "error", "text"),
    [
        (T0, T0 + 100_001, timedelta(milliseconds=1), ValueError, "every has to be 2 ms or more"),
        # Rounded up, so that it is still enough a moment later.
        (T0, T0 + 17_000_000_001, timedelta(milliseconds=1), ValueError, "has to be 180000 ms"),
        (T0, T0 + 1, timedelta(0), ValueError, "from 1 on"),
        (T0, T0 + 1, timedelta(microseconds=1500), ValueError, "whole number of milliseconds"),
        (T0, T0 + 1, 5, TypeError, "every is a timedelta"),
        (T0 + 1, T0, None, ValueError, "before it starts"),
        (None, T0, None, TypeError, "needs a start and an end"),
    ],
)
async def test_what_cannot_be_counted_is_refused_before_anything_is_asked(
    scripted_broker: ScriptedBrokers,
    start: Any,
    end: Any,
    every: Any,
    error: type[Exception],
    text: str,
) -> None:
    async with scripted_broker(Scripted().serve) as broker, Admin(broker.address) as admin:
        with pytest.raises(error, match=text):
            await admin.count_by_time("t", start, end, every)
        assert broker.requests == []
