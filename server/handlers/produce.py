"""produce: append message sets, and answer when they are as durable as was asked for."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from ...protocol.api.log.produce import (
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResult,
)
from ...protocol.errors import (
    CodedError,
    RequestTimedOut,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from ...storage.files import Buffer
from ...storage.log.appended import AppendedTogether
from ...storage.log.log import Log
from ..late_appends import Sender
from ..outcomes import CloseConnection
from ..parking import Partition
from .appends import ACKS, IN_THE_LOG, NO_ANSWER, Sent, append, append_later, append_sets
from .base import Call, Later, Services

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
    `CloseConnection`, because nothing is done about requests behind it; if it is to be seen later
    whether there is one, those behind wait for that. If one of them names a topic that is to be
    made, all wait for that.
    """
    names = {topic.name for request in requests for topic in request.topics}
    if all(map(services.creations.exists, names)):
        return _handle_now(services, requests, {})
    missing = services.creations.missing(_named_topics(services, requests))
    if not missing:
        return _handle_now(services, requests, {})
    creating = services.creations.make(missing)
    return _handle_then(services, requests, creating.ready, creating.failures)


def _handle_then(
    services: Services,
    requests: Sequence[ProduceRequest],
    ready: asyncio.Future[Any],
    failures: Callable[[], Mapping[str, Exception]],
) -> list[Outcome]:
    """As `_handle_now`, once `ready` is done."""
    outcomes: list[Outcome] = []

    def outcome(number: int) -> ProduceResponse | Later | None:
        if not outcomes:
            outcomes.extend(_handle_now(services, requests, failures()))
        found = outcomes[number]
        if isinstance(found, Exception):
            raise found
        return found

    return [
        Later(ready, partial(outcome, number), alone=True, held_bytes=_size(request))
        for number, request in enumerate(requests)
    ]


def _size(request: ProduceRequest) -> int:
    """Bytes of the sets of a request."""
    return sum(len(one.records or b"") for topic in request.topics for one in topic.partitions)


def _named_topics(services: Services, requests: Sequence[ProduceRequest]) -> Iterator[str]:
    """The topics that may be made for these requests, should they not exist."""
    first_partitions = services.creations.first_partitions()
    for request in requests:
        if request.transactional_id is None and request.acks in ACKS:
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
            last = outcomes[-1]
            if isinstance(last, Later):
                behind = requests[len(outcomes) :]
                return outcomes + _handle_then(services, behind, last.ready, lambda: failures)
            if last is not None:
                return outcomes
    return outcomes


def _handle_alike(
    services: Services,
    acks: int,
    requests: list[ProduceRequest],
    failures: Mapping[str, Exception],
) -> list[Outcome]:
    """Answer requests that have the same `acks`."""
    answers = [(request, *_answer_to(request)) for request in requests]
    late = _append_all(services, acks, answers, failures)
    if not late and acks == IN_THE_LOG:
        return [response for _, response, _ in answers]
    outcomes = []
    for request, response, sent in answers:
        answer = partial(_answer, services, acks, request.timeout_ms, response, sent)
        outcomes.append(_once_appended(sent, answer) if late else answer())
    return outcomes


def _append_all(
    services: Services,
    acks: int,
    answers: Sequence[tuple[ProduceRequest, ProduceResponse, Sequence[Sent]]],
    failures: Mapping[str, Exception],
) -> bool:
    """Append what requests brought, what is for one partition at once; whether some of it waits."""
    by_partition: dict[Partition, list[Sent]] = {}
    for request, _, sent in answers:
        if request.transactional_id is not None:
            _refuse(services, sent, _no_transactions(request.transactional_id))
            continue
        for one in sent:
            of_partition = by_partition.get(one.partition)
            if of_partition is None:
                by_partition[one.partition] = [one]
            else:
                of_partition.append(one)
    late: list[tuple[Log, Sent]] = []
    for partition, of_partition in by_partition.items():
        failure = failures.get(partition[0])
        if failure is None:
            late += append(services, acks, partition, of_partition)
        else:
            _refuse(services, of_partition, failure)
    sender = Sender()
    for log, one in late:
        append_later(services, acks, log, one, sender)
    return bool(late)


def _refuse(services: Services, sent: Sequence[Sent], error: Exception) -> None:
    for one in sent:
        one.refuse(services, error)


def _once_appended(sent: Sequence[Sent], answer: Callable[[], Outcome]) -> Outcome:
    """The answer to a request that brought these sets, when none of them waits any more."""
    late = [one for one in sent if one.late is not None]
    if not late:
        return answer()

    def make() -> ProduceResponse | Later | None:
        outcome = answer()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    ready = asyncio.gather(*(one.late for one in late if one.late is not None))
    # The next request would take a turn beside this one.
    return Later(ready, make, alone=True, held_bytes=sum(len(one.record_set) for one in late))


def _answer(
    services: Services,
    acks: int,
    timeout_ms: int,
    response: ProduceResponse,
    sent: Sequence[Sent],
    requests: int = 1,
) -> Outcome:
    """The answer to so many requests whose sets were appended or refused."""
    if acks == IN_THE_LOG:
        return response
    if acks == NO_ANSWER:
        return _refusal(response)
    return _when_durable(services, timeout_ms, response, sent, requests)


def _no_transactions(transactional_id: str) -> UnsupportedVersion:
    return UnsupportedVersion(
        f"the request belongs to the transactions of {transactional_id[:100]!r}; there are no "
        "transactions in Horolog: produce without transactional.id"
    )


def _answer_to(request: ProduceRequest) -> tuple[ProduceResponse, list[Sent]]:
    """The answer, still without what becomes of the sets, and these."""
    topics = request.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        topics = _last_of_each(topics)
    results = []
    all_sent = []
    for topic in topics:
        name = topic.name
        of_topic = []
        for one in topic.partitions:
            number = one.partition
            result = ProducePartitionResult(partition=number)
            of_topic.append(result)
            all_sent.append(Sent((name, number), one.records or b"", result))
        results.append(ProduceTopicResult(name=name, partitions=of_topic))
    return ProduceResponse(topics=results), all_sent


def _last_of_each(topics: Sequence[ProduceTopic]) -> list[ProduceTopic]:
    """Each topic and partition once: one that is named twice has the last set."""
    named: dict[str, dict[int, ProducePartition]] = {}
    for topic in topics:
        of_topic = named.setdefault(topic.name, {})
        for one in topic.partitions:
            of_topic[one.partition] = one
    return [
        ProduceTopic(name=name, partitions=list(of_topic.values()))
        for name, of_topic in named.items()
    ]


def append_alone(
    services: Services,
    partition: Partition,
    record_sets: Sequence[Buffer],
    acks: int,
    timeout_ms: int,
    sender_of: Callable[[int], Sender],
) -> tuple[AppendedTogether, ProduceResponse | Later | None] | list[ProduceResponse | Later]:
    """Append the sets of requests that brought nothing else; `acks` is 1 or -1.

    Gives what became of all of them at once with one answer, which is right for each but for the
    base offset, and `None` where nothing has to be waited for; or the answer of each. `sender_of`
    tells by the number of a set who sent it. Sets that are appended later are copied.
    """
    log, outcomes = append_sets(services, acks, partition, record_sets)

    def answer(sent: Sent, requests: int = 1) -> Any:
        topic = ProduceTopicResult(name=partition[0], partitions=[sent.result])
        response = ProduceResponse(topics=[topic])
        return _answer(services, acks, timeout_ms, response, (sent,), requests)

    if isinstance(outcomes, AppendedTogether):
        assert log is not None
        if acks == IN_THE_LOG or log.high_watermark >= outcomes.end_offset:
            return outcomes, None
        result = ProducePartitionResult(
            partition=partition[1], log_append_time_ms=outcomes.append_time_ms
        )
        whole = Sent(partition, b"", result, log, outcomes.end_offset)
        return outcomes, answer(whole, len(record_sets))
    answers: list[Any] = []
    for number, record_set in enumerate(record_sets):
        sent = Sent(partition, record_set, ProducePartitionResult(partition=partition[1]))
        if number < len(outcomes):
            sent.take(services, log, outcomes[number])
            answers.append(answer(sent))
        else:
            assert log is not None
            sent.record_set = bytearray(record_set)
            append_later(services, acks, log, sent, sender_of(number))
            answers.append(_once_appended((sent,), partial(answer, sent)))
    return answers


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
    sent: Sequence[Sent],
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


def _settled(services: Services, sent: Sent) -> bool:
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
