"""count-by-time: the number of messages of a partition in each interval of a time window.

count-by-time (key 1002): native 0 to 1
     1  reads at followers

Kafka has no such request.
"""

from array import array
from itertools import pairwise
from typing import Final

from ...protocol.api.log.count_by_time import COUNT_BY_TIME, CountByTimeRequest, CountByTimeResponse
from ...protocol.api.log.list_offsets import BY_APPEND, BY_TIMESTAMP
from ...protocol.errors import InvalidRequest, OffsetOutOfRange
from ...protocol.limits import MAX_INTERVALS
from ...storage.index.append_time_lookup import known_times
from ...storage.index.time_map import UnreadableTimes
from ...storage.log.log import Log
from ...storage.read import windows
from ...storage.read.slices import check_readable, visible_end
from ...storage.read.windows import ReadWindow
from ..requests import Call, PendingAnswer
from .base import Services
from .registration import handles

_SEGMENTS: Final = 1_000
"""The most segments that one answer covers."""

_READ_BYTES: Final = 64 << 20
"""Bytes read from the log after which an answer is sent, with the counts so far."""

_SECONDS: Final = 5.0
"""Time after which an answer is sent at the end of a segment, because time maps may have to be
made."""

_SETS: Final = 20_000
"""Record sets whose append times are read without a break."""


@handles(COUNT_BY_TIME)
def handle(services: Services, request: CountByTimeRequest, call: Call) -> PendingAnswer:
    task = services.work.start(_answer(services, request))
    return PendingAnswer(task, task.result)


async def _answer(services: Services, request: CountByTimeRequest) -> CountByTimeResponse:
    try:
        return await counted(services, request)
    except Exception as error:
        code, message = services.outcomes.of(error, api="count-by-time")
        return CountByTimeResponse(error_code=code, error_message=message)


async def counted(
    services: Services,
    request: CountByTimeRequest,
    seconds: float = _SECONDS,
    *,
    no_end: bool = False,
) -> CountByTimeResponse:
    """Count the messages of a request, for about `seconds` at most; the answer says where it
    stopped. With `no_end`, `until_ms` is the last possible time, and belongs to the last interval.

    Raises `InvalidRequest`, `UnknownTopicOrPartition`, `OffsetOutOfRange`, and the errors of
    opening and reading the log.
    """
    stop = services.work.time() + seconds
    every_ms, intervals = _intervals(request)
    log = services.logs.find(request.topic, request.partition)
    await services.logs.prepare(services.logs.unprepared([(request.topic, request.partition)]))
    end_offset = log.high_watermark
    if request.end_offset >= 0:
        end_offset = min(request.end_offset, end_offset)
    begin_offset = log.log_start_offset
    if request.from_offset >= 0:
        if request.from_offset > log.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {request.from_offset} is behind {log.log_end_offset}, the end of "
                f"{log.topic}-{log.partition}"
            )
        begin_offset = max(begin_offset, request.from_offset)
    response = CountByTimeResponse(end_offset=end_offset)
    response.complete_from_ms = await complete_from_ms(services, log, request.by)
    counts = array("q", bytes(8 * (intervals + no_end)))
    window = ReadWindow.between(request.from_ms, -1 if no_end else request.until_ms)
    count = _by_append if request.by == BY_APPEND else _by_timestamp
    offsets = begin_offset, end_offset
    offset = await count(services, log, offsets, window, every_ms, counts, response, stop)
    if offset < end_offset:
        response.next_offset = offset
    if no_end:
        # `until_ms` itself was counted separately, after the last interval.
        at_end = counts.pop()
        if intervals:
            counts[-1] += at_end
    response.counts = counts.tolist()
    return response


async def complete_from_ms(services: Services, log: Log, by: str) -> int:
    """Return the time, by `by`, from which on no message has left a log, which is prepared; 0 if
    none has left it, -1 if that is not known."""
    if by != BY_APPEND:
        return services.completeness.complete_from_ms(log)
    if log.log_start_offset < log.log_end_offset:
        first = log.segment_list.holding(log.log_start_offset)
        turns = services.work.turns()
        while not first.append_times.load():
            await turns.give_way()
    return services.completeness.complete_from_append_ms(log)


def _intervals(request: CountByTimeRequest) -> tuple[int, int]:
    """Return the length of an interval in ms, and the number of intervals. Raises
    `InvalidRequest`."""
    if not 0 <= request.from_ms <= request.until_ms:
        raise InvalidRequest(
            f"the window begins at {request.from_ms} and ends at {request.until_ms}; it must begin "
            "at 0 or later, and not end before it begins"
        )
    if request.every_ms < 0:
        raise InvalidRequest(f"every_ms is {request.every_ms}; it must be 1 or more, or 0 for one")
    if request.by not in ("", BY_TIMESTAMP, BY_APPEND):
        raise InvalidRequest(
            f"by is {request.by!r}; it must be {BY_TIMESTAMP!r} or {BY_APPEND!r}, or not be given"
        )
    length_ms = request.until_ms - request.from_ms
    every_ms = request.every_ms or max(length_ms, 1)
    intervals = -(-length_ms // every_ms)
    if intervals > MAX_INTERVALS:
        raise InvalidRequest(
            f"the window of {length_ms} ms has {intervals} intervals of {every_ms} ms; there may "
            f"be {MAX_INTERVALS}: ask for longer ones"
        )
    return every_ms, intervals


async def _by_timestamp(
    services: Services,
    log: Log,
    offsets: tuple[int, int],
    window: ReadWindow,
    every_ms: int,
    counts: "array[int]",
    response: CountByTimeResponse,
    stop: float,
) -> int:
    """Count by message times, segment by segment. Returns the offset up to which it counted."""
    offset, end_offset = offsets
    turns = services.work.turns()
    for _ in range(_SEGMENTS):
        if offset >= end_offset or response.read_bytes >= _READ_BYTES:
            break
        segment = log.segment_list.holding(offset)
        untimed = windows.untimed_of(segment, offset, end_offset, window)
        if untimed is not None:
            response.untimed += untimed
            response.log_bytes += segment.size_bytes
            offset = segment.next_offset
            await turns.give_way()
            continue
        if windows.is_unmapped(segment):
            await services.time_maps.make(log, segment)
        counting = windows.counting(log, offset, end_offset, window, every_ms, counts)
        try:
            await services.work.in_storage_thread(counting.run)
        except UnreadableTimes as error:
            raise counting.segment.damage(error.position) from error
        except FileNotFoundError:
            if not segment.dropped:
                raise
            offset = segment.next_offset  # The segment was deleted while it was counted.
            continue
        response.untimed += counting.untimed
        response.read_bytes += counting.read_bytes
        response.log_bytes += counting.log_bytes
        if counting.last_ms >= 0:
            first_ms = counting.first_ms
            known = response.first_ms >= 0
            response.first_ms = min(response.first_ms, first_ms) if known else first_ms
            response.last_ms = max(response.last_ms, counting.last_ms)
        offset = counting.next_offset
        if services.work.time() >= stop:
            break
    return offset


async def _by_append(
    services: Services,
    log: Log,
    offsets: tuple[int, int],
    window: ReadWindow,
    every_ms: int,
    counts: "array[int]",
    response: CountByTimeResponse,
    stop: float,
) -> int:
    """Count by append times, one for each record set. Returns the offset up to which it counted."""
    offset, end_offset = offsets
    turns = services.work.turns()
    times = array("q")
    for _ in range(_SEGMENTS):
        if offset >= end_offset:
            break
        segment = log.segment_list.holding(offset)
        while not segment.append_times.load():
            await turns.give_way()
        end = min(end_offset, max(segment.next_offset, offset + 1))
        known = known_times(segment.append_times, offset, end, _SETS)
        spans = [*known.spans, (min(known.end_offset, end), -1)]
        for (first, time_ms), (behind, _) in pairwise(spans):
            messages = min(behind, end) - max(first, offset)
            if messages <= 0:
                continue
            if time_ms < 0:
                response.untimed += messages
            elif window.first_ms <= time_ms <= window.last_ms:
                counts[(time_ms - window.first_ms) // every_ms] += messages
                times.append(time_ms)
        behind = min(known.end_offset, end)
        check_readable(segment, behind)
        response.log_bytes += visible_end(segment, behind) - segment.locate(offset)
        offset = behind
        await turns.give_way()
        if services.work.time() >= stop:
            break
    if times:
        response.first_ms, response.last_ms = min(times), max(times)
    return offset
