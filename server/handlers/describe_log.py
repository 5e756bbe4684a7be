"""describe-log: the segments of partitions, and what retention says of each."""

from collections.abc import Callable

from ...protocol.api.log.describe_log import (
    DescribedSearch,
    DescribedSegment,
    DescribeLogPartitionResult,
    DescribeLogRequest,
    DescribeLogResponse,
    DescribeLogTopicResult,
)
from ...protocol.errors import NO_ERROR
from ...storage.log.description import LogDescription, SegmentDescription
from ...storage.log.log import Log
from ...storage.read.search import Found
from ..searching import searched
from .base import Call, Later, Services


def handle(
    services: Services, request: DescribeLogRequest, call: Call
) -> DescribeLogResponse | Later:
    def answer() -> DescribeLogResponse:
        return DescribeLogResponse(
            topics=[
                DescribeLogTopicResult(
                    name=topic.name,
                    topic_id=_topic_id(services, topic.name),
                    partitions=[
                        _describe(services, topic.name, partition) for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    if request.at_ms >= 0:
        task = services.work.start(_with_searches(services, request, answer))
        return Later(task, task.result)
    unprepared = services.logs.unprepared(
        (topic.name, partition) for topic in request.topics for partition in topic.partitions
    )
    if unprepared:
        return Later(services.work.start(services.logs.prepare(unprepared)), answer)
    return answer()


def _topic_id(services: Services, name: str) -> str:
    entry = services.directory.topics().get(name)
    return "" if entry is None else entry.topic_id


async def _with_searches(
    services: Services, request: DescribeLogRequest, answer: Callable[[], DescribeLogResponse]
) -> DescribeLogResponse:
    """What `answer` gives, and how the search for a time went in each partition."""
    partitions = [(topic.name, number) for topic in request.topics for number in topic.partitions]
    await services.logs.prepare(services.logs.unprepared(partitions))
    response = answer()
    turns = services.work.turns()
    for topic in response.topics:
        for result in topic.partitions:
            if result.error_code != NO_ERROR:
                continue
            try:
                log = services.logs.find(topic.name, result.partition)
                found = await searched(services.work, turns, log.reader.find_time(request.at_ms))
                result.search = [_search(found, log, request.at_ms)]
            except Exception as error:
                outcome = services.outcomes.of(error, api="describe-log")
                result.error_code, result.error_message = outcome
    return response


def _search(found: Found | None, log: Log, at_ms: int) -> DescribedSearch:
    trail = log.reader.search_trail(at_ms, found)
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


def _describe(services: Services, topic: str, partition: int) -> DescribeLogPartitionResult:
    result = DescribeLogPartitionResult(partition=partition)
    try:
        now_ms = services.trusted_time.now_ms()
        described = services.logs.find(topic, partition).expiry.describe(now_ms)
    except Exception as error:
        outcome = services.outcomes.of(error, api="describe-log")
        result.error_code, result.error_message = outcome
    else:
        _fill(result, described, services.trusted_time.caution())
        result.now_ms = now_ms
        result.check_interval_ms = services.settings.log_retention_check_interval_ms
    return result


def _fill(
    result: DescribeLogPartitionResult, described: LogDescription, caution: str | None
) -> None:
    result.log_start_offset = described.log_start_offset
    result.log_end_offset = described.log_end_offset
    result.high_watermark = described.high_watermark
    result.recovery_point = described.recovery_point
    result.size_bytes = described.size_bytes
    result.segments = [_segment(segment, caution) for segment in described.segments]


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
