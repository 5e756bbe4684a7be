"""The real Apache Kafka that others are tested against: it starts, and says when it cannot."""

import os
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from horolog.bench import apache_kafka
from horolog.bench.apache_kafka import ApacheKafka, Unavailable, class_path, jars

API_VERSIONS = struct.pack(">hhih", 18, 0, 7, -1)
"""Kafka's request in version 0: key, version, correlation id, no client id."""


def served(address: str) -> dict[int, tuple[int, int]]:
    """The versions that a broker serves, by api key."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(struct.pack(">i", len(API_VERSIONS)) + API_VERSIONS)
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        answer = stream.read(size)
    correlation_id, error, count = struct.unpack_from(">ihi", answer)
    assert (correlation_id, error) == (7, 0)
    entries = struct.iter_unpack(">hhh", answer[10 : 10 + 6 * count])
    return {key: (low, high) for key, low, high in entries}


@pytest.mark.timeout(1200)
def test_a_broker_serves_stops_and_starts_again(apache: ApacheKafka) -> None:
    assert apache.bootstrap == ",".join(broker.address for broker in apache.brokers)
    broker = apache.brokers[-1]
    assert served(broker.address)[0] == (0, 11)
    broker.stop()
    try:
        with pytest.raises(OSError, match="refused"):
            served(broker.address)
    finally:
        broker.start()
    assert served(broker.address)[0] == (0, 11)


def test_a_machine_without_java_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unavailable, match=r"no java and no mvn.*apt-get install"):
        class_path()


_MVN = """\
#!/bin/sh
cd "$(dirname "$0")"
mkdir busy || exit 1 # another one is at work
sleep 0.2
echo run >>runs
for argument; do
    case $argument in -Dmdep.outputFile=*) echo a.jar >"${argument#*=}" ;; esac
done
rmdir busy
"""


def test_one_maven_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They write to one repository."""
    for name, text in {"java": "#!/bin/sh\n", "mvn": _MVN}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(apache_kafka, "CACHE", tmp_path / "cache")
    (pom := tmp_path / "pom.xml").write_text("<project/>")
    versions = ["1", "1", "2", "2"]
    with ThreadPoolExecutor(len(versions)) as pool:
        found = list(pool.map(lambda version: jars(pom, {"version": version}), versions))
    assert found == ["a.jar"] * 4
    assert (tmp_path / "runs").read_text() == "run\n" * 2
