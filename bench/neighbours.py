"""What keeps a broker busy beside a fast producer.

`python -m horolog.bench.neighbours KIND HOST:PORT` prints `running` once it does that, and goes on
until it is killed.
"""

import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final

from ..config.address import split_address
from ..testing.requests import fetch, list_offsets, produce
from .brokers import MIB, sets
from .raw_client import RawClient, encoded

TOPIC: Final = "beside"
"""A topic of `MESSAGES` messages, 64 MiB in one segment."""

SCANNED_TOPIC: Final = "scanned"
"""The same, but the index has no entries to help a search."""

MESSAGES: Final = 500_000
FIRST_MS: Final = 1_479_144_272_509
"""Time of its first message; each is a millisecond later than the one before."""

_SLOW_CONNECTIONS: Final = 8
_SETS_IN_FLIGHT: Final = 8
_OLD_FETCH: Final = 1
"""A version of fetch that gives messages of format v0: all have to be converted."""


def slow_client(address: str) -> None:
    """Connections that ask for 8 MiB each and read a few bytes at a time, and one that sends a
    request byte by byte."""
    wanted = encoded(fetch(TOPIC, (0, 0), partition_max_bytes=MIB)) * 8
    trickled = encoded(produce(TOPIC, bytes(1000), acks=1))
    readers = [_connected(address) for _ in range(_SLOW_CONNECTIONS)]
    for reader in readers:
        reader.sendall(wanted)
    sender = _connected(address)
    _running()
    sent = 0
    while True:
        for number, reader in enumerate(readers):
            if not reader.recv(4096):
                readers[number] = _connected(address)
                readers[number].sendall(wanted)
        sender.sendall(trickled[sent : sent + 1])
        sent = min(sent + 1, len(trickled) - 1)
        if sent == len(trickled) - 1:
            sender.close()
            sender, sent = _connected(address), 0
        time.sleep(0.005)


def time_scan(address: str) -> None:
    """Searches by time, one at a time, that each read the whole log."""
    client = RawClient(address)
    request = encoded(list_offsets(SCANNED_TOPIC, (0, FIRST_MS + MESSAGES - 1)))
    client.exchange(request)
    _running()
    while True:
        client.exchange(request)


def converting_reader(address: str) -> None:
    """Fetches of 1 MiB, one at a time, by a reader that only knows message format v0."""
    client = RawClient(address)
    requests = [
        encoded(fetch(TOPIC, (0, offset), partition_max_bytes=MIB), _OLD_FETCH)
        for offset in range(0, MESSAGES, MESSAGES // 64)
    ]
    client.exchange(requests[0])
    _running()
    while True:
        for request in requests:
            client.exchange(request)


def bulk_producer(address: str) -> None:
    """Sets of 900 KiB, of which so many are in flight that the broker never waits for one."""
    client = RawClient(address)
    request = encoded(produce(TOPIC, sets(100, 900 << 10)[0], acks=1))
    client.exchange(request)
    _running()
    while True:
        client.pipeline(request, 1, 100 * _SETS_IN_FLIGHT, _SETS_IN_FLIGHT)


KINDS: Final[Mapping[str, Callable[[str], None]]] = {
    "slow_client": slow_client,
    "time_scan": time_scan,
    "converting_reader": converting_reader,
}

BULK: Final = "bulk_producer"


def _connected(address: str) -> socket.socket:
    connected = socket.socket()
    # Little room, so that it is the broker that has to hold what is not read.
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
    connected.connect(split_address(address))
    return connected


def _running() -> None:
    print("running", flush=True)


if __name__ == "__main__":
    {**KINDS, BULK: bulk_producer}[sys.argv[1]](sys.argv[2])
