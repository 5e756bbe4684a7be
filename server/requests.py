"""Requests as handlers get them, handlers, and the ways in which these can answer."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from ..protocol.api.pieces import Pieces
from ..values import value_class
from .parking import Wait
from .security.session import ANONYMOUS, LoginSession
from .work import Turns, Work

R = TypeVar("R")


@value_class
class Call:
    """The request as it came: its version and encoding, and its client."""

    version: int
    local_address: tuple[str, int]
    """The broker's address as the client reached it."""
    kafka: bool = False
    """Whether it came in Kafka's encoding."""
    client_id: str | None = None
    """The client's own name for itself."""
    client_host: str = ""
    """The client's address."""
    session: LoginSession | None = None
    """The connection's login; `None` if the listener needs none."""

    @property
    def principal(self) -> str:
        """The principal of the client."""
        return ANONYMOUS if self.session is None else self.session.principal


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


def then(outcome: Any, change: Callable[[Any], Any]) -> Any:
    """`outcome` with `change` applied to its response, at once or when that is made."""
    if not isinstance(outcome, PendingAnswer):
        return change(outcome)
    return PendingAnswer(
        outcome.ready,
        lambda: then(outcome.make(), change),
        outcome.may_hurry,
        outcome.alone,
        outcome.held_bytes,
        outcome.turns,
    )


def in_turns(work: Work, pieces: Pieces[R]) -> R | PendingAnswer:
    """The answer of a handler that works in pieces: at once if one turn is enough, otherwise
    pending, in turns with other requests.

    Later requests of its connection wait until it is made: they could overtake it.
    """
    turns = work.turns()
    try:
        next(pieces)
        while not turns.over:
            next(pieces)
    except StopIteration as end:
        found: R = end.value
        return found
    turns.end()
    task = work.start_pieces(pieces, turns)
    return PendingAnswer(task, task.result, alone=True, turns=turns)


class Handler(Protocol):
    """Answers one kind of request: a response, a `PendingAnswer`, or `None` for no answer.

    It is given the broker's `Services`. Raises `CodedError` for a request that is refused as a
    whole; what concerns one topic or partition is in the response.
    """

    def __call__(self, services: Any, request: Any, call: Call, /) -> Any: ...


class HandlerOfMany(Protocol):
    """Answers requests of one kind and version that arrived together.

    Returns for each what its handler would return, or the exception that it would raise; requests
    behind a `CloseConnection` may have no outcome.
    """

    def __call__(
        self, services: Any, version: int, requests: Sequence[Any], /
    ) -> Sequence[Any]: ...


def each_alone(answer: Callable[[Any, Any, int], Any]) -> HandlerOfMany:
    """A handler of many that handles each request by itself: `answer` returns the outcome of one
    request of a version, or raises."""

    def handle_many(services: Any, version: int, requests: Sequence[Any]) -> list[Any]:
        outcomes: list[Any] = []
        for request in requests:
            try:
                outcomes.append(answer(services, request, version))
            except Exception as error:
                outcomes.append(error)
        return outcomes

    return handle_many


def list_of_one(handle_many: HandlerOfMany) -> Handler:
    """The handler of one request, made of a handler of many."""

    def handle(services: Any, request: Any, call: Call) -> Any:
        (outcome,) = handle_many(services, call.version, (request,))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return handle
