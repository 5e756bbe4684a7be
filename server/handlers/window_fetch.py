"""Fetch for window topics: the messages of a window, at the log's own offsets.

The high watermark of an answer is the largest one of *latest*, the offset that was asked for, and
the offset behind the sets in it: there a reader finds the end. *latest* is the offset behind the
last message of the window, or the log start. If the time is over before the end of the log was
reached, the high watermark is the log's own, and the next fetch at that offset goes on where this
one ended.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from ...protocol.api.log.fetch import (
    READ_COMMITTED,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopicResult,
)
from ...protocol.api.schema import replaced
from ...protocol.errors import HorologError, UnknownTopicOrPartition
from ...protocol.records.layout import BATCH_MAGIC
from ...protocol.window_topics import WindowName, find_window
from ...storage.files import Buffer
from ...storage.log.log import Log
from ...storage.segment.segment import FarAway
from ..conversions import Limits
from ..network.file_sending import MAX_FILE_RANGES
from ..parking import Partition, Wait
from ..requests import HandlerOfMany, PendingAnswer
from ..window_memory import WindowMemory
from ..window_topics import log_window, split_windows
from .base import Services
from .epochs import check_epoch
from .fetch_windows import partitions_of
from .window_reads import (
    AwaitedPartition,
    WindowPart,
    WindowRead,
    known_latest,
    latest_offset,
    prepare,
)

CHOSEN_BYTES: Final = 1 << 20
"""The most bytes of selected messages in one answer, or one record set: they are held in memory
until they are sent."""

WINDOW_COUNTS_AS: Final = 4
"""A partition of a window in a fetch that waits takes up to 1.9 KB, the memory of so many
partitions of stored topics."""

_FIRST_VERSION_WITH_MAX_BYTES: Final = 3


async def outcome_of(
    services: Services, handle_many: HandlerOfMany, version: int, body: Any
) -> Any:
    """Return the answer to a request for stored topics."""
    (outcome,) = handle_many(services, version, (body,))
    while isinstance(outcome, PendingAnswer):
        await outcome.ready
        outcome = outcome.make()
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def memory_of_client(services: Services) -> WindowMemory:
    """What the connection of the present request remembers of windows."""
    context = services.creations.context
    return WindowMemory() if context is None else context.windows


def fetch(
    services: Services,
    request: FetchRequest,
    version: int,
    others: HandlerOfMany,
    *,
    newest_magic: int,
) -> FetchResponse | PendingAnswer:
    """Answer a fetch that names windows. `others` answers for the other topics; the client knows
    message formats up to `newest_magic`.

    The search begins when the answer's turn has come: otherwise each of a hundred requests in
    flight would hold its selected messages until then. Sets that are sent from their file need no
    memory, so that answer is made at once.
    """
    memory = memory_of_client(services)
    if newest_magic >= BATCH_MAGIC:
        response = _FileAnswer(services, memory, request).make()
        if response is not None:
            return response

    def begin() -> FetchResponse | PendingAnswer:
        fetching = _WindowFetch(services, memory, request, version, others, newest_magic)
        return fetching.run(fetching.answer())

    return PendingAnswer(services.work.nothing(), begin)


class _FileAnswer:
    """The answer to a fetch whose sets go as stored, made without a task.

    Most fetches of a large window are of this kind: they cost about as much as a native window.
    """

    def __init__(self, services: Services, memory: WindowMemory, request: FetchRequest) -> None:
        self._services = services
        self._memory = memory
        self._request = request
        self._committed = request.isolation_level == READ_COMMITTED
        self._budget_bytes = max(min(services.settings.max_response_bytes, request.max_bytes), 0)
        self._size = 0

    def make(self) -> FetchResponse | None:
        """Return `None` if a partition has nothing to send from a file, or something has to be
        awaited. An error also returns `None`: the whole search meets it again, and answers it."""
        topics, names = self._request.topics, self._services.directory.topics()
        if sum(len(topic.partitions) for topic in topics) > MAX_FILE_RANGES:
            return None
        response = FetchResponse(topics=[])
        sent: list[tuple[str, int]] = []
        try:
            for topic in topics:
                window = find_window(names, topic.name)
                if window is None:
                    return None
                results: list[FetchPartitionResult] = []
                response.topics.append(FetchTopicResult(name=topic.name, partitions=results))
                for wanted in topic.partitions:
                    read = self._read(window, wanted)
                    if read is None:
                        return None
                    results.append(self._result(read, wanted))
                    sent.append((window.base, read.size))
        except (HorologError, OSError, FarAway):
            return None
        if not self._size:
            return None
        for base, size in sent:
            self._services.figures.topic(base).window_bytes_out += size
        return response

    def _read(self, window: WindowName, wanted: FetchPartition) -> WindowRead | None:
        services = self._services
        check_epoch(services, wanted.current_leader_epoch)
        log = services.logs.find(window.base, wanted.partition)
        if not log.prepared:
            return None
        read = WindowRead(
            services,
            self._memory,
            log,
            log_window(window),
            wanted.fetch_offset,
            committed=self._committed,
        )
        room = min(max(wanted.partition_max_bytes, 0), max(self._budget_bytes - self._size, 0))
        if self._size and not room:
            return read
        if not read.lend(room):
            return None
        self._size += read.size
        return read

    def _result(self, read: WindowRead, wanted: FetchPartition) -> FetchPartitionResult:
        """Raises `FarAway` if the log has to be searched for the end of the window."""
        result = FetchPartitionResult(partition=wanted.partition)
        latest = None
        if read.messages or read.at_end:
            latest = known_latest(read.log, read.known, committed=self._committed)
            if latest is None:
                raise FarAway
        _fill(result, read, latest)
        return result


def _fill(result: FetchPartitionResult, read: WindowRead, latest: int | None) -> None:
    """Fill in what was read. Without `latest` the end of the log was not reached."""
    log = read.log
    read.remember()
    result.log_start_offset = log.log_start_offset
    result.high_watermark, result.last_stable_offset = log.high_watermark, read.end_offset
    if latest is not None:
        result.high_watermark = result.last_stable_offset = max(latest, read.kept_offset)
    if read.committed:
        result.aborted_transactions = []  # What was aborted is left out here.
    result.records = read.records  # type: ignore[assignment] # what the encoder takes for them


class _SearchWait(Wait):
    """Over when a search is, or earlier, when the client waits for nothing but its answers."""

    __slots__ = ("_task",)

    def __init__(self, task: asyncio.Future[Any]) -> None:
        super().__init__()
        self._task = task
        task.add_done_callback(lambda _: self.set_result(None))

    def cancel(self) -> None:
        task = self._task
        if not task.cancel() and not task.cancelled() and task.exception() is None:
            found = task.result()
            if isinstance(found, Wait):
                found.cancel()
        super().cancel()


class _WindowFetch:
    """A fetch that names windows. It searches in turns until there are enough messages, the end of
    each log is reached, or the time is over; then it waits for appends.

    Each search is a task, whose memory counts as that of other work. What is made stays while the
    fetch waits; it counts in the parking lot then.
    """

    def __init__(
        self,
        services: Services,
        memory: WindowMemory,
        request: FetchRequest,
        version: int,
        others: HandlerOfMany,
        newest_magic: int,
    ) -> None:
        self._services = services
        self._memory = memory
        self._request = request
        self._version = version
        self._others = others
        self._newest_magic = newest_magic
        self._committed = request.isolation_level == READ_COMMITTED
        self._rest: FetchRequest | None = None
        """A fetch of the other topics, if there are some."""
        self._parts: list[WindowPart] = []
        self._awaited: dict[Partition, AwaitedPartition] = {}
        """The parts, by where their messages are."""
        self._found_bytes = 0
        """Bytes of messages that were found for the windows."""
        self._chosen_bytes = 0
        """How many of them are in memory."""
        self._files = 0
        """Number of partitions whose messages are sent from their file."""
        budget = services.settings.max_response_bytes
        if version >= _FIRST_VERSION_WITH_MAX_BYTES:
            budget = max(min(budget, request.max_bytes), 0)
        self._budget_bytes = budget
        wait_ms = min(request.max_wait_ms, services.settings.fetch_max_wait_ms)
        self._until = services.work.time() + wait_ms / 1000
        self._rest_response = FetchResponse(topics=[])
        self._rest_bytes = 0
        self._rest_failed = False
        self._rest_moved = False
        self._rest_ends: dict[Partition, int] = {}
        """High watermarks of the other topics when they were read."""
        self._is_woken = False
        """Whether the wait ended because something may have been appended."""
        self.turns = services.work.turns()
        """Counts what it takes of the event loop."""

    def run(self, search: Coroutine[Any, Any, Any]) -> FetchResponse | PendingAnswer:
        """Return what `search` comes to: at once if it awaits nothing."""
        task = self._services.work.start_now(search)
        if task.done():
            return self._outcome(task)
        self.turns.begin()

        def make() -> FetchResponse | PendingAnswer:
            if task.done():
                return self._outcome(task)
            self._until = 0.0  # The client waits for nothing but its answers.
            rest = partial(self._outcome, task)
            return PendingAnswer(_SearchWait(task), rest, turns=self.turns)

        return PendingAnswer(_SearchWait(task), make, may_hurry=True, turns=self.turns)

    def _outcome(self, task: asyncio.Future[Any]) -> FetchResponse | PendingAnswer:
        found: FetchResponse | PendingAnswer | Wait = task.result()
        if not isinstance(found, Wait):
            return found
        if found.done():
            return self._go_on()
        return PendingAnswer(found, self._go_on, may_hurry=True, is_waiting=True)

    def _go_on(self) -> FetchResponse | PendingAnswer:
        """Search again after a wait; if nothing was appended, answer with what there is."""
        if not self._is_woken:
            self._until = 0.0
        self.turns.begin()
        return self.run(self._search_again())

    async def answer(self) -> FetchResponse | PendingAnswer | Wait:
        """Search until there is an answer, or the fetch has to wait for appends."""
        await self._split()
        if self._rest is not None and len(self._rest.topics) == len(self._request.topics):
            return self._without_windows()
        return await self._answer()

    async def _search_again(self) -> FetchResponse | Wait:
        await self._pass_over()
        return await self._answer()

    async def _answer(self) -> FetchResponse | Wait:
        while True:
            for part in self._parts:
                await self._begin(part)
                await self.turns.give_way()
            if self._rest_moved:
                await self._read_rest()
            await self._search()
            if self._is_over():
                break
            parked = await self._wait()
            if parked is not None:
                self.turns.end()
                return parked
            await self.turns.give_way()
        response = await self._response()
        self.turns.end()
        return response

    async def _split(self) -> None:
        """Split the request into the partitions of windows, and a fetch of the other topics."""
        request = self._request
        windows, rest = await split_windows(
            self._services.directory.topics(), request.topics, self.turns
        )
        if rest:
            self._rest, self._rest_moved = replaced(request, topics=rest, max_wait_ms=0), True
        for topic, window in windows:
            for number, wanted in enumerate(topic.partitions):
                part = WindowPart(topic.name, window, wanted, number)
                self._parts.append(part)
                awaited = self._awaited.get(part.key)
                if awaited is None:
                    awaited = AwaitedPartition(committed=self._committed)
                    self._awaited[part.key] = awaited
                awaited.parts.append(part)
                await self.turns.give_way()

    def _without_windows(self) -> FetchResponse | PendingAnswer:
        self.turns.end()
        (outcome,) = self._others(self._services, self._version, (self._request,))
        if isinstance(outcome, Exception):
            raise outcome
        found: FetchResponse | PendingAnswer = outcome
        return found

    async def _begin(self, part: WindowPart) -> None:
        """Find the log of a partition, unless that is done and it is the same one still."""
        services, wanted = self._services, part.wanted
        if part.error is not None:
            return
        try:
            check_epoch(services, wanted.current_leader_epoch)
            log = services.logs.find(*part.key)
            if part.read is not None:
                self._check_same(part, log)
                if not part.read.is_cut_off:
                    return
                self._count(part.read, -1)
                part.read = None
            if log.follows and wanted.fetch_offset > log.log_end_offset:
                return  # The offset may come from the leader.
            await prepare(services, log, wanted.fetch_offset)
            log = services.logs.find(*part.key)
            part.read = WindowRead(
                services,
                self._memory,
                log,
                part.window,
                wanted.fetch_offset,
                committed=self._committed,
            )
        except Exception as error:
            part.error = error

    @staticmethod
    def _check_same(part: WindowPart, log: Log) -> None:
        """Raise `UnknownTopicOrPartition` for a log that is another one than it was."""
        if part.read is not None and part.read.log is not log:
            raise UnknownTopicOrPartition(f"the base of {part.topic} was deleted")

    async def _read_rest(self) -> None:
        """The other topics, as they are now."""
        assert self._rest is not None
        self._rest_moved = False
        for key in partitions_of(self._rest):
            self._rest_ends[key] = self._end_of(key)
            await self.turns.give_way()
        self._rest_response = await outcome_of(
            self._services, self._others, self._version, self._rest
        )
        results = [each for topic in self._rest_response.topics for each in topic.partitions]
        self._rest_bytes = sum(len(each.records or b"") for each in results)
        self._rest_failed = any(each.error_code for each in results)

    async def _search(self) -> None:
        """Search on in each partition, by a step at least: until there is enough for a turn of the
        loop, or the time is over."""
        for part in self._parts:
            begun = False
            while not self._is_done(part):
                if begun and (self._time_is_over() or (self._enough() and self.turns.over)):
                    break
                begun = True
                await self.turns.give_way()
                await self._step(part)

    async def _step(self, part: WindowPart) -> None:
        read = part.read
        assert read is not None
        others = self._found_bytes + self._rest_bytes - read.size
        room = min(max(part.wanted.partition_max_bytes, 0), max(self._budget_bytes - others, 0))
        if others and not room:
            read.is_full = True
            return
        self._count(read, -1)
        try:
            self._check_same(part, self._services.logs.find(*part.key))
            await read.step(
                min(room, CHOSEN_BYTES) if self._newest_magic < BATCH_MAGIC else room,
                self.turns,
                may_send_file=self._newest_magic >= BATCH_MAGIC and self._files < MAX_FILE_RANGES,
                enough=0 < others + read.size >= self._request.min_bytes,
            )
        except Exception as error:
            if not read.messages:
                part.error = error
            read.is_full = True  # What is in front of the damage can be read.
        finally:
            self._count(read, 1)
        if self._chosen_bytes >= CHOSEN_BYTES:
            read.is_full = True

    def _count(self, read: WindowRead, sign: int) -> None:
        """Add what was found of a partition to the sums, or take it off."""
        self._found_bytes += sign * read.size
        if isinstance(read.records, bytearray):
            self._chosen_bytes += sign * read.size
        else:
            self._files += sign

    def _is_done(self, part: WindowPart) -> bool:
        read = part.read
        return part.error is not None or read is None or read.is_full or read.at_end

    def _enough(self) -> bool:
        return 0 < self._found_bytes + self._rest_bytes >= self._request.min_bytes

    def _time_is_over(self) -> bool:
        return self._services.work.time() >= self._until

    def _is_over(self) -> bool:
        """Whether to answer: there is enough, there is an error, or waiting cannot help."""
        if self._enough() or self._request.min_bytes <= 0 or self._time_is_over():
            return True
        if self._rest_failed or any(part.error is not None for part in self._parts):
            return True
        return any(part.read is not None and part.read.is_full for part in self._parts)

    async def _wait(self) -> Wait | None:
        """Begin to wait until something of a window may have been appended, or the time is over.
        Return `None` if there is more to search already, or no room to wait."""
        if not await self._watch():
            return None
        fetches, keys = self._services.fetches, self._awaited.keys() | self._rest_ends.keys()
        named = sum(len(topic.partitions) for topic in self._request.topics)
        named += (WINDOW_COUNTS_AS - 1) * len(self._parts)
        if not fetches.has_room(named):
            self._services.figures.parked_refused += 1
            self._until = 0
            return None
        left_ms = max(round((self._until - self._services.work.time()) * 1000), 0)
        self._is_woken = False
        parked = fetches.park(
            keys, self._may_have, left_ms, named_partitions=named, passes_over=self._passes_over
        )
        try:
            await self._check_all(parked)
        except BaseException:
            parked.cancel()
            raise
        if not parked.done():
            return parked
        await self._pass_over()
        return None

    async def _pass_over(self) -> None:
        for awaited in self._awaited.values():
            awaited.catch_up()
            for part in awaited.parts:
                awaited.pass_over(part)
                await self.turns.give_way()

    async def _watch(self) -> bool:
        """Note up to where the logs were searched. Return `False` if one was truncated since."""
        for awaited in self._awaited.values():
            awaited.begin()
            for part in awaited.parts:
                if not awaited.add(part):
                    return False
                await self.turns.give_way()
        return True

    async def _check_all(self, parked: Wait) -> None:
        """End the wait if a partition moved since it was searched."""
        for key, end_offset in self._rest_ends.items():
            if self._end_of(key) != end_offset:
                self._rest_moved = self._is_woken = True
                parked.set_result(None)
            await self.turns.give_way()
        for key in self._awaited:
            if parked.done():
                break
            if self._windows_may_have(key):
                parked.set_result(None)
            await self.turns.give_way()

    def _end_of(self, key: Partition) -> int:
        """The high watermark of a partition; -1 where it cannot be reached."""
        try:
            return self._services.logs.find(*key).high_watermark
        except (HorologError, OSError):
            return -1

    def _may_have(self, key: Partition) -> bool:
        """Whether a partition that moved may have something for this fetch, which is woken then."""
        if key in self._rest_ends:
            self._rest_moved = self._is_woken = True
            return True
        return self._windows_may_have(key)

    def _passes_over(self, key: Partition, log: Log) -> bool:
        return key not in self._rest_ends and self._awaited[key].passes_over(log)

    def _windows_may_have(self, key: Partition) -> bool:
        try:
            self._is_woken = self._awaited[key].may_have(self._services.logs.find(*key))
        except (HorologError, OSError):
            self._is_woken = True  # To begin again meets the same.
        return self._is_woken

    async def _response(self) -> FetchResponse:
        response = self._rest_response
        topics: dict[str, list[FetchPartitionResult]] = {}
        for part in self._parts:
            await self.turns.give_way()
            result = FetchPartitionResult(partition=part.wanted.partition)
            if part.topic not in topics:
                topics[part.topic] = []
                response.topics.append(
                    FetchTopicResult(name=part.topic, partitions=topics[part.topic])
                )
            topics[part.topic].append(result)
            try:
                await self._finish(part, result)
            except Exception as error:
                outcome = self._services.outcomes.of(error, api="fetch")
                result.error_code, result.error_message = outcome
                result.high_watermark = -1
                result.records = b""
                part.error = None  # It refers to frames that refer to the part.
        return response

    async def _finish(self, part: WindowPart, result: FetchPartitionResult) -> None:
        services, read = self._services, part.read
        if part.error is not None:
            raise part.error
        log = services.logs.find(*part.key)
        if read is None:
            result.log_start_offset = log.log_start_offset
            result.high_watermark = result.last_stable_offset = log.high_watermark
            return
        latest = None
        if read.messages or read.at_end:
            latest = await latest_offset(
                services, log, part.window, read.known, committed=self._committed
            )
        _fill(result, read, latest)
        records = read.records
        if read.magic > self._newest_magic and isinstance(records, bytearray) and records:
            records = bytearray(await self._converted(part, log, records))
        if self._version < _FIRST_VERSION_WITH_MAX_BYTES and isinstance(records, bytearray):
            del records[max(part.wanted.partition_max_bytes, 0) :]
        services.figures.topic(log.topic).window_bytes_out += len(records)
        result.records = records  # type: ignore[assignment] # what the encoder takes for them

    async def _converted(self, part: WindowPart, log: Log, data: Buffer) -> Buffer:
        """The messages in a format that the client knows."""
        services = self._services
        limits = Limits(
            max(part.wanted.partition_max_bytes, len(data)), log.settings.max_decompressed_bytes
        )
        async with services.conversions.place():
            converted, seconds = await services.conversions.downconvert(
                data, limits, self._newest_magic, part.wanted.fetch_offset
            )
        figures = services.figures.topic(log.topic)
        figures.converted("fetch_down", converted.messages, converted.used_bytes, seconds)
        figures.dropped_headers += converted.headers
        return converted.data
