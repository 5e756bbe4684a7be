"""The real Apache Kafka that others are tested against: it starts, and says when it cannot."""

import socket
import struct

import pytest

from horolog.bench.apache_kafka import ApacheKafka, Unavailable, class_path

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
