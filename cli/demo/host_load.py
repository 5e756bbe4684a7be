"""A sample of how busy this host is."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_MEMORY: Final = Path("/proc/meminfo")
_MEMORY_FIELDS: Final = {"MemTotal": "memory_total_bytes", "MemAvailable": "memory_available_bytes"}


def sample() -> bytes:
    """Load averages over 1, 5 and 15 minutes, and memory where the system reports it; as JSON."""
    values: dict[str, float] = {}
    with suppress(OSError):
        for name, load in zip(("load_1m", "load_5m", "load_15m"), os.getloadavg(), strict=True):
            values[name] = round(load, 2)
    with suppress(OSError):
        for line in _MEMORY.read_text("ascii", "replace").splitlines():
            name, _, rest = line.partition(":")
            if name in _MEMORY_FIELDS and rest.endswith("kB"):
                values[_MEMORY_FIELDS[name]] = int(rest.removesuffix("kB")) * 1024
    return json.dumps(values).encode()
