"""The times of a set that is admitted, as its segment's time map gets them."""

from collections.abc import Iterable

from ...protocol.records.batches.batch import CheckedBatch
from ...protocol.records.kernel import Walk, gather, time_spans
from ...protocol.records.layout import NO_TIMESTAMP
from ...protocol.records.messages.message import Entry
from ..files import Buffer
from ..index.time_map import CLOSE_MS, SetTimes


def set_times_of(found: Walk, wrapper: Entry | None = None) -> SetTimes | None:
    """Those of messages that `found` is the walk over; `None` where some have one and some not."""
    if wrapper is not None and not wrapper.magic:
        return NO_TIMESTAMP, NO_TIMESTAMP, found.count
    return _times(found.min_timestamp_ms, found.max_timestamp_ms, found.count, found.untimed)


def batch_times(batches: Iterable[CheckedBatch]) -> SetTimes | None:
    """Those of batches that were checked."""
    return joined_times(
        _times(
            checked.min_timestamp_ms,
            checked.max_timestamp_ms,
            checked.header.record_count,
            checked.untimed,
        )
        for checked in batches
    )


def is_spread(times: SetTimes | None) -> bool:
    """Whether a time map wants more than the smallest and the largest of these."""
    return times is None or times[1] - times[0] > CLOSE_MS


def wrapper_spans(inner: Buffer, count: int, log_bytes: int) -> bytes:
    """The spans of the messages that one wrapper has inside, whose times are their own."""
    found = gather(inner, 0, len(inner), count, with_keys=False, with_values=False)
    return time_spans(found.timestamps, log_bytes=log_bytes, offsets=count)


def joined_times(parts: Iterable[SetTimes | None]) -> SetTimes | None:
    """Those of several parts of a set."""
    joined: SetTimes | None = None
    for part in parts:
        if part is None:
            return None
        if joined is None:
            joined = part
            continue
        if (joined[1] < 0) != (part[1] < 0):
            return None
        joined = min(joined[0], part[0]), max(joined[1], part[1]), joined[2] + part[2]
    return joined


def _times(first_ms: int, last_ms: int, messages: int, untimed: int) -> SetTimes | None:
    if untimed == messages:
        return NO_TIMESTAMP, NO_TIMESTAMP, messages
    return None if untimed or first_ms < 0 else (first_ms, last_ms, messages)
