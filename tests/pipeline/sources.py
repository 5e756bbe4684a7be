"""The data source used without Spark: what Spark would call, checked by Spark's own validator."""

import os
import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.cloudpickle import dumps
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType
from pyspark.sql.worker.plan_data_source_read import records_to_arrow_batches

from horolog.pipeline.segments import SegmentPart
from horolog.pipeline.source import HorologDataSource
from horolog.pipeline.span_readers import _IDLE

T0_MS = 1_700_000_000_000


def source(address: str | None, **options: object) -> HorologDataSource:
    """As `spark.read.format("horolog")` makes it; underscores in names stand for dots."""
    given = {name.replace("_", "."): str(value) for name, value in options.items()}
    if address is not None:
        given["bootstrap.servers"] = address
    made = HorologDataSource(CaseInsensitiveDict(given))
    found: HorologDataSource = carried(made)
    return found


def carried(thing: Any) -> Any:
    """As it arrives in another process."""
    return pickle.loads(dumps(thing))  # type: ignore[no-untyped-call]


def read(made: HorologDataSource, schema: StructType | None = None) -> list[dict[str, Any]]:
    """All rows of a batch read."""
    wanted = made.schema() if schema is None else schema
    reader = carried(made.reader(wanted))
    partitions = carried(list(reader.partitions()))
    return rows(reader, partitions, wanted, made)


def sizes(partitions: Iterable[Any]) -> list[int]:
    """Of each task."""
    return [partition.span.size for partition in partitions]


def parts(partitions: Iterable[Any]) -> list[SegmentPart]:
    """Of segments, of all tasks in their order."""
    return [part for partition in partitions for part in partition.parts]


def rows(
    reader: Any, partitions: Iterable[Any], schema: StructType, made: HorologDataSource
) -> list[dict[str, Any]]:
    """What the tasks of these partitions read."""
    return [
        row
        for partition in partitions
        for batch in validated(carried(reader), partition, schema, made)
        for row in batch.to_pylist()
    ]


def validated(
    reader: Any, partition: Any, schema: StructType, made: HorologDataSource
) -> Iterator[pa.RecordBatch]:
    """The record batches of a task, refused where Spark would refuse them."""
    found = reader.read(partition)
    yield from records_to_arrow_batches(found, 10_000, schema, made)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the pipeline has logged; others in this process may log too."""
    ours = "horolog.pipeline"
    return [one.getMessage() for one in caplog.records if one.name.startswith(ours)]


def plain(offsets: Mapping[str, Any]) -> dict[str, Any]:
    """Offsets of a stream by topic and partition, without the ids of what they are of."""
    return {topic: numbers for topic, numbers in offsets.items() if not topic.startswith("@")}


def close_idle() -> None:
    """Close the connections that reads in this process leave to the next."""
    for kind in [kind for kind in _IDLE if kind[0] == os.getpid()]:
        for reader in _IDLE.pop(kind):
            reader.close()
