"""`horolog pipeline`: what needs no Spark."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from horolog.testing.broker_thread import BrokerThread
from horolog.testing.program import Result
from horolog.tests.pipeline.brokers import commit, create, send

Run = Callable[..., Result]

T = 1_479_132_000_000


@pytest.fixture
def broker(horolog_broker: BrokerThread, monkeypatch: pytest.MonkeyPatch) -> BrokerThread:
    """The broker that commands ask; topic `m` has messages of seconds 0 to 2."""
    monkeypatch.setenv("HOROLOG_SERVER", horolog_broker.address)
    create(horolog_broker, "m")
    send(horolog_broker, "m", [T, T + 1000, T + 2000])
    return horolog_broker


def test_the_program_does_not_import_spark() -> None:
    code = (
        "import sys, horolog.cli.app\n"
        "assert not {'pyspark', 'pyarrow', 'pandas'} & sys.modules.keys(), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_lag(broker: BrokerThread, run: Run) -> None:
    assert run("pipeline", "lag").out == "no positions are stored\n"
    commit(broker, "job", "m", 0, 1)
    broker.clock.freeze()
    broker.clock.step(100)
    (row,) = run("pipeline", "lag", "job", "--json").objects
    assert 100 <= row.pop("lag_s") < 200
    assert row == {
        "name": "job",
        "topic": "m",
        "partition": 0,
        "offset": 1,
        "end": 3,
        "lag": 2,
        "estimated": False,
        "catch_up_s": None,
        "read_until_ms": T,
        "newest_ms": T + 2000,
    }
    shown = run("pipeline", "lag").out.splitlines()[1].split()
    assert shown[:6] == ["job", "m", "0", "1", "3", "2"]
    assert shown[-2:] == ["2016-11-14T14:00:00.000Z", "2016-11-14T14:00:02.000Z"]
    run("pipeline", "lag", "--at-most", "1h")
    late = run("pipeline", "lag", "--at-most", "1m", code=1)
    assert "job is behind in m-0: 1 min " in late.err
    assert "no position is stored under nobody" in run("pipeline", "lag", "nobody", code=1).err
    assert "--at-most: '5'" in run("pipeline", "lag", "--at-most", "5", code=2).err


def test_failover(broker: BrokerThread, run: Run) -> None:
    commit(broker, "job", "m", 0, 2)
    latency = ("failover", "m", "--max-latency", "1s")
    old = ("--name", "job", "--from-server", broker.address)
    (plan,) = run("pipeline", *latency, *old, "--json").objects
    assert plan == {
        "topic": "m",
        "max_latency_ms": 1000,
        "consumed": [{"partition": 0, "offset": 2, "last_read_ms": T + 1000}],
        "resume": [{"partition": 0, "from_ms": T, "offset": 0, "timestamp_ms": T, "end": 3}],
        "starting_offsets": '{"m":{"0":0}}',
    }
    shown = run("pipeline", *latency, *old).out.splitlines()
    assert shown[-1] == 'startingOffsets: {"m":{"0":0}}'
    assert "1 s before the last message read:" in shown[-4]
    (plan,) = run("pipeline", *latency, "--last-read", "2016-11-14T14:00:02Z", "--json").objects
    assert plan["resume"][0]["offset"] == 1
    for wrong in ((), ("--name", "job"), (*old, "--last-read", "now")):
        assert "--last-read alone" in run("pipeline", *latency, *wrong, code=2).err
    unknown = run("pipeline", *latency, "--name", "x", "--from-server", broker.address, code=1)
    assert "nothing is committed under 'x'" in unknown.err
