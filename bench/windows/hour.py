"""An hour out of a day of messages that came late, early and far ahead of their time."""

import random
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from operator import add
from statistics import median
from typing import Final

from ...protocol.api.log.count_by_time import CountByTimeRequest
from ...protocol.api.log.fetch import FetchPartition, FetchRequest, FetchTopic
from ...protocol.records.columns import read_columns
from ...protocol.records.messages.sets import NewRecord, build_set
from ...testing.requests import create_topic, produce, result
from ..brokers import broker
from ..figure import Figure
from ..raw_client import RawClient, RefusedRequest, check_end, encoded
from .shapes import jitter_and_ahead

_MESSAGES: Final = 5_000_000
_A_SET: Final = 490
_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
_FETCH_BYTES: Final = 1 << 20
_ROUNDS: Final = 5


def window_hour(*, messages: int = _MESSAGES, rounds: int = _ROUNDS) -> Iterator[Figure]:
    """The messages of one hour, exactly, and counts of each minute of the day."""
    times = array("q", jitter_and_ahead(messages, random.Random(1)))
    with broker() as (_, client):
        client.call(create_topic("bench", retention_ms=-1))
        sets = [times[begin : begin + _A_SET] for begin in range(0, messages, _A_SET)]
        sizes = [_append(client, some) for some in sets]
        check_end(client, "bench", messages)
        middle = times[messages // 2]
        from_ms = middle - middle % _HOUR_MS
        inside = sum(from_ms <= at_ms < from_ms + _HOUR_MS for at_ms in times)
        answering = sum(
            size
            for size, some in zip(sizes, sets, strict=True)
            if any(from_ms <= at_ms < from_ms + _HOUR_MS for at_ms in some)
        )
        _read(client, from_ms, messages)  # The first one makes the time map.
        found = [_read(client, from_ms, messages) for _ in range(rounds)]
        if {one[0] for one in found} != {inside}:
            raise RefusedRequest(f"the hour has {inside} messages, {found[0][0]} came")
        ratio = median(one[1] for one in found) / answering
        rate = median(inside / one[3] for one in found)
        yield Figure("window_hour", rate, "msg/s", "bytes of blocks with an answer", ratio)
        yield Figure("window_hour_first", median(one[2] for one in found), "s")
        day_ms = min(times) // _MINUTE_MS * _MINUTE_MS
        yield Figure("count_by_time", _count(client, day_ms, times, rounds), "s")


def _append(client: RawClient, times: "array[int]") -> int:
    records = [NewRecord(b"v" * 100, timestamp_ms=at_ms) for at_ms in times]
    data = bytes(build_set(records))
    client.exchange(encoded(produce("bench", data, acks=1)))
    return len(data)


def _read(client: RawClient, from_ms: int, end_offset: int) -> tuple[int, int, float, float]:
    """Messages of the hour, bytes that came for it, seconds to the first and to the last."""
    until_ms = from_ms + _HOUR_MS
    offset = messages = read_bytes = 0
    first_seconds = 0.0
    began = time.perf_counter()
    while offset < end_offset:
        wanted = FetchPartition(
            partition=0,
            fetch_offset=offset,
            partition_max_bytes=_FETCH_BYTES,
            window_from_ms=from_ms,
            window_until_ms=until_ms,
        )
        answer = result(
            client.call(
                FetchRequest(
                    topics=[FetchTopic(name="bench", partitions=[wanted])], max_bytes=_FETCH_BYTES
                )
            )
        )
        read_bytes += len(answer.records)
        offset = answer.next_offset
        for columns in read_columns(answer.records, max_decompressed_bytes=1 << 24, content=()):
            stamps = memoryview(columns.timestamps).cast("q")
            messages += sum(from_ms <= at_ms < until_ms for at_ms in stamps)
            offset = memoryview(columns.offsets).cast("q")[-1] + 1
        if messages and not first_seconds:
            first_seconds = time.perf_counter() - began
    return messages, read_bytes, first_seconds, time.perf_counter() - began


def _count(client: RawClient, from_ms: int, times: "array[int]", rounds: int) -> float:
    """Seconds of a count of a day by minutes."""
    until_ms = from_ms + 24 * _HOUR_MS
    expected = Counter((at_ms - from_ms) // _MINUTE_MS for at_ms in times)
    seconds = []
    for _ in range(rounds):
        counts = [0] * (24 * 60)
        from_offset, end_offset = 0, -1
        began = time.perf_counter()
        while from_offset >= 0:
            answer = client.call(
                CountByTimeRequest(
                    topic="bench",
                    partition=0,
                    from_ms=from_ms,
                    until_ms=until_ms,
                    every_ms=_MINUTE_MS,
                    from_offset=from_offset,
                    end_offset=end_offset,
                )
            )
            if answer.error_code:
                raise RefusedRequest(str(answer.error_message))
            counts = list(map(add, counts, answer.counts))
            from_offset, end_offset = answer.next_offset, answer.end_offset
        seconds.append(time.perf_counter() - began)
        if counts != [expected[minute] for minute in range(24 * 60)]:
            raise RefusedRequest("the counts are wrong")
    return median(seconds)
