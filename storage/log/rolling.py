"""When a log begins a new segment."""

from ...config.topic import TopicSettings
from ..segment.segment import Segment


def is_idle(active: Segment, settings: TopicSettings, idle_ms: int) -> bool:
    """Whether to close `active` because nothing was appended to it for `idle_ms`.

    Only the clock decides, whatever timestamps the messages have. An empty segment stays.
    """
    return active.size_bytes > 0 and idle_ms > settings.segment_ms - active.jitter_ms


def roll_reason(
    active: Segment,
    settings: TopicSettings,
    set_bytes: int,
    last_offset: int,
    newest_ms: int,
    now_ms: int,
) -> str | None:
    """Return why `active` cannot take a set of `set_bytes` up to `last_offset`; `None` if it can.

    `newest_ms` is the largest timestamp of the set. An empty segment takes any set whose offsets it
    can index.
    """
    if not active.fits(last_offset):
        return "offsets"
    if not active.size_bytes:
        return None
    if active.size_bytes + set_bytes > settings.segment_bytes:
        return "size"
    if newest_ms > active.latest_time_ms(settings.segment_ms, now_ms):
        return "time"
    return "index full" if active.index_room <= 0 else None
