"""Changes of topics asked for by clients: one after another, and the disk's part in a thread."""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial

from ..storage.directory.log_directory import LogDirectory
from ..storage.directory.topics import TopicEntry
from ..storage.stepped_change import SteppedChange, Steps
from .work import Work

TopicChange = SteppedChange[TopicEntry]


class Changes:
    """Carries out changes of the topics of `directory`, in the order in which they are asked for.

    Who cannot wait for a change, as a producer to a partition that is about to be made, has it and
    all before it finished at once (`TopicChanges.settle`).
    """

    def __init__(self, directory: LogDirectory, work: Work) -> None:
        self._changes = directory.changes
        self._work = work
        self._turn = asyncio.Lock()

    def make(
        self, asked: Iterable[tuple[str, Steps[TopicEntry]]]
    ) -> tuple[Sequence[TopicChange], asyncio.Task[None]]:
        """The changes of topics that `asked` names, and what is done when they are."""
        changes = [self._changes.ask(topic, steps) for topic, steps in asked]
        return changes, self._work.start(self._carry_out(changes))

    async def _carry_out(self, changes: Sequence[TopicChange]) -> None:
        # Tasks begin, and get the lock, in the order in which their changes were asked for.
        async with self._turn:
            turns = self._work.turns()
            for change in changes:
                change.begin()
                while not change.done:
                    step = change.step
                    await self._work.in_topics_thread(partial(change.run, step))
                    change.advance(step)
                await turns.give_way()
