"""Making the time maps that a search of a window needs, each in one thread."""

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
        """Make the missing part of a segment's time map. Raises the errors of damaged messages, and
        of the disk."""
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
