"""Measures how fast a new follower copies, beside a process that writes bytes from a socket to a
file."""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Final

from ...protocol.records.batch import build_batch
from ...protocol.records.layout import Codec
from ...protocol.records.messages.sets import NewRecord, build_set
from ...testing.program import ServerProcess
from ...testing.requests import create_topic, produce
from ..brokers import MIB, batch, sets
from ..figure import Figure, median_ratio
from ..raw_client import RefusedRequest, check_end, encoded
from ..socket_to_file import writing
from .producing import Members, members

_IN_FLIGHT: Final = 8
_ROUNDS: Final = 3
_SLICES: Final = 8
_SLICE_BYTES: Final = 48 * MIB
_SET_BYTES: Final = 64 << 10
_LOOK_SECONDS: Final = 0.001
_COPY_SECONDS: Final = 300

COMPRESSED_MESSAGES: Final = 1_000
"""Messages of 100 bytes in a compressed set. Half of each is random, so that compression halves the
set."""


def _compressed(build: Callable[..., bytes | bytearray], codec: Codec) -> tuple[bytes, int]:
    made = random.Random(0)
    now_ms = int(time.time() * 1000)
    records = [
        NewRecord(made.randbytes(50) + b"v" * 50, timestamp_ms=now_ms)
        for _ in range(COMPRESSED_MESSAGES)
    ]
    return bytes(build(records, codec=codec)), COMPRESSED_MESSAGES


KINDS: Final[dict[str, Callable[[], tuple[bytes, int]]]] = {
    "copy_100B": lambda: sets(100, _SET_BYTES),
    "copy_1KiB": lambda: sets(1024, _SET_BYTES),
    "copy_100B_v2": lambda: batch(100, _SET_BYTES),
    "copy_1KiB_v2": lambda: batch(1024, _SET_BYTES),
    "copy_100B_gzip": lambda: _compressed(build_set, Codec.GZIP),
    "copy_100B_v2_lz4": lambda: _compressed(build_batch, Codec.LZ4),
}
"""The kinds of logs: name -> a set, and its number of messages."""


def copying(
    kinds: Sequence[str] = tuple(KINDS),
    *,
    rounds: int = _ROUNDS,
    slices: int = _SLICES,
    slice_bytes: int = _SLICE_BYTES,
) -> Iterator[Figure]:
    """Yield bytes a second of a new follower, and of files of the same sets that a process writes
    from a socket.

    The two grow in turns, slice by slice, so that both use the same memory and disk. While the
    process writes, leader and follower do nothing.
    """
    all_received: list[float] = []
    for name in kinds:
        data, count = KINDS[name]()
        times = max(slice_bytes // len(data), 1)
        found = [_copy(data, count, times, slices) for _ in range(rounds)]
        copied, received = zip(*found, strict=True)
        all_received += received
        ratio = median_ratio(copied, received)
        yield Figure(name, median(copied), "bytes/s", "socket_to_file", ratio)
    if all_received:
        yield Figure("socket_to_file", median(all_received), "bytes/s")


def _copy(data: bytes, count: int, times: int, slices: int) -> tuple[float, float]:
    """Return bytes a second of a follower that copies `slices` slices, and of a file through a
    socket."""
    with members() as brokers:
        leader = brokers.leader
        leader.client.call(create_topic("bench", retention_ms=-1))
        request = encoded(produce("bench", data, acks=1))
        leader.client.pipeline(request, 1, times * slices, _IN_FLIGHT)
        check_end(leader.client, "bench", times * slices * count)
        size_bytes = _size(leader.server)
        written = leader.server.data_dir.parent / "written"
        with writing(written, data, times) as send:
            copied = _follow(brokers, size_bytes, slices, lambda: send(_IN_FLIGHT))
        brokers.wait_in_sync(2)
        rates = copied[0] / copied[1], written.stat().st_size / copied[2]
        for folder in (leader.server.data_dir, written):
            _remove(folder)
        return rates


def _follow(
    brokers: Members, size_bytes: int, slices: int, other: Callable[[], object]
) -> tuple[int, float, float]:
    """Return the bytes that a new follower copied, its seconds, and those of `other`, which runs
    once for each slice of the log."""
    follower = brokers.follower()
    log = follower.server.data_dir / "bench-0"
    ended = time.perf_counter() + _COPY_SECONDS

    def wait_for(bytes_wanted: int) -> int:
        while (size := _size_of(log)) < bytes_wanted:
            if time.perf_counter() > ended:
                raise RuntimeError(f"a follower has {size} of {size_bytes} bytes")
            time.sleep(_LOOK_SECONDS)
        return size

    began_at = size = wait_for(1)
    began = time.perf_counter()
    copying_s = other_s = 0.0
    for number in range(1, slices + 1):
        size = wait_for(max(size_bytes * number // slices, size))
        copying_s += time.perf_counter() - began
        with _standing_still(brokers.leader.server, follower.server):
            began = time.perf_counter()
            other()
            other_s += time.perf_counter() - began
        began = time.perf_counter()
    if size == began_at:
        raise RefusedRequest(f"{size_bytes} bytes are copied before the first look; measure more")
    return size - began_at, copying_s, other_s


@contextmanager
def _standing_still(*servers: ServerProcess) -> Iterator[None]:
    for server in servers:
        server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for server in reversed(servers):
            server.process.send_signal(signal.SIGCONT)


def _size(server: ServerProcess) -> int:
    return _size_of(server.data_dir / "bench-0")


def _size_of(folder: Path) -> int:
    """Return the bytes of all log files in a folder."""
    total = 0
    with suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            if entry.name.endswith(".log"):
                total += entry.stat().st_size
    return total


def _remove(path: Path) -> None:
    """Remove the files before the next round, to free their memory."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink()
