"""Ports of processes that are started with fixed ones."""

import socket
from contextlib import closing
from pathlib import Path
from random import SystemRandom

import pytest

from horolog.testing.ports import free_port, free_ports


def test_they_are_different_and_no_connection_gets_one() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        address = server.getsockname()
        with closing(socket.create_connection(address)) as connected:
            given = [address[1], connected.getsockname()[1]]
    assert max(ports) < min(given)
    lowest = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if lowest.exists():
        assert max(ports) < int(lowest.read_text().split()[0])


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", ""])
def test_one_that_is_taken_is_passed_over(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, other = free_ports(2)
    drawn = iter([taken, other])
    monkeypatch.setattr(SystemRandom, "randrange", lambda *_: next(drawn))
    with closing(socket.create_server((host, taken))):
        assert free_port() == other


def test_too_few_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # Those that are tried are taken meanwhile, also for the brokers of other tests.
    monkeypatch.setattr("horolog.testing.ports._ATTEMPTS", 5)
    with pytest.raises(RuntimeError, match="6 free ports were not found"):
        free_ports(6)
