"""A command that starts Spark itself says what goes wrong once, and nothing of Spark's ways."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from horolog.testing.broker_thread import BrokerThread

MakeTopic = Callable[..., str]


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
