"""Answers that need logs whose indexes are not loaded yet."""

from collections.abc import Callable, Sequence
from typing import Any

from ...storage.log import Log
from .base import Later, Services


def after_preparing(services: Services, logs: Sequence[Log], answer: Callable[[], Any]) -> Later:
    """What `answer` gives once `logs` are prepared, or have failed to be."""

    async def prepare_and_answer() -> Any:
        await services.logs.prepare(logs)
        response = answer()
        if isinstance(response, Later):
            await response.ready
            return response.make()
        return response

    task = services.work.start(prepare_and_answer())
    return Later(task, task.result)
