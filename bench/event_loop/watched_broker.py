"""A broker that measures its turns:
`python -m horolog.bench.event_loop.watched_broker [NAME=VALUE...]`.

It has these settings. For each line on standard input it prints the longest turn
since the line before, as the two numbers of a `Turn` in JSON.
"""

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen

from ...config.loading import load
from ...server.main import serve
from ...server.network.ports import Addresses
from ...testing.program import READY
from ..brokers import kernel_choice
from .watch import Turn, TurnWatch


class WatchedBroker:
    """Such a broker in a process of its own."""

    def __init__(self, process: "Popen[str]", native: str, kafka: str, http: str) -> None:
        self._process = process
        self.native = native
        self.kafka = kafka
        self.http = http

    def take(self) -> Turn:
        """The longest turn since this was called last."""
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
    """One on free ports, until the end of the block. Its log is beside its data."""
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
