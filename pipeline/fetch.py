"""Reads a span of a partition as Arrow record batches."""

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pyarrow as pa

from ..client.client import ReadFrom
from ..protocol.errors import OffsetOutOfRange
from .logs import UNKNOWN
from .options import BrokerOptions, ReadOptions
from .planning import DataLoss, PlannedSpan, Window
from .questions import questions
from .row_batches import content_of, in_window, joined, record_batch, times_of
from .span_readers import ConsumerReader, SpanReader, WindowReader, reads_windows

_log = logging.getLogger(__name__)

_Kind = tuple[int, BrokerOptions, bool, bool, ReadFrom]
"""Key of a reader: process id, broker, whether it reads append times, whether it is a
`WindowReader`, and from which broker it reads."""

_IDLE: Final[dict[_Kind, list[SpanReader]]] = {}
"""Idle readers, kept for the next task: to connect costs more than a small batch."""


def batches(
    span: PlannedSpan,
    schema: pa.Schema,
    options: ReadOptions,
    window: Window | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of `span` in the columns of `schema`; with `window` only messages with a
    timestamp in the window.

    Raises DataLoss for messages that are gone, unless failOnDataLoss=false.
    """
    return joined(_fetched(span, schema, options, window))


def _fetched(
    span: PlannedSpan, schema: pa.Schema, options: ReadOptions, window: Window | None
) -> Iterator[pa.RecordBatch]:
    if not _as_planned(span, options):
        return
    passes_over = window is not None and reads_windows(options.broker)
    # With "any" too: WindowReader sends the span's end, which a follower that lags may not have.
    passes_over = passes_over or options.read_from == "any"
    append_times = "appendTime" in schema.names
    kind = (os.getpid(), options.broker, append_times, passes_over, options.read_from)
    reader = _take(kind)
    done = False
    try:
        reader.begin(span, content_of(schema), window)
        yield from _read(reader, span, schema, options, window)
        done = True
        # If the topic was deleted and made again meanwhile, its new messages have the same offsets.
        _as_planned(span, options)
    finally:
        # A reader that failed, or has a request in flight, cannot be used again.
        if done:
            reader.end()
            _IDLE.setdefault(kind, []).append(reader)
        else:
            with suppress(Exception):
                reader.close()


def _read(
    reader: SpanReader,
    span: PlannedSpan,
    schema: pa.Schema,
    options: ReadOptions,
    window: Window | None,
) -> Iterator[pa.RecordBatch]:
    position = span.start
    while position < span.end:
        try:
            found = reader.fetch(position)
        except OffsetOutOfRange as error:
            position = _go_on(span, position, options, error)
            continue
        for batch in found.batches:
            if batch.offsets[0] >= span.end:
                return
            rows = record_batch(batch, schema, end=span.end)
            if window is not None:
                rows = in_window(rows, times_of(batch).slice(0, rows.num_rows), window)
            yield rows
        if found.position <= position:
            found = found._replace(position=_behind_nothing(span, options))
        position = found.position


def _as_planned(span: PlannedSpan, options: ReadOptions) -> bool:
    """Whether the topic still has the log that the span was planned for. If not, raises DataLoss,
    or logs a warning with failOnDataLoss=false."""
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


def _go_on(span: PlannedSpan, position: int, options: ReadOptions, error: OffsetOutOfRange) -> int:
    """Return the offset to read on from when the messages at `position` are gone. Raises DataLoss
    unless failOnDataLoss=false."""
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
    return first


def _behind_nothing(span: PlannedSpan, options: ReadOptions) -> int:
    """Return the offset to read on from when a fetch returned nothing. Raises DataLoss unless
    failOnDataLoss=false."""
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


def _take(kind: _Kind) -> SpanReader:
    idle = _IDLE.get(kind)
    if idle:
        return idle.pop()
    _, broker, append_times, passes_over, read_from = kind
    if passes_over:
        return WindowReader(broker, append_times=append_times, read_from=read_from)
    return ConsumerReader(broker, append_times=append_times)
