"""Conversion of stored messages for old readers, without holding up the others.

Few conversions run at a time, so that what they hold in memory is bounded however many old readers
there are. Each runs in turns of the loop, and compresses and decompresses in a thread.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ..protocol.errors import HorologError
from ..protocol.records.downconversion import Call, Downconverted, downconversion
from ..protocol.records.layout import Buffer
from .work import Turns, Work

CONCURRENT = 2
"""Two, so that a small conversion need not wait for a large one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the result of one conversion may be; see `downconversion`."""

    max_bytes: int
    max_content_bytes: int


class Conversions:
    """Makes format v0 of slices, for one broker."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._places = asyncio.Semaphore(CONCURRENT)
        self.under_way = 0
        """Conversions that have begun and are not done."""

    async def downconvert(self, data: Buffer, limits: Limits) -> tuple[Downconverted, float]:
        """The slice as a reader of format v0 gets it, and the seconds of work that this took.

        Raises what `downconversion` raises.
        """
        async with self._places:
            self.under_way += 1
            try:
                return await self._convert(data, limits)
            finally:
                self.under_way -= 1

    async def _convert(self, data: Buffer, limits: Limits) -> tuple[Downconverted, float]:
        clock = self._work.time
        turns = Turns(clock)
        seconds = 0.0
        began = clock()
        steps = downconversion(
            data, max_bytes=limits.max_bytes, max_content_bytes=limits.max_content_bytes
        )
        try:
            call = next(steps)
            while True:
                seconds += clock() - began
                made: Buffer | None = None
                error: HorologError | None = None
                if call is None:
                    await turns.give_way()
                else:
                    try:
                        made, took = await self._work.in_conversion_thread(_timed(call, clock))
                        seconds += took
                    except HorologError as raised:
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
