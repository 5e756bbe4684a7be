"""The script of docs/spark.md, run to its end as it stands."""

import subprocess
import sys
from pathlib import Path

import pytest

from horolog import blocking
from horolog.clock import SystemClock
from horolog.testing.broker_thread import BrokerThread
from horolog.tests.pages.python import examples

from .brokers import create

SCRIPT, *_ = examples(Path(__file__).parents[2] / "docs" / "spark.md")


@pytest.mark.timeout(300)
def test_the_script_reads_and_copies(broker: BrokerThread, tmp_path: Path) -> None:
    create(broker, "clicks", 2)
    now_ms = SystemClock().now_ms()
    with blocking.Producer(broker.address) as producer:
        for partition, age_ms in ((0, 2 * 3_600_000), (0, 60_000), (1, 60_000)):
            producer.send_batch(
                "clicks", [b"v"] * 5, timestamps_ms=now_ms - age_ms, partition=partition
            )
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("127.0.0.1:7070", broker.address))
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    *_, last = done.stdout.splitlines()
    assert last == "15 messages copied"
    assert done.stdout.count("    5|") == 2  # of the last hour, in each partition
