"""Spark's types, for annotations only. Jobs check their arguments without importing Spark, which
takes a good part of a second and may not be installed."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column as Column
    from pyspark.sql import DataFrame as DataFrame
    from pyspark.sql import Row as Row
    from pyspark.sql import SparkSession as SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession
    from pyspark.sql.streaming.query import StreamingQuery as StreamingQuery
else:
    Column = DataFrame = Row = SparkSession = ConnectSession = StreamingQuery = Any

__all__ = ["Column", "ConnectSession", "DataFrame", "Row", "SparkSession", "StreamingQuery"]
