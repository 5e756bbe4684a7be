"""When a log begins a new segment."""

from ...config.topic import TopicSettings
from ...protocol.records.layout import NO_TIMESTAMP
from ...times import INT64_MAX
from .segment import Segment


def is_idle(active: Segment, settings: TopicSettings, idle_ms: int) -> bool:
    """Whether `active` is to be closed because nothing was appended to it for `idle_ms`.

    That goes by the clock, whatever times its messages have. An empty segment stays.
    """
    return active.size_bytes > 0 and idle_ms > settings.segment_ms - active.jitter_ms


def latest_time_ms(active: Segment, settings: TopicSettings, now_ms: int) -> int:
    """The largest timestamp for which `active` is not to be closed yet; below that of messages
    without a time when it is to be closed whatever comes.

    Time is counted between messages: from the first of the segment to the newest of the set. Only
    while the first message has no time does the clock count, from the segment's creation on.
    """
    waits_ms, first_ms = settings.segment_ms - active.jitter_ms, active.first_timestamp_ms
    if first_ms >= 0:
        return min(first_ms + waits_ms, INT64_MAX)
    return INT64_MAX if now_ms - active.created_ms <= waits_ms else NO_TIMESTAMP - 1


def roll_reason(
    active: Segment,
    settings: TopicSettings,
    set_bytes: int,
    last_offset: int,
    newest_ms: int,
    now_ms: int,
) -> str | None:
    """Why `active` cannot take a set of `set_bytes` up to `last_offset`; `None` if it can.

    `newest_ms` is the largest timestamp of the set. An empty segment takes any set whose offsets it
    can index.
    """
    if not active.fits(last_offset):
        return "offsets"
    if not active.size_bytes:
        return None
    if active.size_bytes + set_bytes > settings.segment_bytes:
        return "size"
    if newest_ms > latest_time_ms(active, settings, now_ms):
        return "time"
    return "index full" if active.index_room <= 0 else None
