"""produce: append message sets, and answer when they are as durable as was asked for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
    CodedError,
    CorruptMessage,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTimestamp,
    MessageTooLarge,
    RecordListTooLarge,
    RequestTimedOut,
    StorageError,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartition,
    UnsupportedForMessageFormat,
)
from ...protocol.records.kernel import walk
from ...storage.appended import Appended, AppendedTogether
from ...storage.files import Buffer
from ...storage.log import Log
from ..figures import count
from ..outcomes import CloseConnection
from ..parking import Partition
from .base import Call, Later, Services

NO_ANSWER, IN_THE_LOG, DURABLE = 0, 1, -1
"""The values of `acks`."""

_ACKS: Final = (NO_ANSWER, IN_THE_LOG, DURABLE)

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

    def take(self, services: Services, log: Log | None, outcome: Appended | Exception) -> None:
        """Tell the producer what became of the set in `log`."""
        if isinstance(outcome, Exception):
            self.refuse(services, outcome)
            return
        assert log is not None
        self.result.base_offset = outcome.first_offset
        self.result.log_append_time_ms = outcome.append_time_ms
        self.result.log_start_offset = log.log_start_offset
        if outcome.count:
            self.log, self.end_offset = log, outcome.last_offset + 1

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


def handle_many(services: Services, requests: Sequence[ProduceRequest]) -> Sequence[Outcome]:
    """Answer requests that arrived together, in their order: what `handle` would return or raise.

    What they bring for one partition is appended at once. There are no outcomes behind a
    `CloseConnection`, because nothing is done about requests behind it. If one of them names a
    topic that is to be made, all wait for that.
    """
    missing = services.creations.missing(_named_topics(services, requests))
    if not missing:
        return _handle_now(services, requests, {})
    creating = services.creations.make(missing)
    outcomes: list[Outcome] = []

    def outcome(number: int) -> ProduceResponse | Later | None:
        if not outcomes:
            outcomes.extend(_handle_now(services, requests, creating.failures()))
        found = outcomes[number]
        if isinstance(found, Exception):
            raise found
        return found

    return [
        Later(creating.ready, partial(outcome, number), alone=True)
        for number in range(len(requests))
    ]


def _named_topics(services: Services, requests: Sequence[ProduceRequest]) -> Iterator[str]:
    """The topics that may be made for these requests, should they not exist."""
    first_partitions = services.creations.first_partitions()
    for request in requests:
        if request.transactional_id is None and request.acks in _ACKS:
            for topic in request.topics:
                if any(one.partition in first_partitions for one in topic.partitions):
                    yield topic.name


def _handle_now(
    services: Services, requests: Sequence[ProduceRequest], failures: Mapping[str, Exception]
) -> list[Outcome]:
    """As `handle_many`, without waiting; `failures` are why topics could not be made."""
    outcomes: list[Outcome] = []
    for acks, alike in groupby(requests, attrgetter("acks")):
        if acks != NO_ANSWER:
            outcomes += _handle_alike(services, acks, list(alike), failures)
            continue
        for request in alike:
            outcomes += _handle_alike(services, acks, [request], failures)
            if outcomes[-1] is not None:
                return outcomes
    return outcomes


def _handle_alike(
    services: Services,
    acks: int,
    requests: list[ProduceRequest],
    failures: Mapping[str, Exception],
) -> list[Outcome]:
    """Answer requests that have the same `acks`."""
    by_partition: dict[Partition, list[_Sent]] = {}
    answers = []
    for request in requests:
        response, sent = _answer_to(request)
        answers.append((response, sent))
        for one in sent:
            if request.transactional_id is None:
                by_partition.setdefault(one.partition, []).append(one)
            else:
                one.refuse(services, _no_transactions(request.transactional_id))
    for partition, sent in by_partition.items():
        failure = failures.get(partition[0])
        if failure is None:
            _append(services, acks, partition, sent)
        else:
            for one in sent:
                one.refuse(services, failure)
    if acks == IN_THE_LOG:
        return [response for response, _ in answers]
    if acks == NO_ANSWER:
        return [_refusal(response) for response, _ in answers]
    return [
        _when_durable(services, request.timeout_ms, response, sent)
        for request, (response, sent) in zip(requests, answers, strict=True)
    ]


def _no_transactions(transactional_id: str) -> TransactionalIdAuthorizationFailed:
    return TransactionalIdAuthorizationFailed(
        f"the request belongs to the transactions of {transactional_id[:100]!r}; there are no "
        "transactions in Horolog: produce without transactional.id"
    )


def _answer_to(request: ProduceRequest) -> tuple[ProduceResponse, list[_Sent]]:
    """The answer, still without what becomes of the sets, and these."""
    # A partition that is named twice gets the last set, and one answer.
    sets: dict[str, dict[int, Buffer | None]] = {}
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
            all_sent.append(_Sent((name, number), record_set or b"", result))
            results.append(result)
        topics.append(ProduceTopicResult(name=name, partitions=results))
    return ProduceResponse(topics=topics), all_sent


def append_alone(
    services: Services,
    partition: Partition,
    record_sets: Sequence[Buffer],
    acks: int,
    timeout_ms: int,
) -> tuple[AppendedTogether, ProduceResponse | Later | None] | list[ProduceResponse | Later]:
    """Append the sets of requests that brought nothing else; `acks` is 1 or -1.

    Gives what became of all of them at once with one answer, which is right for each but for the
    base offset, and `None` where nothing has to be waited for; or the answer of each.
    """
    log, outcomes = _append_sets(services, acks, partition, record_sets)

    def answer(sent: _Sent, requests: int) -> ProduceResponse | Later:
        topic = ProduceTopicResult(name=partition[0], partitions=[sent.result])
        response = ProduceResponse(topics=[topic])
        if acks == IN_THE_LOG:
            return response
        return _when_durable(services, timeout_ms, response, (sent,), requests)

    if isinstance(outcomes, AppendedTogether):
        assert log is not None
        if acks == IN_THE_LOG or log.high_watermark >= outcomes.end_offset:
            return outcomes, None
        result = ProducePartitionResult(
            partition=partition[1], log_append_time_ms=outcomes.append_time_ms
        )
        whole = _Sent(partition, b"", result, log, outcomes.end_offset)
        return outcomes, answer(whole, len(record_sets))
    answers = []
    for record_set, outcome in zip(record_sets, outcomes, strict=True):
        sent = _Sent(partition, record_set, ProducePartitionResult(partition=partition[1]))
        sent.take(services, log, outcome)
        answers.append(answer(sent, 1))
    return answers


def _append(services: Services, acks: int, partition: Partition, sent: Sequence[_Sent]) -> None:
    """Append the sets of one partition and take note of what became of them."""
    record_sets = [one.record_set for one in sent]
    log, outcomes = _append_sets(services, acks, partition, record_sets)
    if not isinstance(outcomes, AppendedTogether):
        for one, outcome in zip(sent, outcomes, strict=True):
            one.take(services, log, outcome)
        return
    assert log is not None
    end_offset, append_time_ms = outcomes.end_offset, outcomes.append_time_ms
    for one, first_offset in zip(sent, outcomes.first_offsets, strict=True):
        result = one.result
        result.base_offset, result.log_append_time_ms = first_offset, append_time_ms
        result.log_start_offset = log.log_start_offset
        # One write and one sync are for all of them.
        one.log, one.end_offset = log, end_offset


def _append_sets(
    services: Services, acks: int, partition: Partition, record_sets: Sequence[Buffer]
) -> tuple[Log | None, AppendedTogether | Sequence[Appended | Exception]]:
    """Append sets to the log of a partition, count them, and have them synced if that is due.

    Gives that log, if there is one, and what became of all sets together or of each.
    """
    try:
        log = _log_for(services, acks, *partition)
    except Exception as error:
        return None, [error] * len(record_sets)
    wait_for_sync = acks == DURABLE and log.settings.acks_all_durability == "fsync"
    end_offset = log.log_end_offset
    outcomes: AppendedTogether | Sequence[Appended | Exception] | None
    try:
        outcomes = log.append_together(record_sets, wait_for_sync=wait_for_sync)
    except Exception as error:
        outcomes = [error] * len(record_sets)
    if outcomes is None:
        outcomes = log.append_many(record_sets, wait_for_sync=wait_for_sync)
    if isinstance(outcomes, AppendedTogether):
        figures = services.figures.topic(log.topic)
        figures.appended(outcomes.count, outcomes.size_bytes, outcomes.latency)
    else:
        for record_set, outcome in zip(record_sets, outcomes, strict=True):
            _note(services, log, record_set, outcome)
    flush_due = wait_for_sync or log.unflushed_messages >= log.settings.flush_messages
    if flush_due and log.log_end_offset > end_offset:
        services.commits.request(log)
    return log, outcomes


def _log_for(services: Services, acks: int, topic: str, partition: int) -> Log:
    if acks not in _ACKS:
        services.logs.check_partition(topic, partition)
        raise InvalidRequiredAcks(f"acks is {acks}; it must be 0 (none), 1 (in the log) or -1")
    return services.logs.find_or_create(topic, partition)


def _note(services: Services, log: Log, record_set: Buffer, outcome: Appended | Exception) -> None:
    """Count a set that was appended, or was refused."""
    figures = services.figures.topic(log.topic)
    if isinstance(outcome, Exception):
        if isinstance(outcome, CodedError | OSError):
            count(figures.rejected, _reason(outcome), _messages_in(record_set))
        if isinstance(outcome, InvalidTimestamp):
            services.outcomes.timestamp_refused(log.topic, log.partition, outcome)
        return
    if outcome.repeated:
        figures.repeated_messages += outcome.count
    if not outcome.count or outcome.repeated:
        return
    figures.appended(outcome.count, outcome.size_bytes, outcome.latency)
    conversion = outcome.conversion
    if conversion is not None:
        direction = "append_up" if conversion.up else "append_down"
        figures.converted(direction, conversion.messages, conversion.size_bytes, conversion.seconds)
        figures.dropped_headers += conversion.headers
    if outcome.rolled is not None:
        services.rolled(log.topic, log.partition)


def _reason(error: Exception) -> str:
    """The `reason` label of a refused set."""
    if isinstance(error, CodedError):
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
    services: Services,
    timeout_ms: int,
    response: ProduceResponse,
    sent: Sequence[_Sent],
    requests: int = 1,
) -> ProduceResponse | Later:
    """The answer to so many requests, once all that was appended is as durable as was asked for."""
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

    ready = services.produces.park(unsynced, satisfied, timeout_ms, requests=requests)
    return Later(ready, make)


def _settled(services: Services, sent: _Sent) -> bool:
    """Whether the wait for one partition is over; a failure is noted in its result."""
    assert sent.log is not None
    if sent.log.high_watermark >= sent.end_offset:
        return True
    failure: CodedError | None = sent.log.failure
    if failure is None and not services.logs.is_current(sent.log):
        failure = UnknownTopicOrPartition("the topic was deleted before its messages were synced")
    if failure is None:
        return False
    sent.refuse(services, failure)
    return True
