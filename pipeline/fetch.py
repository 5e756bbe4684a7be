"""Reading a span of a partition, as Arrow record batches."""

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pyarrow as pa

from ..blocking import Consumer
from ..protocol.errors import OffsetOutOfRange
from .logs import UNKNOWN
from .options import Broker, ReadOptions
from .planning import DataLoss, Span
from .questions import questions
from .row_batches import content_of, in_range, joined, record_batch, times_of

_MIB: Final = 1024 * 1024
_FETCH_BYTES: Final = 4 * _MIB
_WAIT_MS: Final = 500

_log = logging.getLogger(__name__)

_IDLE: Final[dict[tuple[int, Broker, bool], list[Consumer]]] = {}
"""Consumers that are not in use at the moment, by process: connecting costs more than a small
batch."""


def batches(
    span: Span,
    schema: pa.Schema,
    options: ReadOptions,
    time_filter: tuple[int, int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The messages of `span` in the columns of `schema`; with `time_filter` those with a
    timestamp in [start, end) ms.

    Raises DataLoss for messages that are not there any more, unless the options say otherwise.
    """
    return joined(_fetched(span, schema, options, time_filter))


def _fetched(
    span: Span, schema: pa.Schema, options: ReadOptions, time_filter: tuple[int, int] | None
) -> Iterator[pa.RecordBatch]:
    if not _as_planned(span, options):
        return
    append_times = "appendTime" in schema.names
    consumer = _take(options.broker, append_times)
    done = False
    try:
        consumer.assign(span.topic, span.partition, offset=span.start)
        yield from _read(consumer, span, schema, options, time_filter)
        done = True
        # Rows of a topic that was made again meanwhile have offsets of the span, too.
        _as_planned(span, options)
    finally:
        # One that has a request under way, or failed, is of no more use.
        if done:
            consumer.unassign(span.topic, span.partition)
            _IDLE.setdefault((os.getpid(), options.broker, append_times), []).append(consumer)
        else:
            with suppress(Exception):
                consumer.close()


def _read(
    consumer: Consumer,
    span: Span,
    schema: pa.Schema,
    options: ReadOptions,
    time_filter: tuple[int, int] | None,
) -> Iterator[pa.RecordBatch]:
    content = content_of(schema)
    position = span.start
    while position < span.end:
        try:
            found = consumer.fetch_columns(columns=content)
        except OffsetOutOfRange as error:
            position = _go_on(consumer, span, position, options, error)
            continue
        if not found:
            position = _behind_nothing(span, options)
        for batch in found:
            if batch.offsets[0] >= span.end:
                return
            rows = record_batch(batch, schema, end=span.end)
            if time_filter is not None:
                rows = in_range(rows, times_of(batch).slice(0, rows.num_rows), *time_filter)
            yield rows
            position = batch.next_offset


def _as_planned(span: Span, options: ReadOptions) -> bool:
    """Whether the log is the one that the span was planned for. Raises DataLoss."""
    if span.log == UNKNOWN:
        return True
    why = span.log.changed(span.topic, questions(options.broker).log_of(span.topic))
    if why is None:
        return True
    text = (
        f"messages of {span.topic}-{span.partition} from offset {span.start} to {span.end} were to "
        f"be read: {why}. failOnDataLoss=false skips what is gone"
    )
    if options.fail_on_data_loss:
        raise DataLoss(text)
    _log.warning("%s", text)
    return False


def _go_on(
    consumer: Consumer, span: Span, position: int, options: ReadOptions, error: OffsetOutOfRange
) -> int:
    """Where to read on after messages that are gone. Raises DataLoss."""
    if not _as_planned(span, options):
        return span.end
    key = (span.topic, span.partition)
    asked = questions(options.broker)
    first, end = asked.beginnings([key])[key], asked.ends([key])[key]
    text = (
        f"messages of {span.topic}-{span.partition} from offset {position} on were to be read, "
        f"and its log has offsets {first} to {end}: retention or a trim removed them, or the topic "
        "was made again. failOnDataLoss=false skips what is gone"
    )
    if options.fail_on_data_loss:
        raise DataLoss(text) from error
    _log.warning("%s", text)
    if not position < first < span.end:
        return span.end
    consumer.seek(*key, first)
    return first


def _behind_nothing(span: Span, options: ReadOptions) -> int:
    """Where to read on when a fetch brought nothing. Raises DataLoss."""
    if not _as_planned(span, options):
        return span.end
    key = (span.topic, span.partition)
    end = questions(options.broker).ends([key])[key]
    if end >= span.end:
        return span.end  # only offsets without messages are left, as transactions leave them
    text = (
        f"messages of {span.topic}-{span.partition} up to offset {span.end} were to be read, and "
        f"its log ends at {end}. failOnDataLoss=false skips what is gone"
    )
    if options.fail_on_data_loss:
        raise DataLoss(text)
    _log.warning("%s", text)
    return span.end


def close_idle() -> None:
    """Close the connections that this process keeps for the next read."""
    for key in [key for key in _IDLE if key[0] == os.getpid()]:
        for consumer in _IDLE.pop(key):
            consumer.close()


def _take(broker: Broker, append_times: bool) -> Consumer:
    idle = _IDLE.get((os.getpid(), broker, append_times))
    if idle:
        return idle.pop()
    return Consumer(
        broker.address,
        max_wait_ms=_WAIT_MS,
        partition_max_bytes=_FETCH_BYTES,
        max_bytes=_FETCH_BYTES,
        client_id="horolog-spark",
        request_timeout_ms=broker.request_timeout_ms,
        retry_timeout_ms=broker.retry_budget_ms,
        check_units=False,
        append_times=append_times,
    )
