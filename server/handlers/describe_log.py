"""describe-log and describe-log-dirs: the segments of partitions with what retention decides about
each, and the sizes of partitions.

describe-log (key 1000): native 0
describe-log-dirs (key 35): versions 0 to 1, native 0 to 1 (KIP-113)
     1  the response comes before the client is throttled (KIP-219)

Kafka has no request like describe-log. Left out: sizes of volumes (KIP-827).
"""

from collections.abc import Iterable

from ...protocol.api.log.describe_log import (
    DESCRIBE_LOG,
    DescribedSearch,
    DescribedSegment,
    DescribeLogPartitionResult,
    DescribeLogRequest,
    DescribeLogResponse,
    DescribeLogTopicResult,
)
from ...protocol.api.log.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ...protocol.errors import NO_ERROR, UnknownTopicOrPartition
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


@handles(DESCRIBE_LOG_DIRS)
def describe_log_dirs(
    services: Services, request: DescribeLogDirsRequest, call: Call
) -> PendingAnswer:
    task = services.work.start(_sizes(services, request))
    return PendingAnswer(task, task.result)


async def _sizes(services: Services, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    turns = services.work.turns()
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for topic, partition in _named(services, request):
        described = _size(services, topic, partition)
        if described is not None:
            topics.setdefault(topic, []).append(described)
        await turns.give_way()
    result = DescribeLogDirsResult(
        log_dir=str(services.settings.data_dir.absolute()),
        topics=[DescribeLogDirsTopic(name=name, partitions=of) for name, of in topics.items()],
    )
    return DescribeLogDirsResponse(results=[result])


def _named(services: Services, request: DescribeLogDirsRequest) -> Iterable[tuple[str, int]]:
    if request.topics is None:
        return list(services.directory.partitions())
    # What is asked for twice is answered once.
    asked = {topic.name: dict[int, None]() for topic in request.topics}
    for topic in request.topics:
        asked[topic.name] |= dict.fromkeys(topic.partitions)
    return [(name, partition) for name, numbers in asked.items() for partition in numbers]


def _size(services: Services, topic: str, partition: int) -> DescribeLogDirsPartition | None:
    try:
        size_bytes = services.logs.find(topic, partition).size_bytes
    except UnknownTopicOrPartition:
        return None
    except Exception as error:
        code, message = services.outcomes.of(error, api="describe-log-dirs")
        return DescribeLogDirsPartition(
            partition=partition, size_bytes=-1, error_code=code, error_message=message
        )
    return DescribeLogDirsPartition(partition=partition, size_bytes=size_bytes)
