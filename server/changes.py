"""Changes of topics asked for by clients: one after another, and the disk's part in a thread."""

import asyncio
from functools import partial

from ..storage.log_directory import LogDirectory
from ..storage.steps import Steps
from ..storage.topics import TopicEntry
from .work import Work


class Changes:
    """Carries out changes of the topics of `directory`, in the order in which they are asked for.

    A change that was made at once meanwhile, because a producer needs the topic now, has finished
    the one that is under way here.
    """

    def __init__(self, directory: LogDirectory, work: Work) -> None:
        self._changes = directory.changes
        self._work = work
        self._turn = asyncio.Lock()

    async def make(self, steps: Steps[TopicEntry]) -> TopicEntry:
        """Returns, or raises, what `steps` does. Its checks are made when its turn has come."""
        async with self._turn:
            change = self._changes.begin(steps)
            while not change.done:
                step = change.step
                await self._work.in_topics_thread(partial(change.run, step))
                change.advance(step)
            return change.result()
