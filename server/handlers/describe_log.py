"""describe-log: the segments of partitions, and what retention says of each."""

from ...protocol.api.describe_log import (
    DescribedSegment,
    DescribeLogPartitionResult,
    DescribeLogRequest,
    DescribeLogResponse,
    DescribeLogTopicResult,
)
from ...storage.description import LogDescription, SegmentDescription
from .base import Call, Later, Services
from .preparing import after_preparing


def handle(
    services: Services, request: DescribeLogRequest, call: Call
) -> DescribeLogResponse | Later:
    def answer() -> DescribeLogResponse:
        return DescribeLogResponse(
            topics=[
                DescribeLogTopicResult(
                    name=topic.name,
                    partitions=[
                        _describe(services, topic.name, partition) for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    unprepared = services.logs.unprepared(
        (topic.name, partition) for topic in request.topics for partition in topic.partitions
    )
    return after_preparing(services, unprepared, answer) if unprepared else answer()


def _describe(services: Services, topic: str, partition: int) -> DescribeLogPartitionResult:
    result = DescribeLogPartitionResult(partition=partition)
    try:
        now_ms = services.trusted_time.now_ms()
        described = services.logs.find(topic, partition).describe(now_ms)
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
