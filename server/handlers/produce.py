"""produce: append message sets, and answer when they are as durable as was asked for."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ...protocol.api.produce import (
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResult,
)
from ...protocol.errors import (
    CorruptMessage,
    HorologError,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTimestamp,
    MessageTooLarge,
    RecordListTooLarge,
    RequestTimedOut,
    StorageError,
    UnknownTopicOrPartition,
    UnsupportedForMessageFormat,
)
from ...protocol.records.kernel import walk
from ...storage.appended import Appended
from ...storage.log import Log
from ..figures import count
from ..outcomes import CloseConnection
from ..parking import Partition
from .base import Call, Later, Services

NO_ANSWER, IN_THE_LOG, DURABLE = 0, 1, -1
"""The values of `acks`."""

REJECTION_REASONS: Final[Mapping[int, str]] = MappingProxyType(
    {
        CorruptMessage.code: "corrupt",
        InvalidRecord.code: "invalid",
        InvalidTimestamp.code: "timestamp",
        MessageTooLarge.code: "too_large",
        RecordListTooLarge.code: "set_too_large",
        StorageError.code: "storage",
        UnsupportedForMessageFormat.code: "format",
    }
)
"""The `reason` of horolog_rejected_messages_total by error code."""


@dataclass(slots=True)
class _Unsynced:
    """An appended set whose answer waits for a sync."""

    log: Log
    end_offset: int
    result: ProducePartitionResult


def handle(
    services: Services, request: ProduceRequest, call: Call
) -> ProduceResponse | Later | None:
    # A partition that is named twice gets the last set, and one answer.
    sets: dict[str, dict[int, bytes | None]] = {}
    for topic in request.topics:
        of_topic = sets.setdefault(topic.name, {})
        for partition in topic.partitions:
            of_topic[partition.partition] = partition.records
    unsynced: dict[Partition, _Unsynced] = {}
    topics = []
    for name, of_topic in sets.items():
        results = []
        for number, record_set in of_topic.items():
            result = ProducePartitionResult(partition=number)
            try:
                log, appended = _append(services, request.acks, name, number, record_set or b"")
            except Exception as error:
                outcome = services.outcomes.of(error, api="produce")
                result.error_code, result.error_message = outcome
            else:
                result.base_offset = appended.first_offset
                result.log_append_time_ms = appended.append_time_ms
                if request.acks == DURABLE and appended.count:
                    wait = _Unsynced(log, appended.last_offset + 1, result)
                    unsynced[name, number] = wait
            results.append(result)
        topics.append(ProduceTopicResult(name=name, partitions=results))
    response = ProduceResponse(topics=topics)
    if request.acks == NO_ANSWER:
        _close_if_refused(response)
        return None
    unsynced = {key: wait for key, wait in unsynced.items() if not _settled(services, wait)}
    if not unsynced:
        return response
    return _park(services, request, response, unsynced)


def _append(
    services: Services, acks: int, topic: str, partition: int, record_set: bytes
) -> tuple[Log, Appended]:
    """Append one set and take note of it."""
    if acks not in (NO_ANSWER, IN_THE_LOG, DURABLE):
        services.logs.check_partition(topic, partition)
        raise InvalidRequiredAcks(f"acks is {acks}; it must be 0 (none), 1 (in the log) or -1")
    log = services.logs.find_or_create(topic, partition)
    figures = services.figures.topic(topic)
    wait_for_sync = acks == DURABLE and log.settings.acks_all_durability == "fsync"
    try:
        appended = log.append(record_set, wait_for_sync=wait_for_sync)
    except (HorologError, OSError) as error:
        count(figures.rejected, _reason(error), _messages_in(record_set))
        raise
    if not appended.count:
        return log, appended
    figures.appended(appended.count, appended.size_bytes, appended.latency)
    conversion = appended.conversion
    if conversion is not None:
        direction = "append_up" if conversion.magic else "append_down"
        figures.converted(direction, conversion.messages, conversion.size_bytes, conversion.seconds)
    if appended.rolled is not None:
        services.rolled(topic, partition)
    if wait_for_sync or log.unflushed_messages >= log.settings.flush_messages:
        services.commits.request(log)
    return log, appended


def _reason(error: Exception) -> str:
    """The `reason` label of a refused set."""
    if isinstance(error, HorologError):
        return REJECTION_REASONS.get(error.code, error.name.lower())
    return "storage"


def _messages_in(record_set: bytes) -> int:
    """How many messages a refused set holds, as far as it can be read; at least 1."""
    return max(walk(record_set, 0, len(record_set), check_crc=False).count, 1)


def _close_if_refused(response: ProduceResponse) -> None:
    """There is no answer that could carry an error, so a closed connection has to do."""
    for topic in response.topics:
        for result in topic.partitions:
            if result.error_code:
                raise CloseConnection(
                    f"a produce with acks=0 to {topic.name}-{result.partition} was refused: "
                    f"{result.error_message}",
                    result.error_code,
                )


def _settled(services: Services, wait: _Unsynced) -> bool:
    """Whether the wait of one partition is over; a failure is noted in its result."""
    if wait.log.high_watermark >= wait.end_offset:
        return True
    failure: HorologError | None = wait.log.failure
    if failure is None and not services.logs.is_current(wait.log):
        failure = UnknownTopicOrPartition("the topic was deleted before its messages were synced")
    if failure is None:
        return False
    outcome = services.outcomes.of(failure, api="produce")
    wait.result.error_code, wait.result.error_message = outcome
    return True


def _park(
    services: Services,
    request: ProduceRequest,
    response: ProduceResponse,
    unsynced: dict[Partition, _Unsynced],
) -> Later:
    def satisfied(partition: Partition) -> bool:
        wait = unsynced.get(partition)
        if wait is not None and _settled(services, wait):
            del unsynced[partition]
        return not unsynced

    def make() -> ProduceResponse:
        for wait in unsynced.values():
            if not _settled(services, wait):
                # The messages are in the log, so the result keeps their offsets.
                error = RequestTimedOut(
                    "the messages are in the log, but were not as durable as acks=-1 asks within "
                    f"the request's timeout of {request.timeout_ms} ms"
                )
                outcome = services.outcomes.of(error, api="produce")
                wait.result.error_code, wait.result.error_message = outcome
        return response

    ready = services.produces.park(unsynced, satisfied, request.timeout_ms)
    return Later(ready, make)
