"""`python -m horolog.bench.limits`: what no broker of one process can exceed on this machine.

Sets of 64 KiB, in turns: a growing log of the broker; a process that gets the same sets from a
socket and writes them to a new file (`socket_to_file`); one that also checks and numbers them with
the broker's own kernel, which is all that a log has to do; and one with the broker's event loop
that besides decodes each request, notes its append time and answers it (`least.py`). The
client is one process beside them, as in `make bench`. Messages a second, and their share of the
second column: what the last one does not reach is out of reach for a broker.

Then sets for logs at their retention limit, in turns with the last of these processes, which
begins, syncs and removes files as the broker does segments: messages a second, and the broker's
share.

Then single requests and fetches, as `make bench` measures them, in turns with the same client and a
process that gives each request its answer and does nothing else (`least.py`, `files`): it takes all
that came at once, writes it to a file where the broker has to, and answers. The median of one
request at a time in seconds, else requests or bytes a second; the last column is how much of that
the broker reaches. The echo is the smallest request, of which nothing is kept. Sets that are synced
before they are answered, from 64 connections, have a process of their own (`least.py`, `syncs`),
which does what no broker can leave out, begins no segment and removes none; how much of the disk's
own loop (`disk.py`) both reach is in the row below.

A start stands beside a process that imports the libraries of the broker and listens
(`least_start.py`).

Then the same requests beside processes with the event loop of the broker, uvloop, that do the least
for them (`least.py`): this separates the loop, what cannot be left out, and the rest.

Then the client library beside clients that do only what cannot be left out (`beside_least.py`):
messages a second.

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
from .producing import LOG_BYTES, fetch_all, filled
from .raw_client import RawClient, check_end, encoded
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
"""A name, the broker's figure, that of the least process, and the first as a share of it."""


def _rolled() -> Iterator[_Row]:
    """Sets for logs at their retention limit."""
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
    """The smallest request."""
    with broker() as (server, client):
        yield _exchanged("echo_p50", server, client, echo_request(), written=False)


def _one_at_a_time() -> Iterator[_Row]:
    """A produce request of one message."""
    with broker() as (server, client):
        client.call(create_topic("bench"))
        request = encoded(produce("bench", sets(100, 1)[0], acks=1))
        yield _exchanged("produce_one", server, client, request, written=True)


def _exchanged(
    name: str, server: ServerProcess, client: RawClient, request: bytes, *, written: bool
) -> _Row:
    """One request at a time, with both in turns."""
    answer = _frame(client.exchange(request))
    with answering(server.data_dir.parent, answer, len(answer), written=written) as least:
        works = [partial(one.exchange, request) for one in (client, least)]
        ours, theirs = times_in_turns(works, rounds=_TURNS, each=100)
    return name, ours, theirs, theirs / ours


def _pipelined() -> Iterator[_Row]:
    """Produce requests of one message, many in flight."""
    with broker() as (server, client):
        client.call(create_topic("bench"))
        request = encoded(produce("bench", sets(100, 1)[0], acks=1))
        answer = _frame(client.exchange(request))
        with answering(server.data_dir.parent, answer, len(answer), written=True) as least:
            works = [partial(one.pipeline, request * 32, 32, 32, 2) for one in (client, least)]
            ours, theirs = times_in_turns(works, rounds=_TURNS, each=1)
    yield "produce_one_pipelined", 32 * 32 / ours, 32 * 32 / theirs, theirs / ours


def _durable() -> Iterator[_Row]:
    """Sets that are answered after a sync, and the slowest of a hundred of them."""
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
    """A start on an empty directory, and the imports of libraries alone."""
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
    """Fetches from places all over a log."""
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
