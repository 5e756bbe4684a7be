"""How much memory the process may take, and what clients may take of it.

Python does not survive running out of memory completely: even reporting the failure fails then. So
if the system allows little memory (`ulimit -v`, a container), the limits of clients are lowered to
what fits, and a request that is too large is refused by its size.
"""

import resource
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..config.broker import BrokerSettings
from ..storage.events import Observer

BUFFERED_SHARE: Final = 4
"""All clients together may make the broker hold 1/4 of the memory that is left."""

REQUEST_SHARE: Final = 8
"""The largest request, and the largest answer, may take 1/8 of the memory that is left: up to four
copies of each exist while it is handled."""

OWN_BYTES: Final = 128 << 20
"""Address space that the process itself takes after its start: for the stacks of threads, the
allocator's arenas, and libraries that are loaded late."""

SMALLEST_BYTES: Final = 1 << 20
"""No limit is lowered below this: the largest message that is allowed by default has to fit."""

_CGROUP: Final = Path("/sys/fs/cgroup")


def memory_left() -> int | None:
    """Return how many bytes this process may still take; `None` if there is no limit."""
    left = []
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    with suppress(OSError, ValueError, IndexError):
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            left.append(limit - pages * resource.getpagesize() - OWN_BYTES)
    with suppress(OSError, ValueError, KeyError):
        left.append(_left_in_container(_CGROUP))
    return max(min(left), 0) if left else None


def _left_in_container(cgroup: Path) -> int:
    """Return how many bytes are left in the container. Raises `ValueError` if there is no limit:
    the file then says "max", which is no number.

    Cached files count as used, but are given up when the memory is needed.
    """
    limit = int((cgroup / "memory.max").read_text())
    used = int((cgroup / "memory.current").read_text())
    statistics = dict(line.split(" ") for line in (cgroup / "memory.stat").read_text().splitlines())
    return limit - used + int(statistics["file"])


def fitting_limits(settings: BrokerSettings, left_bytes: int | None) -> dict[str, int]:
    """Return the values of `max_buffered_bytes`, `max_frame_bytes` and `max_response_bytes` that
    fit into the memory that is left."""
    shares = {
        "max_buffered_bytes": BUFFERED_SHARE,
        "max_frame_bytes": REQUEST_SHARE,
        "max_response_bytes": REQUEST_SHARE,
    }
    limits = {name: int(getattr(settings, name)) for name in shares}
    if left_bytes is None:
        return limits
    return {
        name: min(limit, max(left_bytes // shares[name], SMALLEST_BYTES))
        for name, limit in limits.items()
    }


def within_memory(settings: BrokerSettings, observe: Observer) -> BrokerSettings:
    """Return the settings with limits of clients that fit into the memory of the process."""
    fitting = fitting_limits(settings, memory_left())
    lowered = {name: limit for name, limit in fitting.items() if limit != getattr(settings, name)}
    if not lowered:
        return settings
    reason = "the process may not take enough memory (ulimit -v, or its container's limit)"
    observe("limits_lowered", reason=reason, **lowered)
    return replace(settings, **fitting)  # type: ignore[arg-type]
