"""Brokers to measure, each in its own process, and message sets to fill them."""

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from ssl import SSLContext
from tempfile import TemporaryDirectory
from typing import Final

from ..compiled import VARIABLE
from ..protocol.api.broker.api_versions import ApiVersionsRequest
from ..protocol.records.batch import build_batch
from ..protocol.records.layout import Codec
from ..protocol.records.messages.sets import NewRecord, build_set
from ..testing.program import WITH_HTTP, ServerProcess, serving
from .raw_client import RawClient, encoded

MIB: Final = 1 << 20

RETENTION_LIMIT: Final = {
    "segment_bytes": 64 * MIB,
    "retention_bytes": 256 * MIB,
    "file_delete_delay_ms": 0,
    "retention_ms": -1,
}
"""Topic settings with which retention removes old segments as new ones are written, so that writes
reuse memory."""

ONE_TURN_BYTES: Final = 320 * MIB
"""Bytes after which such a topic is at its retention limit."""

ENTRY_BYTES: Final = 34
"""Bytes of a stored message besides its value."""

_OVERHEAD_BYTES: Final = {100: 9, 1024: 11}
"""Approximate bytes of a record in a batch besides its value."""

_SPREAD_MS: Final = 500

_IDLE_WITHIN_SECONDS: Final = 30
_IDLE_SECONDS: Final = 0.5
_IDLE_SHARE: Final = 0.05
"""A broker counts as idle if it uses less than this share of a processor for this long."""


@contextmanager
def data_folder() -> Iterator[Path]:
    """Provide the path of a new data directory in the temporary folder; remove it at the end."""
    with TemporaryDirectory(prefix="horolog-bench-") as folder:
        yield Path(folder) / "data"


@contextmanager
def broker(
    *arguments: str, data: Path | None = None, tls: SSLContext | None = None
) -> Iterator[tuple[ServerProcess, RawClient]]:
    """Start a broker, by default on an empty directory, and connect to it; with `tls`, over TLS."""
    if data is None:
        with data_folder() as folder, broker(*arguments, data=folder, tls=tls) as found:
            yield found
        return
    with (
        serving(data, *WITH_HTTP, *arguments, env=kernel_choice()) as server,
        closing(RawClient(server.native, tls=tls)) as client,
    ):
        yield server, client


def kernel_choice() -> dict[str, str]:
    """Return an environment for brokers with only this process's `HOROLOG_KERNEL`, if it is set."""
    return {name: text for name, text in os.environ.items() if name == VARIABLE}


def sets(value_bytes: int, set_bytes: int) -> tuple[bytes, int]:
    """Return a set of about `set_bytes` without compression, and its number of messages.

    The messages have times of the last half second, so that latencies fall into several buckets.
    """
    count = max(set_bytes // (value_bytes + ENTRY_BYTES), 1)
    return bytes(build_set(_records(value_bytes, count), codec=Codec.NONE)), count


def batch(value_bytes: int, set_bytes: int) -> tuple[bytes, int]:
    """Return a record batch of about `set_bytes` without compression, and its number of messages.
    Times are as in `sets`.

    `value_bytes` is 100 or 1024.
    """
    count = max(set_bytes // (value_bytes + _OVERHEAD_BYTES[value_bytes]), 1)
    return bytes(build_batch(_records(value_bytes, count))), count


def _records(value_bytes: int, count: int) -> list[NewRecord]:
    began_ms = int(time.time() * 1000) - _SPREAD_MS
    return [
        NewRecord(b"v" * value_bytes, timestamp_ms=began_ms + _SPREAD_MS * number // count)
        for number in range(count)
    ]


def echo_request() -> bytes:
    """Send the smallest request; its round trip is part of every other figure."""
    return encoded(ApiVersionsRequest())


def resident_bytes(server: ServerProcess) -> int:
    """Return the present resident memory of a broker in bytes."""
    return process_bytes(server.process.pid)


def process_bytes(pid: int) -> int:
    """Return the present resident memory of a process in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def processor_seconds(server: ServerProcess) -> float:
    """Processor time that a broker has used, in nanosecond steps."""
    return process_seconds(server.process.pid)


def process_seconds(pid: int) -> float:
    """Processor time that a process has used, in nanosecond steps."""
    return time.clock_gettime((~pid << 3) | 2)


def wait_until_idle(processor_seconds: Sequence[Callable[[], float]]) -> None:
    """Wait until brokers are idle, at most half a minute: they sync closed segments in the
    background. Each callable returns the processor time of one broker."""
    ended = time.monotonic() + _IDLE_WITHIN_SECONDS
    while time.monotonic() < ended:
        before = [used() for used in processor_seconds]
        time.sleep(_IDLE_SECONDS)
        used_now = (used() - was for used, was in zip(processor_seconds, before, strict=True))
        if max(used_now) < _IDLE_SHARE * _IDLE_SECONDS:
            return
