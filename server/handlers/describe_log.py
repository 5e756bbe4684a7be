"""describe-log: the segments of partitions, and what retention decides about each.

describe-log (key 1000): native 0

Kafka has no such request.
"""

from ...protocol.api.log.describe_log import (
    DESCRIBE_LOG,
    DescribedSearch,
    DescribedSegment,
    DescribeLogPartitionResult,
    DescribeLogRequest,
    DescribeLogResponse,
    DescribeLogTopicResult,
)
from ...protocol.errors import NO_ERROR
from ...storage.log.expiry import LogDescription, SegmentDescription
from ...storage.log.log import Log
from ...storage.read import reader
from ...storage.read.search import FoundMessage
from ..requests import Call, PendingAnswer
from ..work import Turns, searched
from .base import Services
from .registration import handles
from .repeats import refusing_repeats


@handles(DESCRIBE_LOG)
@refusing_repeats(DESCRIBE_LOG)
def handle(services: Services, request: DescribeLogRequest, call: Call) -> PendingAnswer:
    """Describe partitions; a partition that is named twice is answered once."""
    task = services.work.start(_answer(services, request))
    return PendingAnswer(task, task.result)


async def _answer(services: Services, request: DescribeLogRequest) -> DescribeLogResponse:
    asked = {topic.name: dict[int, None]() for topic in request.topics}
    for topic in request.topics:
        asked[topic.name] |= dict.fromkeys(topic.partitions)
    response, turns = DescribeLogResponse(topics=[]), services.work.turns()
    for name, partitions in asked.items():
        results: list[DescribeLogPartitionResult] = []
        topic_id = _topic_id(services, name)
        response.topics.append(
            DescribeLogTopicResult(name=name, topic_id=topic_id, partitions=results)
        )
        for partition in partitions:
            result = await _describe(services, turns, name, partition)
            if request.at_ms >= 0 and result.error_code == NO_ERROR:
                await _add_search(services, turns, name, result, request.at_ms)
            results.append(result)
            await turns.give_way()
    return response


async def _add_search(
    services: Services, turns: Turns, topic: str, result: DescribeLogPartitionResult, at_ms: int
) -> None:
    """Add to a result how the search for a time runs in a partition."""
    try:
        log = services.logs.find(topic, result.partition)
        found = await searched(services.work, turns, reader.find_time(log, at_ms))
        result.search = [_search(found, log, at_ms)]
    except Exception as error:
        outcome = services.outcomes.of(error, api="describe-log")
        result.error_code, result.error_message = outcome


def _topic_id(services: Services, name: str) -> str:
    entry = services.directory.topics().get(name)
    return "" if entry is None else entry.topic_id


def _search(found: FoundMessage | None, log: Log, at_ms: int) -> DescribedSearch:
    trail = reader.search_trail(log, at_ms, found)
    searched = DescribedSearch(
        offset=-1 if found is None else found.offset,
        timestamp_ms=-1 if found is None else found.timestamp_ms,
        segments=trail.segments,
        ruled_out=trail.ruled_out,
    )
    if trail.segment is not None:
        searched.base_offset = trail.segment.base_offset
        searched.start_offset = trail.start_offset
        searched.start_position = trail.start_position
        searched.read_bytes = trail.read_bytes
    if trail.entry is not None:
        searched.entry_timestamp_ms, searched.entry_offset = trail.entry
    return searched


async def _describe(
    services: Services, turns: Turns, topic: str, partition: int
) -> DescribeLogPartitionResult:
    result = DescribeLogPartitionResult(partition=partition)
    await services.logs.prepare(services.logs.unprepared([(topic, partition)]))
    try:
        await services.logs.read_trimmed(services.logs.find(topic, partition))
        now_ms = services.trusted_time.now_ms()
        describing = services.logs.find(topic, partition).expiry.describing(now_ms)
        described = await services.work.finish(describing, turns)
    except Exception as error:
        outcome = services.outcomes.of(error, api="describe-log")
        result.error_code, result.error_message = outcome
    else:
        await _fill(turns, result, described, services.trusted_time.caution())
        result.now_ms = now_ms
        result.check_interval_ms = services.settings.log_retention_check_interval_ms
    return result


async def _fill(
    turns: Turns,
    result: DescribeLogPartitionResult,
    described: LogDescription,
    caution: str | None,
) -> None:
    result.log_start_offset = described.log_start_offset
    result.log_end_offset = described.log_end_offset
    result.high_watermark = described.high_watermark
    result.recovery_point = described.recovery_point
    result.size_bytes = described.size_bytes
    for segment in described.segments:
        result.segments.append(_segment(segment, caution))
        await turns.give_way()


def _segment(segment: SegmentDescription, caution: str | None) -> DescribedSegment:
    return DescribedSegment(
        base_offset=segment.base_offset,
        next_offset=segment.next_offset,
        size_bytes=segment.size_bytes,
        largest_timestamp_ms=segment.largest_timestamp_ms,
        largest_offset=segment.largest_offset,
        first_timestamp_ms=segment.first_timestamp_ms,
        created_ms=segment.created_ms,
        modified_ms=segment.modified_ms,
        active=segment.active,
        offset_entries=segment.offset_entries,
        time_entries=segment.time_entries,
        verdict=segment.verdict,
        reason=segment.reason if caution is None else f"{segment.reason}. {caution}",
        expires_ms=-1 if segment.expires_ms is None else segment.expires_ms,
        damage=segment.damage,
    )
