"""A command that starts Spark itself says what goes wrong once, and nothing of Spark's ways."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from horolog import blocking
from horolog.testing.broker import BrokerThread

from .sources import T0_MS

MakeTopic = Callable[..., str]

pytestmark = pytest.mark.timeout(600)

SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What runs for seconds needs no better code, which takes longer to make."""


@pytest.mark.soak
def test_a_task_that_fails(broker: BrokerThread, make_topic: MakeTopic, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("when,value\n2026-11-22T10:00:00Z,a\nnever,b\n")
    times = ["--timestamp", "to_timestamp(when)", "--server", broker.address]
    command = ["pipeline", "bootstrap", "rows.csv", "--format", "csv", "--topic", make_topic()]
    done = subprocess.run(
        [sys.executable, "-m", "horolog", *command, *times],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    (told,) = [line for line in done.stderr.splitlines() if "never" in line]
    assert told.startswith("horolog: [CAST_INVALID_INPUT] The value 'never'")
    for noise in ("\tat ", "ERROR", "WARN ", "log4j"):
        assert noise not in done.stderr
    assert done.stdout == ""
    assert done.returncode == 1


def quiet(done: "subprocess.CompletedProcess[str]") -> bool:
    """Whether nothing was printed of Spark's processes and how they ended."""
    noise = ("Traceback", "ERROR", "Error:", "\tat ", "Py4J", "pyspark", "BrokenPipe")
    return not any(each in done.stderr for each in noise)


def pipeline(*command: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "horolog", "pipeline", *command],
        cwd=cwd,
        capture_output=True,
        text=True,
    )


@pytest.fixture
def many_partitions(
    broker: BrokerThread, make_topic: MakeTopic, producer: blocking.Producer
) -> str:
    topic = make_topic(24)
    for partition in range(24):
        producer.send_batch(topic, [b"v"] * 5_000, timestamps_ms=T0_MS, partition=partition)
    return topic


@pytest.mark.soak
def test_a_job_of_many_workers(broker: BrokerThread, many_partitions: str) -> None:
    """Spark lets go of all of them at once, when it ends."""
    many = ("--master", "local[12]", "--server", broker.address)
    done = pipeline("latency", many_partitions, *many)
    assert quiet(done), done.stderr
    assert done.returncode == 0


@pytest.mark.soak
def test_ctrl_c(broker: BrokerThread, many_partitions: str) -> None:
    command = [
        "pipeline",
        "watch",
        many_partitions,
        "--identity",
        "uuid()",
        "--server",
        broker.address,
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "horolog", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "120000" in line:  # it has counted what there is, and waits for more
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    assert quiet(done), done.stderr
    assert done.returncode == 130


@pytest.mark.parametrize(
    "wait_s",
    [1, *(pytest.param(wait_s, marks=pytest.mark.soak) for wait_s in (0, 2.5))],
    ids="after {} s".format,
)
def test_ctrl_c_while_spark_starts(
    broker: BrokerThread, many_partitions: str, wait_s: float
) -> None:
    """Nothing is left behind that holds the streams of the command."""
    command = ["pipeline", "latency", many_partitions, "--server", broker.address]
    with subprocess.Popen(
        [sys.executable, "-m", "horolog", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"JAVA_TOOL_OPTIONS": SMALL_JVM},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() != ""  # what it will read; Spark is started next
        time.sleep(wait_s)  # there is no event in between: any moment is as good
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=500)
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    assert quiet(done), done.stderr
    assert done.returncode == 130


ENDS_EARLY = """
import sys
from pathlib import Path
from pyspark.errors import PySparkException
from horolog import blocking
from horolog.pipeline import session
from horolog.testing.broker import BrokerThread

broker = BrokerThread(Path(sys.argv[1]), {"retention.ms": -1})
broker.start()
with blocking.Admin(broker.address) as admin, blocking.Producer(broker.address) as producer:
    admin.create_topic("t", partitions=8)
    for partition in range(8):
        producer.send_batch("t", [b"v" * 1000] * 10_000, partition=partition)
spark = session(master="local[8]", conf={"spark.ui.enabled": "false"})
spark.sparkContext.setLogLevel("OFF")
print("began", file=sys.stderr, flush=True)
options = {"bootstrap.servers": broker.address, "retryBudgetMs": "500"}
rows = spark.read.format("horolog").options(**options).load(subscribe="t")
assert len(rows.take(3)) == 3
assert rows.limit(20_000).count() == 20_000
assert rows.first() is not None
broker.stop()
try:
    rows.count()
except PySparkException as error:
    assert "retryBudgetMs" in str(error) or "onnect" in str(error), error
else:
    raise AssertionError
spark.stop()
"""


@pytest.mark.soak
def test_rows_that_nobody_wants_any_more_and_a_broker_that_goes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDS_EARLY, str(tmp_path / "data")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.partition("began\n")[2] == ""
