"""The columns of the source, in Spark's types and in Arrow's."""

from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from .option_values import OptionError, check_names

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

_COLUMNS: Final[dict[str, tuple[DataType, pa.DataType]]] = {
    "key": (BinaryType(), pa.binary()),
    "value": (BinaryType(), pa.binary()),
    "topic": (StringType(), pa.string()),
    "partition": (IntegerType(), pa.int32()),
    "offset": (LongType(), pa.int64()),
    "timestamp": (TimestampType(), pa.timestamp("us", tz="UTC")),
    "timestampType": (IntegerType(), pa.int32()),
    "headers": (
        ArrayType(_HEADER),
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    ),
    "appendTime": (TimestampType(), pa.timestamp("us", tz="UTC")),
}
"""Columns by name, with the types of Spark's Kafka source. `appendTime` is when the broker appended
the message.

`timestampType` is 0 for a producer's timestamp, 1 for a broker's, -1 for a message without one.
"""


def spark_schema(*, headers: bool, append_time: bool) -> StructType:
    """Return the columns of a read without `.schema(...)`."""
    wanted = {"headers": headers, "appendTime": append_time}
    return StructType(
        [StructField(name, kind) for name, (kind, _) in _COLUMNS.items() if wanted.get(name, True)]
    )


def column_names(schema: StructType) -> tuple[str, ...]:
    """Return the names of the columns in `.schema(...)`, in its order.

    Raises OptionError for an unknown column, a wrong type, or a column named twice.
    """
    lower = {name.lower() for name in _COLUMNS}
    check_names(
        (name.lower() for name in schema.names if name.lower() not in lower),
        _COLUMNS,
        "a column of .schema(...)",
    )
    for field in schema.fields:
        if field.name not in _COLUMNS:
            right = next(name for name in _COLUMNS if name.lower() == field.name.lower())
            raise OptionError(f"the column {field.name!r} of .schema(...) is spelled {right!r}")
        kind, _ = _COLUMNS[field.name]
        if field.dataType.simpleString() != kind.simpleString():
            raise OptionError(
                f"the column {field.name!r} of .schema(...) is {kind.simpleString()}, not "
                f"{field.dataType.simpleString()}: convert it afterwards"
            )
    if len(set(schema.names)) < len(schema.names):
        raise OptionError(".schema(...) names a column twice")
    return tuple(schema.names)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of the record batches with these columns."""
    return pa.schema(
        [
            pa.field(field.name, _COLUMNS[field.name][1], nullable=field.nullable)
            for field in schema.fields
        ]
    )
