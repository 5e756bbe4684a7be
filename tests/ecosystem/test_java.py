"""Kafka's own programs with their state in compacted topics: Connect, Streams, MirrorMaker 2."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from horolog.bench.apache_kafka import SMALL_JVM, Unavailable, apache_kafka, jars
from horolog.testing.ports import free_port
from horolog.testing.waiting import wait_until

from .installing import PROGRAMS, not_installed
from .messages import COUNTS, WORDS, Messages
from .running import running, tail

_LIMIT_SECONDS = 900
"""Maven fetches the programs the first time."""
_CONNECTOR = "org.apache.kafka.connect.file.FileStream"

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(_LIMIT_SECONDS)]


@pytest.fixture(scope="module")
def java() -> list[str]:
    """The command that runs a class of these programs."""
    try:
        return ["java", *SMALL_JVM, "-cp", jars(PROGRAMS / "java" / "pom.xml")]
    except Unavailable as error:
        not_installed(str(error))
        raise


def written(path: Path, settings: Mapping[str, object]) -> Path:
    """A file of settings."""
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def ask(url: str, body: object = None) -> Any:
    """What Connect answers; `None` while it does not."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except (URLError, ConnectionError, TimeoutError):
        return None


def test_connect_copies_a_file_and_goes_on_where_it_stopped(
    java: list[str], address: str, messages: Messages, tmp_path: Path
) -> None:
    """Distributed mode: connectors, offsets and states are in compacted topics."""
    source, sink, log = (tmp_path / name for name in ("source", "sink", "log"))
    port = free_port()
    url = f"http://127.0.0.1:{port}/connectors"
    text = "org.apache.kafka.connect.storage.StringConverter"
    topics = {
        f"{kind}.storage.{name}": value
        for kind in ("config", "offset", "status")
        for name, value in (("topic", f"connect-{kind}"), ("replication.factor", 1))
    }
    settings = {
        "bootstrap.servers": address,
        "group.id": "connect",
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": text,
        "value.converter": text,
        "offset.flush.interval.ms": 1000,
        **topics,
    }
    connect = "org.apache.kafka.connect.cli.ConnectDistributed"
    command = [*java, connect, written(tmp_path / "connect.properties", settings)]
    kinds = {"source": {"topic": "lines"}, "sink": {"topics": "lines"}}
    source.write_text("one\ntwo\n")
    with running(command, log):
        wait_until(lambda: ask(url) == [], within_s=180, state=lambda: tail(log))
        for kind, more in kinds.items():
            config = {
                "connector.class": f"{_CONNECTOR}{kind.title()}Connector",
                "file": str(tmp_path / kind),
                **more,
            }
            assert ask(url, {"name": kind, "config": config})
        wait_until(lambda: _lines(sink) == 2, within_s=120, state=lambda: tail(log))
    with source.open("a") as more_lines:
        more_lines.write("three\n")
    with running(command, log):
        wait_until(lambda: _lines(sink) >= 3, within_s=180, state=lambda: tail(log))
        assert sink.read_text() == "one\ntwo\nthree\n"
    assert messages.compacted() == {"connect-config", "connect-offset", "connect-status"}


def _lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


def test_the_state_of_streams_comes_back_from_the_changelog(
    java: list[str], address: str, messages: Messages, tmp_path: Path
) -> None:
    """It is lost between the two runs."""
    for number, folder in enumerate(("first", "second"), start=1):
        messages.send("words", WORDS)
        program = [*java, PROGRAMS / "java" / "CountWords.java", address, tmp_path / folder]
        with running(program, tmp_path / f"{folder}.log"):
            found = messages.read("counts", number * len(WORDS))
    assert [(key.decode(), int(value)) for key, value in found if key and value] == COUNTS
    assert "counting-seen-changelog" in messages.compacted()


def test_mirror_maker_copies_from_a_real_kafka(
    java: list[str], address: str, messages: Messages, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with apache_kafka(tmp_path / "kafka") as kafka:
        Messages(kafka.bootstrap).send("words", WORDS)
        settings = {
            "clusters": "there, here",
            "there.bootstrap.servers": kafka.bootstrap,
            "here.bootstrap.servers": address,
            "there->here.enabled": "true",
            "there->here.topics": "words",
            "replication.factor": 1,
            "checkpoints.topic.replication.factor": 1,
            "heartbeats.topic.replication.factor": 1,
            "offset-syncs.topic.replication.factor": 1,
            "config.storage.replication.factor": 1,
            "offset.storage.replication.factor": 1,
            "status.storage.replication.factor": 1,
        }
        mirror = "org.apache.kafka.connect.mirror.MirrorMaker"
        command = [*java, mirror, written(tmp_path / "mirror.properties", settings)]
        with running(command, log):
            found = messages.read("there.words", len(WORDS))
    assert [value for _, value in found] == [word.encode() for word in WORDS]
    assert "mm2-configs.there.internal" in messages.compacted()
