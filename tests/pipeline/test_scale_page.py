"""The mirror of docs/scale.md, into the Kafka port of another broker."""

import re
import runpy
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from pyspark.sql import SparkSession

from horolog import blocking
from horolog.testing.broker import BrokerThread

from .sources import T0_MS, read, source

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
SETTINGS = {"retention.ms": -1, "kafka.listen": "127.0.0.1:0"}
SAME = ("partition", "key", "value", "headers", "timestamp")


def test_what_is_mirrored_is_there_once_with_all_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    (script,) = re.findall(r"<!-- mirror.py -->\n *```python\n(.*?)```", PAGE.read_text(), re.S)
    # Java keeps the working directory that it was started in.
    assert 'checkpointLocation="mirror"' in script
    path = tmp_path / "mirror.py"
    path.write_text(dedent(script).replace('"mirror"', f'"{tmp_path / "mirror"}"'))
    with (
        BrokerThread(tmp_path / "old", SETTINGS) as old,
        BrokerThread(tmp_path / "new", SETTINGS) as new,
        blocking.Producer(f"kafka://{old.kafka_address}") as producer,
    ):
        for broker in (old, new):
            with blocking.Admin(broker.address) as admin:
                admin.create_topic("clicks", partitions=2)
        address = f"kafka://{new.kafka_address}"
        monkeypatch.setattr(sys, "argv", ["mirror.py", old.address, address, "clicks"])
        for first in (0, 20):
            for number in range(first, first + 20):
                producer.send(
                    "clicks",
                    b"%d" % number,
                    key=b"k" if number % 3 else None,
                    timestamp_ms=T0_MS + number,
                    partition=number % 2,
                    headers=[("h", b"%d" % number)],
                )
            runpy.run_path(str(path), run_name="__main__")
            rows = [
                sorted(
                    (
                        [row[name] for name in SAME]
                        for row in read(source(where, subscribe="clicks", includeHeaders=True))
                    ),
                    key=repr,
                )
                for where in (old.address, address)
            ]
            assert rows[0] == rows[1]
            assert len(rows[1]) == first + 20
