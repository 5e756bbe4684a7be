"""A broker that measures its turns: `python -m horolog.bench.watched_broker
[NAME=VALUE...]`.

The arguments are its settings. For each line on standard input it prints the longest turn since the
line before, as the two numbers of a `Turn` in JSON.

A timer of the loop fires every millisecond. The processor time of the loop's thread between two
ticks is the length of a turn: nothing else was served meanwhile. Other load on the machine does not
change it, as it would change seconds of the wall clock.

The processor time of the whole process is measured too. It is more than the turn if a thread holds
Python's lock, or if threads work beside the loop.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Final, NamedTuple

from ..config.broker import load
from ..server.main import serve
from ..server.network.ports import Addresses
from ..testing.program import READY
from .brokers import kernel_choice

TICK_SECONDS: Final = 0.001
Clock = Callable[[], float]
CallLater = Callable[[float, Callable[[], None]], object]


class Turn(NamedTuple):
    """Processor time between two ticks of a loop."""

    loop_seconds: float
    """Processor time of the loop's thread."""
    process_seconds: float
    """Processor time of all threads of the process."""


class TurnWatch:
    """A tick every millisecond, from `start` on. All methods are called in the loop's thread."""

    def __init__(
        self,
        call_later: CallLater,
        *,
        thread_seconds: Clock = time.thread_time,
        process_seconds: Clock = time.process_time,
    ) -> None:
        self._call_later = call_later
        self._clocks = thread_seconds, process_seconds
        self._last = Turn(0.0, 0.0)
        self._longest = Turn(0.0, 0.0)

    def start(self) -> None:
        self._last = self._now()
        self._call_later(TICK_SECONDS, self._tick)

    def take(self) -> Turn:
        """Return the longest turn since the last call, the present turn included."""
        self._note()
        longest, self._longest = self._longest, Turn(0.0, 0.0)
        return longest

    def _tick(self) -> None:
        self._note()
        self._call_later(TICK_SECONDS, self._tick)

    def _note(self) -> None:
        now = self._now()
        passed = (now[0] - self._last[0], now[1] - self._last[1])
        self._longest = Turn(*map(max, self._longest, passed))
        self._last = now

    def _now(self) -> Turn:
        thread_seconds, process_seconds = self._clocks
        return Turn(thread_seconds(), process_seconds())


class WatchedBroker:
    """A client of such a broker, which runs in its own process."""

    def __init__(self, process: "Popen[str]", native: str, kafka: str, http: str) -> None:
        self._process = process
        self.native = native
        self.kafka = kafka
        self.http = http

    def take(self) -> Turn:
        """Return the longest turn since the last call."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the broker has ended with code {self._process.wait()}")
        return Turn(*json.loads(line))


@contextmanager
def watched_broker(data: Path, *settings: str) -> Iterator[WatchedBroker]:
    """Start one on free ports, until the end of the block. Its log is beside its data."""
    places = [f"{name}=127.0.0.1:0" for name in ("listen", "http.listen", "kafka.listen")]
    command = [sys.executable, "-m", __name__, f"data.dir={data}", *places, *settings]
    env = {name: text for name, text in os.environ.items() if not name.startswith("HOROLOG_")}
    log = data.parent / f"{data.name}.log"
    with (
        log.open("a") as stderr,
        Popen(
            command, stdin=PIPE, stdout=PIPE, stderr=stderr, text=True, env=env | kernel_choice()
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            ready = READY.fullmatch(line)
            if ready is None:
                raise RuntimeError(f"{line!r} is not a ready line; {log.read_text()[-2000:]}")
            yield WatchedBroker(process, ready["native"], ready["kafka"], ready["http"])
            process.terminate()
            process.wait()
        finally:
            process.kill()


def main(arguments: Sequence[str]) -> int:
    return serve(load(None, {}, arguments), _watching)


async def _watching(_: Addresses) -> None:
    loop = asyncio.get_running_loop()
    watch = TurnWatch(loop.call_later)
    watch.start()
    asked = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(asked), sys.stdin)
    while await asked.readline():
        print(json.dumps(watch.take()), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
