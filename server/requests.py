"""The interface of handlers: the requests that they get, and the ways in which they can answer."""

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
    """The circumstances of a request: its version and encoding, and its client."""

    version: int
    local_address: tuple[str, int]
    """The broker's address as the client reached it."""
    kafka: bool = False
    """Whether the request came in Kafka's encoding."""
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
    """An answer that `make` returns once `ready` is done and the answers before it are sent.

    `make` may return another pending answer, and raises the error of the request. A handler's
    `make` returns a response, the dispatcher's `make` the encoded answer. So a hundred parked
    fetches that one append wakes cost only a hundred small objects until the client has received
    the answers before them.
    """

    ready: asyncio.Future[Any] | Wait
    make: Callable[[], Any]
    may_hurry: bool = False
    """Whether `ready` may be set early, to end the wait: the answer is correct at any time."""
    alone: bool = False
    """Whether later requests of the connection wait until this answer is made, because they could
    overtake it."""
    held_bytes: int = 0
    """Memory that the request holds until the answer is made."""
    turns: Turns | None = None
    """Counts the event loop's time that the request takes until `ready` is done."""
    requests: int = 1
    """How many requests this answers."""
    work_bytes: int = 0
    """Memory that the request and its answer take while the request is handled."""
    is_large: bool = False
    """Whether this counts towards the limit `MOST_LARGE` of a connection."""
    is_finished: bool = False
    """Whether the work is done, and the answer can be made when its turn has come."""
    is_waiting: bool = False
    """Whether the request only waits until `ready` is done. Until then its memory is counted where
    it waits, and does not count as that of work."""


def then(outcome: Any, change: Callable[[Any], Any]) -> Any:
    """Apply `change` to the response of `outcome`: at once, or when a pending answer is made."""
    if not isinstance(outcome, PendingAnswer):
        return change(outcome)
    return PendingAnswer(
        outcome.ready,
        lambda: then(outcome.make(), change),
        outcome.may_hurry,
        outcome.alone,
        outcome.held_bytes,
        outcome.turns,
        is_waiting=outcome.is_waiting,
    )


def in_turns(work: Work, pieces: Pieces[R]) -> R | PendingAnswer:
    """Return the answer of a handler that works in pieces: at once if one turn is enough, otherwise
    pending, made in turns with other requests.

    Later requests of the connection wait until the answer is made, because they could overtake it.
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
    """Answers the requests of one API: with a response, a `PendingAnswer`, or `None` for no answer.

    Gets the broker's `Services`. Raises `CodedError` for a request that is refused as a whole;
    errors of a single topic or partition are in the response.
    """

    def __call__(self, services: Any, request: Any, call: Call, /) -> Any: ...


class HandlerOfMany(Protocol):
    """Answers requests of one API and version that arrived together.

    Returns for each request what a `Handler` would return, or the exception that it would raise;
    requests after a `CloseConnection` may have no outcome.
    """

    def __call__(
        self, services: Any, version: int, requests: Sequence[Any], /
    ) -> Sequence[Any]: ...


def each_alone(answer: Callable[[Any, Any, int], Any]) -> HandlerOfMany:
    """Return a handler of many that handles each request separately: `answer` returns the outcome
    of one request, or raises."""

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
    """Return the handler of one request, made from a handler of many."""

    def handle(services: Any, request: Any, call: Call) -> Any:
        (outcome,) = handle_many(services, call.version, (request,))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return handle
