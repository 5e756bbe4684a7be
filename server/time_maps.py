"""Time maps that have to be made before a window is looked through, each by one thread."""

import asyncio

from ..storage.log.log import Log
from ..storage.read import windows
from ..storage.segment.segment import Segment
from .work import Work


class TimeMaps:
    """Makes time maps in threads, each once however many requests wait for it."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._under_way: dict[Segment, asyncio.Task[None]] = {}

    async def make(self, log: Log, segment: Segment) -> None:
        """Make what is missing of a segment's map. Raises what damage raises that is met, and what
        keeps it from being made."""
        making = self._under_way.get(segment)
        if making is None:
            making = self._work.start(self._make(log, segment))
            self._under_way[segment] = making
            making.add_done_callback(lambda _: self._under_way.pop(segment))
        await asyncio.shield(making)

    async def _make(self, log: Log, segment: Segment) -> None:
        mapping, cuts = windows.mapping(log, segment), segment.cuts
        await self._work.in_storage_thread(mapping.run)
        windows.apply_mapping(log, segment, mapping, cuts)
