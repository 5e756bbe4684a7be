"""Answers that need logs whose indexes are not loaded yet."""

from collections.abc import Callable, Sequence
from typing import Any

from ...storage.log.log import Log
from .base import Later, Services


def after_preparing(services: Services, logs: Sequence[Log], answer: Callable[[], Any]) -> Later:
    """What `answer` gives once `logs` are prepared, or have failed to be."""
    return Later(services.work.start(services.logs.prepare(logs)), answer)
