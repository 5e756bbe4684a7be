"""Sets that producers sent on their way into a log: found, appended, counted, synced when due."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ...protocol.api.log.produce import (
    ProducePartitionResult,
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
    PolicyViolation,
    RecordListTooLarge,
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
from ..parking import Awaited, Partition
from .base import Services

if TYPE_CHECKING:
    from ..replication.commits import Commit

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


class Sent(ProducePartitionResult, gc=True):  # type: ignore[call-arg] # a struct, for mypy a class
    """A set on its way into a log, and its result."""

    target: Partition
    record_set: Buffer
    unsettled: "Unsettled | None" = None
    """What the answer of a set waits for that is not as durable yet as it is to be."""
    late: asyncio.Future[None] | None = None
    """Done when the set was appended or refused, if that was not at once; cancelled when no client
    waits for it."""

    def refuse(self, services: Services, error: Exception) -> None:
        """Make `error` its result."""
        self.error_code, self.error_message = services.outcomes.of(error, api="produce")

    def let_go(self, late: asyncio.Future[None]) -> None:
        """Hold the bytes no longer: they are in the log, or no client waits for that."""
        self.record_set = b""


class Unsettled:
    """Sets that were appended together, and of which it is not known yet whether they are as
    durable as they are to be."""

    __slots__ = ("_commit", "_end_offset", "_log", "awaited", "error")

    def __init__(self, log: Log, partition: Partition, end_offset: int, commit: "Commit | None"):
        """They are when the high watermark is at `end_offset`; in a cluster, when `commit` is
        done."""
        self._log = log
        self._end_offset = end_offset
        self._commit = commit
        self.awaited: tuple[Awaited, ...] = (partition,) if commit is None else (partition, commit)
        """Where it is heard that they may be."""
        self.error: CodedError | None = None
        """Why they will not be, once that is known."""

    def is_settled(self, services: Services) -> bool:
        """Look at them again."""
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


new_sent: Final[Callable[..., Sent]] = Sent
"""Its target, its set and, by name, its partition: for mypy it has no fields of its own."""

_set_of: Final[Callable[[Sent], Buffer]] = attrgetter("record_set")
_partitions_of: Final[Callable[[Any], list[Any]]] = attrgetter("partitions")

ROWS: Final = ProduceRows(Sent, ProduceTopicResult, ProduceResponse)


def sent_with(response: ProduceResponse) -> list[Sent]:
    """The sets of the request that this answers."""
    topics: list[Any] = response.topics
    if len(topics) == 1:  # nearly always
        only: list[Sent] = topics[0].partitions
        return only
    return list(chain.from_iterable(map(_partitions_of, topics)))


def append(
    services: Services,
    acks: int,
    partition: Partition,
    sent: Sequence[Sent],
    waiting: list[Unsettled],
) -> Sequence[tuple[Log, Sent]]:
    """Append the sets of one partition, take note of what became of them, and have them synced if
    that is due; gives those that are left to `append_later`: sets that take long, and all that come
    behind them or others that wait.

    What those wait for that are appended and not as durable yet as they are to be is added to
    `waiting`.
    """
    if acks == DURABLE and services.cluster is not None:
        first = services.cluster.serving.first_part([len(one.record_set) for one in sent])
        if first:
            # Followers copy the first ones while the others are appended.
            late = _append_together(services, acks, partition, sent[:first], waiting)
            if not late:
                return _append_together(services, acks, partition, sent[first:], waiting)
            return [*late, *((late[0][0], one) for one in sent[first:])]
    return _append_together(services, acks, partition, sent, waiting)


def _append_together(
    services: Services,
    acks: int,
    partition: Partition,
    sent: Sequence[Sent],
    waiting: list[Unsettled],
) -> Sequence[tuple[Log, Sent]]:
    cluster, late = services.cluster, services.late_appends
    try:
        if acks not in ACKS:
            _refuse_acks(services, acks, *partition)
        if cluster is not None:
            cluster.serving.check_append()
        log = services.logs.find_or_create(partition)
        if cluster is not None:
            cluster.serving.begin_append(log, acks)
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
        # Followers are to copy while this broker counts.
        done += _take(services, acks, log, others, outcome, waiting)
        _note(services, log, record_set, outcome)
    return () if done == len(sent) else [(log, one) for one in sent[done:]]


def _take(
    services: Services,
    acks: int,
    log: Log,
    sent: Sequence[Sent],
    outcome: Appended | Exception,
    waiting: list[Unsettled],
) -> int:
    """Note the results of the first ones of the sets, and add what they wait for to `waiting`;
    gives how many these are."""
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
    if outcome.count:
        commit = None
        if services.cluster is not None:
            commit = services.cluster.serving.appended(log, outcome, acks)
        end_offset = outcome.last_offset + 1
        if acks == DURABLE and (commit is not None or log.high_watermark < end_offset):
            # One write and one sync are for all of them.
            unsettled = Unsettled(log, sent[0].target, end_offset, commit)
            for one in sent[:count]:
                one.unsettled = unsettled
            waiting.append(unsettled)
    return count


def kept(record_set: Buffer) -> Buffer:
    """A set that stays as it is when more is received: it may lie in a buffer of a connection."""
    return record_set if len(record_set) >= SHARED_SLAB_BYTES else bytearray(record_set)


def append_later(
    services: Services, acks: int, log: Log, sent: Sent, sender: Sender, *, stays: bool
) -> None:
    """Have a set appended behind those of its partition that wait. It is copied unless it `stays`
    as it is; refused where there is no memory for that."""
    try:
        if not stays:
            sent.record_set = kept(sent.record_set)
    except MemoryError as error:
        sent.record_set = b""
        sent.refuse(services, error)
        return
    sent.late = asyncio.get_running_loop().create_future()
    sent.late.add_done_callback(sent.let_go)
    append = partial(_append_late, services, acks, log, sent)
    services.late_appends.add(sender, sent.target, append)


async def _append_late(services: Services, acks: int, log: Log, sent: Sent) -> None:
    """Append a set whose turn has come, whatever happens to it."""
    late = sent.late
    assert late is not None
    if late.done():
        return
    outcome: Appended | Exception
    wait_for_sync = acks == DURABLE and _is_synced(log)
    end_offset = log.log_end_offset
    try:
        _check_current(services, log)
        if services.cluster is not None:
            services.cluster.serving.check_append()
            services.cluster.serving.begin_append(log, acks)
        in_passing = log.appender.append_sets(
            (sent.record_set,), wait_for_sync=wait_for_sync, goes_on=lambda: True
        )
        if in_passing:
            (outcome,) = in_passing
        else:
            admission = log.appender.begin_append(sent.record_set)
            admitted = await services.work.in_admission_thread(admission)
            if late.done():
                return
            _check_current(services, log)
            if services.cluster is not None:
                services.cluster.serving.check_append()
                services.cluster.serving.begin_append(log, acks)
            outcome = log.appender.end_append(admitted, wait_for_sync=wait_for_sync)
    except Exception as error:
        outcome = error
    try:
        _note(services, log, sent.record_set, outcome)
        _sync_if_due(services, log, end_offset, wait_for_sync=wait_for_sync)
        _take(services, acks, log, (sent,), outcome, [])
    except Exception as error:  # such as for want of memory
        sent.error_code = UnknownServerError.code
        with suppress(Exception):
            sent.refuse(services, error)
    finally:
        if not late.done():
            late.set_result(None)


def _check_current(services: Services, log: Log) -> None:
    if not services.logs.is_current(log):
        raise UnknownTopicOrPartition("the topic was deleted before its messages were appended")


def _is_synced(log: Log) -> bool:
    """Whether a set that is to be durable is synced before that is answered."""
    return log.settings.acks_all_durability == "fsync"


def _sync_if_due(services: Services, log: Log, end_offset: int, *, wait_for_sync: bool) -> None:
    """Have a log synced that ended at `end_offset` before something was appended."""
    new_end_offset = log.log_end_offset
    unflushed = new_end_offset - log.recovery_point
    if new_end_offset > end_offset and (wait_for_sync or unflushed >= log.settings.flush_messages):
        services.commits.request(log.flusher)


def _refuse_acks(services: Services, acks: int, topic: str, partition: int) -> NoReturn:
    services.logs.check_partition(topic, partition)
    raise InvalidRequiredAcks(f"acks is {acks}; it must be 0 (none), 1 (in the log) or -1")


def _refuse_alone(log: Log) -> NoReturn:
    from ...protocol.cluster_errors import NotEnoughReplicas

    raise NotEnoughReplicas(
        f"min.insync.replicas of {log.topic} is {log.settings.min_insync_replicas}, and this "
        "broker is alone, so that one is in sync; nothing was appended. Set it to 1, or add brokers"
    )


def _note(services: Services, log: Log, record_set: Buffer, outcome: Appended | Exception) -> None:
    """Count sets that were appended, or one that was refused."""
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
        services.afterwards.add(
            figures.appended, outcome.count, outcome.size_bytes, outcome.latency
        )
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
    """The `reason` label of a refused set."""
    if isinstance(error, CodedError):
        return REJECTION_REASONS.get(error.code, error.name.lower())
    return "storage"


def _messages_in(record_set: Buffer) -> int:
    """How many messages a refused set holds, as far as it can be read; at least 1."""
    return max(walk(record_set, 0, len(record_set), check_crc=False).count, 1)
