"""A way to a server that can be shut: what is sent then waits, and nobody is told."""

import asyncio
import threading
from types import TracebackType
from typing import Self

from horolog.config.address import split_address


class Gate:
    """Passes connections on, in a thread with a loop of its own, while it is open."""

    def __init__(self, server: str) -> None:
        self._server = split_address(server)
        self._writers: set[asyncio.StreamWriter] = set()
        self._passing: set[asyncio.Task[None]] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        self._ready.wait(10)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._open, self._end = asyncio.Event(), asyncio.Event()
        self._open.set()
        listening = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self.address = "{}:{}".format(*listening.sockets[0].getsockname()[:2])
        self._ready.set()
        await self._end.wait()
        listening.close()
        self._open.set()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.gather(*self._passing, return_exceptions=True)

    def shut(self) -> None:
        """Let nothing pass, in neither direction."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def open(self) -> None:
        """Let pass what waits, and all else."""
        self._loop.call_soon_threadsafe(self._open.set)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)
        self._writers.add(writer)
        try:
            await self._open.wait()
            if self._end.is_set():
                return
            there = await asyncio.open_connection(*self._server)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(there[1])
        if self._end.is_set():
            there[1].transport.abort()
        await asyncio.gather(self._pump(reader, there[1]), self._pump(there[0], writer))
        self._writers -= {writer, there[1]}

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(1 << 16):
                await self._open.wait()
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
