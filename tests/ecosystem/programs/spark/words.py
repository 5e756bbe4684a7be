"""Spark's own source and sink for Kafka, up to the messages that there are:
ADDRESS CLASS_PATH count CHECKPOINT_FOLDER, or ADDRESS CLASS_PATH copy START_MS END_MS."""

import json
import sys

from pyspark.sql import SparkSession


def _count(spark: SparkSession, kafka: dict[str, str], folder: str) -> None:
    """Count the words in a stream that goes on from its checkpoint."""
    source = spark.readStream.format("kafka").options(**kafka, startingOffsets="earliest")
    counts = source.load().groupBy("key").count()
    sink = counts.selectExpr("key", "string(count) AS value").writeStream.format("kafka")
    sink = sink.options(**kafka, topic="counts", checkpointLocation=folder)
    sink.outputMode("update").trigger(availableNow=True).start().awaitTermination()


def _copy(spark: SparkSession, kafka: dict[str, str], start_ms: str, end_ms: str) -> None:
    """Copy the words from one time on that are before another."""
    times = {"starting": start_ms, "ending": end_ms}
    offsets = {
        f"{end}OffsetsByTimestamp": json.dumps({"words": {"0": int(time_ms)}})
        for end, time_ms in times.items()
    }
    words = spark.read.format("kafka").options(**kafka, **offsets).load()
    words.orderBy("offset").write.format("kafka").options(**kafka, topic="copied").save()


def main(address: str, class_path: str, action: str, *more: str) -> None:
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", class_path.replace(":", ","))
        .config("spark.sql.shuffle.partitions", 1)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    kafka = {"kafka.bootstrap.servers": address, "subscribe": "words"}
    if action == "count":
        _count(spark, kafka, *more)
    else:
        _copy(spark, kafka, *more)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
