"""Ports of processes that are started with fixed ones."""

import socket
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from random import SystemRandom

import pytest

from horolog.testing import ports as horolog_ports
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
    draws(monkeypatch, taken, other)
    monkeypatch.setattr(horolog_ports, "_given", set())
    with closing(socket.create_server((host, taken))):
        assert free_port() == other


def draws(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    drawn = iter(ports)
    monkeypatch.setattr(SystemRandom, "randrange", lambda *_: next(drawn))


def test_none_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has one may not listen yet, or be stopped."""
    first, other = free_ports(2)
    monkeypatch.setattr(horolog_ports, "_given", {first})
    draws(monkeypatch, first, other)
    assert free_port() == other
    assert horolog_ports._given == {first, other}


def test_processes_of_a_run_have_different_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
    ranges = []
    for number in range(3):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{number}")
        monkeypatch.setattr(horolog_ports, "_given", set())
        ports = free_ports(50)
        ranges.append((min(ports), max(ports)))
    assert ranges == sorted(ranges)
    assert all(before[1] < after[0] for before, after in pairwise(ranges))


def test_too_few_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # Those that are tried are taken meanwhile, also for the brokers of other tests.
    monkeypatch.setattr("horolog.testing.ports._ATTEMPTS", 5)
    with pytest.raises(RuntimeError, match="6 free ports were not found"):
        free_ports(6)
