"""The data source `horolog` of Spark.

Spark makes these objects in separate processes and pickles them. The data source resolves the
offsets of a batch read when it is constructed; the constructors of readers and writers only store
their arguments.

Spark constructs a data source for each `load()` and plans its read at the first action, which may
be hours later. Spark does not tell whether it loads a batch or a stream, or begins a write.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ..clock import SystemClock
from ..compiled import warn_of_reference
from ..protocol.records.kernel import FORM
from . import bounds, planning, segments, span_readers
from .logs import NO_LOGS, TopicLogs, logs_from_json
from .option_values import OptionError
from .options import ReadOptions, check_no_shown_secret, read_options, write_options
from .planning import BEGINS_ANEW, DataLoss, Offsets, PlannedSpan
from .questions import Questions, Topics, questions
from .schema import arrow_schema, column_names, spark_schema
from .sink import BatchWriter, StreamWriter, end_quietly, settle

Pieces = tuple[PlannedSpan | segments.Packed, ...]
"""The parts of a batch read, one for each task."""

NAME: Final = "horolog"

_log = logging.getLogger(__name__)

_NO_LIMIT: Final = 2**62
"""Number of rows that stands for no limit. With it `latestOffset` can tell that its own limits
apply, and that Spark does not ask for everything."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Loaded:
    """Result of planning a batch read at `load()`."""

    pieces: Pieces | None
    why_none: str = ""
    """Error that kept the plan from being made; empty also if the options are not of a batch."""


def load(given: Mapping[str, str], now_ms: int) -> Loaded:
    """Plan a batch read with these options. Raises nothing: the options may be of a stream or a
    write, and errors of a batch are raised when Spark plans the read."""
    try:
        options = read_options(given, streaming=False, now_ms=now_ms)
    except OptionError:
        return Loaded(None)
    # `load` does not wait for a broker that is down; reading does.
    at_once = replace(options, broker=replace(options.broker, retry_budget_ms=0))
    try:
        return Loaded(plan(at_once))
    except Exception as error:
        return Loaded(None, str(error) or type(error).__name__)


def plan(options: ReadOptions) -> Pieces:
    """Plan a batch read now. Raises DataLoss, OptionError, HorologError."""
    if options.segments_path is not None:
        return tuple(segments.plan(options.segments_path, options.window, options.min_partitions))
    return tuple(bounds.plan(questions(options.broker), options))


# At import, because every process of Spark that uses the format imports this module first.
end_quietly()
warn_of_reference(FORM)


class OffsetRange(InputPartition):
    """A span of messages that one task reads."""

    def __init__(self, span: PlannedSpan) -> None:
        super().__init__(span)
        self.span = span


class SegmentRange(InputPartition):
    """Parts of closed segments that one task reads from their files."""

    def __init__(self, parts: segments.Packed) -> None:
        super().__init__(parts)
        self.parts = parts


class HorologDataSource(DataSource):
    """The format `horolog`, for `spark.read`, `readStream`, `write` and `writeStream`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)  # type: ignore[arg-type]
        # This runs in `load()` or `save()`, before Spark makes a plan that it shows.
        check_no_shown_secret(options)
        self._given = {name.lower(): value for name, value in options.items()}
        # Fixed here, so that times such as @-1h mean the same in every process.
        self._now_ms = SystemClock().now_ms()
        # This runs in `load()`; with `.schema(...)` it runs only at the first action.
        self._loaded = load(self._given, self._now_ms)

    @classmethod
    def name(cls) -> str:
        """The name in `format(...)`."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of a read without `.schema(...)`."""
        settle()
        flags = {
            name: self._given.get(name.lower(), "").strip().lower() == "true"
            for name in ("includeHeaders", "includeAppendTime")
        }
        return spark_schema(headers=flags["includeHeaders"], append_time=flags["includeAppendTime"])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        options = read_options(self._given, streaming=False, now_ms=self._now_ms)
        settle()
        if self._loaded.why_none:
            _log.warning(
                "what this read has between its bounds could not be looked up by load() (%s): it "
                "is looked up by the first action",
                self._loaded.why_none,
            )
        return BatchReader(schema, options, self._loaded.pieces)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of a stream. If the options are wrong, the methods of the reader raise
        the error: Spark replaces errors raised here by an UnboundLocalError."""
        try:
            options = read_options(self._given, streaming=True, now_ms=self._now_ms)
            return StreamReader(schema, options)
        except Exception as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer for `df.write`."""
        options = write_options(self._given, overwrite=overwrite, streaming=False)
        return BatchWriter(schema, options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer for `df.writeStream`."""
        options = write_options(self._given, overwrite=overwrite, streaming=True)
        return StreamWriter(schema, options)


class _SpanReader:
    """Base of both readers: reads the rows of a task. Spark pickles it for the workers."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        if "appendTime" in column_names(schema) and options.segments_path is not None:
            raise OptionError(
                "segments.path reads no append times: leave out includeAppendTime and the column "
                "appendTime, or read from the broker"
            )
        self._schema = schema
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        columns, window = arrow_schema(self._schema), self._options.window
        if isinstance(partition, SegmentRange):
            yield from segments.batches(partition.parts, columns, window)
        # If there are no partitions, Spark calls this once with another object.
        elif isinstance(partition, OffsetRange):
            yield from span_readers.read_span(partition.span, columns, self._options, window)
        settle()


class BatchReader(_SpanReader, DataSourceReader):
    """Reads the messages between two bounds, as planned by `load()`."""

    def __init__(self, schema: StructType, options: ReadOptions, pieces: Pieces | None) -> None:
        """`pieces` is None if `load()` could not make the plan."""
        super().__init__(schema, options)
        self._pieces = pieces

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks: one for each partition, or more if the options ask for more."""
        pieces = plan(self._options) if self._pieces is None else self._pieces
        settle()
        return [
            OffsetRange(piece) if isinstance(piece, PlannedSpan) else SegmentRange(piece)
            for piece in pieces
        ]


class _View(NamedTuple):
    """The offsets that a stream can read at one moment."""

    begin: Offsets
    """Next offset to read of each partition. Partitions that are read from their beginning again,
    or are no longer read, are left out."""
    last: Offsets
    """Log ends."""
    end: Offsets
    """Exclusive end of reading, never before `begin`. Partitions that do not exist any more keep
    their offset of `begin`."""
    logs: TopicLogs
    """Ids of the logs that the offsets belong to."""


class _Target(NamedTuple):
    """End of a query with `Trigger.AvailableNow`: the log ends when it began."""

    ends: Offsets
    logs: TopicLogs


class StreamReader(_SpanReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Chooses where each micro-batch ends, and reads it.

    One instance lives as long as the query and chooses offsets; the instances in workers only
    read.
    """

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        super().__init__(schema, options)
        self._initial: Json | None = None
        self._latest: Json | None = None
        self._target: _Target | None = None
        self._last_moved_s: float | None = None
        self._warned: frozenset[str] = frozenset()

    def initialOffset(self) -> Json:  # noqa: N802
        """Return where a new query begins. Spark calls this more than once, and the offsets must
        stay the same."""
        if self._initial is None:
            asked = questions(self._options.broker)
            found = asked.topics(self._options.subscription)
            last = asked.ends(found.subscribed)
            start = bounds.resolve_start(asked, found, last, self._options)
            logs = NO_LOGS.learned(_topics_of(start), found.logs)
            self._initial = planning.to_json(start, logs)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return a limit that only says whether our limits apply; `latestOffset` applies them."""
        options = self._options
        if options.max_offsets_per_trigger or options.max_time_per_trigger_ms:
            return ReadMaxRows(options.max_offsets_per_trigger or _NO_LIMIT)
        return ReadAllAvailable()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """Return where the batch after `start` ends; `start` if there is nothing to read yet."""
        asked = questions(self._options.broker)
        view = self._read_bounds(asked, start)
        if self._target is None and not self._take_batch(view):
            # Partitions that have reached their end bound are not waited for.
            growing = {key: offset for key, offset in view.last.items() if view.end[key] >= offset}
            asked.wait_beyond(growing, self._options.idle_wait_ms)
            view = self._read_bounds(asked, start)
            if not self._take_batch(view):
                self._latest = planning.to_json(view.end, view.logs)
                return start
        self._latest = planning.to_json(view.end, view.logs)
        end = view.end
        if not isinstance(limit, ReadAllAvailable):
            end = self._limited(asked, view.begin, end)
        return planning.to_json(end, view.logs)

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """Return the end that the last `latestOffset` saw, without a request: Spark calls this
        after each trigger."""
        return self._latest

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the query at the present log ends."""
        view = self._read_bounds(questions(self._options.broker), {})
        self._target = _Target(view.end, view.logs)

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Return the tasks of a batch; the same arguments always give the same tasks."""
        begin, stop = planning.from_json(start), planning.from_json(end)
        logs = logs_from_json(end)
        other = logs_from_json(start).changed(_topics_of(begin), logs)
        if self._options.fail_on_data_loss:
            if other:
                raise DataLoss(f"{'; '.join(other.values())}. {BEGINS_ANEW}")
        else:
            begin = planning.without(begin, other)
            stop = planning.not_before(stop, begin)
        found = planning.split(
            planning.spans(begin, stop, logs),
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )
        return [OffsetRange(span) for span in found]

    def commit(self, end: Json) -> None:
        """Do nothing: Spark's checkpoint has the offsets."""

    def stop(self) -> None:
        """Do nothing: connections belong to the process."""

    def _read_bounds(self, asked: Questions, start: Json) -> _View:
        """Return the offsets that can be read from `start` on. Raises DataLoss."""
        strict = self._options.fail_on_data_loss
        found = asked.topics(self._options.subscription, all_named=strict)
        last = asked.ends(found.subscribed)
        begin, known = planning.from_json(start), logs_from_json(start)
        other = known.changed(_topics_of(begin), found.logs)
        lost = [f"{why}. {BEGINS_ANEW}" for why in other.values()]
        begin = planning.without(begin, other)
        left = {key for key in begin if key not in last and found.has(key)}
        begin = {key: offset for key, offset in begin.items() if key not in left}
        # Compared with the log ends: an end from the options, or one fixed before `start` was
        # read, can be before `start` although nothing is lost.
        lost += planning.gone(begin, last)
        if lost and strict:
            raise DataLoss("; ".join(lost))
        self._warn([*lost, *planning.not_read(left)])
        end = planning.not_before({**begin, **self._ends(asked, found, last)}, begin)
        return _View(begin, last, end, known.learned(_topics_of(end), found.logs))

    def _ends(self, asked: Questions, found: Topics, last: Offsets) -> Offsets:
        """Return the exclusive end of reading for each partition."""
        if self._target is None:
            return bounds.resolve_end(asked, found, last, self._options)
        other = self._target.logs.changed(_topics_of(self._target.ends), found.logs)
        if other:
            # A topic that was made again has new log ends, which are fixed now.
            anew = {key: last[key] for key in self._target.ends if key[0] in other and key in last}
            ends = {**planning.without(self._target.ends, other), **anew}
            logs = self._target.logs.learned(_topics_of(ends), found.logs)
            self._target = _Target(ends, logs)
        return self._target.ends

    def _warn(self, texts: Sequence[str]) -> None:
        """Log the texts that the previous call did not have."""
        for text in texts:
            if text not in self._warned:
                _log.warning("%s", text)
        self._warned = frozenset(texts)

    def _take_batch(self, view: _View) -> bool:
        """Return whether to begin a batch: there must be messages, and `minOffsetsPerTrigger` of
        them or a wait of `maxTriggerDelay`. If so, remember the time."""
        now_s = SystemClock().monotonic()
        if self._last_moved_s is None:
            self._last_moved_s = now_s
        waiting = sum(span.size for span in planning.spans(view.begin, view.end))
        waited_ms = (now_s - self._last_moved_s) * 1000
        if not waiting or (
            waiting < self._options.min_offsets_per_trigger
            and waited_ms < self._options.max_trigger_delay_ms
        ):
            return False
        self._last_moved_s = now_s
        return True

    def _limited(
        self,
        asked: Questions,
        start: Offsets,
        end: Offsets,
    ) -> Offsets:
        options = self._options
        if options.max_time_per_trigger_ms:
            waiting = planning.spans(start, end)
            # Offsets that retention has removed are not searched; the task that reads them reports
            # or skips them.
            first = asked.beginnings(planning.span_key(span) for span in waiting)
            waiting = planning.stored(waiting, first)
            before_ms = SystemClock().now_ms() + planning.AHEAD_MS
            end = planning.time_slice(
                start,
                end,
                asked.next_times_ms(waiting, before_ms),
                partial(asked.stops_at, waiting, before_ms=before_ms),
                options.max_time_per_trigger_ms,
            )
        if options.max_offsets_per_trigger:
            end = planning.rate_limit(start, end, options.max_offsets_per_trigger)
        return end


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a stream whose options are wrong: every method that Spark can call first raises
    the error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def initialOffset(self) -> Json:  # noqa: N802
        """Raise the error: a new query begins with this call."""
        raise self._error

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """Raise the error: a query that goes on from its checkpoint begins with this call."""
        raise self._error

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Raise the error: a query that repeats its last batch begins with this call."""
        raise self._error

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Raise the error: a query with `Trigger.AvailableNow` begins with this call."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raise the error."""
        raise self._error


def _topics_of(offsets: Offsets) -> set[str]:
    return {topic for topic, _ in offsets}
