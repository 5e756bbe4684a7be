"""`python -m horolog.bench.limits`: what no broker of one process can exceed on this machine.

Sets of 64 KiB with 100-byte messages, in turns: a growing log of the broker; a process that gets
the same sets from a socket and writes them to a new file; and one that also checks and numbers them
with the broker's own kernel, which is all that a log has to do. The client is one process beside
them, as in `make bench`. Messages a second; the last column is the broker's share of the third.
"""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Final

from ..testing.requests import create_topic, produce
from .brokers import MIB, batch, broker, sets
from .growing import seconds_in_turns
from .raw_client import check_end, encoded
from .socket_to_file import writing

_IN_FLIGHT: Final = 8
_ROUNDS: Final = 3
_SLICES: Final = 8
_SLICE_BYTES: Final = 32 * MIB
_SET_BYTES: Final = 64 << 10


def main() -> None:
    """Measure, and print a table."""
    print(f"{'sets':<4}{'broker':>14}{'received':>14}{'and checked':>14}{'share':>8}")
    for name, (data, count) in (("v1", sets(100, _SET_BYTES)), ("v2", batch(100, _SET_BYTES))):
        found = [_rates(data, count) for _ in range(_ROUNDS)]
        grown, received, checked = map(median, zip(*found, strict=True))
        figures = f"{grown:>14,.0f}{received:>14,.0f}{checked:>14,.0f}{grown / checked:>8.2f}"
        print(f"{name:<4}{figures}", flush=True)


def _rates(data: bytes, count: int) -> tuple[float, float, float]:
    """Messages a second of a new log and of the two files."""
    times = _SLICE_BYTES // len(data)
    with broker() as (server, client):
        client.call(create_topic("bench", retention_ms=-1))
        request = encoded(produce("bench", data, acks=1))
        folder = server.data_dir.parent
        with (
            writing(folder / "received", data, times) as send,
            writing(folder / "checked", data, times, checked=True) as send_checked,
        ):
            works: tuple[Callable[[], object], ...] = (
                partial(client.pipeline, request, 1, times, _IN_FLIGHT),
                partial(send, _IN_FLIGHT),
                partial(send_checked, _IN_FLIGHT),
            )
            seconds = seconds_in_turns(works, _SLICES)
        check_end(client, "bench", _SLICES * times * count)
    messages = _SLICES * times * count
    grown, received, checked = (messages / taken for taken in seconds)
    return grown, received, checked


if __name__ == "__main__":
    main()
