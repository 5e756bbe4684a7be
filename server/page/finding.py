"""Which offset was it at a time, and how that was found."""

from ...storage.log.log import Log
from ...storage.read import reader
from ...storage.read.search import FoundMessage
from ...times import TimeError, parse_time
from ..handlers.base import Services
from ..searching import searched
from .access import PageRefusal
from .messages import read_messages, show_message
from .query import Query, asked_log

BY_TIME, BY_APPEND = "timestamp", "append"


async def find(services: Services, query: Query) -> dict[str, object]:
    """The first message of time `at` or later; `by` is `timestamp` or `append`.

    What people write and is no time is no error of the page's: then `refused` says what to write.
    """
    by = query.text("by", BY_TIME)
    if by not in (BY_TIME, BY_APPEND):
        raise PageRefusal(400, f"by is {by!r}; it must be {BY_TIME!r} or {BY_APPEND!r}")
    try:
        target_ms = parse_time(query.text("at").strip(), services.clock.now_ms())
    except TimeError as error:
        return {"refused": str(error)}
    log = await asked_log(services, query)
    turns = services.work.turns()
    search = (
        reader.find_time(log, target_ms)
        if by == BY_TIME
        else reader.find_append_time(log, target_ms)
    )
    found = await searched(services.work, turns, search)
    answer: dict[str, object] = {
        "target_ms": target_ms,
        "by": by,
        "offset": None if found is None else found.offset,
        "timestamp_ms": None if found is None else found.timestamp_ms,
        "log_start_offset": log.log_start_offset,
        "end_offset": log.high_watermark,
        "how": _how(log, target_ms, found) if by == BY_TIME else None,
        "message": None,
    }
    if found is not None:
        read = await read_messages(services, log, found.offset, 1)
        if read.messages:
            while not reader.append_times_loaded(log, found.offset):
                await turns.give_way()
            answer["message"] = show_message(log, read.messages[0])
    return answer


def _how(log: Log, target_ms: int, found: FoundMessage | None) -> dict[str, object]:
    trail = reader.search_trail(log, target_ms, found)
    shown: dict[str, object] = {"segments": trail.segments, "ruled_out": trail.ruled_out}
    segment = trail.segment
    if segment is None:
        return shown
    return {
        **shown,
        "segment": segment.base_offset,
        "largest_ms": segment.largest_timestamp_ms,
        "time_entries": trail.time_entries,
        "entry": trail.entry,
        "start_offset": trail.start_offset,
        "start_byte": trail.start_position,
        "read_bytes": trail.read_bytes,
    }
