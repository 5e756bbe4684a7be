"""Searches in logs, in turns with the requests."""

from typing import TypeVar

from ..storage.read.search import Search
from .work import Turns, Work

T = TypeVar("T")


async def searched(work: Work, turns: Turns, search: Search[T]) -> T:
    """What a search finds. Large sets are opened in a thread. Raises what its steps raise."""
    while not search.step():
        if search.opens:
            await work.in_conversion_thread(search.open)
        await turns.give_way()
    return search.result
