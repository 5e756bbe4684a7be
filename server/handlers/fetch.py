"""fetch: read record sets, at once or when there are enough bytes.

fetch (key 1): versions 0 to 10, native 0 to 5
     1  throttle_time_ms in the response (KIP-13)
     2  message format v1 (KIP-31, KIP-32)
     3  max_bytes for the whole response (KIP-74)
     4  isolation_level, last_stable_offset, record batches (KIP-98); native: damage is checked
     5  log_start_offset (KIP-107); native: reads at followers
     6  KAFKA_STORAGE_ERROR (KIP-112); older versions get another code for it
     7  fetch sessions (KIP-227)
     8  the response comes before the client is throttled (KIP-219)
     9  current_leader_epoch (KIP-320)
    10  batches in zstd (KIP-110)

Left out: fetch sessions; a client that asks for one gets FETCH_SESSION_ID_NOT_FOUND and sends whole
fetches. Preferred read replicas (KIP-392), which came with version 11.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import msgspec

from ...protocol.api.log.fetch import (
    FETCH,
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
from ...protocol.api.pieces import Pieces, finish
from ...protocol.errors import HorologError, OffsetOutOfRange, UnknownFetchSession
from ...protocol.limits import MAX_APPEND_TIMES
from ...protocol.records.kernel import walk
from ...protocol.records.messages.downconversion import DamagedSlice
from ...storage.files import Buffer
from ...storage.read import reader
from ...storage.read.slices import FileRange, Slice
from ...storage.segment.segment import FarAway
from ..conversions import Limits
from ..network.file_sending import MAX_FILE_RANGES, MIN_FILE_RANGE_BYTES
from ..parking import Partition
from ..requests import PendingAnswer, each_alone, in_turns
from ..window_topics import may_name_windows
from .base import Services
from .epochs import check_epoch
from .fetch_windows import (
    append_times_loaded,
    check_stored,
    doubted_by,
    find_position,
    get_ready,
    has_window,
    partitions_of,
)
from .registration import handles_many
from .window_fetch import fetch as window_fetch

FIRST_VERSION_WITH_V1 = 2
"""Older fetches speak message format v0 only."""

FIRST_VERSION_WITH_V2 = 4
"""First version whose readers know record batches."""

AT_ONCE: Final = 16
"""The most partitions of one topic that are read without giving way to other requests."""

FIRST_VERSION_WITH_MAX_BYTES = 3
"""First version whose response has a size limit; a first message above the limit comes whole."""


def newest_format(version: int) -> int:
    """The newest message format that a reader of this version of fetch knows."""
    if version >= FIRST_VERSION_WITH_V2:
        return 2
    return 1 if version >= FIRST_VERSION_WITH_V1 else 0


@handles_many(FETCH, most=1)  # The next fetch is handled if this answer leaves room for it.
@each_alone
def handle_many(
    services: Services, request: FetchRequest, version: int
) -> FetchResponse | PendingAnswer:
    if request.session_epoch not in WHOLE_EPOCHS:
        # A client that gets this error asks for all of its partitions in every fetch.
        return FetchResponse(error_code=UnknownFetchSession.code, topics=[])

    if may_name_windows(services.directory.topics(), request.topics):
        newest = newest_format(version)
        return window_fetch(services, request, version, _fetch_stored, newest_magic=newest)
    return _answer_stored(services, request, version)


def _answer_stored(
    services: Services, request: FetchRequest, version: int
) -> FetchResponse | PendingAnswer:
    """Answer a fetch that names no windows."""
    if _asks_for_one(request):
        return _answer_one(services, request, version)

    def answer() -> FetchResponse | PendingAnswer:
        return _finished(services, request, _answering(services, request, version))

    doubted = doubted_by(request)
    if doubted:
        return PendingAnswer(services.work.start(check_stored(services, doubted)), answer)
    return answer()


_fetch_stored: Final = each_alone(_answer_stored)


def _asks_for_one(request: FetchRequest) -> bool:
    """Whether a fetch is for one partition, as most are, and does not ask for a check of stored
    messages."""
    topics = request.topics
    return len(topics) == 1 and len(topics[0].partitions) == 1 and not topics[0].partitions[0].check


def _answer_one(
    services: Services, request: FetchRequest, version: int
) -> FetchResponse | PendingAnswer:
    """As `_answering`, for a single partition: without a generator if the answer can be made
    now."""
    reading = _Reading(services, request, version)
    (topic,) = request.topics
    if not reading.find_in(topic.name, topic.partitions[0], reading.add_topic(topic.name)):
        return finish(_answering(services, request, version))
    if (
        version < FIRST_VERSION_WITH_V1
        or request.include_append_times
        or (request.max_wait_ms > 0 and not reading.is_enough())
    ):
        return finish(_when_enough(reading))
    return reading.answer_now()


def _finished(
    services: Services, request: FetchRequest, pieces: Pieces[FetchResponse | PendingAnswer]
) -> FetchResponse | PendingAnswer:
    """Return the result of an answer in pieces: at once for few partitions; for many, other
    requests are handled between the pieces."""
    if len(request.topics) == 1 and len(request.topics[0].partitions) <= AT_ONCE:
        return finish(pieces)
    return in_turns(services.work, pieces)


def _answering(
    services: Services, request: FetchRequest, version: int
) -> Pieces[FetchResponse | PendingAnswer]:
    reading = _Reading(services, request, version)
    if (yield from reading.find()):
        return (yield from _when_enough(reading))

    def find_again() -> FetchResponse | PendingAnswer:
        return _finished(services, request, _finding_again(services, request, version))

    getting_ready = services.work.start(get_ready(services, request, reader.located))
    return PendingAnswer(getting_ready, find_again)


def _finding_again(
    services: Services, request: FetchRequest, version: int
) -> Pieces[FetchResponse | PendingAnswer]:
    reading = _Reading(services, request, version)
    yield from reading.find(as_they_are=True)
    return (yield from _when_enough(reading))


def _when_enough(reading: "_Reading") -> Pieces[FetchResponse | PendingAnswer]:
    """Return the answer to a fetch whose messages were located: at once if they are enough, else a
    pending one."""
    services, request, version = reading.services, reading.request, reading.version
    wait_ms = min(request.max_wait_ms, services.settings.fetch_max_wait_ms)
    if wait_ms > 0 and not reading.is_enough():
        waiting = _WaitingFetch(services, request)
        yield from waiting.check()
        if not waiting.over:
            named = sum(len(topic.partitions) for topic in request.topics)
            if services.fetches.has_room(named):
                ready = services.fetches.park(
                    waiting.partitions(), waiting.check_one, wait_ms, named_partitions=named
                )
                read = partial(_read, services, request, version)
                return PendingAnswer(ready, read, may_hurry=True, is_waiting=True)
            services.figures.parked_refused += 1
    if version < FIRST_VERSION_WITH_V1:
        # Messages to convert are read when the answer's turn has come: otherwise each of a hundred
        # requests in flight would hold its messages until then.
        return PendingAnswer(services.work.nothing(), partial(_read, services, request, version))
    if request.include_append_times:
        return _read(services, request, version)
    return (yield from reading.answer())


def _read(services: Services, request: FetchRequest, version: int) -> FetchResponse | PendingAnswer:
    """Return the answer with the messages that the logs have now."""

    def answer() -> FetchResponse | PendingAnswer:
        return _finished(services, request, _reading(services, request, version))

    if request.include_append_times and not append_times_loaded(services, request):
        loading = services.work.start(get_ready(services, request, reader.append_times_loaded))
        return PendingAnswer(loading, answer)
    return answer()


def _reading(
    services: Services, request: FetchRequest, version: int
) -> Pieces[FetchResponse | PendingAnswer]:
    reading = _Reading(services, request, version, with_append_times=True)
    yield from reading.find(as_they_are=True)
    return (yield from reading.answer())


class _WaitingFetch:
    """The wait of a fetch: it ends with enough bytes, with an error, or when further appends cannot
    add bytes. Only partitions that changed are checked again."""

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
        """Whether to answer now: there are enough bytes, there is an error, or waiting cannot
        help."""

    def check(self) -> Pieces[None]:
        """Check the partitions until one of them ends the wait."""
        for key in self._wanted:
            self.check_one(key)
            if self.over:
                break
            yield

    def partitions(self) -> Iterator[Partition]:
        return iter(self._wanted)

    def check_one(self, key: Partition) -> bool:
        """Check one partition again; returns `over`."""
        wanted = self._wanted[key]
        try:
            check_epoch(self._services, wanted.current_leader_epoch)
            log = self._services.logs.find(*key)
            if log.follows and wanted.fetch_offset > log.log_end_offset:
                return self.over  # The offset may come from the leader.
            if not log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset:
                raise OffsetOutOfRange
            readable = reader.readable_bytes(log, wanted.fetch_offset, committed=self._committed)
        except (HorologError, OSError):
            self.over = True  # Reading raises the same, which becomes the partition's error.
            return True
        available = min(readable, max(wanted.partition_max_bytes, 0))
        self._total += available - self._available.get(key, 0)
        self._available[key] = available
        # A read never spans segments, so no append adds to a read of a closed one.
        closed = readable > 0 and wanted.fetch_offset < log.segments[-1].base_offset
        self.over = self.over or closed or self._total >= self._min_bytes
        return self.over


class _Part(msgspec.Struct):
    """The located messages of one partition, and the result that they belong in."""

    topic: str
    wanted: FetchPartition
    found: Slice
    limit_bytes: int
    result: FetchPartitionResult


class _Reading(msgspec.Struct):
    """One pass over the partitions, in the order of the request: `find`, then `answer`."""

    services: Services
    request: FetchRequest
    version: int
    with_append_times: bool = False
    """Whether the append times that the request asks for are loaded."""
    available_bytes: int = 0
    """Bytes that are available, counted for each partition up to its `partition_max_bytes`."""
    topics: list[FetchTopicResult] = msgspec.field(default_factory=list)
    parts: list[_Part] = msgspec.field(default_factory=list)
    """The partitions that have messages."""
    unreadable: list[_Part] = msgspec.field(default_factory=list)
    """The parts in a message format that the reader does not know."""
    budget_bytes: int = 0
    """How many bytes of messages the rest of the answer may have."""
    sets_left: int = MAX_APPEND_TIMES - 2
    """For how many more record sets the answer may have append times; two items are left to mark
    offsets without known append times."""
    file_ranges: int = 0

    def __post_init__(self) -> None:
        self.budget_bytes = self.services.settings.max_response_bytes
        if self.version >= FIRST_VERSION_WITH_MAX_BYTES:
            self.budget_bytes = max(min(self.budget_bytes, self.request.max_bytes), 0)

    def find(self, *, as_they_are: bool = False) -> Pieces[bool]:
        """Locate the messages, without reading them. `False` if a log has to be prepared first, or
        the search takes long; with `as_they_are`, neither stops the search."""
        for topic in self.request.topics:
            if self.topics:
                yield
            results = self.add_topic(topic.name)
            for wanted in topic.partitions:
                if results:
                    yield
                if not self.find_in(topic.name, wanted, results, far=as_they_are):
                    return False
        return True

    def add_topic(self, topic: str) -> list[FetchPartitionResult]:
        """Begin the results of one more topic; returns the list for its partitions' results."""
        results: list[FetchPartitionResult] = []
        self.topics.append(FetchTopicResult(name=topic, partitions=results))
        return results

    def find_in(
        self,
        topic: str,
        wanted: FetchPartition,
        results: list[FetchPartitionResult],
        *,
        far: bool = False,
    ) -> bool:
        """As `find`, for one partition; its result is added to `results`."""
        result = FetchPartitionResult(partition=wanted.partition)
        results.append(result)
        try:
            self._find_in(topic, wanted, result, far=far)
        except FarAway:
            return False
        except Exception as error:
            self._refuse(result, error)
        return True

    def _find_in(
        self, topic: str, wanted: FetchPartition, result: FetchPartitionResult, *, far: bool
    ) -> None:
        request, offset = self.request, wanted.fetch_offset
        check_epoch(self.services, wanted.current_leader_epoch)
        log = self.services.logs.find_stored(topic, wanted.partition)
        limit_bytes = max(min(wanted.partition_max_bytes, self.budget_bytes), 0)
        whole_messages = self.version >= FIRST_VERSION_WITH_MAX_BYTES
        committed = request.isolation_level == READ_COMMITTED
        result.log_start_offset = log.log_start_offset
        result.last_stable_offset = log.last_stable_offset
        if offset > log.log_end_offset and log.follows:
            result.high_watermark = log.high_watermark
            return  # The offset may come from the leader.
        end_offset = None
        if has_window(wanted):
            position = find_position(log, wanted, committed=committed, far=far)
            result.next_offset, result.skipped_bytes = position.offset, position.skipped_bytes
            offset, end_offset = position.offset, position.end_offset
        found = reader.read(
            log,
            offset,
            limit_bytes,
            whole_first=whole_messages,
            committed=committed,
            far=far,
            end_offset=end_offset,
        )
        # Only the first partition with messages may exceed its limit, by one message.
        too_large = whole_messages and bool(self.parts) and found.size > limit_bytes
        if self.with_append_times and request.include_append_times and not too_large:
            if not self.sets_left:
                result.high_watermark = result.last_stable_offset = found.high_watermark
                return
            found, known = reader.append_times(log, found, offset, self.sets_left)
            self.sets_left -= known.sets
            result.append_times = [
                AppendTime(offset=offset, append_time_ms=time_ms) for offset, time_ms in known.spans
            ]
        result.high_watermark = found.high_watermark
        if committed:
            result.aborted_transactions = [
                AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                for one in reader.aborted_transactions(log, found, offset)
            ]
        if found.size and not too_large:
            self.budget_bytes = max(self.budget_bytes - found.size, 0)
            self.available_bytes += min(found.size, max(wanted.partition_max_bytes, 0))
            self.parts.append(_Part(topic, wanted, found, limit_bytes, result))

    def is_enough(self) -> bool:
        """Whether the available bytes are enough to answer now. `False` if a partition is named
        twice: only its last entry counts, and `_WaitingFetch` decides."""
        if self.available_bytes < self.request.min_bytes:
            return False
        topics = self.request.topics
        if len(topics) == 1 and len(topics[0].partitions) == 1:
            return True
        named = list(partitions_of(self.request))
        return len(set(named)) == len(named)

    def _refuse(self, result: FetchPartitionResult, error: Exception) -> None:
        result.error_code, result.error_message = self.services.outcomes.of(error, api="fetch")

    def answer(self) -> Pieces[FetchResponse | PendingAnswer]:
        """Return the response, or a pending one if messages have to be converted to a format that
        the reader knows."""
        for number, part in enumerate(self.parts):
            if number:
                yield
            self._read_part(part)
        return self._response()

    def answer_now(self) -> FetchResponse | PendingAnswer:
        """As `answer`, all at once."""
        for part in self.parts:
            self._read_part(part)
        return self._response()

    def _read_part(self, part: _Part) -> None:
        """Read the messages of a partition, unless they have to be converted first."""
        if part.found.magic > newest_format(self.version):
            self.unreadable.append(part)
            return
        try:
            self._read(part)
        except Exception as error:
            self._refuse(part.result, error)

    def _response(self) -> FetchResponse | PendingAnswer:
        response, unreadable = FetchResponse(topics=self.topics), self.unreadable
        if not unreadable:
            return response

        def start() -> PendingAnswer:
            task = self.services.work.start(self._converted(response, unreadable))
            return PendingAnswer(task, task.result)

        return PendingAnswer(self.services.work.nothing(), start)

    def _read(self, part: _Part) -> None:
        """Put the messages into the result: the bytes if they are few and in memory, else the range
        of the file to send them from."""
        found = part.found
        records: Buffer | FileRange | None = None
        if found.size < MIN_FILE_RANGE_BYTES:
            records = found.read_now()
        if records is None and self.file_ranges < MAX_FILE_RANGES:
            records = found.stretch()
            self.file_ranges += records is not None
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
        found = reader.read(log, wanted.fetch_offset, part.found.size)
        data: Buffer = found.read()
        while found.magic > magic:
            try:
                converted, seconds = await self.services.conversions.downconvert(
                    data, limits, magic, wanted.fetch_offset
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
            # Only control batches, and records below the wanted offset: a reader of an old version
            # cannot skip them by itself, so the next messages are read.
            following = walk(data, 0, converted.used_bytes, check_crc=False).last_offset + 1
            found = reader.read(log, following, part.found.size, whole_first=True)
            data = found.read()
        part.result.high_watermark = found.high_watermark
        part.result.records = bytes(data)
        figures.bytes_out += len(data)
