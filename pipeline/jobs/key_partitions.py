"""The partition of each key of a column, as Kafka's clients choose it."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ...protocol.partitioner import partition_of
from ..spark_types import Column


def partitions_of(partitions: int) -> Callable[..., Column]:
    """A function of Spark from a binary column to the partition, of so many; null from null."""
    from pyspark.sql.pandas.functions import arrow_udf

    def choose(keys: pa.Array) -> pa.Array:
        return choose_partitions(keys, partitions)

    make: Any = arrow_udf  # its overloads do not have a call without a function type
    made: Callable[..., Column] = make(choose, "int")
    return made


def choose_partitions(keys: Any, partitions: int) -> Any:
    """An Arrow array of int32 for one of binary; each key is hashed once, however often it is
    there."""
    encoded = keys.dictionary_encode()
    chosen = [partition_of(key.as_py(), partitions) for key in encoded.dictionary]
    return pa.array(chosen, pa.int32()).take(encoded.indices)
