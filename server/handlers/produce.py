"""produce: append message sets, and answer when they are as durable as was asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
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
from ...storage.files import Buffer
from ...storage.log import Log
from ..figures import TopicFigures, count
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
class _Sent:
    """A set on its way into a log, and what its producer is told."""

    partition: Partition
    record_set: Buffer
    result: ProducePartitionResult
    log: Log | None = None
    end_offset: int = 0
    """The answer of a set that is to be durable waits until the high watermark is here."""

    def refuse(self, services: Services, error: Exception) -> None:
        """Tell the producer about `error`."""
        outcome = services.outcomes.of(error, api="produce")
        self.result.error_code, self.result.error_message = outcome


Outcome = ProduceResponse | Later | Exception | None


def handle(
    services: Services, request: ProduceRequest, call: Call
) -> ProduceResponse | Later | None:
    (outcome,) = handle_many(services, (request,))
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def handle_many(services: Services, requests: Sequence[ProduceRequest]) -> list[Outcome]:
    """Answer requests that arrived together, in their order: what `handle` would return or raise.

    What they bring for one partition is appended at once. There are no outcomes behind a
    `CloseConnection`, because nothing is done about requests behind it.
    """
    outcomes: list[Outcome] = []
    for acks, alike in groupby(requests, attrgetter("acks")):
        if acks != NO_ANSWER:
            outcomes += _handle_alike(services, acks, list(alike))
            continue
        for request in alike:
            outcomes += _handle_alike(services, acks, [request])
            if outcomes[-1] is not None:
                return outcomes
    return outcomes


def _handle_alike(services: Services, acks: int, requests: list[ProduceRequest]) -> list[Outcome]:
    """Answer requests that have the same `acks`."""
    by_partition: dict[Partition, list[_Sent]] = {}
    answers = [_answer_to(request, by_partition) for request in requests]
    for partition, sent in by_partition.items():
        _append(services, acks, partition, sent)
    if acks == IN_THE_LOG:
        return [response for response, _ in answers]
    if acks == NO_ANSWER:
        return [_refusal(response) for response, _ in answers]
    return [
        _when_durable(services, request.timeout_ms, response, sent)
        for request, (response, sent) in zip(requests, answers, strict=True)
    ]


def _answer_to(
    request: ProduceRequest, by_partition: dict[Partition, list[_Sent]]
) -> tuple[ProduceResponse, list[_Sent]]:
    """The answer, still without what becomes of the sets; these are added to `by_partition`."""
    # A partition that is named twice gets the last set, and one answer.
    sets: dict[str, dict[int, bytes | None]] = {}
    for topic in request.topics:
        of_topic = sets.setdefault(topic.name, {})
        for partition in topic.partitions:
            of_topic[partition.partition] = partition.records
    topics = []
    all_sent = []
    for name, of_topic in sets.items():
        results = []
        for number, record_set in of_topic.items():
            result = ProducePartitionResult(partition=number)
            sent = _Sent((name, number), record_set or b"", result)
            by_partition.setdefault(sent.partition, []).append(sent)
            all_sent.append(sent)
            results.append(result)
        topics.append(ProduceTopicResult(name=name, partitions=results))
    return ProduceResponse(topics=topics), all_sent


def _append(services: Services, acks: int, partition: Partition, sent: Sequence[_Sent]) -> None:
    """Append the sets of one partition and take note of what became of them."""
    try:
        log = _log_for(services, acks, *partition)
    except Exception as error:
        for one in sent:
            one.refuse(services, error)
        return
    wait_for_sync = acks == DURABLE and log.settings.acks_all_durability == "fsync"
    end_offset = log.log_end_offset
    if not _append_together(services, log, sent, wait_for_sync=wait_for_sync):
        _append_each(services, log, sent, wait_for_sync=wait_for_sync)
    flush_due = wait_for_sync or log.unflushed_messages >= log.settings.flush_messages
    if flush_due and log.log_end_offset > end_offset:
        services.commits.request(log)


def _append_together(
    services: Services, log: Log, sent: Sequence[_Sent], *, wait_for_sync: bool
) -> bool:
    """Append the sets if they can be as if they were one; say whether that is done with."""
    record_sets = [one.record_set for one in sent]
    figures = services.figures.topic(log.topic)
    try:
        appended = log.append_together(record_sets, wait_for_sync=wait_for_sync)
    except Exception as error:
        for one in sent:
            _refused(services, figures, one, error)
        return True
    if appended is None:
        return False
    end_offset, append_time_ms = appended.end_offset, appended.append_time_ms
    for one, first_offset in zip(sent, appended.first_offsets, strict=True):
        result = one.result
        result.base_offset, result.log_append_time_ms = first_offset, append_time_ms
        # One write and one sync are for all of them.
        one.log, one.end_offset = log, end_offset
    figures.appended(appended.count, appended.size_bytes, appended.latency)
    return True


def _append_each(
    services: Services, log: Log, sent: Sequence[_Sent], *, wait_for_sync: bool
) -> None:
    """Append sets that are treated one by one, though with one write where that can be."""
    record_sets = [one.record_set for one in sent]
    figures = services.figures.topic(log.topic)
    outcomes = log.append_many(record_sets, wait_for_sync=wait_for_sync)
    for one, outcome in zip(sent, outcomes, strict=True):
        if isinstance(outcome, Exception):
            _refused(services, figures, one, outcome)
            continue
        one.result.base_offset = outcome.first_offset
        one.result.log_append_time_ms = outcome.append_time_ms
        if outcome.count:
            one.log, one.end_offset = log, outcome.last_offset + 1
            _note(services, figures, outcome, log)


def _refused(services: Services, figures: TopicFigures, one: _Sent, error: Exception) -> None:
    """Count a set that was not appended, and tell its producer why."""
    if isinstance(error, HorologError | OSError):
        count(figures.rejected, _reason(error), _messages_in(one.record_set))
    one.refuse(services, error)


def _log_for(services: Services, acks: int, topic: str, partition: int) -> Log:
    if acks not in (NO_ANSWER, IN_THE_LOG, DURABLE):
        services.logs.check_partition(topic, partition)
        raise InvalidRequiredAcks(f"acks is {acks}; it must be 0 (none), 1 (in the log) or -1")
    return services.logs.find_or_create(topic, partition)


def _note(services: Services, figures: TopicFigures, appended: Appended, log: Log) -> None:
    """Count a set that was appended."""
    figures.appended(appended.count, appended.size_bytes, appended.latency)
    conversion = appended.conversion
    if conversion is not None:
        direction = "append_up" if conversion.magic else "append_down"
        figures.converted(direction, conversion.messages, conversion.size_bytes, conversion.seconds)
    if appended.rolled is not None:
        services.rolled(log.topic, log.partition)


def _reason(error: Exception) -> str:
    """The `reason` label of a refused set."""
    if isinstance(error, HorologError):
        return REJECTION_REASONS.get(error.code, error.name.lower())
    return "storage"


def _messages_in(record_set: Buffer) -> int:
    """How many messages a refused set holds, as far as it can be read; at least 1."""
    return max(walk(record_set, 0, len(record_set), check_crc=False).count, 1)


def _refusal(response: ProduceResponse) -> CloseConnection | None:
    """There is no answer that could carry an error, so a closed connection has to do."""
    for topic in response.topics:
        for result in topic.partitions:
            if result.error_code:
                return CloseConnection(
                    f"a produce with acks=0 to {topic.name}-{result.partition} was refused: "
                    f"{result.error_message}",
                    result.error_code,
                )
    return None


def _when_durable(
    services: Services, timeout_ms: int, response: ProduceResponse, sent: Sequence[_Sent]
) -> ProduceResponse | Later:
    """The answer, once all that was appended is as durable as was asked for."""
    unsynced = {
        one.partition: one for one in sent if one.log is not None and not _settled(services, one)
    }
    if not unsynced:
        return response

    def satisfied(partition: Partition) -> bool:
        one = unsynced.get(partition)
        if one is not None and _settled(services, one):
            del unsynced[partition]
        return not unsynced

    def make() -> ProduceResponse:
        for one in unsynced.values():
            if not _settled(services, one):
                # The messages are in the log, so the result keeps their offsets.
                error = RequestTimedOut(
                    "the messages are in the log, but were not as durable as acks=-1 asks within "
                    f"the request's timeout of {timeout_ms} ms"
                )
                one.refuse(services, error)
        return response

    ready = services.produces.park(unsynced, satisfied, timeout_ms)
    return Later(ready, make)


def _settled(services: Services, sent: _Sent) -> bool:
    """Whether the wait for one partition is over; a failure is noted in its result."""
    assert sent.log is not None
    if sent.log.high_watermark >= sent.end_offset:
        return True
    failure: HorologError | None = sent.log.failure
    if failure is None and not services.logs.is_current(sent.log):
        failure = UnknownTopicOrPartition("the topic was deleted before its messages were synced")
    if failure is None:
        return False
    sent.refuse(services, failure)
    return True
