"""produce: append message sets, and answer when they are as durable as was asked for."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, groupby, pairwise
from operator import attrgetter, itemgetter
from typing import Any, Final

from ...protocol.api.log.produce import (
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResult,
)
from ...protocol.api.pieces import Pieces, finish
from ...protocol.errors import (
    UnsupportedVersion,
)
from ...storage.log.log import Log
from ..creations import CreationContext
from ..late_appends import Sender
from ..outcomes import CloseConnection
from ..parking import Partition, Wait
from .appends import (
    ACKS,
    DURABLE,
    IN_THE_LOG,
    NO_ANSWER,
    ROWS,
    Sent,
    Unsettled,
    append,
    append_later,
    kept,
    new_sent,
    sent_with,
)
from .base import Later, Services, in_turns
from .durability import Outcome, when_durable, when_set_is_durable

AT_ONCE: Final = 16
"""Partitions of one request that are appended to without a look at the time."""

_topic_of: Final[Callable[[Partition], str]] = itemgetter(0)
_timeout_of: Final[Callable[[ProduceRequest], int]] = attrgetter("timeout_ms")


def handle_many(
    services: Services, version: int, requests: Sequence[ProduceRequest]
) -> Sequence[Outcome]:
    """Answer requests that arrived together, in their order: what each alone would get.

    What they bring for one partition is appended at once. There are no outcomes behind a
    `CloseConnection`, because nothing is done about requests behind it; if it is to be seen later
    whether there is one, those behind wait for that. If one of them names a topic that is to be
    made, all wait for that.
    """
    if len(requests) == 1 and _names_many(requests[0]):
        return [in_turns(services, _handling(services, requests[0]))]
    rows = _Rows(requests)
    if not all(map(services.creations.exists, map(_topic_of, rows.by_partition))):
        missing = services.creations.missing(_named_topics(services, requests))
        if missing:
            creating = services.creations.make(missing)
            return _handle_then(services, requests, creating.ready, creating.failures)
    if rows.alike:
        return _handle_alike(services, rows, {})
    return _handle_now(services, requests, {})


def _names_many(request: ProduceRequest) -> bool:
    """Whether a request is for more partitions than are handled without a look at the time."""
    if len(request.topics) == 1 and len(request.topics[0].partitions) <= AT_ONCE:
        return False
    return sum(len(topic.partitions) for topic in request.topics) > AT_ONCE


def _handling(services: Services, request: ProduceRequest) -> Pieces[Outcome]:
    """As `handle_many` of one request, in pieces. Its record sets stay where they are."""
    asker = services.creations.asker
    missing = services.creations.missing(_named_topics(services, (request,)))
    if not missing:
        return (yield from _handled(services, request, {}))
    services.creations.asker = asker
    creating = services.creations.make(missing)
    return Later(
        creating.ready,
        lambda: in_turns(services, _handled(services, request, creating.failures())),
        alone=True,
        held_bytes=_size(request),
    )


def _handled(
    services: Services, request: ProduceRequest, failures: Mapping[str, Exception]
) -> Pieces[Outcome]:
    rows = _Rows(())
    rows.acks, rows.requests, rows.stay = request.acks, (request,), True
    yield from rows.add(request)
    late: list[tuple[Log, Sent]] = []
    waiting: list[Unsettled] = []
    for partition in rows.by_partition:
        _append(services, rows, failures, partition, late, waiting)
        yield
    (outcome,) = _outcomes(services, rows, late, waiting)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def handle_in_bulk(
    services: Services,
    sources: Sequence[Sequence[ProduceRequest]],
    askers: Sequence[CreationContext],
) -> Sequence[Sequence[Outcome]]:
    """Answer the requests of several connections, of each as `handle_many`.

    What all of them bring for one partition is appended at once where nothing about them is
    unusual: they want the same `acks`, and the topics exist. Else each of the `askers` is who has
    the topics made that its requests name.
    """
    rows = _Rows(list(chain.from_iterable(sources)))
    if not (rows.alike and all(map(services.creations.exists, map(_topic_of, rows.by_partition)))):
        return [
            _handle_of(services, source, asker)
            for source, asker in zip(sources, askers, strict=True)
        ]
    ends = list(accumulate(map(len, sources)))
    outcomes = _handle_alike(services, rows, {}, ends)
    return [outcomes[begin:end] for begin, end in pairwise((0, *ends))]


def _handle_of(
    services: Services, requests: Sequence[ProduceRequest], asker: CreationContext
) -> Sequence[Outcome]:
    services.creations.asker = asker
    return handle_many(services, 0, requests)


class _Rows:
    """What requests bring, by request and by partition."""

    __slots__ = (
        "acks",
        "alike",
        "by_partition",
        "of_transactions",
        "one_each",
        "requests",
        "responses",
        "stay",
    )

    def __init__(self, requests: Sequence[ProduceRequest]) -> None:
        self.acks = requests[0].acks if requests else IN_THE_LOG
        """Of all of them, if they are `alike`."""
        self.alike = len(requests) == 1 or self.acks != NO_ANSWER
        """Whether they want the same `acks`, and their answers can be made together."""
        self.requests = requests
        self.responses: list[ProduceResponse]
        """To each of them: its results are what it sent (`sent_with`)."""
        self.by_partition: dict[Partition, list[Sent]]
        """What may be appended."""
        self.stay = False
        """Whether the sets stay as they are when more is received."""
        self.of_transactions: list[tuple[str, ProduceResponse]] = []
        """What belongs to transactions, by their ids."""
        rows = ROWS.read(requests, self.acks) if requests else None
        self.one_each = rows is not None
        """Whether each of them brings one set."""
        if rows is not None:
            self.by_partition, self.responses = rows
        else:
            self._add_each()

    def _add_each(self) -> None:
        self.by_partition, self.responses = defaultdict(list), []
        for request in self.requests:
            finish(self.add(request))
            if request.acks != self.acks:
                self.alike = False

    def add(self, request: ProduceRequest) -> Pieces[None]:
        """Add a request, which may name any number of partitions and be of a transaction."""
        by_partition, topics = self.by_partition, request.topics
        if len(topics) != 1 or len(topics[0].partitions) != 1:
            topics = yield from _last_of_each(topics)
        results: list[ProduceTopicResult] = []
        self.responses.append(response := ProduceResponse(topics=results))
        if request.transactional_id is not None:
            by_partition = defaultdict(list)
            self.of_transactions.append((request.transactional_id, response))
        for topic in topics:
            of_topic: list[ProducePartitionResult] = []
            for one in topic.partitions:
                target = topic.name, one.partition
                sent = new_sent(target, one.records or b"", partition=one.partition)
                of_topic.append(sent)
                by_partition[target].append(sent)
                yield
            results.append(ProduceTopicResult(name=topic.name, partitions=of_topic))


def _handle_then(
    services: Services,
    requests: Sequence[ProduceRequest],
    ready: asyncio.Future[Any] | Wait,
    failures: Callable[[], Mapping[str, Exception]],
) -> list[Outcome]:
    """As `_handle_now`, once `ready` is done."""
    outcomes: list[Outcome] = []
    for request in requests:
        for topic in request.topics:
            for one in topic.partitions:
                one.records = kept(one.records or b"")

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
            outcomes += _handle_alike(services, _Rows(list(alike)), failures)
            continue
        for request in alike:
            outcomes += _handle_alike(services, _Rows([request]), failures)
            last = outcomes[-1]
            if isinstance(last, Later):
                behind = requests[len(outcomes) :]
                return outcomes + _handle_then(services, behind, last.ready, lambda: failures)
            if last is not None:
                return outcomes
    return outcomes


def _handle_alike(
    services: Services,
    rows: _Rows,
    failures: Mapping[str, Exception],
    ends: Sequence[int] = (),
) -> Sequence[Outcome]:
    """Answer requests that have the same `acks`. Those of one connection end at the first of
    `ends`, and so on."""
    late: list[tuple[Log, Sent]] = []
    waiting: list[Unsettled] = []
    for partition in rows.by_partition:
        _append(services, rows, failures, partition, late, waiting)
    return _outcomes(services, rows, late, waiting, ends)


def _append(
    services: Services,
    rows: _Rows,
    failures: Mapping[str, Exception],
    partition: Partition,
    late: list[tuple[Log, Sent]],
    waiting: list[Unsettled],
) -> None:
    """Append what requests bring for one partition, or refuse it."""
    sent, failure = rows.by_partition[partition], failures.get(partition[0])
    if failure is None:
        late += append(services, rows.acks, partition, sent, waiting)
    else:
        _refuse(services, sent, failure)


def _outcomes(
    services: Services,
    rows: _Rows,
    late: Sequence[tuple[Log, Sent]],
    waiting: Sequence[Unsettled],
    ends: Sequence[int] = (),
) -> Sequence[Outcome]:
    """What requests get of which all was appended, or is `late`, or was refused."""
    acks, responses = rows.acks, rows.responses
    for transactional_id, response in rows.of_transactions:
        _refuse(services, sent_with(response), _no_transactions(transactional_id))
    if late:
        _append_late(services, rows, late, ends or (len(responses),))
        return [
            _once_appended(services, acks, request.timeout_ms, response)
            for request, response in zip(rows.requests, responses, strict=True)
        ]
    if waiting:
        for one in chain.from_iterable(rows.by_partition.values()):
            one.record_set = b""
        timeouts_ms = list(map(_timeout_of, rows.requests))
        if rows.one_each and len(rows.by_partition) == 1 and len(set(timeouts_ms)) == 1:
            (sent,) = rows.by_partition.values()
            return when_set_is_durable(services, timeouts_ms[0], sent, responses)
        return when_durable(services, timeouts_ms, responses)
    if acks == NO_ANSWER:
        return list(map(_refusal, responses))
    return responses


def _append_late(
    services: Services, rows: _Rows, late: Sequence[tuple[Log, Sent]], ends: Sequence[int]
) -> None:
    """Have sets appended later; those of one connection have one sender. The others are let go of,
    as their answers wait too."""
    logs = {id(one): log for log, one in late}
    for begin, end in pairwise((0, *ends)):
        sender = Sender()
        for response in rows.responses[begin:end]:
            for one in sent_with(response):
                log = logs.get(id(one))
                if log is None:
                    one.record_set = b""
                else:
                    append_later(services, rows.acks, log, one, sender, stays=rows.stay)


def _refuse(services: Services, sent: Sequence[Sent], error: Exception) -> None:
    for one in sent:
        one.refuse(services, error)


def _once_appended(
    services: Services, acks: int, timeout_ms: int, response: ProduceResponse
) -> Outcome:
    """The answer to a request when none of its sets waits any more."""

    def answer() -> Outcome:
        if acks == DURABLE:
            (outcome,) = when_durable(services, (timeout_ms,), (response,))
            return outcome
        return response if acks == IN_THE_LOG else _refusal(response)

    late = [one for one in sent_with(response) if one.late is not None]
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


def _no_transactions(transactional_id: str) -> UnsupportedVersion:
    return UnsupportedVersion(
        f"the request belongs to the transactions of {transactional_id[:100]!r}; there are no "
        "transactions in Horolog: produce without transactional.id"
    )


def _last_of_each(topics: Sequence[ProduceTopic]) -> Pieces[list[ProduceTopic]]:
    """Each topic and partition once: one that is named twice has the last set."""
    named: dict[str, dict[int, ProducePartition]] = {}
    for topic in topics:
        of_topic = named.setdefault(topic.name, {})
        for one in topic.partitions:
            of_topic[one.partition] = one
            yield
    return [
        ProduceTopic(name=name, partitions=list(of_topic.values()))
        for name, of_topic in named.items()
    ]


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
