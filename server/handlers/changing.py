"""Answers of requests that change topics: a result for each topic, made when all is done."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from ...storage.directory.stepped_change import Steps
from ...storage.directory.topics import TopicEntry
from .base import Later, Services


class Result(Protocol):
    """What a response says of one change."""

    error_code: int
    error_message: str | None


R = TypeVar("R", bound=Result)

Asked = tuple[str, R, Steps[TopicEntry]]
"""A topic, the result that says that all went well, and what is to be done."""


def answer_later(
    services: Services, api: str, asked: Sequence[Asked[R]], make: Callable[[list[R]], Any]
) -> Later:
    """The answer of a request of `api`: what `make` gives for the results of all it asks for."""
    changes, done = services.metadata.make((topic, steps) for topic, _, steps in asked)

    def answer() -> Any:
        done.result()
        results = [result for _, result, _ in asked]
        for result, change in zip(results, changes, strict=True):
            try:
                change.result()
            except Exception as error:
                result.error_code, result.error_message = services.outcomes.of(error, api=api)
        return make(results)

    # A client that goes away leaves no change half done: the next one would be made upon it.
    return Later(asyncio.shield(done), answer)
