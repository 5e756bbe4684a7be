"""The script of docs/spark.md, run to its end as it stands, on the Spark of the tests."""

import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from horolog import blocking
from horolog.clock import SystemClock
from horolog.testing.broker import BrokerThread
from horolog.tests.pages.python import examples

from .brokers import create

SCRIPT, *_ = examples(Path(__file__).parents[2] / "docs" / "spark.md")


def test_the_script_reads_and_copies(
    broker: BrokerThread,
    tmp_path: Path,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
) -> None:
    create(broker, "clicks", 2)
    now_ms = SystemClock().now_ms()
    with blocking.Producer(broker.address) as producer:
        for partition, age_ms in ((0, 2 * 3_600_000), (0, 60_000), (1, 60_000)):
            producer.send_batch(
                "clicks", [b"v"] * 5, timestamps_ms=now_ms - age_ms, partition=partition
            )
    script = tmp_path / "script.py"
    # Java keeps the working directory that it was started in.
    assert '"checkpoint"' in SCRIPT
    script.write_text(
        SCRIPT.replace("127.0.0.1:7070", broker.address).replace(
            '"checkpoint"', f'"{tmp_path / "checkpoint"}"'
        )
    )
    runpy.run_path(str(script), run_name="__main__")
    told = capsys.readouterr().out
    *_, last = told.splitlines()
    assert last == "15 messages copied"
    assert told.count("    5|") == 2  # of the last hour, in each partition
