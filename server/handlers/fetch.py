"""fetch: read message sets, at once or when there are enough bytes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

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
from ...protocol.api.log.list_offsets import BY_APPEND, BY_TIMESTAMP
from ...protocol.errors import (
    HorologError,
    InvalidRequest,
    OffsetOutOfRange,
    UnknownFetchSession,
)
from ...protocol.limits import MAX_APPEND_TIMES
from ...protocol.records.kernel import walk
from ...protocol.records.messages.downconversion import DamagedSlice
from ...storage.files import Buffer
from ...storage.log.log import Log
from ...storage.read.file_range import FileRange
from ...storage.read.readable_segment import FarAway
from ...storage.read.reader import Reader
from ...storage.read.reading import Slice
from ...storage.read.windows import Place, TimeWindow
from ..conversions import Limits
from ..parking import Partition
from .base import Later, Services, each_alone
from .epochs import check_epoch

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


def _answer(services: Services, request: FetchRequest, version: int) -> FetchResponse | Later:
    if request.session_epoch not in WHOLE_EPOCHS:
        # A client that gets this error asks for all of its partitions in every fetch.
        return FetchResponse(error_code=UnknownFetchSession.code, topics=[])
    reading = _Reading(services, request, version)
    if reading.look():
        return _when_enough(reading)

    def look_again() -> FetchResponse | Later:
        reading = _Reading(services, request, version)
        reading.look(as_they_are=True)
        return _when_enough(reading)

    getting_ready = services.work.start(_get_ready(services, request, Reader.located))
    return Later(getting_ready, look_again)


handle_many: Final = each_alone(_answer)


def _when_enough(reading: "_Reading") -> FetchResponse | Later:
    """The answer to a fetch that was looked at: at once when there is enough, else later."""
    services, request, version = reading.services, reading.request, reading.version
    wait_ms = min(request.max_wait_ms, services.settings.fetch_max_wait_ms)
    if wait_ms > 0 and not reading.is_enough():
        waiting = _Waiting(services, request)
        if not waiting.over:
            named = sum(len(topic.partitions) for topic in request.topics)
            if services.fetches.has_room(named):
                ready = services.fetches.park(
                    waiting.partitions(), waiting.satisfied, wait_ms, named_partitions=named
                )
                return Later(ready, partial(_read, services, request, version), may_hurry=True)
            services.figures.parked_refused += 1
    if version < FIRST_VERSION_WITH_V1:
        # What is converted is read when the answer's turn has come: of a hundred requests in
        # flight, each would hold its slice until then.
        return Later(services.work.nothing(), partial(_read, services, request, version))
    if request.include_append_times:
        return _read(services, request, version)
    return reading.answer()


def _read(services: Services, request: FetchRequest, version: int) -> FetchResponse | Later:
    """The answer with what there is now."""

    def answer() -> FetchResponse | Later:
        reading = _Reading(services, request, version, with_append_times=True)
        reading.look(as_they_are=True)
        return reading.answer()

    if request.include_append_times and not _append_times_loaded(services, request):
        loading = services.work.start(_get_ready(services, request, Reader.append_times_loaded))
        return Later(loading, answer)
    return answer()


def _append_times_loaded(services: Services, request: FetchRequest) -> bool:
    for topic in request.topics:
        for partition in topic.partitions:
            with suppress(HorologError, OSError):  # reading meets the same and tells the client
                log = services.logs.find(topic.name, partition.partition)
                if not log.reader.append_times_loaded(partition.fetch_offset):
                    return False
    return True


async def _get_ready(
    services: Services, request: FetchRequest, look: Callable[[Reader, int], bool]
) -> None:
    """Have the logs prepared, and looked at until `look` has no more to do, a bounded piece of work
    at a time. What fails here fails again when it is read, which tells the client."""
    await services.logs.prepare(services.logs.unprepared(_partitions(request)))
    turns = services.work.turns()
    for topic in request.topics:
        for wanted in topic.partitions:
            with suppress(HorologError, OSError):
                log = services.logs.find(topic.name, wanted.partition)
                while not look(log.reader, wanted.fetch_offset):
                    await turns.give_way()
                if _has_window(wanted):
                    place = _look_for(log, wanted, log.high_watermark)
                    if place.unready is not None and wanted.window_by == BY_APPEND:
                        while not log.reader.append_times_loaded(place.offset):
                            await turns.give_way()
                    elif place.unready is not None:
                        await services.time_maps.make(log, place.unready)


def _is_not_here_yet(log: Log, wanted: FetchPartition) -> bool:
    """Whether a follower has not been told yet whether there is such an offset."""
    return log.follows and wanted.fetch_offset > log.log_end_offset


def _has_window(wanted: FetchPartition) -> bool:
    return wanted.window_from_ms >= 0 or wanted.window_until_ms >= 0


def _place(log: Log, wanted: FetchPartition, *, committed: bool, far: bool) -> Place:
    """Where to go on with the window of a partition. Raises `FarAway` without `far` where something
    has to be made ready first, `InvalidRequest`, and what looking raises."""
    if wanted.window_by not in ("", BY_TIMESTAMP, BY_APPEND):
        raise InvalidRequest(
            f"window_by is {wanted.window_by!r}; it must be {BY_TIMESTAMP!r} or {BY_APPEND!r}, or "
            "not be given"
        )
    if not (far or log.prepared):
        raise FarAway
    end_offset = log.last_stable_offset if committed else log.high_watermark
    if not log.log_start_offset <= wanted.fetch_offset < end_offset:
        return Place(wanted.fetch_offset, end_offset, 0)
    place = _look_for(log, wanted, end_offset)
    if place.unready is None:
        return place
    if not far:
        raise FarAway
    if place.offset > wanted.fetch_offset:
        return place
    # The map could not be made. What it would be of is read as a whole.
    return Place(place.offset, min(place.unready.next_offset, end_offset), place.skipped_bytes)


def _look_for(log: Log, wanted: FetchPartition, end_offset: int) -> Place:
    window = TimeWindow.between(wanted.window_from_ms, wanted.window_until_ms)
    if wanted.window_by == BY_APPEND:
        return log.windows.place_by_append(wanted.fetch_offset, window, end_offset)
    return log.windows.place(wanted.fetch_offset, window, end_offset)


def _partitions(request: FetchRequest) -> Iterator[Partition]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield topic.name, partition.partition


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
            check_epoch(self._services, wanted.current_leader_epoch)
            log = self._services.logs.find(*key)
            if _is_not_here_yet(log, wanted):
                return self.over
            if not log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset:
                raise OffsetOutOfRange
            readable = log.reader.readable_bytes(wanted.fetch_offset, committed=self._committed)
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


class _Part(msgspec.Struct):
    """Where the messages of one partition are."""

    topic: str
    wanted: FetchPartition
    found: Slice
    limit_bytes: int
    result: FetchPartitionResult


class _Reading(msgspec.Struct):
    """One pass over the partitions, in the order of the request: `look`, then `answer`."""

    services: Services
    request: FetchRequest
    version: int
    with_append_times: bool = False
    """Whether the append times that the request asks for are loaded."""
    reads: bool = True
    available_bytes: int = 0
    """What there is, of each partition up to what is wanted of it at most."""
    topics: list[FetchTopicResult] = msgspec.field(default_factory=list)
    parts: list[_Part] = msgspec.field(default_factory=list)
    """Those that give anything."""
    budget_bytes: int = 0
    """How many bytes of messages the rest of the answer may have."""
    sets_left: int = MAX_APPEND_TIMES - 2
    """Of how many sets append times may be answered; two more items say where none are known."""
    stretches: int = 0

    def look(self, *, as_they_are: bool = False) -> bool:
        """See where the messages are, with no byte of them read; `False` when a log has to be
        prepared first, or looked at for longer, unless it is to be taken as it is."""
        self.budget_bytes = self.services.settings.max_response_bytes
        if self.version >= FIRST_VERSION_WITH_MAX_BYTES:
            self.budget_bytes = max(min(self.budget_bytes, self.request.max_bytes), 0)
        for topic in self.request.topics:
            results: list[FetchPartitionResult] = []
            self.topics.append(FetchTopicResult(name=topic.name, partitions=results))
            for wanted in topic.partitions:
                result = FetchPartitionResult(partition=wanted.partition)
                results.append(result)
                try:
                    self._look_at(topic.name, wanted, result, far=as_they_are)
                except FarAway:
                    return False
                except Exception as error:
                    self._refuse(result, error)
        return True

    def _look_at(
        self, topic: str, wanted: FetchPartition, result: FetchPartitionResult, *, far: bool
    ) -> None:
        check_epoch(self.services, wanted.current_leader_epoch)
        log = self.services.logs.find(topic, wanted.partition)
        limit_bytes = max(min(wanted.partition_max_bytes, self.budget_bytes), 0)
        whole_messages = self.version >= FIRST_VERSION_WITH_MAX_BYTES
        committed = self.request.isolation_level == READ_COMMITTED
        result.log_start_offset = log.log_start_offset
        result.last_stable_offset = log.last_stable_offset
        if _is_not_here_yet(log, wanted):
            result.high_watermark = log.high_watermark
            return
        offset, end_offset = wanted.fetch_offset, None
        if _has_window(wanted):
            place = _place(log, wanted, committed=committed, far=far)
            result.next_offset, result.skipped_bytes = place.offset, place.skipped_bytes
            offset, end_offset = place.offset, place.end_offset
        found = log.reader.read(
            offset,
            limit_bytes,
            whole_first=whole_messages,
            committed=committed,
            far=far,
            end_offset=end_offset,
            at_once_bytes=STRETCH_BYTES if self.reads else 0,
        )
        # Only the first partition that gives anything may exceed its limit, by one message.
        too_large = whole_messages and bool(self.parts) and found.size > limit_bytes
        if self.with_append_times and self.request.include_append_times and not too_large:
            if not self.sets_left:
                result.high_watermark = result.last_stable_offset = found.high_watermark
                return
            found, told = log.reader.append_times(found, offset, self.sets_left)
            self.sets_left -= told.sets
            result.append_times = [
                AppendTime(offset=offset, append_time_ms=time_ms) for offset, time_ms in told.spans
            ]
        result.high_watermark = found.high_watermark
        if committed:
            result.aborted_transactions = [
                AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                for one in log.reader.aborted_transactions(found, offset)
            ]
        if found.size and not too_large:
            self.budget_bytes = max(self.budget_bytes - found.size, 0)
            self.available_bytes += min(found.size, max(wanted.partition_max_bytes, 0))
            self.parts.append(_Part(topic, wanted, found, limit_bytes, result))

    def is_enough(self) -> bool:
        """Whether the fetch is to be answered for what there is. Where a partition is named twice,
        of which the last one counts, that is left to `_Waiting` to say."""
        if self.available_bytes < self.request.min_bytes:
            return False
        topics = self.request.topics
        if len(topics) == 1 and len(topics[0].partitions) == 1:
            return True
        named = list(_partitions(self.request))
        return len(set(named)) == len(named)

    def _refuse(self, result: FetchPartitionResult, error: Exception) -> None:
        result.error_code, result.error_message = self.services.outcomes.of(error, api="fetch")

    def answer(self) -> FetchResponse | Later:
        """The response, or what becomes of it once all is in a format that the reader knows."""
        response = FetchResponse(topics=self.topics)
        newest = newest_format(self.version)
        unreadable = []
        for part in self.parts:
            if part.found.magic > newest:
                unreadable.append(part)
                continue
            try:
                self._read(part)
            except Exception as error:
                self._refuse(part.result, error)
        if not unreadable:
            return response

        def start() -> Later:
            task = self.services.work.start(self._converted(response, unreadable))
            return Later(task, task.result)

        return Later(self.services.work.nothing(), start)

    def _read(self, part: _Part) -> None:
        """Read the bytes if they are few and in memory, else say where they are."""
        found = part.found
        records: Buffer | FileRange | None = None
        if found.size < STRETCH_BYTES:
            records = found.read_now()
        if records is None and self.stretches < MAX_STRETCHES:
            records = found.stretch()
            self.stretches += records is not None
        if records is None:
            records = found.read()
        self.services.figures.topic(part.topic).bytes_out += len(records)
        part.result.records = records  # type: ignore[assignment] # what the encoder takes for them

    async def _converted(
        self, response: FetchResponse, unreadable: Sequence[_Part]
    ) -> FetchResponse:
        async with self.services.conversions.place():
            for part in unreadable:
                try:
                    await self._convert(part)
                except Exception as error:
                    self._refuse(part.result, error)
                    part.result.high_watermark = -1
        return response

    async def _convert(self, part: _Part) -> None:
        topic, wanted = part.topic, part.wanted
        log = self.services.logs.find(topic, wanted.partition)
        figures = self.services.figures.topic(topic)
        limits = Limits(part.limit_bytes, log.settings.max_decompressed_bytes)
        magic = newest_format(self.version)
        found = log.read(wanted.fetch_offset, part.found.size)
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
            found = log.read(following, part.found.size, whole_first=True)
            data = found.read()
        part.result.high_watermark = found.high_watermark
        part.result.records = bytes(data)
        figures.bytes_out += len(data)
