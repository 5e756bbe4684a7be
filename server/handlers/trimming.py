"""delete-records: delete the oldest messages of partitions.

delete-records (key 21): versions 0 to 1, native 0 to 1 (KIP-107)
     1  the response comes before the client is throttled (KIP-219)
"""

from collections.abc import Collection, Iterable, Sequence
from functools import partial

from ...protocol.api.topics.delete_records import (
    ALL_READABLE,
    DELETE_RECORDS,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ...protocol.errors import CodedError, InvalidRequest, OffsetOutOfRange, PolicyViolation
from ...storage.directory.journal import Cause, Removal
from ...storage.log.log import Log
from ...storage.log.removed import removed_by_trim
from ...storage.log.retention import RemovedRange
from ...storage.stepped_change import SteppedChange
from ..maintenance import removal_of
from ..parking import Partition
from ..requests import Call, PendingAnswer
from ..syncing import synced_to
from .base import Services
from .registration import handles


@handles(DELETE_RECORDS)
def handle(services: Services, request: DeleteRecordsRequest, call: Call) -> PendingAnswer:
    task = services.work.start(_trim_all(services, request, call.principal))
    return PendingAnswer(task, task.result)


async def _trim_all(
    services: Services, request: DeleteRecordsRequest, principal: str
) -> DeleteRecordsResponse:
    """Move the log starts, store them durably, and then drop segments."""
    removals: list[Removal] = []
    trimmed: list[tuple[Log, DeleteRecordsPartitionResult]] = []
    topics: list[DeleteRecordsTopicResult] = []
    turns = services.work.turns()
    repeated = _repeated(request)
    answered: set[Partition] = set()
    for topic in request.topics:
        results: list[DeleteRecordsPartitionResult] = []
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
        for partition in topic.partitions:
            key = topic.name, partition.partition
            if key in answered:
                continue
            answered.add(key)
            result = DeleteRecordsPartitionResult(partition=partition.partition)
            results.append(result)
            try:
                if key in repeated:
                    raise InvalidRequest(f"the request names {key[0]}-{key[1]} more than once")
                log, removed = await _trim(services, *key, partition.offset)
                trimmed.append((log, result))
                removals += _removals(services, log, removed, principal)
            except Exception as error:
                _fail(services, [result], error)
            await turns.give_way()
    logs = [log for log, _ in trimmed]
    await _record(services, removals)
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


def _repeated(request: DeleteRecordsRequest) -> Collection[Partition]:
    """Return the partitions that a request names more than once."""
    seen: set[Partition] = set()
    repeated: set[Partition] = set()
    for topic in request.topics:
        for partition in topic.partitions:
            key = topic.name, partition.partition
            (repeated if key in seen else seen).add(key)
    return repeated


async def _trim(
    services: Services, topic: str, partition: int, offset: int
) -> tuple[Log, RemovedRange | None]:
    """Move a log start to `offset`, in memory only. Returns what that removes. Raises the error of
    this partition."""
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
    if not log.settings.deletes:
        raise PolicyViolation(
            f"cleanup.policy of {topic} is {log.settings.cleanup_policy}; only a topic whose "
            "cleanup.policy has delete in it can be trimmed"
        )
    if target > log.log_start_offset:
        services.directory.reserve.retrying(lambda: log.expiry.roll_before(target))
        await synced_to(services.commits, log, target)
        reading = SteppedChange(removed_by_trim(log, target))
        reading.begin()
        while not reading.done:
            step = reading.step
            await services.work.in_storage_thread(partial(reading.run, step))
            reading.advance(step)
        log.expiry.trim(target)
        return log, reading.result()
    return log, None


def _removals(
    services: Services, log: Log, removed: RemovedRange | None, principal: str
) -> list[Removal]:
    entry = services.directory.topics().get(log.topic)
    if removed is None or entry is None:
        return []
    now_ms = services.clock.now_ms()
    return [removal_of(Cause.TRIM, principal, log, entry.topic_id, removed, now_ms)]


async def _record(services: Services, removals: Sequence[Removal]) -> None:
    """Store in the journal what is trimmed. If that fails, the trim goes on, because it may be
    meant to make room."""
    try:
        await services.metadata.record_removed(removals)
    except CodedError as error:
        services.outcomes.of(error, api="delete-records")


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
