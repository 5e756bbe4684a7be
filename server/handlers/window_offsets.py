"""List-offsets for window topics: *earliest* is the log start, always; *latest* is behind the last
message of the window, or the log start; a search for a time finds messages of the window only."""

from ...protocol.api.log.fetch import READ_COMMITTED
from ...protocol.api.log.list_offsets import (
    EARLIEST,
    LARGEST,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsPartitionResult,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResult,
)
from ...protocol.api.schema import replaced
from ...protocol.errors import InvalidRequest
from ...protocol.window_topics import WindowName
from ...storage.log.log import Log
from ...storage.read.search import FoundMessage
from ...storage.read.window_sets import LogWindow
from ...storage.read.windows import ReadWindow
from ..requests import HandlerOfMany, PendingAnswer
from ..window_memory import WindowMemory
from ..window_topics import log_window, split_windows
from .base import Services
from .epochs import check_epoch, current_epoch, epoch_of
from .repeats import repeats
from .window_fetch import memory_of_client, outcome_of
from .window_reads import first_message, largest_message, latest_offset, prepare


def list_offsets(
    services: Services, request: ListOffsetsRequest, version: int, others: HandlerOfMany
) -> PendingAnswer:
    """Answer a request that names windows; `others` answers for the other topics."""
    memory = memory_of_client(services)
    task = services.work.start(_listed(services, memory, request, version, others))
    return PendingAnswer(task, task.result)


async def _listed(
    services: Services,
    memory: WindowMemory,
    request: ListOffsetsRequest,
    version: int,
    others: HandlerOfMany,
) -> ListOffsetsResponse:
    turns = services.work.turns()
    windows, rest = await split_windows(services.directory.topics(), request.topics, turns)
    response = ListOffsetsResponse(topics=[])
    if rest:
        turns.end()
        response = await outcome_of(services, others, version, replaced(request, topics=rest))
        turns.begin()
    repeated = repeats(request.topics)
    for topic, window in windows:
        results: list[ListOffsetsPartitionResult] = []
        response.topics.append(ListOffsetsTopicResult(name=topic.name, partitions=results))
        answered: set[int] = set()
        for wanted in topic.partitions:
            await turns.give_way()
            if wanted.partition in answered:
                continue
            answered.add(wanted.partition)
            result = ListOffsetsPartitionResult(partition=wanted.partition)
            results.append(result)
            try:
                if wanted.partition in repeated.get(topic.name, ()):
                    raise InvalidRequest(
                        f"the request names partition {wanted.partition} of {topic.name!r} more "
                        "than once"
                    )
                check_epoch(services, wanted.current_leader_epoch)
                listing = _WindowListing(services, memory, request, version, window)
                await listing.answer(wanted, result)
            except Exception as error:
                outcome = services.outcomes.of(error, api="list-offsets")
                result.error_code, result.error_message = outcome
    return response


class _WindowListing:
    """Answers where in a window something is."""

    def __init__(
        self,
        services: Services,
        memory: WindowMemory,
        request: ListOffsetsRequest,
        version: int,
        window: WindowName,
    ) -> None:
        self._services = services
        self._memory = memory
        self._committed = request.isolation_level == READ_COMMITTED
        self._version = version
        self._base = window.base
        self._window = log_window(window)

    async def answer(
        self, wanted: ListOffsetsPartition, result: ListOffsetsPartitionResult
    ) -> None:
        services, target = self._services, wanted.timestamp
        log = services.logs.find(self._base, wanted.partition)
        found: FoundMessage | None
        if target == EARLIEST:
            found = FoundMessage(log.log_start_offset, -1)
        elif target == LATEST:
            await prepare(services, log, log.log_start_offset)
            await self._add_completeness(log, result)
            window, committed = self._window, self._committed
            known = self._memory.hold(log, window, committed=committed)
            latest = await latest_offset(services, log, window, known, committed=committed)
            found = FoundMessage(latest, -1)
        else:
            await prepare(services, log, log.log_start_offset)
            if target >= 0:
                await self._add_completeness(log, result)
            found = await self._search(log, target)
        if self._version == 0:
            offsets = [] if found is None else [found.offset]
            if offsets and offsets[0] > log.log_start_offset:
                offsets.append(log.log_start_offset)
            result.old_style_offsets = offsets[: max(wanted.max_num_offsets, 0)]
        elif found is not None:
            result.offset, result.timestamp = found.offset, found.timestamp_ms
            epoch = current_epoch(services) if target == LATEST else None
            result.leader_epoch = epoch_of(services, log, found.offset) if epoch is None else epoch

    async def _add_completeness(self, log: Log, result: ListOffsetsPartitionResult) -> None:
        """Say from when on no message has left the window: 0 if all that left the log was before
        it."""
        if self._version == 0:
            return
        services = self._services
        if self._window.by_append:
            turns = services.work.turns()
            while log.log_start_offset < log.log_end_offset:
                if log.segment_list.holding(log.log_start_offset).append_times.load():
                    break
                await turns.give_way()
            complete_from_ms = services.completeness.complete_from_append_ms(log)
        else:
            complete_from_ms = services.completeness.complete_from_ms(log)
        is_whole = 0 <= complete_from_ms <= self._window.window.first_ms
        result.complete_from_ms = 0 if is_whole else complete_from_ms

    async def _search(self, log: Log, target: int) -> FoundMessage | None:
        if target < LARGEST:
            raise InvalidRequest(
                f"target {target} means nothing in a window; it must be a time in ms from 0 on, "
                f"{LATEST} for the end, {EARLIEST} for the start or {LARGEST} for the largest time"
            )
        window = self._window
        end = log.last_stable_offset if self._committed else log.high_watermark
        if target == LARGEST:
            return await largest_message(
                self._services, log, window, end=end, committed=self._committed
            )
        first_ms, last_ms = window.window
        later = LogWindow(ReadWindow(max(first_ms, target), last_ms), window.by_append)
        return await first_message(self._services, log, later, end=end, committed=self._committed)
