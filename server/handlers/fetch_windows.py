"""Time windows of a fetch: the position at which it reads on, and what it loads before that."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from ...protocol.api.log.fetch import FetchPartition, FetchRequest
from ...protocol.api.log.list_offsets import BY_APPEND, BY_TIMESTAMP
from ...protocol.errors import HorologError, InvalidRequest
from ...storage.log.log import Log
from ...storage.read import reader, windows
from ...storage.read.windows import ReadWindow, WindowPosition
from ...storage.segment.segment import FarAway
from ..parking import Partition
from .base import Services

CHECKED_MAX: Final = 8
"""The largest number of partitions that one fetch has checked for damage."""


def partitions_of(request: FetchRequest) -> Iterator[Partition]:
    """Yield the partitions that a fetch names, repeats included."""
    for topic in request.topics:
        for partition in topic.partitions:
            yield topic.name, partition.partition


def doubted_by(request: FetchRequest) -> list[tuple[str, FetchPartition]]:
    """Return the partitions for which the client reports that it received damaged messages."""
    return [
        (topic.name, partition)
        for topic in request.topics
        for partition in topic.partitions
        if partition.check
    ]


async def check_stored(services: Services, doubted: Sequence[tuple[str, FetchPartition]]) -> None:
    """Check the segments in which a client reports damage. If a check finds damage, the read that
    follows raises the error."""
    for topic, wanted in doubted[:CHECKED_MAX]:
        with suppress(HorologError, OSError):
            log = services.logs.find(topic, wanted.partition)
            await services.scrubber.checked(log, wanted.fetch_offset)


def append_times_loaded(services: Services, request: FetchRequest) -> bool:
    """Whether the append times of all sets that a fetch reads are in memory."""
    for topic in request.topics:
        for partition in topic.partitions:
            with suppress(HorologError, OSError):  # Reading raises the same, and answers with it.
                log = services.logs.find(topic.name, partition.partition)
                if not reader.append_times_loaded(log, partition.fetch_offset):
                    return False
    return True


async def get_ready(
    services: Services, request: FetchRequest, is_ready: Callable[[Log, int], bool]
) -> None:
    """Prepare the logs of a fetch, and work in bounded pieces until `is_ready` is true of each.
    An error here occurs again when the fetch reads, and is answered then."""
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
                while not is_ready(log, wanted.fetch_offset):
                    await turns.give_way()
                if has_window(wanted):
                    position = _position_in(log, wanted, log.high_watermark)
                    if position.unready is not None and wanted.window_by == BY_APPEND:
                        while not reader.append_times_loaded(log, position.offset):
                            await turns.give_way()
                    elif position.unready is not None:
                        await services.time_maps.make(log, position.unready)
            await turns.give_way()


def has_window(wanted: FetchPartition) -> bool:
    """Whether the client wants only the messages of a time window."""
    return wanted.window_from_ms >= 0 or wanted.window_until_ms >= 0


def find_position(
    log: Log, wanted: FetchPartition, *, committed: bool, far: bool
) -> WindowPosition:
    """Return the position at which to read on in the window of a partition.

    Raises `FarAway` without `far` if the log has to be prepared first, `InvalidRequest`, and the
    errors of reading an index.
    """
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
    position = _position_in(log, wanted, end_offset)
    if position.unready is None:
        return position
    if not far:
        raise FarAway
    if position.offset > wanted.fetch_offset:
        return position
    # The time map could not be made: its whole segment is read.
    return WindowPosition(
        position.offset, min(position.unready.next_offset, end_offset), position.skipped_bytes
    )


def _position_in(log: Log, wanted: FetchPartition, end_offset: int) -> WindowPosition:
    window = ReadWindow.between(wanted.window_from_ms, wanted.window_until_ms)
    if wanted.window_by == BY_APPEND:
        return windows.find_append_position(log, wanted.fetch_offset, window, end_offset)
    return windows.find_position(log, wanted.fetch_offset, window, end_offset)
