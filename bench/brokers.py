"""Brokers to measure, each in a process of its own, and what they are filled with."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from ..protocol.api.broker.api_versions import ApiVersionsRequest
from ..protocol.records.layout import Codec
from ..protocol.records.messages.sets import NewRecord, build_set
from ..testing.program import ServerProcess, serving
from .raw_client import RawClient, encoded

MIB: Final = 1 << 20
KERNEL_VARIABLE: Final = "HOROLOG_KERNEL"
"""Environment variable: `interpreted` passes over compiled code."""

RETENTION_LIMIT: Final = {
    "segment_bytes": 64 * MIB,
    "retention_bytes": 256 * MIB,
    "file_delete_delay_ms": 0,
    "retention_ms": -1,
}
"""Topic settings with which old segments go as new ones come: what is written stays in memory
that is already there."""

ONE_TURN_BYTES: Final = 320 * MIB
"""After so much, such a topic is at its limit."""

ENTRY_BYTES: Final = 34
"""What a stored message takes beside its value."""

_SPREAD_MS: Final = 500


@contextmanager
def data_folder() -> Iterator[Path]:
    """A data directory that is not there yet, in the system's temporary folder; removed after."""
    with TemporaryDirectory(prefix="horolog-bench-") as folder:
        yield Path(folder) / "data"


@contextmanager
def broker(
    *arguments: str, data: Path | None = None, env: dict[str, str] | None = None
) -> Iterator[tuple[ServerProcess, RawClient]]:
    """A broker, on an empty directory unless told, and a connection to it."""
    if data is None:
        with data_folder() as folder, broker(*arguments, data=folder, env=env) as found:
            yield found
        return
    with (
        serving(data, *arguments, env=kernel_choice() | (env or {})) as server,
        closing(RawClient(server.native)) as client,
    ):
        yield server, client


def kernel_choice() -> dict[str, str]:
    """What this process was told of compiled code, for its brokers: they get no other setting."""
    return {name: text for name, text in os.environ.items() if name == KERNEL_VARIABLE}


def sets(value_bytes: int, set_bytes: int) -> tuple[bytes, int]:
    """A plain set of about `set_bytes`, and how many messages it has.

    Their times are of the last half second, so that latencies fall into several buckets.
    """
    count = max(set_bytes // (value_bytes + ENTRY_BYTES), 1)
    began_ms = int(time.time() * 1000) - _SPREAD_MS
    records = [
        NewRecord(b"v" * value_bytes, timestamp_ms=began_ms + _SPREAD_MS * number // count)
        for number in range(count)
    ]
    return bytes(build_set(records, codec=Codec.NONE)), count


def echo_request() -> bytes:
    """The smallest request: its round trip is part of every other figure."""
    return encoded(ApiVersionsRequest())


def resident_bytes(server: ServerProcess) -> int:
    """Resident memory of a broker now."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def processor_seconds(server: ServerProcess) -> float:
    """Processor time that a broker has used, in nanosecond steps."""
    return time.clock_gettime((~server.process.pid << 3) | 2)
