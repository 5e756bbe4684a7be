"""The broker beside processes with its event loop that do the least (`loops.py`), in turns: how
much of a request is the loop, how much is what no broker can leave out, and how much is the rest.

Beside the times there is the processor time of each process for a request, which other work on the
machine changes least. For requests one at a time there is how many echoes of the same process they
take (`echoes`), and how many of the broker's they would take if the broker did for them, beyond its
echo, what the least process does beyond its own (`at least`): a goal below that is out of reach.

Requests one at a time are measured three times: where the system puts the processes, with all of
them on one processor, and with the client on another one than all that answer. Only one of the two
has anything to do at a time, so that on one processor nothing is lost but what is in the caches,
and no sleeping processor has to be woken, which on a virtual machine can take longer than the
request and differs from one hour to the next. Where the system puts them is one of these two ways,
by chance, and not the same for the broker and a least process in one run.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Final

from ...testing.program import ServerProcess
from ...testing.requests import create_topic, list_offsets, produce
from ..brokers import MIB, broker, echo_request, process_seconds, sets
from ..fetching import filled
from ..figure import times_in_turns
from ..raw_client import RawClient, encoded
from .loops import FETCHED_BYTES, looping

_ECHO: Final = "echo_p50"
_BROKER: Final = "broker"
_ROUNDS: Final = 20
_EACH: Final = 100
_PIPELINED_EACH: Final = 2
_BATCH: Final = 32
_BATCHES: Final = 32


@dataclass(slots=True)
class _Side:
    """A process that answers."""

    name: str
    request: str
    """What it is asked."""
    ask: Callable[[], object]
    pid: int
    requests: int = 1
    """In one `ask`."""
    seconds: list[float] = field(default_factory=list)
    """Of a request: the median of each round."""
    used: list[float] = field(default_factory=list)
    """Processor seconds of a request in each round."""

    def measure(self, each: int) -> None:
        before = process_seconds(self.pid)
        (seconds,) = times_in_turns([self.ask], rounds=1, each=each)
        self.used.append((process_seconds(self.pid) - before) / each / self.requests)
        self.seconds.append(seconds / self.requests)


def lines() -> Iterator[str]:
    """Three tables, line by line; one where the system cannot bind a process to a processor, two
    where there is only one."""
    yield from _table("of", pipelined=True)
    if not hasattr(os, "sched_setaffinity"):
        return
    here, *others = sorted(os.sched_getaffinity(0))
    with _on(here):
        yield ""
        yield from _table("on one processor", pipelined=False)
    if others:
        with _on(others[0]):
            yield ""
            yield from _table("on one each", pipelined=False, client_at=here)


@contextmanager
def _on(processor: int) -> Iterator[None]:
    """This process and those it starts run on this processor only."""
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {processor})
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_of_them)


def _table(title: str, *, pipelined: bool, client_at: int | None = None) -> Iterator[str]:
    """`client_at` is the processor of the client, if it is another one than that of the others."""
    yield f"{'':<24}{title:<16}{'us':>9}{'echoes':>9}{'at least':>10}{'cpu us':>9}"
    with broker() as (server, client), ExitStack() as stack:
        sides = [one for one in _sides(server, client, stack) if pipelined or one.requests == 1]
        if client_at is not None:
            os.sched_setaffinity(0, {client_at})
        for _ in range(_ROUNDS):
            for side in sides:
                side.measure(_EACH if side.requests == 1 else _PIPELINED_EACH)
    ours, least = (median(one.seconds) for one in sides if one.request == _ECHO)
    for side in sides:
        seconds, used = median(side.seconds), median(side.used)
        echoes = at_least = ""
        if side.requests == 1:
            is_ours = side.name == _BROKER
            echoes = f"{seconds / (ours if is_ours else least):.2f}"
            at_least = "" if is_ours else f"{(ours + seconds - least) / ours:.2f}"
        times = f"{seconds * 1e6:>9.1f}{echoes:>9}{at_least:>10}{used * 1e6:>9.1f}"
        yield f"{side.request:<24}{side.name:<16}{times}"


def _sides(server: ServerProcess, client: RawClient, stack: ExitStack) -> Iterator[_Side]:
    (fetched, *_) = filled(client, FETCHED_BYTES, 32 * MIB)
    client.call(create_topic("one"))
    requests = {
        _ECHO: echo_request(),
        "produce_one": encoded(produce("one", sets(100, 1)[0], acks=1)),
        "find_time_1": encoded(list_offsets("bench", (0, 0))),
        "fetch_64KiB": fetched,
    }
    answers = {name: bytes(client.exchange(request)) for name, request in requests.items()}
    answers["fetch_64KiB"] = answers["fetch_64KiB"][:-FETCHED_BYTES]
    folder = server.data_dir.parent
    for name, leasts in LEAST.items():
        request, answer = requests[name], answers[name]
        yield _Side(_BROKER, name, partial(client.exchange, request), server.process.pid)
        for does in leasts:
            length = len(answer) + (FETCHED_BYTES if does == "fetches" else 0)
            head = length.to_bytes(4, "big") + answer
            least, pid = stack.enter_context(looping(folder, does, head))
            yield _Side(f"loop {does}", name, partial(least.exchange, request), pid)
            if does == "appends":
                pipelined = least, pid
    one, many = requests["produce_one"] * _BATCH, _BATCH * _BATCHES
    for name, asked, pid in ((_BROKER, client, server.process.pid), ("loop appends", *pipelined)):
        ask = partial(asked.pipeline, one, _BATCH, _BATCHES, 2)
        yield _Side(name, "produce_one_pipelined", ask, pid, many)


LEAST: Final = {
    _ECHO: ("answers",),
    "produce_one": ("writes", "appends"),
    "find_time_1": ("reads",),
    "fetch_64KiB": ("fetches",),
}
"""What the least processes do for a request."""
