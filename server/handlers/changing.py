"""Answers of requests that change topics: a result for each topic, made when all is done."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

from ...storage.directory.topics import TopicEntry
from ...storage.stepped_change import Steps
from ..metadata_store import TopicChange
from ..requests import PendingAnswer
from .base import Services

CHANGES_AT_ONCE: Final = 100
"""Changes of one request that are asked for, and answered, without a break."""


class Result(Protocol):
    """What a response says of one change."""

    error_code: int
    error_message: str | None


R = TypeVar("R", bound=Result)

Asked = tuple[str, R, Steps[TopicEntry]]
"""A topic, the result that says that all went well, and what is to be done."""


def answer_later(
    services: Services, api: str, asked: Iterable[Asked[R]], make: Callable[[list[R]], Any]
) -> PendingAnswer:
    """The answer of a request of `api`: what `make` gives for the results of all it asks for."""
    several = iter(asked)
    first = list(islice(several, CHANGES_AT_ONCE))
    changes, done = services.metadata.make((topic, steps) for topic, _, steps in first)
    if len(first) < CHANGES_AT_ONCE:

        def answer() -> Any:
            done.result()
            return make(_results(services, api, first, changes))

        # A client that goes away leaves no change half done: the next one would be made upon it.
        return PendingAnswer(asyncio.shield(done), answer)

    async def answer_all() -> Any:
        await asyncio.shield(done)
        results = _results(services, api, first, changes)
        await _make_others(services, api, several, results)
        return make(results)

    # Others of its connection would come between the changes.
    task = services.work.start(answer_all())
    return PendingAnswer(task, task.result, alone=True)


async def _make_others(
    services: Services, api: str, asked: Iterator[Asked[R]], results: list[R]
) -> None:
    """Have what is left changed, some of it at a time, and add the results."""
    turns = services.work.turns()
    while some := list(islice(asked, CHANGES_AT_ONCE)):
        changes, done = services.metadata.make((topic, steps) for topic, _, steps in some)
        await asyncio.shield(done)
        results += _results(services, api, some, changes)
        await turns.give_way()


def _results(
    services: Services, api: str, asked: Sequence[Asked[R]], changes: Sequence[TopicChange]
) -> list[R]:
    results = [result for _, result, _ in asked]
    for result, change in zip(results, changes, strict=True):
        try:
            change.result()
        except Exception as error:
            result.error_code, result.error_message = services.outcomes.of(error, api=api)
            # The change keeps the error. With its frames, which have the change, only the garbage
            # collector would find both.
            error.__traceback__ = None
    return results
