"""list-offsets: the offset that belongs to a time.

list-offsets (key 2): versions 0 to 7, native 0 to 2
     0  a list of offsets
     1  one offset and its timestamp (KIP-79)
     2  isolation_level, throttle_time_ms (KIP-98, KIP-13); native: reads at followers
     3  the response comes before the client is throttled (KIP-219)
     4  leader epochs (KIP-320)
     5  OFFSET_NOT_AVAILABLE (KIP-207)
     6  compact encoding (KIP-482)
     7  target -3, the largest timestamp (KIP-734)

Left out: targets of tiered storage (KIP-405), which are refused by name.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from ...protocol.api.log.fetch import READ_COMMITTED
from ...protocol.api.log.list_offsets import (
    BY_APPEND,
    BY_TIMESTAMP,
    EARLIEST,
    LARGEST,
    LATEST,
    LIST_OFFSETS,
    OF_TIERS,
    ListOffsetsPartition,
    ListOffsetsPartitionResult,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResult,
)
from ...protocol.errors import InvalidRequest, UnsupportedForMessageFormat, UnsupportedVersion
from ...storage.log.log import Log
from ...storage.read import reader
from ...storage.read.search import FoundMessage, Search
from ..parking import Partition
from ..requests import PendingAnswer, each_alone
from ..window_topics import may_name_windows
from ..work import Turns
from .base import Services
from .epochs import check_epoch, current_epoch, epoch_of
from .registration import handles_many
from .repeats import repeats
from .window_offsets import list_offsets as list_window_offsets

CONSUMER = -1
"""The `replica_id` of consumers, which see nothing above the high watermark."""

FIRST_VERSION_WITH_TIMES = 1
"""Version 0 lists offsets near a time; later versions find the first message at or after it."""

Steps = Iterator[Log | Search[Any] | None]
"""A search in bounded pieces of work. If a piece yields a log, the log has to be prepared before
the next piece; if it yields a search, the search's `open` has to be called, in a thread."""


@handles_many(LIST_OFFSETS, most=64)  # A search may take a turn of the event loop.
@each_alone
def handle_many(
    services: Services, request: ListOffsetsRequest, version: int
) -> ListOffsetsResponse | PendingAnswer:
    """Answer a request at once if its searches are a few index look-ups, as most are. If they take
    longer than a turn, they go on in a task, and other requests get turns between the steps."""
    if may_name_windows(services.directory.topics(), request.topics):
        return list_window_offsets(services, request, version, _list_stored)
    return _answer_stored(services, request, version)


def _answer_stored(
    services: Services, request: ListOffsetsRequest, version: int
) -> ListOffsetsResponse | PendingAnswer:
    """Answer a request that names no windows."""
    listing = _Listing(services, request, version)
    steps = listing.steps()
    turns: Turns | None = None
    waits_for: Log | Search[Any] | None = None
    while waits_for is None:
        try:
            waits_for = next(steps)
        except StopIteration:
            return listing.response
        turns = turns or services.work.turns()
        if turns.over:
            break
    task = services.work.start(_finish(services, listing, steps, waits_for))
    return PendingAnswer(task, task.result)


_list_stored: Final = each_alone(_answer_stored)


def _visible_end(log: Log, request: ListOffsetsRequest) -> int:
    """Return the first offset that the client cannot read."""
    if request.replica_id != CONSUMER:
        return log.log_end_offset
    committed = request.isolation_level == READ_COMMITTED
    return log.last_stable_offset if committed else log.watermark.offset


async def _finish(
    services: Services, listing: "_Listing", steps: Steps, waits_for: Log | Search[Any] | None
) -> ListOffsetsResponse:
    turns = services.work.turns()
    for each in chain((waits_for,), steps):
        if isinstance(each, Search):
            await services.work.in_conversion_thread(each.open)
        elif each is not None:
            await services.logs.prepare([each])
        await turns.give_way()
    return listing.response


class _Listing:
    """One request's searches, done in `steps`."""

    def __init__(self, services: Services, request: ListOffsetsRequest, version: int) -> None:
        self._services = services
        self._request = request
        self._version = version
        self._to_log_end = request.replica_id != CONSUMER
        only_one = len(request.topics) == 1 and len(request.topics[0].partitions) == 1
        self._repeated = {} if only_one else repeats(request.topics)
        self.response = ListOffsetsResponse(topics=[])

    def steps(self) -> Steps:
        """Answer partition by partition; each step is a bounded piece of work."""
        answered: set[Partition] = set()
        for topic in self._request.topics:
            result = ListOffsetsTopicResult(name=topic.name, partitions=[])
            self.response.topics.append(result)
            for partition in topic.partitions:
                if answered:
                    yield None
                key = (topic.name, partition.partition)
                if key not in answered:
                    answered.add(key)
                    yield from self._answer(topic.name, partition, result)

    def _answer(
        self, topic: str, wanted: ListOffsetsPartition, topic_result: ListOffsetsTopicResult
    ) -> Steps:
        result = ListOffsetsPartitionResult(partition=wanted.partition)
        topic_result.partitions.append(result)
        try:
            if wanted.partition in self._repeated.get(topic, ()):
                raise InvalidRequest(
                    f"the request names partition {wanted.partition} of {topic!r} more than once"
                )
            if wanted.by:
                _check_by(wanted, self._version)
            check_epoch(self._services, wanted.current_leader_epoch)
            log = self._services.logs.find_stored(topic, wanted.partition)
            if not log.segment_list.prepared and wanted.timestamp not in (LATEST, EARLIEST):
                yield log
                log = self._services.logs.find(topic, wanted.partition)
            if self._version < FIRST_VERSION_WITH_TIMES:
                yield from self._list(log, wanted, result)
                return
            if wanted.timestamp == LATEST or wanted.timestamp >= 0:
                yield from self._add_completeness(log, wanted, result)
            search = self._begin(log, wanted, result)
            if search is None:
                return
            while not search.step():
                yield search if search.opens else None
            found = search.result
            if found is not None and found.offset < _visible_end(log, self._request):
                result.offset, result.timestamp = found.offset, found.timestamp_ms
                result.leader_epoch = epoch_of(self._services, log, found.offset)
        except Exception as error:
            outcome = self._services.outcomes.of(error, api="list-offsets")
            result.error_code, result.error_message = outcome

    def _add_completeness(
        self, log: Log, wanted: ListOffsetsPartition, result: ListOffsetsPartitionResult
    ) -> Steps:
        completeness = self._services.completeness
        if wanted.by != BY_APPEND:
            result.complete_from_ms = completeness.complete_from_ms(log)
            return
        if not log.segment_list.prepared:
            yield log
            log = self._services.logs.find(log.topic, log.partition)
        if log.log_start_offset < log.log_end_offset:
            first = log.segment_list.holding(log.log_start_offset)
            while not first.append_times.load():
                yield None
        result.complete_from_ms = completeness.complete_from_append_ms(log)

    def _begin(
        self, log: Log, wanted: ListOffsetsPartition, result: ListOffsetsPartitionResult
    ) -> Search[FoundMessage | None] | None:
        """Return the search for a target; `None` if no search is needed, and `result` is filled
        in."""
        target = wanted.timestamp
        if target == LATEST:
            result.offset = _visible_end(log, self._request)
            result.leader_epoch = current_epoch(self._services)
            return None
        if target == EARLIEST:
            result.offset = log.log_start_offset
            result.leader_epoch = epoch_of(self._services, log, result.offset)
            return None
        if target < 0:
            _check_target(target)
        by_append = wanted.by == BY_APPEND
        if target != LARGEST and log.settings.format_magic == 0 and not by_append:
            raise UnsupportedForMessageFormat(
                f"topic {log.topic!r} stores format v0, which has no times (message.format.version"
                f" = {log.settings.message_format_version}), so a search by time is refused; "
                f"{LATEST}, {EARLIEST} and {LARGEST} are answered"
            )
        if target == LARGEST:
            return reader.find_largest(log, to_log_end=self._to_log_end)
        if by_append:
            return reader.find_append_time(log, target, to_log_end=self._to_log_end)
        return reader.find_time(log, target, to_log_end=self._to_log_end)

    def _list(
        self, log: Log, wanted: ListOffsetsPartition, result: ListOffsetsPartitionResult
    ) -> Steps:
        target = wanted.timestamp
        _check_target(target)
        if wanted.max_num_offsets < 0:
            raise InvalidRequest(
                f"max_num_offsets is {wanted.max_num_offsets}; it must be 0 or more"
            )
        if target == LARGEST:
            largest = reader.find_largest(log, to_log_end=self._to_log_end)
            while not largest.step():
                yield largest if largest.opens else None
            if largest.result is None:
                return
            target = largest.result.timestamp_ms
        search = reader.offsets_before(
            log, target, wanted.max_num_offsets, to_log_end=self._to_log_end
        )
        while not search.step():
            yield search if search.opens else None
        result.old_style_offsets = search.result


def _check_target(target: int) -> None:
    tiered = OF_TIERS.get(target)
    if tiered is not None:
        raise UnsupportedVersion(
            f"target {target} asks for {tiered}; there is no tiered storage in Horolog, ask for "
            f"{EARLIEST}, the start, or {LATEST}, the end"
        )
    if target < LARGEST:
        raise InvalidRequest(
            f"target {target} means nothing; it must be a time in ms from 0 on, {LATEST} for the "
            f"end, {EARLIEST} for the start or {LARGEST} for the largest timestamp"
        )


def _check_by(wanted: ListOffsetsPartition, version: int) -> None:
    if wanted.by not in ("", BY_TIMESTAMP, BY_APPEND):
        raise InvalidRequest(
            f"by is {wanted.by!r}; it must be {BY_TIMESTAMP!r} or {BY_APPEND!r}, or not be given"
        )
    if wanted.by == BY_APPEND and version == 0:
        raise InvalidRequest("a search by append time takes version 1, this is version 0")
    if wanted.by == BY_APPEND and wanted.timestamp == LARGEST:
        raise InvalidRequest(f"target {LARGEST} goes by timestamps, not by append times")
