"""The last message below an offset: what a reader that stands there read last."""

from typing import Final

from ...blocking import Admin, Consumer
from ...client.results import ConsumerRecord
from ...protocol.api.log.list_offsets import EARLIEST

_STEPS: Final = (1, 1_000, 100_000)
"""How far to look back, in offsets: a log may have gaps."""


class NothingRead:
    """No message below the offset is stored."""

    timestamp_ms: None = None
    append_time_ms: None = None


def last_read(
    admin: Admin, consumer: Consumer, topic: str, partition: int, offset: int
) -> ConsumerRecord | NothingRead:
    """The last message stored below `offset`. Raises UnknownTopicOrPartition.

    `consumer` is left without an assignment.
    """
    (earliest,) = admin.list_offsets(topic, partition, [EARLIEST])
    log_start = earliest.offset or 0
    for step in _STEPS:
        start = max(offset - step, log_start)
        if start >= offset:
            break
        found = _last_between(consumer, topic, partition, start, offset)
        if found is not None:
            return found
        if start == log_start:
            break
    return NothingRead()


def _last_between(
    consumer: Consumer, topic: str, partition: int, start: int, end: int
) -> ConsumerRecord | None:
    consumer.assign(topic, partition, offset=start)
    last = None
    try:
        while True:
            records = consumer.fetch(max_wait_ms=0)
            below = [record for record in records if record.offset < end]
            if below:
                last = below[-1]
            if not records or len(below) < len(records) or records[-1].offset == end - 1:
                return last
    finally:
        consumer.unassign(topic, partition)
