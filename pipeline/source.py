"""The data source `horolog` of Spark.

Spark makes these objects in processes of their own and pickles them on, so none does anything but
remember what it was told when it is made.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

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
from . import bounds, fetch, planning, segments
from .option_values import OptionError
from .options import ReadOptions, read_options
from .planning import DataLoss, Offsets, Span
from .questions import Questions, questions
from .schema import arrow_schema, column_names, spark_schema
from .sink import BatchWriter, StreamWriter
from .worker import end_quietly, settle
from .write_options import write_options

NAME: Final = "horolog"

_log = logging.getLogger(__name__)

_NO_LIMIT: Final = 2**62
"""Rows of a limit that is none: it tells our own limits from an engine that asks for all."""

Json = dict[str, dict[str, int]]

# Each process of Spark's that has to do with the format imports this first.
end_quietly()


class OffsetRange(InputPartition):
    """A span of messages, to be read by one task."""

    def __init__(self, span: Span) -> None:
        super().__init__(span)
        self.span = span


class SegmentRange(InputPartition):
    """A closed segment, to be read from its file by one task."""

    def __init__(self, segment: segments.ClosedSegment) -> None:
        super().__init__(segment)
        self.segment = segment


class HorologDataSource(DataSource):
    """`spark.read.format("horolog")` and its three siblings."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)  # type: ignore[arg-type]
        self._given = {name.lower(): value for name, value in options.items()}
        # Times such as @-1h mean the same in every process.
        self._now_ms = SystemClock().now_ms()

    @classmethod
    def name(cls) -> str:
        """What stands in `format(...)`."""
        return NAME

    def schema(self) -> StructType:
        """The columns of a read that names none."""
        settle()
        flags = {
            name: self._given.get(name.lower(), "").strip().lower() == "true"
            for name in ("includeHeaders", "includeAppendTime")
        }
        return spark_schema(headers=flags["includeHeaders"], append_time=flags["includeAppendTime"])

    def reader(self, schema: StructType) -> DataSourceReader:
        """For a batch."""
        options = read_options(self._given, streaming=False, now_ms=self._now_ms)
        settle()
        return BatchReader(schema, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """For a stream."""
        options = read_options(self._given, streaming=True, now_ms=self._now_ms)
        return StreamReader(schema, options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`."""
        options = write_options(self._given, overwrite=overwrite, streaming=False)
        return BatchWriter(schema, options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """For `df.writeStream`."""
        options = write_options(self._given, overwrite=overwrite, streaming=True)
        return StreamWriter(schema, options)


class _Reader:
    """What reading has in common, on both sides of pickling."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        if "appendTime" in column_names(schema) and options.segments_path is not None:
            raise OptionError(
                "segments.path reads no append times: leave out includeAppendTime and the column "
                "appendTime, or read from the broker"
            )
        self._schema = schema
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        columns, times = arrow_schema(self._schema), self._options.time_filter
        if isinstance(partition, SegmentRange):
            yield from segments.batches(partition.segment, columns, times)
        # Without partitions Spark asks once for none.
        elif isinstance(partition, OffsetRange):
            yield from fetch.batches(partition.span, columns, self._options, times)
        settle()


class BatchReader(_Reader, DataSourceReader):
    """Reads what is between two bounds as they are when Spark plans the read."""

    def partitions(self) -> Sequence[InputPartition]:
        """A task for each partition, or more where the options ask for it."""
        if self._options.segments_path is not None:
            start_ms = self._options.start.time_ms
            found = segments.plan(self._options.segments_path, start_ms)
            return [SegmentRange(segment) for segment in found]
        asked = questions(self._options.broker)
        planned = bounds.plan(asked, self._options)
        settle()
        return [OffsetRange(span) for span in planned]


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Says where each micro-batch ends, and reads it.

    One of these lives as long as the query and answers for offsets; others only read.
    """

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        super().__init__(schema, options)
        self._initial: Json | None = None
        self._latest: Json | None = None
        self._target: Offsets | None = None
        self._last_moved_s: float | None = None
        self._told = ""

    def initialOffset(self) -> Json:  # noqa: N802
        """Where a new query begins. Spark asks more than once, and the answer must not move."""
        if self._initial is None:
            asked = questions(self._options.broker)
            last = asked.ends(asked.partitions(self._options.subscription))
            self._initial = planning.to_json(bounds.resolve_start(asked, last, self._options))
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Only a marker: how much a batch takes is decided in `latestOffset`."""
        options = self._options
        if options.max_offsets_per_trigger or options.max_time_per_trigger_ms:
            return ReadMaxRows(options.max_offsets_per_trigger or _NO_LIMIT)
        return ReadAllAvailable()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """Where the batch after `start` ends; `start` when there is nothing to read yet."""
        begin = planning.from_json(start)
        asked = questions(self._options.broker)
        last, end = self._ends(asked, begin)
        if self._target is None and not self._enough(begin, end):
            # What is at its bound already has nothing to wait for.
            growing = {key: offset for key, offset in last.items() if end[key] >= offset}
            asked.wait_beyond(growing, self._options.idle_wait_ms)
            _, end = self._ends(asked, begin)
            if not self._enough(begin, end):
                self._latest = planning.to_json(end)
                return start
        self._latest = planning.to_json(end)
        if not isinstance(limit, ReadAllAvailable):
            end = self._limited(asked, begin, end)
        return planning.to_json(end)

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """The end that `latestOffset` saw: Spark asks after each trigger, this costs nothing."""
        return self._latest

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The query ends at what is there now."""
        _, self._target = self._ends(questions(self._options.broker), {})

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """The tasks of a batch; the same ones whenever they are asked for."""
        begin, stop = planning.from_json(start), planning.from_json(end)
        if not self._options.fail_on_data_loss:
            stop = planning.not_before(stop, begin)
        found = planning.split(
            planning.spans(begin, stop),
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )
        return [OffsetRange(span) for span in found]

    def commit(self, end: Json) -> None:
        """Nothing: Spark's checkpoint has the offsets."""

    def stop(self) -> None:
        """Nothing: connections belong to the process."""

    def _ends(self, asked: Questions, start: Offsets) -> tuple[Offsets, Offsets]:
        """Where the logs end, and where reading does: nowhere before `start`, and partitions that
        are gone are as they were. Raises DataLoss."""
        strict = self._options.fail_on_data_loss
        last = asked.ends(asked.partitions(self._options.subscription, all_named=strict))
        # The logs themselves, because an end that was asked for, or fixed before `start` was
        # looked up, may be before it with nothing lost.
        lost = "; ".join(planning.gone(start, last))
        if lost and strict:
            raise DataLoss(lost)
        if lost and lost != self._told:
            _log.warning("%s", lost)
        self._told = lost
        end = self._target
        if end is None:
            end = bounds.resolve_end(asked, last, self._options)
        return last, planning.not_before({**start, **end}, start)

    def _enough(self, start: Offsets, end: Offsets) -> bool:
        """Whether there is a batch to read, by `minOffsetsPerTrigger` too."""
        now_s = SystemClock().monotonic()
        if self._last_moved_s is None:
            self._last_moved_s = now_s
        waiting = sum(span.size for span in planning.spans(start, end))
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
            # What retention has taken is told, or passed over, by who reads.
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
