"""The pipeline's own ways to a broker, at one that asks for TLS and a login."""

import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from horolog import SecretFile, Security, blocking
from horolog.cli.main import run as run_command
from horolog.client.cluster.servers import Servers, with_security
from horolog.pipeline.jobs.lag import lag_by_time
from horolog.testing.broker import BrokerThread
from horolog.testing.issuer import Issuer, token_settings
from horolog.testing.program import CommandResult, Program
from horolog.tests.secure_clients.certificates import Authority
from horolog.tests.secure_clients.users import add_user

PASSWORD = "correct-horse-7213"
HOUR_MS = 3_600_000
T0_MS = 1_479_132_000_000
"""2016-11-14T14:00:00Z"""

ISSUER = Issuer()

Run = Callable[..., CommandResult]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("guarded")
    (made / "password").write_text(PASSWORD)
    return made


@pytest.fixture(scope="module")
def guarded(folder: Path) -> Iterator[Servers]:
    authority = Authority(folder, "authority")
    pair = authority.signed("broker", "IP:127.0.0.1")
    add_user(folder / "data", "alice", PASSWORD)
    settings: dict[str, object] = {
        "listen": "tls://127.0.0.1:0",
        "authentication": "required",
        "tls.cert": pair.certificate,
        "tls.key": pair.key,
        "retention.ms": -1,
    }
    for name, value in token_settings(ISSUER.write(folder / "keys.json")).items():
        settings[name.replace("_", ".")] = value
    security = Security(
        ca=str(authority.certificate), user="alice", password=SecretFile(str(folder / "password"))
    )
    with BrokerThread(folder / "data", settings) as broker:
        yield with_security(f"tls://{broker.address}", security)


@pytest.fixture
def options(guarded: Servers) -> list[str]:
    """How a command is let in."""
    security = guarded.security
    assert security is not None
    assert isinstance(security.password, SecretFile)
    found = ["--server", str(guarded), "--ca", str(security.ca), "--user", "alice"]
    return [*found, "--password-file", security.password.path]


@pytest.fixture
def run(spark: SparkSession) -> Run:
    """`run(*arguments)` is `horolog pipeline ...` on this Spark."""

    def run(*arguments: str | Path) -> CommandResult:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = run_command(["pipeline", *map(str, arguments)])
        result = CommandResult(code, out.getvalue(), err.getvalue())
        assert result.code == 0, result
        return result

    return run


def fill(guarded: Servers, topic: str) -> None:
    """A message each minute of three hours, in two partitions."""
    with blocking.Admin(guarded) as admin:
        admin.create_topic(topic, partitions=2)
    with blocking.Producer(guarded, check_units=False) as producer:
        for partition in range(2):
            times_ms = range(T0_MS, T0_MS + 3 * HOUR_MS, 60_000)
            producer.send_batch(
                topic,
                [b"%d" % time_ms for time_ms in times_ms],
                timestamps_ms=list(times_ms),
                partition=partition,
            )


def test_jobs(guarded: Servers, options: list[str], run: Run, tmp_path: Path) -> None:
    """Loading, a window read by the broker's time maps, latencies, and lag."""
    fill(guarded, "clicks")
    out = run(
        *("replay", "clicks", "--out", tmp_path / "out", "--json"),
        *("--from", str(T0_MS), "--to", str(T0_MS + HOUR_MS), *options),
    )
    assert [one["rows"] for one in out.objects if one.get("done") == "replay"] == [120]
    with blocking.Admin(guarded) as admin:
        admin.create_topic("again", partitions=2)
    loaded = run(
        *("bootstrap", tmp_path / "out", "--topic", "again", "--value", "value", "--json"),
        *("--timestamp", "timestamp", *options),
    )
    assert loaded.objects[-1] == {"done": "bootstrap", "rows": 120, "appended": 120}
    assert json.loads(run("latency", "clicks", "--json", *options).out.splitlines()[-1])
    with blocking.Consumer(guarded, name="reader") as consumer:
        consumer.assign("clicks")
        consumer.seek_to_beginning()
        consumer.commit()
    assert [row.messages for row in lag_by_time(guarded, ["reader"])] == [180, 180]


def test_a_window_of_the_source(guarded: Servers, spark: SparkSession) -> None:
    fill(guarded, "windows")
    assert guarded.security is not None
    rows = (
        spark.read.format("horolog")
        .options(
            **{
                "bootstrap.servers": str(guarded),
                "ssl.ca.location": str(guarded.security.ca),
                "sasl.username": "alice",
                "sasl.password": PASSWORD,
                "subscribe": "windows",
                "startingTimestamp": str(T0_MS + HOUR_MS),
                "endingTimestamp": str(T0_MS + 2 * HOUR_MS),
                "minPartitions": "4",
            }
        )
        .load()
    )
    assert rows.count() == 120


def test_tokens(guarded: Servers, spark: SparkSession, tmp_path: Path) -> None:
    """The source by a token in a file, the sink by the token itself."""
    source, sink = "tokens", "tokens-copy"
    fill(guarded, source)
    with blocking.Admin(guarded) as admin:
        admin.create_topic(sink)
    assert guarded.security is not None
    token = tmp_path / "token"
    token.write_text(ISSUER.token("carol"))
    token.chmod(0o600)
    common = {
        "bootstrap.servers": str(guarded),
        "ssl.ca.location": str(guarded.security.ca),
        "sasl.mechanism": "OAUTHBEARER",
    }
    by_file = {**common, "sasl.oauthbearer.token.file": str(token)}
    by_text = {**common, "kafka.sasl.oauthbearer.token": token.read_text()}
    rows = spark.read.format("horolog").options(**by_file).option("subscribe", source).load()
    copy = rows.select("value", "timestamp").write.format("horolog").options(**by_text)
    copy.option("topic", sink).mode("append").save()
    with blocking.Consumer(guarded) as consumer:
        consumer.assign(sink)
        consumer.seek_to_beginning()
        assert sum(1 for _ in zip(range(360), consumer, strict=False)) == 360


@pytest.mark.soak
def test_a_password_that_a_command_prints_reaches_the_workers(
    guarded: Servers, folder: Path, tmp_path: Path
) -> None:
    """In a Spark of its own, whose workers inherit it."""
    fill(guarded, "by-command")
    assert guarded.security is not None
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "PATH": os.environ["PATH"]}
    horolog = Program(None, env, tmp_path)
    horolog.ok(
        *("profile", "add", "prod", "--server", str(guarded), "--user", "alice"),
        *("--ca", str(guarded.security.ca), "--password-command", f"cat {folder / 'password'}"),
    )
    with horolog.running(
        *("pipeline", "replay", "by-command", "--out", str(tmp_path / "out"), "--json")
    ) as process:
        out, err = process.communicate(timeout=150)
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["rows"] == 360
