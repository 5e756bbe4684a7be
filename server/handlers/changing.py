"""Answers of requests that change topics: one result a topic, sent when all changes are done."""

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
"""Changes of one request that are begun, and answered, without a break."""


class Result(Protocol):
    """The result of one change, in a response."""

    error_code: int
    error_message: str | None


R = TypeVar("R", bound=Result)

Asked = tuple[str, R, Steps[TopicEntry]]
"""A topic, its result (without an error at first), and the steps of its change."""


def answer_later(
    services: Services, api: str, asked: Iterable[Asked[R]], make: Callable[[list[R]], Any]
) -> PendingAnswer:
    """Return the pending answer of a request of `api`: `make` builds it from all results."""
    several = iter(asked)
    first = list(islice(several, CHANGES_AT_ONCE))
    changes, done = services.metadata.make((topic, steps) for topic, _, steps in first)
    if len(first) < CHANGES_AT_ONCE:

        def answer() -> Any:
            done.result()
            return make(_results(services, api, first, changes))

        # Shielded: a client that disconnects must not stop a change halfway, because later changes
        # depend on its result.
        return PendingAnswer(asyncio.shield(done), answer)

    async def answer_all() -> Any:
        await asyncio.shield(done)
        results = _results(services, api, first, changes)
        await _make_others(services, api, several, results)
        return make(results)

    # `alone`: other requests of the connection must not come between the changes.
    task = services.work.start(answer_all())
    return PendingAnswer(task, task.result, alone=True)


async def _make_others(
    services: Services, api: str, asked: Iterator[Asked[R]], results: list[R]
) -> None:
    """Make the remaining changes, some at a time, and add their results."""
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
