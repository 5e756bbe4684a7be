"""Conversion of stored messages for old readers, without delaying other requests.

Few requests are converted at a time, so that their memory is bounded however many old readers there
are. Each conversion runs in turns, and compresses and decompresses in a thread.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ..protocol.errors import CodedError
from ..protocol.records.layout import Buffer
from ..protocol.records.messages.downconversion import Call, Downconverted, downconversion
from ..values import value_class
from .work import Work

CONCURRENT = 2
"""Requests at a time: two, so that a small one need not wait for a large one."""


@value_class
class Limits:
    """The limits of one conversion's result; see `downconversion`."""

    max_bytes: int
    max_content_bytes: int


class Conversions:
    """Converts messages to older formats, for one broker."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._places = asyncio.Semaphore(CONCURRENT)
        self.under_way = 0
        """Number of requests that convert messages now."""

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place. Read the messages to convert only after that."""
        async with self._places:
            self.under_way += 1
            try:
                yield
            finally:
                self.under_way -= 1

    async def downconvert(
        self, data: Buffer, limits: Limits, magic: int, from_offset: int
    ) -> tuple[Downconverted, float]:
        """Convert a slice for a reader that wants messages from `from_offset` on and knows formats
        up to `magic`. Returns the result, and the seconds of work that it took.

        To be called in a `place`. Raises the errors of `downconversion`.
        """
        clock = self._work.time
        turns = self._work.turns()
        seconds = 0.0
        began = clock()
        steps = downconversion(
            data,
            max_bytes=limits.max_bytes,
            max_content_bytes=limits.max_content_bytes,
            magic=magic,
            from_offset=from_offset,
        )
        try:
            call = next(steps)
            while True:
                seconds += clock() - began
                made: Buffer | None = None
                error: CodedError | None = None
                if call is None:
                    await turns.give_way()
                else:
                    try:
                        made, took = await self._work.in_conversion_thread(_timed(call, clock))
                        seconds += took
                    except CodedError as raised:
                        error = raised
                began = clock()
                call = steps.send(made) if error is None else steps.throw(error)
        except StopIteration as stop:
            return stop.value, seconds + clock() - began


def _timed(call: Call, clock: Callable[[], float]) -> Callable[[], tuple[Buffer, float]]:
    def timed() -> tuple[Buffer, float]:
        began = clock()
        return call(), clock() - began

    return timed
