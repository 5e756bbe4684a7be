"""Where a fetch goes on reading: windows of time, and what has to be loaded before it can."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from ...protocol.api.log.fetch import FetchPartition, FetchRequest
from ...protocol.api.log.list_offsets import BY_APPEND, BY_TIMESTAMP
from ...protocol.errors import HorologError, InvalidRequest
from ...storage.log.log import Log
from ...storage.read import reader, windows
from ...storage.read.windows import TimeWindow, WindowPosition
from ...storage.segment.segment import FarAway
from ..parking import Partition
from .base import Services

CHECKED_MAX: Final = 8
"""Partitions that are checked for one fetch."""


def partitions_of(request: FetchRequest) -> Iterator[Partition]:
    """Every partition that a fetch names, as often as it does."""
    for topic in request.topics:
        for partition in topic.partitions:
            yield topic.name, partition.partition


def doubted_by(request: FetchRequest) -> list[tuple[str, FetchPartition]]:
    """Partitions of which a reader says that what it got was damaged."""
    return [
        (topic.name, partition)
        for topic in request.topics
        for partition in topic.partitions
        if partition.check
    ]


async def check_stored(services: Services, doubted: Sequence[tuple[str, FetchPartition]]) -> None:
    """Check the segments that a reader doubts. What is found the fetch meets, too."""
    for topic, wanted in doubted[:CHECKED_MAX]:
        with suppress(HorologError, OSError):
            log = services.logs.find(topic, wanted.partition)
            await services.logs.prepare([log] if not log.prepared else ())
            await services.scrubber.checked(log, wanted.fetch_offset)


def append_times_loaded(services: Services, request: FetchRequest) -> bool:
    """Whether the append times of everything that a fetch reads are in memory."""
    for topic in request.topics:
        for partition in topic.partitions:
            with suppress(HorologError, OSError):  # Reading raises the same, and answers with it.
                log = services.logs.find(topic.name, partition.partition)
                if not reader.append_times_loaded(log, partition.fetch_offset):
                    return False
    return True


async def get_ready(
    services: Services, request: FetchRequest, look: Callable[[Log, int], bool]
) -> None:
    """Have the logs prepared, and looked at until `look` has no more to do, a bounded piece of work
    at a time. What fails here fails again when it is read, and is answered then."""
    turns = services.work.turns()
    unprepared: dict[Log, None] = {}
    for partition in partitions_of(request):
        unprepared |= dict.fromkeys(services.logs.unprepared((partition,)))
        await turns.give_way()
    await services.logs.prepare(unprepared)
    for topic in request.topics:
        for wanted in topic.partitions:
            with suppress(HorologError, OSError):
                log = services.logs.find(topic.name, wanted.partition)
                while not look(log, wanted.fetch_offset):
                    await turns.give_way()
                if has_window(wanted):
                    place = _look_for(log, wanted, log.high_watermark)
                    if place.unready is not None and wanted.window_by == BY_APPEND:
                        while not reader.append_times_loaded(log, place.offset):
                            await turns.give_way()
                    elif place.unready is not None:
                        await services.time_maps.make(log, place.unready)
            await turns.give_way()


def has_window(wanted: FetchPartition) -> bool:
    """Whether only messages of some time are wanted."""
    return wanted.window_from_ms >= 0 or wanted.window_until_ms >= 0


def place_of(log: Log, wanted: FetchPartition, *, committed: bool, far: bool) -> WindowPosition:
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
        return WindowPosition(wanted.fetch_offset, end_offset, 0)
    place = _look_for(log, wanted, end_offset)
    if place.unready is None:
        return place
    if not far:
        raise FarAway
    if place.offset > wanted.fetch_offset:
        return place
    # The map could not be made: the whole segment that it is of is read.
    return WindowPosition(
        place.offset, min(place.unready.next_offset, end_offset), place.skipped_bytes
    )


def _look_for(log: Log, wanted: FetchPartition, end_offset: int) -> WindowPosition:
    window = TimeWindow.between(wanted.window_from_ms, wanted.window_until_ms)
    if wanted.window_by == BY_APPEND:
        return windows.find_append_position(log, wanted.fetch_offset, window, end_offset)
    return windows.find_position(log, wanted.fetch_offset, window, end_offset)
