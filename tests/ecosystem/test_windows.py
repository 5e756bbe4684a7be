"""Programs of others read a window of time by its name: from the first to the last message, then
the end, then late messages while they wait, also of a partition that had none."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from horolog.bench.apache_kafka import SMALL_JVM, Unavailable, class_path, jars
from horolog.testing.waiting import wait_until
from horolog.tests.clients.kafka_js import installed

from .installing import PROGRAMS, go_program, not_installed, python_of
from .running import run, running, tail
from .windows import CLICKS, WINDOW, Clicks, has_read, output, places, wait_read

_LIMIT_SECONDS = 900
"""The first run fetches the programs."""

_TOOLS = "org.apache.kafka.tools.consumer"
_PLAIN = ("none", "gzip")
_ALL = ("none", "gzip", "snappy", "lz4", "zstd")

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(_LIMIT_SECONDS)]


def java(pom: Path | None) -> list[object]:
    """The command that runs a class of a POM's jars; without one, of the Kafka of the tests."""
    try:
        return ["java", *SMALL_JVM, "-cp", class_path() if pom is None else jars(pom)]
    except Unavailable as error:
        not_installed(str(error))
        raise


@pytest.mark.parametrize("newer", [False, True], ids=["3", "4"])
def test_console_consumer_and_consumer_groups(address: str, tmp_path: Path, newer: bool) -> None:
    """The end shows in the group's lag."""
    command = java(PROGRAMS / "tools" / "pom.xml" if newer else None)
    clicks, log = Clicks(address, _ALL), tmp_path / "log"
    server = ["--bootstrap-server", address]
    shown = "--formatter-property" if newer else "--property"
    options = [
        *(shown, "print.partition=true", shown, "print.offset=true", shown, "print.value=false"),
        *("--from-beginning", "--topic", WINDOW),
    ]
    consumer = [*command, f"{_TOOLS}.ConsoleConsumer", *server, *options]
    groups = [*command, f"{_TOOLS}.group.ConsumerGroupCommand", *server]

    def at_end() -> bool:
        """Whether the group has read both partitions up to what it takes for their ends."""
        said = output([*groups, "--describe", "--group", "readers"])
        rows = [line.split() for line in said.splitlines() if WINDOW in line]
        lags = {int(row[2]): row[5] for row in rows}
        return lags == {0: "0", 1: "0"}

    with running([*consumer, "--group", "readers"], log):
        for late in (False, True):
            if late:
                clicks.send_late()
            wait_read(clicks, log)
            wait_until(at_end, within_s=60)
    assert has_read(clicks, log)
    once = subprocess.run(
        [*map(str, consumer), "--timeout-ms", "5000"], capture_output=True, text=True, timeout=120
    )
    assert places(once.stdout) == sorted(clicks.inside)


def test_kafkajs_does_not_turn_in_circles(address: str, tmp_path: Path) -> None:
    """At the end it asks no more often than its wait of half a second allows."""
    if shutil.which("node") is None:
        not_installed("kafkajs needs Node.js")
    clicks, log = Clicks(address, _PLAIN), tmp_path / "log"
    packages = f"NODE_PATH={installed()}"
    program = ["env", packages, "KAFKAJS_NO_PARTITIONER_WARNING=1", "node"]

    def fetches() -> list[int]:
        """The number of fetches after each second."""
        return [int(count) for count in re.findall(r"^fetches (\d+)$", log.read_text(), re.M)]

    def fetches_in_seconds(seconds: int) -> int:
        before = len(fetches())
        wait_until(lambda: len(fetches()) > before + seconds, within_s=60)
        return fetches()[before + seconds] - fetches()[before]

    with running([*program, PROGRAMS / "kafkajs" / "window.js", address, WINDOW], log):
        for ends in ("0", "01"):
            wait_read(clicks, log)
            assert set(re.findall(r"^end (\d)$", log.read_text(), re.M)) == set(ends)
            assert fetches_in_seconds(3) <= 2 * 2 * 4
            if ends == "0":
                clicks.send_late()
    assert has_read(clicks, log)


def test_faststream(address: str, tmp_path: Path) -> None:
    """It asks for each topic that it reads to be created."""
    clicks, log = Clicks(address, _PLAIN), tmp_path / "log"
    program = PROGRAMS / "faststream" / "window.py"
    with running([python_of("faststream"), program, address, WINDOW], log):
        wait_read(clicks, log)
        clicks.send_late()
        wait_read(clicks, log)
    assert has_read(clicks, log)
    assert re.findall(r'topic "(.*?)"', output(["kcat", "-b", address, "-L"])) == [CLICKS]


def test_franz_go(address: str, tmp_path: Path) -> None:
    clicks, log = Clicks(address, _ALL), tmp_path / "log"
    with running([go_program("franz-go"), address, WINDOW], log):
        wait_read(clicks, log)
        assert re.findall(r"^end \d$", log.read_text(), re.M)[-1] == "end 0"
        clicks.send_late()
        wait_read(clicks, log)
    assert has_read(clicks, log)


def test_spark_in_a_batch_and_as_a_stream_that_goes_on(address: str, tmp_path: Path) -> None:
    try:
        packages = jars(PROGRAMS / "spark" / "pom.xml")
    except Unavailable as error:
        not_installed(str(error))
        raise
    clicks = Clicks(address, _ALL)
    stream = tmp_path / "stream"
    program = [python_of("spark"), PROGRAMS / "spark" / "words.py", address, packages, "read"]
    for name in ("first", "second"):
        batch = tmp_path / name
        command = [*program, WINDOW, tmp_path / "checkpoint", batch, stream]
        run(command, tmp_path / f"{name}.log", seconds=300)
        assert has_read(clicks, batch), tail(batch)
        assert has_read(clicks, stream), tail(stream)
        if name == "first":
            clicks.send_late()


def test_flink_bounded_and_unbounded(address: str, tmp_path: Path) -> None:
    command = java(PROGRAMS / "flink" / "pom.xml")
    *virtual_machine, path = command
    source = PROGRAMS / "flink" / "ReadTopic.java"
    run(["javac", "-cp", path, "-d", tmp_path, source], tmp_path / "javac.log", seconds=120)
    program = [*virtual_machine, f"{path}{os.pathsep}{tmp_path}", "ReadTopic", address]
    clicks = Clicks(address, _ALL)
    assert places(output([*program, "bounded", WINDOW])) == sorted(clicks.inside)
    log = tmp_path / "log"
    with running([*program, "unbounded", WINDOW], log):
        wait_read(clicks, log)
        clicks.send_late()
        wait_read(clicks, log)
    assert has_read(clicks, log)
    assert places(output([*program, "bounded", WINDOW])) == sorted(clicks.inside)
