"""Which message timestamps a topic accepts."""

from math import inf
from typing import Final

from ...config.topic import TopicSettings
from ...protocol.errors import InvalidTimestamp
from ...protocol.records.batch import CheckedBatch
from ...protocol.records.kernel import RecordCursor, Walk
from ...protocol.records.layout import NO_TIMESTAMP
from ...protocol.records.messages.sets import Entry, entries
from ...times import format_time, later
from ..files import Buffer

_NOT_A_PRODUCER_S: Final = (
    "a message says that its time is an append time (attribute bit 3); only the broker sets that, "
    "a producer sends 0 there"
)
_SYMMETRIC = "max.message.time.difference.ms"


def accepted_range(settings: TopicSettings, now_ms: int) -> tuple[int | None, int | None]:
    """Return the smallest and the largest timestamp accepted at `now_ms`; `None` means no limit.

    Only CreateTime topics have limits. A limit for one direction takes precedence over the
    symmetric one.
    """
    if settings.stamps_append_time:
        return None, None
    both = settings.max_message_time_difference_ms
    before = settings.message_timestamp_before_max_ms
    after = settings.message_timestamp_after_max_ms
    before = both if before is None else before
    after = both if after is None else after
    return (
        None if before is None else now_ms - before,
        None if after is None else later(now_ms, after),
    )


def in_range(smallest_ms: int, largest_ms: int, settings: TopicSettings, now_ms: int) -> bool:
    """Whether the topic accepts messages with timestamps in this range. -1 for both means that no
    message has one."""
    if smallest_ms == largest_ms == NO_TIMESTAMP:
        return True
    return _all_in_range(smallest_ms, largest_ms, settings, now_ms)


def _all_in_range(smallest_ms: int, largest_ms: int, settings: TopicSettings, now_ms: int) -> bool:
    earliest, latest = accepted_range(settings, now_ms)
    lowest = 0 if earliest is None else max(earliest, 0)
    return smallest_ms >= lowest and (latest is None or largest_ms <= latest)


def check_timestamps(
    data: Buffer,
    found: Walk,
    settings: TopicSettings,
    now_ms: int,
    wrapper: Entry | None = None,
) -> None:
    """Raise `InvalidTimestamp` unless the topic accepts the timestamp of every message.

    `found` is the walk over `data`. For the content of a wrapper message, `wrapper` is that
    message; its attribute bit 3 applies to all messages inside. Messages without a timestamp always
    pass. Topics of format v0 accept any timestamp, because they store none.
    """
    if found.append_time_bits or (wrapper is not None and wrapper.is_append_time):
        raise InvalidTimestamp(_NOT_A_PRODUCER_S)
    if settings.format_magic == 0 or found.untimed == found.count:
        return
    if _all_in_range(found.min_timestamp_ms, found.max_timestamp_ms, settings, now_ms):
        return
    for number, entry in enumerate(entries(data, 0, found.end, verify_crc=False)):
        _check_one(number, entry.timestamp_ms, settings, now_ms)


def check_batch_timestamps(checked: CheckedBatch, settings: TopicSettings, now_ms: int) -> None:
    """Like `check_timestamps`, for a checked batch."""
    if checked.header.is_append_time:
        raise InvalidTimestamp(_NOT_A_PRODUCER_S)
    smallest, largest = checked.min_timestamp_ms, checked.max_timestamp_ms
    if settings.format_magic == 0 or in_range(smallest, largest, settings, now_ms):
        return
    earliest, latest = accepted_range(settings, now_ms)
    lowest, highest = max(earliest or 0, 0), inf if latest is None else latest
    base_ms = checked.header.base_timestamp_ms
    cursor = RecordCursor(checked.content, 0, len(checked.content))
    for number in range(checked.header.record_count):
        cursor.step()
        timestamp_ms = base_ms + cursor.timestamp_delta_ms
        if not lowest <= timestamp_ms <= highest:
            _check_one(number, timestamp_ms, settings, now_ms)


def _check_one(number: int, timestamp_ms: int, settings: TopicSettings, now_ms: int) -> None:
    earliest, latest = accepted_range(settings, now_ms)
    lowest = 0 if earliest is None else max(earliest, 0)
    early = timestamp_ms != NO_TIMESTAMP and timestamp_ms < lowest
    if early or (latest is not None and timestamp_ms > latest):
        raise InvalidTimestamp(_refusal(number, timestamp_ms, settings, (earliest, latest), now_ms))


def _refusal(
    number: int,
    timestamp_ms: int,
    settings: TopicSettings,
    accepted: tuple[int | None, int | None],
    now_ms: int,
) -> str:
    earliest, latest = accepted
    what = f"message {number} of the set has timestamp {timestamp_ms}"
    if timestamp_ms < 0:
        return f"{what}; a time is 0 or more (milliseconds since 1970), or -1 for none"
    early = earliest is not None and timestamp_ms < earliest
    direction = "before" if early else "after"
    own = f"message.timestamp.{direction}.max.ms"
    own_value = (
        settings.message_timestamp_before_max_ms
        if early
        else settings.message_timestamp_after_max_ms
    )
    name, value = (
        (own, own_value)
        if own_value is not None
        else (_SYMMETRIC, settings.max_message_time_difference_ms)
    )
    return (
        f"{what} ({format_time(timestamp_ms)}), which is too far {direction} the broker's clock; "
        f"accepted now: {_bound(earliest)} to {_bound(latest)} "
        f"(clock {now_ms}, {name}={value}); the whole set was refused"
    )


def _bound(limit_ms: int | None) -> str:
    return "any" if limit_ms is None else f"{limit_ms} ({format_time(limit_ms)})"
