"""delete-records: the oldest messages of partitions are dropped."""

from collections.abc import Iterable

from ...protocol.api.topics.delete_records import (
    ALL_READABLE,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ...protocol.errors import OffsetOutOfRange
from ...storage.log.log import Log
from ..syncing import synced_to
from .base import Call, Later, Services


def handle(services: Services, request: DeleteRecordsRequest, call: Call) -> Later:
    task = services.work.start(_trim_all(services, request))
    return Later(task, task.result)


async def _trim_all(services: Services, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Begin each log behind what is to go, make sure of that, and then drop files."""
    trimmed: list[tuple[Log, DeleteRecordsPartitionResult]] = []
    topics = []
    turns = services.work.turns()
    for topic in request.topics:
        results = []
        for partition in topic.partitions:
            result = DeleteRecordsPartitionResult(partition=partition.partition)
            try:
                log = await _trim(services, topic.name, partition.partition, partition.offset)
                trimmed.append((log, result))
            except Exception as error:
                _fail(services, [result], error)
            results.append(result)
            await turns.give_way()
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    logs = [log for log, _ in trimmed]
    try:
        await services.work.in_storage_thread(lambda: services.directory.secure_log_starts(logs))
        failures = await services.metadata.trimmed(logs)
    except Exception as error:
        _fail(services, [result for _, result in trimmed], error)
    else:
        for log, result in trimmed:
            _drop(services, log, result)
            if log in failures:
                _fail(services, [result], failures[log])
            await turns.give_way()
    return DeleteRecordsResponse(topics=topics)


async def _trim(services: Services, topic: str, partition: int, offset: int) -> Log:
    """Let a log begin at `offset`, in memory. Raises what concerns this partition."""
    log = services.logs.find(topic, partition)
    if not log.prepared:
        await services.logs.prepare([log])
        log = services.logs.find(topic, partition)
    end = log.high_watermark
    target = end if offset == ALL_READABLE else offset
    if not 0 <= target <= end:
        raise OffsetOutOfRange(
            f"{topic}-{partition} cannot be trimmed to offset {offset}; it must be 0 to {end}, the "
            f"high watermark, or {ALL_READABLE} for just that"
        )
    if target > log.log_start_offset:
        services.directory.reserve.retrying(lambda: log.expiry.roll_before(target))
        await synced_to(services.commits, log, target)
        log.expiry.trim(target)
    return log


def _drop(services: Services, log: Log, result: DeleteRecordsPartitionResult) -> None:
    result.low_watermark = log.log_start_offset
    if services.logs.is_current(log):
        try:
            services.directory.reserve.retrying(log.expiry.drop_expired)
        except OSError as error:
            # Nothing below the log start can be read any more; the next retention pass tries again.
            services.outcomes.of(error, api="delete-records")


def _fail(
    services: Services, results: Iterable[DeleteRecordsPartitionResult], error: Exception
) -> None:
    for result in results:
        outcome = services.outcomes.of(error, api="delete-records")
        result.error_code, result.error_message = outcome
