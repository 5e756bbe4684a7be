"""A data source whose rows are ready, to measure Spark's own cost of getting rows from Python."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..pipeline.schema import spark_schema

NAME = "prebuilt"

_BATCH_ROWS = 32_768
_VALUE = b"v" * 100
_TIME_US = 1_479_144_272_509_000


class Prebuilt(DataSource):
    """Source with `rows` rows in each of `tasks` tasks, in the columns of the source `horolog`: the
    same batch is returned again and again."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return spark_schema(headers=False, append_time=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        tasks, rows = int(self.options["tasks"]), int(self.options["rows"])
        return _PrebuiltReader(schema.names, tasks, rows)


class _PrebuiltReader(DataSourceReader):
    def __init__(self, names: list[str], tasks: int, rows: int) -> None:
        self._names = names
        self._tasks = tasks
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        whole = _batch(self._names)
        for first in range(0, self._rows, _BATCH_ROWS):
            yield whole.slice(0, min(_BATCH_ROWS, self._rows - first))


def _batch(names: list[str]) -> pa.RecordBatch:
    count = _BATCH_ROWS
    columns = {
        "key": pa.nulls(count, pa.binary()),
        "value": pa.array([_VALUE] * count, pa.binary()),
        "topic": pa.repeat(pa.scalar("bench"), count),
        "partition": pa.repeat(pa.scalar(0, pa.int32()), count),
        "offset": pa.array(range(count), pa.int64()),
        "timestamp": pa.array([_TIME_US] * count, pa.timestamp("us", tz="UTC")),
        "timestampType": pa.repeat(pa.scalar(0, pa.int32()), count),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in names], names)
