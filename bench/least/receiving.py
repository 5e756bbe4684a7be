"""Receiving frames on the event loop of the broker, with one buffer for a connection."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, cast

BUFFER_BYTES: Final = 1 << 20
"""A frame has to fit."""

_MOVED_BYTES: Final = 128 << 10
_LENGTH_BYTES: Final = 4


class Receiving(asyncio.BufferedProtocol):
    """A connection that gives `handle` all that came with one read, as bytes and as frames in them;
    both are good until it returns. `over` is set when the connection ends."""

    transport: asyncio.Transport

    def __init__(
        self,
        handle: Callable[["Receiving", memoryview, Sequence[memoryview]], None],
        over: asyncio.Event,
    ) -> None:
        self._handle = handle
        self._over = over
        self._view = memoryview(bytearray(BUFFER_BYTES))
        self._end = 0
        self._wanted_end = BUFFER_BYTES
        """Behind a large frame nothing is received before it is done: that would be moved."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._over.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._end : self._wanted_end]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        view, end = self._view, self._end
        frames: list[memoryview] = []
        begin = 0
        while (behind := begin + _LENGTH_BYTES) <= end:
            behind += int.from_bytes(view[begin:behind], "big")
            if behind > end:
                break
            frames.append(view[begin + _LENGTH_BYTES : behind])
            begin = behind
        if frames:
            self._handle(self, view[:begin], frames)
        view[: end - begin] = bytes(view[begin:end])
        self._end = end - begin
        large = behind - begin > _MOVED_BYTES
        self._wanted_end = behind - begin if large else BUFFER_BYTES
