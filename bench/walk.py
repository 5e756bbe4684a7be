"""Counts the functions that one request passes through: `python -m horolog.bench.walk [--list]
[REQUEST...]`.

It counts the Python functions that the broker's event loop thread enters for the third request of a
kind on a connection, as `sys.setprofile` reports them. Counting begins with the callback that
provides a receive buffer. It ends when the client has the answer and the loop is idle, so it
includes work after the answer. The broker has default settings, the system's clock and real files,
and runs in this process. The client runs in another thread, which is not counted.

    functions         different functions. Properties, lambdas, comprehensions, generators, and the
                      methods that `dataclass` and `namedtuple` generate are functions too
    calls             how often they were entered; a generator that goes on is entered again
    files             different files of these functions; generated methods are in one, `<string>`
    changes of file   calls of a function in another file than the call before; a return is no
                      change

Functions of the standard library count like others. Functions in C or compiled from Cython do not
count: no built-in function, nothing of uvloop or of the compiled kernel. Each request is sent to
three new brokers, and the walk with the fewest calls is printed, because a timer of the broker can
add calls.

`--list` prints the functions in the order of their first call, with the number of calls.
"""

import asyncio
import sys
import threading
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from types import CodeType, FrameType
from typing import Any, Final

import uvloop

from ..protocol.api.encodings import Encoding
from ..protocol.api.kafka import frames as kafka
from ..protocol.api.native import frames as native
from ..protocol.records.batch import NewRecord, build_batch
from ..protocol.records.kernel import FORM
from ..protocol.records.messages.sets import build_set
from ..server.network.ports import Addresses
from ..testing.broker import running_broker
from ..testing.requests import create_topic, fetch, list_offsets, produce, result
from .brokers import data_folder
from .raw_client import RawClient, RefusedRequest, api_of, decoded, encoded, newest

_BROKERS: Final = 3
_REQUESTS: Final = 3
_DEADLINE_SECONDS: Final = 30
_TOPIC: Final = "bench"
_ROOT: Final = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class RequestKind:
    """A kind of request."""

    encoding: Encoding
    request: Callable[[int, int], object]
    """Makes a request from the time in ms of the topic's first message, and the number of earlier
    requests."""
    offset: Callable[[Any], int]
    """Returns the first offset in an answer. It equals the number of earlier requests."""
    reads: bool = False
    """Whether the messages have to be stored before."""


def _produced(
    build: Callable[[list[NewRecord]], bytes | bytearray],
) -> Callable[[int, int], object]:
    def request(first_ms: int, number: int) -> object:
        record = NewRecord(b"v" * 100, timestamp_ms=first_ms + number)
        return produce(_TOPIC, bytes(build([record])))

    return request


KINDS: Final = {
    "native-produce": RequestKind(native, _produced(build_set), lambda answer: answer.base_offset),
    "native-fetch": RequestKind(
        native,
        lambda first_ms, number: fetch(_TOPIC, (0, number)),
        lambda answer: int.from_bytes(answer.records[:8], "big"),
        reads=True,
    ),
    "native-list-offsets": RequestKind(
        native,
        lambda first_ms, number: list_offsets(_TOPIC, (0, first_ms + number)),
        lambda answer: answer.offset,
        reads=True,
    ),
    "kafka-produce": RequestKind(kafka, _produced(build_batch), lambda answer: answer.base_offset),
}
"""Produce requests of one message of 100 bytes: a v1 set over the native port, a record batch over
Kafka's port. Fetches that begin at one message. Searches for the time of one message."""


@dataclass(frozen=True, slots=True)
class FunctionWalk:
    """The functions that were entered, in order."""

    entered: Sequence[CodeType]

    @property
    def functions(self) -> list[tuple[CodeType, int]]:
        """Each function once, in the order of the first call, with the number of calls."""
        # Code that reads the same is equal, also where it is of two functions.
        times = Counter(map(id, self.entered))
        by_id = {id(code): code for code in self.entered}
        return [(code, times[number]) for number, code in by_id.items()]

    @property
    def files(self) -> set[str]:
        return {code.co_filename for code in self.entered}

    @property
    def changes_of_file(self) -> int:
        return sum(one.co_filename != other.co_filename for one, other in pairwise(self.entered))


def main(arguments: list[str]) -> int:
    parser = ArgumentParser(prog="python -m horolog.bench.walk")
    parser.add_argument("--list", action="store_true", help="name the functions, in order")
    parser.add_argument("request", nargs="*", help=f"of {', '.join(KINDS)}; all when none is given")
    asked = parser.parse_args(arguments)
    if unknown := [name for name in asked.request if name not in KINDS]:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    walks = {name: walk(KINDS[name]) for name in asked.request or KINDS}
    print(f"{FORM:<22} {'functions':>10} {'calls':>6} {'files':>6} {'changes of file':>16}")
    for name, found in walks.items():
        print(
            f"{name:<22} {len(found.functions):>10} {len(found.entered):>6} {len(found.files):>6}"
            f" {found.changes_of_file:>16}"
        )
    if asked.list:
        for name, found in walks.items():
            print(f"\n{name}")
            for code, times in found.functions:
                print(f"  {times:>3}  {_file(code):<44} {code.co_qualname}")
    return 0


def _file(code: CodeType) -> str:
    """Return a path relative to the package, or the name of a file of the standard library."""
    path = Path(code.co_filename)
    if path.is_absolute() and path.resolve().is_relative_to(_ROOT):
        return str(path.resolve().relative_to(_ROOT))
    return path.name


def walk(kind: RequestKind, brokers: int = _BROKERS) -> FunctionWalk:
    """Return the walk of a request at the broker where it took the fewest calls."""
    return min((_walk(kind) for _ in range(brokers)), key=lambda found: len(found.entered))


def _walk(kind: RequestKind) -> FunctionWalk:
    first_ms = int(time.time() * 1000)
    with _running() as broker:
        with closing(RawClient(broker.addresses.native)) as client:
            client.call(create_topic(_TOPIC))
            if kind.reads:
                for number in range(_REQUESTS):
                    client.call(KINDS["native-produce"].request(first_ms, number))
        port = broker.addresses.kafka if kind.encoding is kafka else broker.addresses.native
        assert port is not None
        with closing(RawClient(port, kind.encoding)) as client:
            *before, last = (kind.request(first_ms, number) for number in range(_REQUESTS))
            for request in before:
                client.call(request)
            api, version = api_of(last), newest(api_of(last), kind.encoding)
            frame = encoded(last, version, kind.encoding)
            with broker.watched() as entered:
                answer = bytes(client.exchange(frame))
        found = kind.offset(result(decoded(api, version, answer, kind.encoding)))
        if found != len(before):
            raise RefusedRequest(f"the answer names offset {found}, not {len(before)}")
        return FunctionWalk(entered)


@dataclass(frozen=True, slots=True)
class _ThreadBroker:
    """A broker in another thread."""

    addresses: Addresses
    loop: asyncio.AbstractEventLoop

    @contextmanager
    def watched(self) -> Iterator[list[CodeType]]:
        """Yield the functions that the broker's thread enters in the block. The list is complete at
        its end."""
        entered: list[CodeType] = []

        def note(frame: FrameType, event: str, argument: object) -> None:
            if event == "call":
                entered.append(frame.f_code)

        self._run(sys.setprofile, note)
        yield entered
        self._run(sys.setprofile, None)

    def _run(self, function: Callable[..., object], argument: object) -> None:
        """Have the loop call a function, and wait until it has. Both calls are in C, and not
        counted."""
        done: SimpleQueue[None] = SimpleQueue()
        self.loop.call_soon_threadsafe(function, argument)
        self.loop.call_soon_threadsafe(done.put, None)
        done.get(timeout=_DEADLINE_SECONDS)


@contextmanager
def _running() -> Iterator[_ThreadBroker]:
    """A broker in another thread, on an empty directory."""
    started: Future[_ThreadBroker] = Future()
    stop = asyncio.Event()

    async def serve(path: Path) -> None:
        async with running_broker(path, kafka_listen="127.0.0.1:0") as broker:
            started.set_result(_ThreadBroker(broker.addresses, asyncio.get_running_loop()))
            await stop.wait()

    def run(path: Path) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve(path))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    with data_folder() as path:
        thread = threading.Thread(target=run, args=(path,))
        thread.start()
        try:
            broker = started.result(_DEADLINE_SECONDS)
            try:
                yield broker
            finally:
                broker.loop.call_soon_threadsafe(stop.set)
        finally:
            thread.join(_DEADLINE_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
