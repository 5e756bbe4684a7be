"""How fast a log grows, beside plain files of the same sets."""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import Final

from ..testing.requests import create_topic, produce
from .brokers import MIB, broker, sets
from .figure import Figure, median_ratio
from .raw_client import check_end, encoded
from .socket_to_file import writing

_IN_FLIGHT: Final = 8
_ROUNDS: Final = 3
_SLICES: Final = 8
_SLICE_BYTES: Final = 48 * MIB
_SET_BYTES: Final = 64 << 10


def growth(
    *, rounds: int = _ROUNDS, slices: int = _SLICES, slice_bytes: int = _SLICE_BYTES
) -> Iterator[Figure]:
    """Bytes a second of growing logs, of files that a process writes of what it receives from a
    socket, and of files that one writer makes of what it has in memory; the same sets in all.

    The three grow in turns, slice by slice, so that all meet the same memory and the same disk:
    new pages are many times dearer than used ones, and which there are changes by the second.
    """
    through_socket: list[float] = []
    plain: list[float] = []
    for name, value_bytes in (("produce_100B_growing", 100), ("produce_1KiB_growing", 1024)):
        data, count = sets(value_bytes, _SET_BYTES)
        grown = [_grow(data, count, slices, slice_bytes) for _ in range(rounds)]
        log, received, written = zip(*grown, strict=True)
        through_socket += received
        plain += written
        ratio = median_ratio(log, received)
        yield Figure(name, median(log), "bytes/s", "socket_to_file", ratio)
    yield Figure("socket_to_file", median(through_socket), "bytes/s")
    yield Figure("file_write_new", median(plain), "bytes/s")


def _grow(data: bytes, count: int, slices: int, slice_bytes: int) -> list[float]:
    """Bytes a second of a new log, of a new file through a socket, and of a new file."""
    times = slice_bytes // len(data)
    with broker() as (server, client):
        client.call(create_topic("bench", retention_ms=-1))
        request = encoded(produce("bench", data, acks=1))
        folder = server.data_dir.parent
        received, written = folder / "received", folder / "written"
        with writing(received, data, times) as send, written.open("wb", buffering=0) as file:
            works: tuple[Callable[[], object], ...] = (
                partial(client.pipeline, request, 1, times, _IN_FLIGHT),
                partial(send, _IN_FLIGHT),
                partial(_write, file.fileno(), data, times),
            )
            seconds = seconds_in_turns(works, slices)
        size_bytes = slices * times * len(data)
        check_end(client, "bench", slices * times * count)
        assert received.stat().st_size == written.stat().st_size == size_bytes
        # Before the next round, so that the memory in use stays below 2 GiB.
        server.process.kill()
        server.process.wait()
        shutil.rmtree(server.data_dir)
    return [size_bytes / taken for taken in seconds]


def seconds_in_turns(works: Sequence[Callable[[], object]], slices: int) -> list[float]:
    """How long each of `works` takes in all, done so many times; another is the first each time."""
    seconds = [0.0] * len(works)
    for turn in range(slices):
        for place in range(len(works)):
            number = (turn + place) % len(works)
            began = time.perf_counter()
            works[number]()
            seconds[number] += time.perf_counter() - began
    return seconds


def _write(descriptor: int, data: bytes, times: int) -> None:
    for _ in range(times):
        if os.write(descriptor, data) != len(data):
            raise OSError("the disk is full")
