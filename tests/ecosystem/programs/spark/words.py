"""Spark's own source and sink for Kafka, up to the messages that there are:
ADDRESS CLASS_PATH count CHECKPOINT_FOLDER, ADDRESS CLASS_PATH copy START_MS END_MS, or
ADDRESS CLASS_PATH read TOPIC CHECKPOINT_FOLDER BATCH_FILE STREAM_FILE."""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession


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


def _read(
    spark: SparkSession, kafka: dict[str, str], topic: str, folder: str, batch: str, stream: str
) -> None:
    """Write a line `PARTITION OFFSET` for each message of a topic: a batch of it to one file, what
    is new to a stream that goes on from its checkpoint behind what another file has."""
    kafka = {**kafka, "subscribe": topic}
    _note(Path(batch), spark.read.format("kafka").options(**kafka).load())
    source = spark.readStream.format("kafka").options(**kafka, startingOffsets="earliest")
    sink = source.load().writeStream.foreachBatch(lambda rows, _: _note(Path(stream), rows))
    sink = sink.option("checkpointLocation", folder).trigger(availableNow=True)
    sink.start().awaitTermination()


def _note(file: Path, rows: DataFrame) -> None:
    with file.open("a") as lines:
        for row in rows.select("partition", "offset").orderBy("partition", "offset").collect():
            lines.write(f"{row.partition} {row.offset}\n")


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
    elif action == "copy":
        _copy(spark, kafka, *more)
    else:
        _read(spark, kafka, *more)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
