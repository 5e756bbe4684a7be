"""`python -m horolog.bench.limits`: the upper limits of a broker of one process on this machine.

First, messages a second with sets of 64 KiB, in turns:

    a growing log of the broker
    a process that writes the same sets from a socket to a new file (`socket_to_file`)
    the same, with every set checked and numbered by the broker's own kernel: all that a log has
    to do
    a process with the broker's event loop that also decodes each request, notes its append time
    and answers it (`least.py`)

The client is one process beside them, as in `make bench`. Each rate is also printed as a share of
the second one. A broker cannot exceed the last one.

Then messages a second of logs at their retention limit, in turns with the last of these processes,
which begins, syncs and removes files as the broker does segments; and the broker's share.

Then single requests and fetches as in `make bench`, in turns with the same client and a process
that only answers (`least.py`, `files`). That process takes all requests of one read, writes them to
a file if the broker has to, and answers. Requests one at a time are a median in seconds; the others
are requests or bytes a second. The last column is the broker's share. The echo is the smallest
request, which stores nothing. Sets that are synced before they are answered, from 64 connections,
have a process of their own (`least.py`, `syncs`): it does the work that no broker can avoid, and
never begins or removes a file. The row below says how much of the disk's own loop (`disk.py`) both
reach.

A start stands beside a process that imports the libraries of the broker and listens
(`least_start.py`).

Then the same requests, beside processes with uvloop that do the least work for them (`least.py`):
this separates the cost of the loop, the cost that no broker can avoid, and the rest.

Then messages a second of the client library, beside clients that do only the necessary work
(`beside_least.py`).

`python -m horolog.bench.limits kafka` measures something else: Apache Kafka beside the broker and
least processes (`beside_least.py`).
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from statistics import median
from typing import Final

from ..testing.program import ServerProcess
from ..testing.requests import create_topic, produce
from . import beside_least
from .brokers import MIB, RETENTION_LIMIT, batch, broker, data_folder, echo_request, sets
from .disk import DURABLE, PRODUCERS, SETS_A_SYNC, produce_each, seconds_in_turns, sync_each
from .figure import check_known, median_ratio, quantile, times_in_turns
from .least import answering, looping, syncing
from .least_start import libraries
from .least_start import start_seconds as least_start_seconds
from .raw_client import RawClient, check_end, encoded
from .requests import LOG_BYTES, fetch_all, filled
from .socket_to_file import writing
from .starting import start_seconds

_IN_FLIGHT: Final = 8
_ROUNDS: Final = 3
_SLICES: Final = 8
_SLICE_BYTES: Final = 32 * MIB
_SET_BYTES: Final = 64 << 10
_SETS: Final = (
    ("v1 of 100 B", sets, 100),
    ("v1 of 1 KiB", sets, 1024),
    ("v2 of 100 B", batch, 100),
    ("v2 of 1 KiB", batch, 1024),
)
_RECEIVED: Final = 1
_KAFKA: Final = "kafka"
_TURNS: Final = 20
_TURNS_TO_LIMIT: Final = 3
_DURABLE_ROUNDS: Final = 5
_DURABLE_SECONDS: Final = 0.6
_STARTS: Final = 9


def main(names: Sequence[str] = ()) -> int:
    """Measure, and print the tables."""
    if not check_known(list(names), {_KAFKA: None}):
        return 2
    if names:
        return beside_least.main()
    columns = ("broker", "received", "and checked", "and answered")
    print(f"{'sets':<12}" + "".join(f"{column:>14}{'':>6}" for column in columns))
    for name, made, value_bytes in _SETS:
        found = [_rates(*made(value_bytes, _SET_BYTES)) for _ in range(_ROUNDS)]
        rates = [median(each) for each in zip(*found, strict=True)]
        shares = (median(one[n] / one[_RECEIVED] for one in found) for n in range(len(columns)))
        figures = (
            f"{rate:>14,.0f}{share:>6.2f}" for rate, share in zip(rates, shares, strict=True)
        )
        print(f"{name:<12}" + "".join(figures), flush=True)
    print(f"\n{'':<24}{'broker':>14}{'least':>14}{'share':>8}")
    measurements: list[Callable[[], Iterator[_Row]]] = [
        _rolled,
        _echoed,
        _one_at_a_time,
        _pipelined,
        _durable,
        _started,
        *(partial(_fetched, *one) for one in _FETCHES),
    ]
    for measured in measurements:
        for row in measured():
            _show(row)
    print()
    for line in beside_least.loop_lines():
        print(line, flush=True)
    print(f"\n{'':<24}{'client':>14}{'least':>14}{'share':>8}")
    for row in beside_least.client_rows():
        _show(row)
    return 0


def _show(row: "_Row") -> None:
    label, ours, least, share = row
    print(f"{label:<24}{ours:>14,.6g}{least:>14,.6g}{share:>8.2f}", flush=True)


def _rates(data: bytes, count: int) -> list[float]:
    """Messages a second of a new log and of the three files."""
    times = _SLICE_BYTES // len(data)
    with broker() as (server, client):
        client.call(create_topic("bench", retention_ms=-1))
        request = encoded(produce("bench", data, acks=1))
        folder = server.data_dir.parent
        with (
            writing(folder / "received", data, times) as send,
            writing(folder / "checked", data, times, checked=True) as send_checked,
            looping(folder, "appends") as (least, _),
        ):
            works: tuple[Callable[[], object], ...] = (
                partial(client.pipeline, request, 1, times, _IN_FLIGHT),
                partial(send, _IN_FLIGHT),
                partial(send_checked, _IN_FLIGHT),
                partial(least.pipeline, request, 1, times, _IN_FLIGHT),
            )
            seconds = seconds_in_turns(works, _SLICES)
        check_end(client, "bench", _SLICES * times * count)
    return [_SLICES * times * count / taken for taken in seconds]


_Row = tuple[str, float, float, float]
"""(name, figure of the broker, figure of the least process, the first divided by the second)"""


def _rolled() -> Iterator[_Row]:
    """Yield rows for sets into logs at their retention limit."""
    for name, made in (("produce_100B_64KiB", sets), ("produce_100B_64KiB_v2", batch)):
        data, count = made(100, _SET_BYTES)
        request = encoded(produce("bench", data, acks=1))
        times = 2 * RETENTION_LIMIT["segment_bytes"] // len(data)
        with broker() as (server, client), looping(server.data_dir.parent, "rolls") as (least, _):
            client.call(create_topic("bench", **RETENTION_LIMIT))
            works = [
                partial(one.pipeline, request, 1, times, _IN_FLIGHT) for one in (client, least)
            ]
            seconds_in_turns(works, _TURNS_TO_LIMIT)
            rounds = [seconds_in_turns(works, 1) for _ in range(_TURNS)]
            check_end(client, "bench", (_TURNS_TO_LIMIT + _TURNS) * times * count)
        ours, theirs = ([times * count / taken for taken in of] for of in zip(*rounds, strict=True))
        yield name, median(ours), median(theirs), median_ratio(ours, theirs)


def _echoed() -> Iterator[_Row]:
    """Yield the row of the smallest request."""
    with broker() as (server, client):
        yield _exchanged("echo_p50", server, client, echo_request(), written=False)


def _one_at_a_time() -> Iterator[_Row]:
    """Yield the row of a produce request of one message."""
    with broker() as (server, client):
        client.call(create_topic("bench"))
        request = encoded(produce("bench", sets(100, 1)[0], acks=1))
        yield _exchanged("produce_one", server, client, request, written=True)


def _exchanged(
    name: str, server: ServerProcess, client: RawClient, request: bytes, *, written: bool
) -> _Row:
    """Measure one request at a time, at the two brokers in turns."""
    answer = _frame(client.exchange(request))
    with answering(server.data_dir.parent, answer, len(answer), written=written) as least:
        works = [partial(one.exchange, request) for one in (client, least)]
        ours, theirs = times_in_turns(works, rounds=_TURNS, each=100)
    return name, ours, theirs, theirs / ours


def _pipelined() -> Iterator[_Row]:
    """Yield the row of produce requests of one message, many in flight."""
    with broker() as (server, client):
        client.call(create_topic("bench"))
        request = encoded(produce("bench", sets(100, 1)[0], acks=1))
        answer = _frame(client.exchange(request))
        with answering(server.data_dir.parent, answer, len(answer), written=True) as least:
            works = [partial(one.pipeline, request * 32, 32, 32, 2) for one in (client, least)]
            ours, theirs = times_in_turns(works, rounds=_TURNS, each=1)
    yield "produce_one_pipelined", 32 * 32 / ours, 32 * 32 / theirs, theirs / ours


def _durable() -> Iterator[_Row]:
    """Yield the rows of sets that are answered after a sync: their rate, and the slowest of a
    hundred."""
    data, _ = sets(100, 16 << 10)
    request = encoded(produce("bench", data, acks=DURABLE))
    rates: list[list[float]] = [[], [], []]
    slowest: list[list[float]] = [[], [], []]
    with broker() as (server, client), ExitStack() as stack:
        client.call(create_topic("bench", **RETENTION_LIMIT))
        ours = [stack.enter_context(closing(RawClient(server.native))) for _ in range(PRODUCERS)]
        least = stack.enter_context(syncing(server.data_dir.parent, PRODUCERS))
        path = server.data_dir.parent / "loop"
        file = stack.enter_context(path.open("xb", buffering=0))
        for _ in range(_DURABLE_ROUNDS):
            found = [produce_each(one, request, _DURABLE_SECONDS) for one in (ours, least)]
            found.append(sync_each(file.fileno(), data * SETS_A_SYNC, _DURABLE_SECONDS))
            for number, (times, taken) in enumerate(found):
                sets_each = SETS_A_SYNC if number == len(found) - 1 else 1
                rates[number].append(len(times) * sets_each / taken)
                slowest[number].append(quantile(times, 0.99))
    shares = median_ratio(rates[0], rates[1]), median_ratio(slowest[1], slowest[0])
    names = "durable_acks", "durable_acks_p99"
    for name, (mine, its, loops), share in zip(names, (rates, slowest), shares, strict=True):
        yield name, median(mine), median(its), share
        yield f"{name} / loop", median_ratio(mine, loops), median_ratio(its, loops), share


def _started() -> Iterator[_Row]:
    """Yield the row of a start on an empty directory, beside the imports of libraries alone."""
    names = libraries()
    ours: list[float] = []
    least: list[float] = []
    for _ in range(_STARTS):
        with data_folder() as data:
            ours.append(start_seconds(data))
        least.append(least_start_seconds(names))
    yield "start_empty", median(ours), median(least), median_ratio(least, ours)


_FETCHES: Final = (
    ("fetch_64KiB", 64 << 10, 1),
    ("fetch_1MiB", 1 << 20, 4),
    ("fetch_8MiB", 8 << 20, 4),
)


def _fetched(name: str, size_bytes: int, in_flight: int) -> Iterator[_Row]:
    """Yield the rows of fetches from places all over a log."""
    with broker() as (server, client):
        requests = filled(client, size_bytes, LOG_BYTES)
        answer = _frame(client.exchange(requests[0]))
        head_bytes = len(answer) - size_bytes
        bodies = LOG_BYTES // size_bytes
        with answering(server.data_dir.parent, answer, head_bytes, bodies=bodies) as least:
            works = [partial(fetch_all, one, requests, in_flight) for one in (client, least)]
            ours, theirs = times_in_turns(works, rounds=_TURNS, each=1)
    fetched_bytes = len(requests) * size_bytes
    yield name, fetched_bytes / ours, fetched_bytes / theirs, theirs / ours


def _frame(answer: memoryview) -> bytes:
    return len(answer).to_bytes(4, "big") + bytes(answer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
