"""Answers to requests that are not there yet."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from .parking import Wait
from .work import Turns


class PendingAnswer(msgspec.Struct, eq=False):
    """An answer that `make` gives once `ready` is done and the answers before it are sent.

    `make` may give another pending answer, and raises what the request fails with. A handler's
    `make` gives a response, the dispatcher's the bytes of it. A hundred parked fetches that one
    append wakes therefore cost a hundred small objects until the client has taken the answers
    before them.
    """

    ready: asyncio.Future[Any] | Wait
    make: Callable[[], Any]
    may_hurry: bool = False
    """Whether `ready` may be set early, to not wait: the answer is true anyway."""
    alone: bool = False
    """Whether later requests of its connection wait until it is made: they could overtake it."""
    held_bytes: int = 0
    """Memory that its request holds until it is made."""
    turns: Turns | None = None
    """Counts what the request takes of the event loop until `ready` is done."""
    requests: int = 1
    """How many requests it answers."""
    work_bytes: int = 0
    """Memory that its request and its answer take while they are worked on. 0 for a request that
    only waits: what that keeps is counted where it waits."""
    is_large: bool = False
    """Whether it is one of those of which a connection may have `MOST_LARGE`."""
    is_finished: bool = False
    """Whether the work is done, and the answer can be made when its turn has come."""
