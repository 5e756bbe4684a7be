"""fetch: read message sets, at once or when there are enough bytes."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from ...config.broker import BrokerSettings
from ...protocol.api.log.fetch import (
    READ_COMMITTED,
    WHOLE_EPOCHS,
    AbortedTransaction,
    AppendTime,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopicResult,
)
from ...protocol.errors import HorologError, OffsetOutOfRange, UnknownFetchSession
from ...protocol.limits import MAX_APPEND_TIMES
from ...protocol.records.kernel import walk
from ...protocol.records.messages.downconversion import DamagedSlice
from ...storage.files import Buffer
from ...storage.log.log import Log
from ...storage.read.file_range import FileRange
from ...storage.read.reading import Slice
from ...values import value_class
from ..conversions import Limits
from ..parking import Partition
from .base import Call, Later, Services
from .preparing import after_preparing

FIRST_VERSION_WITH_V1 = 2
"""Older fetches speak message format v0 only."""

FIRST_VERSION_WITH_V2 = 4
"""From here on the reader knows record batches."""

STRETCH_BYTES = 128 * 1024
"""From here on it is quicker to have the system send bytes from their file than to read them: at 64
KiB it takes 1.4 times the processor time of reading, at 1 MiB less than a fifth."""

MAX_STRETCHES = 16
"""Record sets of one answer that are sent from their files: each needs a handle."""

FIRST_VERSION_WITH_MAX_BYTES = 3
"""From here on the response has a limit, and a first message larger than it comes whole."""


def newest_format(version: int) -> int:
    """The newest message format that a reader of this version of fetch knows."""
    if version >= FIRST_VERSION_WITH_V2:
        return 2
    return 1 if version >= FIRST_VERSION_WITH_V1 else 0


def budget_bytes(settings: BrokerSettings, request: FetchRequest, version: int) -> int:
    """How many bytes of messages the answer to a request may have."""
    if version < FIRST_VERSION_WITH_MAX_BYTES:
        return settings.max_response_bytes
    return max(min(settings.max_response_bytes, request.max_bytes), 0)


def records_of(found: Slice, *, may_stretch: bool = True) -> Buffer | FileRange:
    """The bytes of a slice: read if they are few and in memory, else where they are."""
    if found.size < STRETCH_BYTES:
        data = found.read_now()
        if data is not None:
            return data
    stretch = found.stretch() if may_stretch else None
    return found.read() if stretch is None else stretch


def handle(services: Services, request: FetchRequest, call: Call) -> FetchResponse | Later:
    if request.session_epoch not in WHOLE_EPOCHS:
        # A client that is told so asks for all of its partitions in every fetch.
        return FetchResponse(error_code=UnknownFetchSession.code, topics=[])
    unprepared = services.logs.unprepared(_partitions(request))
    if unprepared:
        return after_preparing(services, unprepared, lambda: _located(services, request, call))
    return _located(services, request, call)


def _located(services: Services, request: FetchRequest, call: Call) -> FetchResponse | Later:
    """The answer, once it is known where the offsets are."""
    far = _unfinished(services, request, Log.located)
    if far:
        looking = services.work.start(_finish(services, far))
        return Later(looking, lambda: _answer(services, request, call))
    return _answer(services, request, call)


def _answer(services: Services, request: FetchRequest, call: Call) -> FetchResponse | Later:
    def make() -> FetchResponse | Later:
        reading = _Reading(services, request, call.version)
        if request.include_append_times:
            new = _unfinished(services, request, Log.append_times_loaded)
            if new:
                return Later(services.work.start(_finish(services, new)), reading.answer)
        return reading.answer()

    def now() -> FetchResponse | Later:
        # What is converted is read when the answer's turn has come: of a hundred requests in
        # flight, each would hold its slice until then.
        if call.version >= FIRST_VERSION_WITH_V1:
            return make()
        return Later(services.work.nothing(), make)

    wait_ms = min(request.max_wait_ms, services.settings.fetch_max_wait_ms)
    if wait_ms <= 0 or request.min_bytes <= 0:
        return now()
    waiting = _Waiting(services, request)
    if waiting.over:
        return now()
    named = sum(len(topic.partitions) for topic in request.topics)
    if not services.fetches.has_room(named):
        services.figures.parked_refused += 1
        return now()
    ready = services.fetches.park(
        waiting.partitions(), waiting.satisfied, wait_ms, named_partitions=named
    )
    return Later(ready, make, may_hurry=True)


def _partitions(request: FetchRequest) -> Iterator[Partition]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield topic.name, partition.partition


Look = Callable[[], bool]
"""A bounded piece of work to be done before reading; `True` when there is no more of it."""


def _unfinished(
    services: Services, request: FetchRequest, look: Callable[[Log, int], bool]
) -> list[Look]:
    """Of which partitions there is more to look at before they are read."""
    found: list[Look] = []
    for topic in request.topics:
        for partition in topic.partitions:
            with suppress(HorologError, OSError):  # reading meets the same and tells the client
                log = services.logs.find(topic.name, partition.partition)
                if not look(log, partition.fetch_offset):
                    found.append(partial(look, log, partition.fetch_offset))
    return found


async def _finish(services: Services, looks: list[Look]) -> None:
    turns = services.work.turns()
    for look in looks:
        with suppress(HorologError, OSError):
            while not look():
                await turns.give_way()


class _Waiting:
    """How much of what a fetch asks for is there. Only what moved is looked at again."""

    def __init__(self, services: Services, request: FetchRequest) -> None:
        self._services = services
        self._min_bytes = request.min_bytes
        self._committed = request.isolation_level == READ_COMMITTED
        self._wanted: dict[Partition, FetchPartition] = {}
        self._available: dict[Partition, int] = {}
        self._total = 0
        for topic in request.topics:
            for partition in topic.partitions:
                self._wanted[topic.name, partition.partition] = partition
        self.over = not self._wanted
        """Whether to answer: there is enough, there is an error, or waiting cannot help."""
        for key in self._wanted:
            self.satisfied(key)
            if self.over:
                break

    def partitions(self) -> Iterator[Partition]:
        return iter(self._wanted)

    def satisfied(self, key: Partition) -> bool:
        """Look at one partition again; True when the fetch is to be answered."""
        wanted = self._wanted[key]
        try:
            log = self._services.logs.find(*key)
            if not log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset:
                raise OffsetOutOfRange
            readable = log.readable_bytes(wanted.fetch_offset, committed=self._committed)
        except (HorologError, OSError):
            self.over = True  # reading it meets the same error and tells the client
            return True
        available = min(readable, max(wanted.partition_max_bytes, 0))
        self._total += available - self._available.get(key, 0)
        self._available[key] = available
        # A read never spans segments, so nothing that comes adds to a read of a closed one.
        closed = readable > 0 and wanted.fetch_offset < log.segments[-1].base_offset
        self.over = self.over or closed or self._total >= self._min_bytes
        return self.over


@value_class
class _Unreadable:
    """A partition that has to be read once more, for a reader that does not know its format."""

    topic: str
    wanted: FetchPartition
    size_bytes: int
    limit_bytes: int
    result: FetchPartitionResult


@dataclass(slots=True)
class _Reading:
    """One pass over the partitions, in the order of the request."""

    services: Services
    request: FetchRequest
    version: int
    budget_bytes: int = 0
    empty: bool = True
    """Whether no partition has given anything yet."""
    sets_left: int = MAX_APPEND_TIMES - 2
    """Of how many sets append times may be told; two more items say where none are known."""
    unreadable: list[_Unreadable] = field(default_factory=list)
    stretches: int = 0

    @property
    def committed(self) -> bool:
        """Whether the reader wants nothing of transactions that have not ended well."""
        return self.request.isolation_level == READ_COMMITTED

    def answer(self) -> FetchResponse | Later:
        """The response, or what becomes of it once all is in a format that the reader knows."""
        response = self._response()
        if not self.unreadable:
            return response

        def start() -> Later:
            task = self.services.work.start(self._converted(response))
            return Later(task, task.result)

        return Later(self.services.work.nothing(), start)

    async def _converted(self, response: FetchResponse) -> FetchResponse:
        async with self.services.conversions.place():
            for unreadable in self.unreadable:
                try:
                    await self._convert(unreadable)
                except Exception as error:
                    result = unreadable.result
                    outcome = self.services.outcomes.of(error, api="fetch")
                    result.error_code, result.error_message = outcome
                    result.high_watermark = -1
        return response

    async def _convert(self, unreadable: _Unreadable) -> None:
        topic, wanted = unreadable.topic, unreadable.wanted
        log = self.services.logs.find(topic, wanted.partition)
        figures = self.services.figures.topic(topic)
        limits = Limits(unreadable.limit_bytes, log.settings.max_decompressed_bytes)
        magic = newest_format(self.version)
        found = log.read(wanted.fetch_offset, unreadable.size_bytes)
        data: Buffer = found.read()
        while found.magic > magic:
            try:
                converted, seconds = await self.services.conversions.downconvert(
                    data, limits, magic
                )
            except DamagedSlice as error:
                assert found.segment is not None
                raise found.segment.damage(found.position) from error
            if converted.messages:
                figures.converted("fetch_down", converted.messages, converted.used_bytes, seconds)
                figures.dropped_headers += converted.headers
            if converted.data:
                data = bytes(converted.data)
                break
            # Nothing but marks of transactions, which this reader cannot pass by itself.
            following = walk(data, 0, converted.used_bytes, check_crc=False).last_offset + 1
            found = log.read(following, unreadable.size_bytes, whole_first=True)
            data = found.read()
        unreadable.result.high_watermark = found.high_watermark
        unreadable.result.records = bytes(data)
        figures.bytes_out += len(data)

    def _response(self) -> FetchResponse:
        self.budget_bytes = budget_bytes(self.services.settings, self.request, self.version)
        return FetchResponse(
            topics=[
                FetchTopicResult(
                    name=topic.name,
                    partitions=[self._read(topic.name, wanted) for wanted in topic.partitions],
                )
                for topic in self.request.topics
            ]
        )

    def _read(self, topic: str, wanted: FetchPartition) -> FetchPartitionResult:
        result = FetchPartitionResult(partition=wanted.partition)
        try:
            self._read_into(result, topic, wanted)
        except Exception as error:
            outcome = self.services.outcomes.of(error, api="fetch")
            result.error_code, result.error_message = outcome
        return result

    def _read_into(self, result: FetchPartitionResult, topic: str, wanted: FetchPartition) -> None:
        log = self.services.logs.find(topic, wanted.partition)
        limit_bytes = max(min(wanted.partition_max_bytes, self.budget_bytes), 0)
        whole_messages = self.version >= FIRST_VERSION_WITH_MAX_BYTES
        result.log_start_offset = log.log_start_offset
        result.last_stable_offset = log.last_stable_offset
        found = log.read(
            wanted.fetch_offset,
            limit_bytes,
            whole_first=whole_messages,
            committed=self.committed,
        )
        # Only the first partition that gives anything may exceed its limit, by one message.
        too_large = whole_messages and not self.empty and found.size > limit_bytes
        if self.request.include_append_times and not too_large:
            if not self.sets_left:
                result.high_watermark = result.last_stable_offset = found.high_watermark
                return
            found, told = log.append_times(found, wanted.fetch_offset, self.sets_left)
            self.sets_left -= told.sets
            result.append_times = [
                AppendTime(offset=offset, append_time_ms=time_ms) for offset, time_ms in told.spans
            ]
        result.high_watermark = found.high_watermark
        if self.committed:
            result.aborted_transactions = [
                AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                for one in log.aborted_transactions(found, wanted.fetch_offset)
            ]
        size_bytes = 0 if too_large else found.size
        if not size_bytes:
            return
        self.empty = False
        self.budget_bytes = max(self.budget_bytes - size_bytes, 0)
        if found.magic > newest_format(self.version):
            self.unreadable.append(_Unreadable(topic, wanted, size_bytes, limit_bytes, result))
            return
        records = records_of(found, may_stretch=self.stretches < MAX_STRETCHES)
        self.stretches += isinstance(records, FileRange)
        self.services.figures.topic(topic).bytes_out += len(records)
        result.records = cast(bytes, records)  # or what the encoder takes for them
