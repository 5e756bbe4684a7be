"""produce: append record sets, and answer when they are as durable as `acks` asks.

produce (key 0): versions 0 to 7, native 0 to 3
     1  throttle_time_ms in the response (KIP-13)
     2  log_append_time, and message format v1 (KIP-31, KIP-32)
     3  transactional_id, and record batches, which is format v2 (KIP-98)
     4  KAFKA_STORAGE_ERROR (KIP-112); older versions get another code for it
     5  log_start_offset in the response (KIP-107)
     6  the response comes before the client is throttled (KIP-219)
     7  batches in zstd (KIP-110)

Left out: transactions, which are refused by name, and per-record errors of version 8 (KIP-467).

The file follows a request: its record sets are sorted by partition, appended, and answered. A set
that takes long to check is appended later, with the help of a thread (`late_appends`). With
acks=all an answer waits for a sync, or for the followers (`PendingAck`).
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate, chain, groupby, pairwise, repeat
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Any, Final, NoReturn

from ...protocol.api.log.produce import (
    PRODUCE,
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResult,
)
from ...protocol.api.pieces import Pieces, finish
from ...protocol.errors import (
    CodedError,
    CorruptMessage,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTimestamp,
    MessageTooLarge,
    PolicyViolation,
    RecordListTooLarge,
    RequestTimedOut,
    StorageError,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnsupportedForMessageFormat,
    UnsupportedVersion,
)
from ...protocol.limits import SHARED_SLAB_BYTES
from ...protocol.records.kernel import ProduceRows, walk
from ...protocol.records.layout import NO_TIMESTAMP
from ...storage.files import Buffer
from ...storage.log.admitted import Appended
from ...storage.log.log import Log
from ..late_appends import Sender
from ..metrics.figures import count
from ..outcomes import CloseConnection
from ..parking import Awaited, Partition, SharedWait, Wait
from ..replication.service import Commit
from ..requests import PendingAnswer, in_turns
from ..topic_creation import CreationContext
from .base import Services
from .registration import handles_many

NO_ANSWER, IN_THE_LOG, DURABLE = 0, 1, -1
"""The values of `acks`."""

ACKS: Final = (NO_ANSWER, IN_THE_LOG, DURABLE)

REJECTION_REASONS: Final[Mapping[int, str]] = MappingProxyType(
    {
        CorruptMessage.code: "corrupt",
        InvalidRecord.code: "invalid",
        InvalidTimestamp.code: "timestamp",
        MessageTooLarge.code: "too_large",
        PolicyViolation.code: "producers",
        RecordListTooLarge.code: "set_too_large",
        StorageError.code: "storage",
        UnsupportedForMessageFormat.code: "format",
        UnsupportedVersion.code: "transaction",
    }
)
"""The `reason` of horolog_rejected_messages_total by error code."""


class ProduceResult(ProducePartitionResult, gc=True):  # type: ignore[call-arg] # a struct, for mypy a class
    """The result for one partition, and the record set on its way into the log."""

    target: Partition
    record_set: Buffer
    pending: "PendingAck | None" = None
    """With acks=all: what the answer waits for."""
    late: asyncio.Future[None] | None = None
    """For a set that is appended later: done when the set is appended or refused, cancelled when
    no client waits for the answer."""

    def refuse(self, services: Services, error: Exception) -> None:
        """Put an error into the result."""
        self.error_code, self.error_message = services.outcomes.of(error, api="produce")

    def release(self, late: asyncio.Future[None]) -> None:
        """Drop the reference to the record set: it is in the log, or no client waits for it."""
        self.record_set = b""


class PendingAck:
    """The acknowledgement, with acks=all, of record sets that were appended in one write."""

    __slots__ = ("_commit", "_end_offset", "_log", "awaited", "error")

    def __init__(self, log: Log, partition: Partition, end_offset: int, commit: Commit | None):
        """Complete when the high watermark reaches `end_offset`; in a cluster, when `commit` is
        done."""
        self._log = log
        self._end_offset = end_offset
        self._commit = commit
        self.awaited: tuple[Awaited, ...] = (partition,) if commit is None else (partition, commit)
        """Events after which the acknowledgement may be complete."""
        self.error: CodedError | None = None
        """Why the sets will not be as durable as acks=all asks."""

    def is_complete(self, services: Services) -> bool:
        """Whether the sets are durable, or never will be; the reason is in `error` then."""
        commit, log = self._commit, self._log
        if commit is not None:
            if commit.done:
                self.error = commit.error
                return True
        elif log.high_watermark >= self._end_offset:
            return True
        failure: CodedError | None = log.failure
        if failure is None and not services.logs.is_current(log):
            failure = UnknownTopicOrPartition(
                "the topic was deleted before its messages were synced"
            )
        self.error = failure
        return failure is not None


_new_result: Final[Callable[..., ProduceResult]] = ProduceResult
"""The constructor of `ProduceResult`, with target, record set and, by name, partition: mypy sees
no fields in the class."""

_set_of: Final[Callable[[ProduceResult], Buffer]] = attrgetter("record_set")
_partitions_of: Final[Callable[[Any], list[Any]]] = attrgetter("partitions")

ROWS: Final = ProduceRows(ProduceResult, ProduceTopicResult, ProduceResponse)


def _results_of(response: ProduceResponse) -> list[ProduceResult]:
    """The results in a response, in the order of the request."""
    topics: list[Any] = response.topics
    if len(topics) == 1:  # nearly always
        only: list[ProduceResult] = topics[0].partitions
        return only
    return list(chain.from_iterable(map(_partitions_of, topics)))


Outcome = ProduceResponse | PendingAnswer | Exception | None
"""The outcome of a produce request; `None` with acks=0, which has no answer."""

RESULT_BYTES: Final = 500
"""Memory of a result that waits, with the message of an error."""

_pending_of: Final[Callable[[ProduceResult], PendingAck | None]] = attrgetter("pending")

AT_ONCE: Final = 16
"""Partitions of one request that are appended to without giving way to other requests."""

_topic_of: Final[Callable[[Partition], str]] = itemgetter(0)
_timeout_of: Final[Callable[[ProduceRequest], int]] = attrgetter("timeout_ms")


@handles_many(PRODUCE)
def handle_many(
    services: Services, version: int, requests: Sequence[ProduceRequest]
) -> Sequence[Outcome]:
    """Answer requests that arrived together, in their order: each gets what it would get alone.

    The sets for one partition are appended in one write. Requests after a `CloseConnection` are
    not handled and have no outcome. If a request may still end in a `CloseConnection` once its
    late sets are appended, the requests after it wait. If a request names a topic that has to be
    created, all requests wait for that.
    """
    if len(requests) == 1 and _names_many(requests[0]):
        return [in_turns(services.work, _handling(services, requests[0]))]
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
    """Whether a request is for more than `AT_ONCE` partitions."""
    if len(request.topics) == 1 and len(request.topics[0].partitions) <= AT_ONCE:
        return False
    return sum(len(topic.partitions) for topic in request.topics) > AT_ONCE


def _handling(services: Services, request: ProduceRequest) -> Pieces[Outcome]:
    """As `handle_many` for one request, in pieces. Its frame is pinned, so that the record sets
    stay unchanged between the pieces."""
    context = services.creations.context
    missing = yield from services.creations.find_missing(_named_topics(services, (request,)))
    if not missing:
        return (yield from _handled(services, request, {}))
    services.creations.context = context
    creating = services.creations.make(missing)
    return PendingAnswer(
        creating.ready,
        lambda: in_turns(services.work, _handled(services, request, creating.failures())),
        alone=True,
        held_bytes=_size(request),
    )


def _handled(
    services: Services, request: ProduceRequest, failures: Mapping[str, Exception]
) -> Pieces[Outcome]:
    rows = _Rows(())
    rows.acks, rows.requests, rows.stay = request.acks, (request,), True
    yield from rows.add(request)
    late: list[tuple[Log, ProduceResult]] = []
    waiting: list[PendingAck] = []
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
    contexts: Sequence[CreationContext],
) -> Sequence[Sequence[Outcome]]:
    """Answer the requests of several connections; the result has one sequence a connection, as
    from `handle_many`.

    If all have the same `acks` and all topics exist, the sets for one partition are appended in
    one write. Otherwise each connection is handled by itself, and the topics that its
    requests name are created for its client, one of `contexts`.
    """
    rows = _Rows(list(chain.from_iterable(sources)))
    if not (rows.alike and all(map(services.creations.exists, map(_topic_of, rows.by_partition)))):
        return [
            _handle_of(services, source, context)
            for source, context in zip(sources, contexts, strict=True)
        ]
    ends = list(accumulate(map(len, sources)))
    outcomes = _handle_alike(services, rows, {}, ends)
    return [outcomes[begin:end] for begin, end in pairwise((0, *ends))]


def _handle_of(
    services: Services, requests: Sequence[ProduceRequest], context: CreationContext
) -> Sequence[Outcome]:
    services.creations.context = context
    return handle_many(services, 0, requests)


class _Rows:
    """The record sets of requests, by request and by partition."""

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
        """The `acks` of all requests, if the requests are `alike`."""
        self.alike = len(requests) == 1 or self.acks != NO_ANSWER
        """Whether the requests have the same `acks`, and their answers can be made together."""
        self.requests = requests
        self.responses: list[ProduceResponse]
        """One response for each request, with its `ProduceResult`s."""
        self.by_partition: dict[Partition, list[ProduceResult]]
        """The sets to append."""
        self.stay = False
        """Whether the frames are pinned: the sets do not change when the connection receives
        more."""
        self.of_transactions: list[tuple[str, ProduceResponse]] = []
        """Responses to requests of transactions, with the transactional id of each."""
        rows = ROWS.read(requests, self.acks) if requests else None
        self.one_each = rows is not None
        """Whether each request has exactly one record set."""
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
        """Add a request, which may name any number of partitions and belong to a transaction."""
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
                sent = _new_result(target, one.records or b"", partition=one.partition)
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
    """As `_handle_now`, once `ready` is done: all requests are handled when the first of the
    returned answers is made."""
    outcomes: list[Outcome] = []
    for request in requests:
        for topic in request.topics:
            for one in topic.partitions:
                one.records = _kept(one.records or b"")

    def outcome(number: int) -> ProduceResponse | PendingAnswer | None:
        if not outcomes:
            outcomes.extend(_handle_now(services, requests, failures()))
        found = outcomes[number]
        if isinstance(found, Exception):
            raise found
        return found

    return [
        PendingAnswer(ready, partial(outcome, number), alone=True, held_bytes=_size(request))
        for number, request in enumerate(requests)
    ]


def _size(request: ProduceRequest) -> int:
    """Return the size of a request's record sets in bytes."""
    return sum(len(one.records or b"") for topic in request.topics for one in topic.partitions)


def _named_topics(services: Services, requests: Sequence[ProduceRequest]) -> Iterator[str]:
    """Yield the topics that these requests may create, if they do not exist."""
    first_partitions = services.creations.first_partitions()
    for request in requests:
        if request.transactional_id is None and request.acks in ACKS:
            for topic in request.topics:
                if any(one.partition in first_partitions for one in topic.partitions):
                    yield topic.name


def _handle_now(
    services: Services, requests: Sequence[ProduceRequest], failures: Mapping[str, Exception]
) -> list[Outcome]:
    """As `handle_many`, without waiting for topics; `failures` has the reason for each topic that
    could not be created."""
    outcomes: list[Outcome] = []
    for acks, alike in groupby(requests, attrgetter("acks")):
        if acks != NO_ANSWER:
            outcomes += _handle_alike(services, _Rows(list(alike)), failures)
            continue
        for request in alike:
            outcomes += _handle_alike(services, _Rows([request]), failures)
            last = outcomes[-1]
            if isinstance(last, PendingAnswer):
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
    """Answer requests that have the same `acks`. `ends` has the index after the last request of
    each connection; empty if all requests are from one."""
    late: list[tuple[Log, ProduceResult]] = []
    waiting: list[PendingAck] = []
    for partition in rows.by_partition:
        _append(services, rows, failures, partition, late, waiting)
    return _outcomes(services, rows, late, waiting, ends)


# Append.


def _append(
    services: Services,
    rows: _Rows,
    failures: Mapping[str, Exception],
    partition: Partition,
    late: list[tuple[Log, ProduceResult]],
    waiting: list[PendingAck],
) -> None:
    """Append the sets for one partition, or refuse them.

    Adds the sets that are left to `_append_later` to `late`: a set that takes long, and all sets
    after it. Adds the acknowledgements that answers with acks=all wait for to `waiting`.
    """
    acks, results = rows.acks, rows.by_partition[partition]
    failure = failures.get(partition[0])
    if failure is not None:
        _refuse(services, results, failure)
        return
    if acks == DURABLE and services.replication.replicates:
        first = services.replication.first_part([len(one.record_set) for one in results])
        if first:
            # Followers copy the first sets while the others are appended.
            left = _append_together(services, acks, partition, results[:first], waiting)
            if left:
                late += [*left, *((left[0][0], one) for one in results[first:])]
                return
            results = results[first:]
    late += _append_together(services, acks, partition, results, waiting)


def _outcomes(
    services: Services,
    rows: _Rows,
    late: Sequence[tuple[Log, ProduceResult]],
    waiting: Sequence[PendingAck],
    ends: Sequence[int] = (),
) -> Sequence[Outcome]:
    """Return the outcomes of requests whose sets were appended, refused, or are `late`."""
    acks, responses = rows.acks, rows.responses
    for transactional_id, response in rows.of_transactions:
        _refuse(services, _results_of(response), _no_transactions(transactional_id))
    if late:
        _append_behind(services, rows, late, ends or (len(responses),))
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


def _append_behind(
    services: Services, rows: _Rows, late: Sequence[tuple[Log, ProduceResult]], ends: Sequence[int]
) -> None:
    """Queue the `late` sets for a later append, with one `Sender` for each connection. The other
    sets of these requests are released, because their answers wait too."""
    logs = {id(one): log for log, one in late}
    for begin, end in pairwise((0, *ends)):
        sender = Sender()
        for response in rows.responses[begin:end]:
            for one in _results_of(response):
                log = logs.get(id(one))
                if log is None:
                    one.record_set = b""
                else:
                    _append_later(services, rows.acks, log, one, sender, stays=rows.stay)


def _refuse(services: Services, sent: Sequence[ProduceResult], error: Exception) -> None:
    for one in sent:
        one.refuse(services, error)


def _once_appended(
    services: Services, acks: int, timeout_ms: int, response: ProduceResponse
) -> Outcome:
    """Return the answer to a request, pending until all of its late sets are appended or
    refused."""

    def answer() -> Outcome:
        if acks == DURABLE:
            (outcome,) = when_durable(services, (timeout_ms,), (response,))
            return outcome
        return response if acks == IN_THE_LOG else _refusal(response)

    late = [one for one in _results_of(response) if one.late is not None]
    if not late:
        return answer()

    def make() -> ProduceResponse | PendingAnswer | None:
        outcome = answer()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    ready = asyncio.gather(*(one.late for one in late if one.late is not None))
    # Without `alone` the connection's next request would be handled before this one is done.
    return PendingAnswer(
        ready, make, alone=True, held_bytes=sum(len(one.record_set) for one in late)
    )


def _no_transactions(transactional_id: str) -> UnsupportedVersion:
    return UnsupportedVersion(
        f"the request belongs to the transactions of {transactional_id[:100]!r}; there are no "
        "transactions in Horolog: produce without transactional.id"
    )


def _last_of_each(topics: Sequence[ProduceTopic]) -> Pieces[list[ProduceTopic]]:
    """Return each topic and partition once: if the request names a partition twice, its last
    record set counts."""
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
    """Return a `CloseConnection` for the first error: acks=0 has no answer that could carry it."""
    for topic in response.topics:
        for result in topic.partitions:
            if result.error_code:
                return CloseConnection(
                    f"a produce with acks=0 to {topic.name}-{result.partition} was refused: "
                    f"{result.error_message}",
                    result.error_code,
                )
    return None


def _append_together(
    services: Services,
    acks: int,
    partition: Partition,
    sent: Sequence[ProduceResult],
    waiting: list[PendingAck],
) -> Sequence[tuple[Log, ProduceResult]]:
    """Append the sets of one partition in one write, request a sync of the log if that is due, and
    return the sets that are left to `_append_later`."""
    replication, late = services.replication, services.late_appends
    try:
        if acks not in ACKS:
            _refuse_acks(services, acks, *partition)
        if replication.replicates:
            replication.check_append()
        log = services.logs.find_or_create(partition)
        if replication.replicates:
            replication.begin_append(log, acks)
        elif acks == DURABLE and log.settings.min_insync_replicas > 1:
            _refuse_alone(log)
    except Exception as error:
        for one in sent:
            one.record_set = b""
            one.refuse(services, error)
        return ()
    if late.is_running and late.holds(partition):
        return [(log, one) for one in sent]
    wait_for_sync = acks == DURABLE and _is_synced(log)
    end_offset = log.log_end_offset
    outcomes = log.appender.append_sets(
        list(map(_set_of, sent)), wait_for_sync=wait_for_sync, goes_on=late.goes_on
    )
    if late.is_timing:
        late.end()
    _sync_if_due(services, log, end_offset, wait_for_sync=wait_for_sync)
    done = 0
    for outcome in outcomes:
        others = sent[done:] if done else sent
        record_set = others[0].record_set
        # Results first: followers copy while this broker counts.
        done += _record_results(services, acks, log, others, outcome, waiting)
        _count_appended(services, log, record_set, outcome)
    return () if done == len(sent) else [(log, one) for one in sent[done:]]


def _record_results(
    services: Services,
    acks: int,
    log: Log,
    sent: Sequence[ProduceResult],
    outcome: Appended | Exception,
    waiting: list[PendingAck],
) -> int:
    """Fill in the results of the first sets, to which `outcome` belongs; returns how many those
    are. Adds the acknowledgement that their answers wait for to `waiting`."""
    if isinstance(outcome, Exception):
        sent[0].record_set = b""
        sent[0].refuse(services, outcome)
        return 1
    append_time_ms, log_start_offset = outcome.append_time_ms, log.log_start_offset
    count = len(outcome.first_offsets)
    ROWS.appended(sent, outcome.first_offsets, log_start_offset)
    if append_time_ms != NO_TIMESTAMP:
        for one in sent[:count]:
            one.log_append_time_ms = append_time_ms
    elif outcome.latency is not None and outcome.latency.max_ms > log.settings.retention_ms >= 0:
        _tell_expired(log, sent[:count], outcome)
    if outcome.count:
        commit = None
        if services.replication.replicates:
            commit = services.replication.appended(log, outcome, acks)
        end_offset = outcome.last_offset + 1
        if acks == DURABLE and (commit is not None or log.high_watermark < end_offset):
            # All these sets share one write and one sync.
            pending = PendingAck(log, sent[0].target, end_offset, commit)
            for one in sent[:count]:
                one.pending = pending
            waiting.append(pending)
    return count


def _tell_expired(log: Log, sent: Sequence[ProduceResult], outcome: Appended) -> None:
    """Say in the results which messages are past retention already, by their own times."""
    if outcome.conversion is None or outcome.conversion.magic > 0:
        expired_before_ms = log.seams.clock.now_ms() - log.settings.retention_ms
        for one in sent:
            one.expired_before_ms = expired_before_ms


def _kept(record_set: Buffer) -> Buffer:
    """Return a copy of a record set that may lie in a shared receive buffer; a large set has a
    buffer of its own, and is returned itself."""
    return record_set if len(record_set) >= SHARED_SLAB_BYTES else bytearray(record_set)


def _append_later(
    services: Services, acks: int, log: Log, sent: ProduceResult, sender: Sender, *, stays: bool
) -> None:
    """Queue a set for a later append, after the waiting sets of its partition. The set is copied
    unless it `stays` unchanged, and refused if there is no memory for the copy."""
    try:
        if not stays:
            sent.record_set = _kept(sent.record_set)
    except MemoryError as error:
        sent.record_set = b""
        sent.refuse(services, error)
        return
    sent.late = asyncio.get_running_loop().create_future()
    sent.late.add_done_callback(sent.release)
    append = partial(_append_late, services, acks, log, sent)
    services.late_appends.add(sender, sent.target, append)


async def _append_late(services: Services, acks: int, log: Log, sent: ProduceResult) -> None:
    """Append a late set when its turn has come. Completes the set's future, whatever happens."""
    late = sent.late
    assert late is not None
    if late.done():
        return
    outcome: Appended | Exception
    wait_for_sync = acks == DURABLE and _is_synced(log)
    end_offset = log.log_end_offset
    try:
        _check_may_append(services, acks, log)
        in_passing = log.appender.append_sets(
            (sent.record_set,), wait_for_sync=wait_for_sync, goes_on=lambda: True
        )
        if in_passing:
            (outcome,) = in_passing
        else:
            appended = await _append_in_thread(
                services, acks, log, sent, wait_for_sync=wait_for_sync
            )
            if appended is None:
                return
            outcome = appended
    except Exception as error:
        outcome = error
    try:
        _count_appended(services, log, sent.record_set, outcome)
        _sync_if_due(services, log, end_offset, wait_for_sync=wait_for_sync)
        _record_results(services, acks, log, (sent,), outcome, [])
    except Exception as error:  # for example `MemoryError`
        sent.error_code = UnknownServerError.code
        with suppress(Exception):
            sent.refuse(services, error)
    finally:
        if not late.done():
            late.set_result(None)


async def _append_in_thread(
    services: Services, acks: int, log: Log, sent: ProduceResult, *, wait_for_sync: bool
) -> Appended | None:
    """Append a set whose admission or write takes long, with both done in a thread; `None` if no
    client waits for the answer any more."""
    late = sent.late
    assert late is not None
    in_thread, appender = services.work.in_admission_thread, log.appender
    admitted = await in_thread(appender.begin_append(sent.record_set))
    if late.done():
        return None
    _check_may_append(services, acks, log)
    ahead = appender.write_ahead(admitted)
    if ahead is None:
        return appender.end_append(admitted, wait_for_sync=wait_for_sync)
    try:
        await in_thread(ahead.write)
        if late.done():
            return None
        _check_may_append(services, acks, log)
        return appender.end_append(admitted, wait_for_sync=wait_for_sync)
    finally:
        appender.end_write()


def _check_may_append(services: Services, acks: int, log: Log) -> None:
    """Raise if the topic was deleted meanwhile, or this broker may not append to it."""
    _check_current(services, log)
    if services.replication.replicates:
        services.replication.check_append()
        services.replication.begin_append(log, acks)


def _check_current(services: Services, log: Log) -> None:
    if not services.logs.is_current(log):
        raise UnknownTopicOrPartition("the topic was deleted before its messages were appended")


def _is_synced(log: Log) -> bool:
    """Whether a single broker answers acks=all only after a sync."""
    return log.settings.acks_all_durability == "fsync"


def _sync_if_due(services: Services, log: Log, end_offset: int, *, wait_for_sync: bool) -> None:
    """Request a sync of a log if that is due; the log ended at `end_offset` before the append."""
    new_end_offset = log.log_end_offset
    unflushed = new_end_offset - log.recovery_point
    if new_end_offset > end_offset and (wait_for_sync or unflushed >= log.settings.flush_messages):
        services.commits.request(log.flusher)


def _refuse_acks(services: Services, acks: int, topic: str, partition: int) -> NoReturn:
    services.logs.check_partition(topic, partition)
    raise InvalidRequiredAcks(f"acks is {acks}; it must be 0 (none), 1 (in the log) or -1")


def _refuse_alone(log: Log) -> NoReturn:
    from ...protocol.errors import NotEnoughReplicas

    raise NotEnoughReplicas(
        f"min.insync.replicas of {log.topic} is {log.settings.min_insync_replicas}, and this "
        "broker is alone, so that one is in sync; nothing was appended. Set it to 1, or add brokers"
    )


def _count_appended(
    services: Services, log: Log, record_set: Buffer, outcome: Appended | Exception
) -> None:
    """Count the messages of appended sets, or of a refused one."""
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
    if len(outcome.first_offsets) > 1:
        services.deferrals.add(figures.appended, outcome.count, outcome.size_bytes, outcome.latency)
    else:
        figures.appended(outcome.count, outcome.size_bytes, outcome.latency)
    conversion = outcome.conversion
    if conversion is not None:
        direction = "append_up" if conversion.up else "append_down"
        figures.converted(direction, conversion.messages, conversion.size_bytes, conversion.seconds)
        figures.dropped_headers += conversion.headers
    if outcome.rolled is not None:
        services.rolled(log.topic, log.partition)


def _reason(error: Exception) -> str:
    """Return the `reason` label of a refused set."""
    if isinstance(error, CodedError):
        return REJECTION_REASONS.get(error.code, error.name.lower())
    return "storage"


def _messages_in(record_set: Buffer) -> int:
    """Return how many messages a refused set holds, as far as it can be read; at least 1."""
    return max(walk(record_set, 0, len(record_set), check_crc=False).count, 1)


# Answers with acks=all.


def when_durable(
    services: Services, timeouts_ms: Sequence[int], responses: Sequence[ProduceResponse]
) -> list[Outcome]:
    """Return the answers with acks=all to requests with these timeouts.

    Requests with the same timeout and the same acknowledgements share one wait. The memory of a
    waiting answer is counted if it has more than one result: a request may have a hundred
    thousand.
    """
    outcomes: list[Outcome] = list(responses)
    alike: dict[tuple[int, tuple[PendingAck, ...]], list[int]] = defaultdict(list)
    for number, (timeout_ms, response) in enumerate(zip(timeouts_ms, responses, strict=True)):
        all_pending = [one.pending for one in _results_of(response)]
        waits_for = tuple([one for one in all_pending if one is not None])
        if waits_for:
            alike[timeout_ms, waits_for].append(number)
    for (timeout_ms, waits_for), numbers in alike.items():
        of_these = [responses[number] for number in numbers]
        for number, outcome in zip(
            numbers, _when_complete(services, timeout_ms, waits_for, of_these), strict=True
        ):
            outcomes[number] = outcome
            results = len(_results_of(responses[number]))
            if results > 1 and isinstance(outcome, PendingAnswer):
                outcome.held_bytes = RESULT_BYTES * results
    return outcomes


def when_set_is_durable(
    services: Services,
    timeout_ms: int,
    sent: Iterable[ProduceResult],
    responses: Sequence[ProduceResponse],
) -> list[Outcome]:
    """As `when_durable`, for requests that have the same timeout and one set each."""
    outcomes: list[Outcome] = []
    for pending, alike in groupby(sent, _pending_of):
        begin = len(outcomes)
        of_these = responses[begin : begin + len(list(alike))]
        if pending is None:
            outcomes += of_these
        else:
            outcomes += _when_complete(services, timeout_ms, (pending,), of_these)
    return outcomes


def _when_complete(
    services: Services,
    timeout_ms: int,
    waits_for: Sequence[PendingAck],
    responses: Sequence[ProduceResponse],
) -> Iterable[Outcome]:
    """Return the answers to requests that wait for the same acknowledgements."""
    waiting = _Waiting(services, timeout_ms, waits_for)
    if waiting.is_over:
        return map(waiting.answer, responses)
    parked = services.produces.park(
        waiting.awaited, waiting.check, timeout_ms, requests=len(responses)
    )
    ready = parked if len(responses) == 1 else SharedWait(parked)
    return map(PendingAnswer, repeat(ready), map(partial, repeat(waiting.answer), responses))


class _Waiting:
    """The acknowledgements that requests with a shared wait still lack."""

    __slots__ = ("_by_awaited", "_failed", "_left", "_services", "_timeout_ms")

    def __init__(
        self, services: Services, timeout_ms: int, waits_for: Sequence[PendingAck]
    ) -> None:
        self._services = services
        self._timeout_ms = timeout_ms
        self._failed = False
        self._left = {one: None for one in waits_for if not self._is_complete(one)}
        self._by_awaited: dict[Awaited, list[PendingAck]] = {}
        for one in self._left:
            for awaited in one.awaited:
                self._by_awaited.setdefault(awaited, []).append(one)

    @property
    def awaited(self) -> Iterable[Awaited]:
        """Events after which an acknowledgement may be complete."""
        return self._by_awaited

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to wait for."""
        return not self._left

    def check(self, awaited: Awaited) -> bool:
        """Check the acknowledgements again after an event; returns `is_over`."""
        for one in self._by_awaited.get(awaited, ()):
            if one in self._left and self._is_complete(one):
                del self._left[one]
        return not self._left

    def _is_complete(self, one: PendingAck) -> bool:
        complete = one.is_complete(self._services)
        self._failed = self._failed or one.error is not None
        return complete

    def answer(self, response: ProduceResponse) -> ProduceResponse:
        """Return the response to send when the wait is over or has timed out."""
        if self._left or self._failed:
            self._refuse_pending(response)
        return response

    def _refuse_pending(self, response: ProduceResponse) -> None:
        """Put an error into each result that was not acknowledged."""
        for one in _results_of(response):
            if one.pending is None:
                continue
            if not one.pending.is_complete(self._services):
                # The messages are in the log, so the result keeps their offsets.
                error: CodedError | None = RequestTimedOut(
                    "the messages are in the log, but were not as durable as acks=-1 asks within "
                    f"the request's timeout of {self._timeout_ms} ms"
                )
            else:
                error = one.pending.error
            if error is not None:
                one.refuse(self._services, error)
