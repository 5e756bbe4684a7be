"""Answers to produce requests that wait until what they brought is as durable as was asked for."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby, repeat
from operator import attrgetter
from typing import Final

from ...protocol.api.log.produce import ProduceResponse
from ...protocol.errors import CodedError, RequestTimedOut
from ..parking import Awaited, SharedWait
from ..requests import PendingAnswer
from .appends import Sent, Unsettled, sent_with
from .base import Services

Outcome = ProduceResponse | PendingAnswer | Exception | None
"""What a produce request gets; `None` is no answer."""

RESULT_BYTES: Final = 500
"""What the result of a set takes that waits, with why it was refused."""

_unsettled_of: Final[Callable[[Sent], Unsettled | None]] = attrgetter("unsettled")


def when_durable(
    services: Services, timeouts_ms: Sequence[int], responses: Sequence[ProduceResponse]
) -> list[Outcome]:
    """The answers to requests with these timeouts, once all that they brought is as durable as was
    asked for. Those that wait for the same have one wait. What an answer holds until then counts
    where it has several results: a request has room for a hundred thousand."""
    outcomes: list[Outcome] = list(responses)
    alike: dict[tuple[int, tuple[Unsettled, ...]], list[int]] = defaultdict(list)
    for number, (timeout_ms, response) in enumerate(zip(timeouts_ms, responses, strict=True)):
        all_unsettled = [one.unsettled for one in sent_with(response)]
        waits_for = tuple([one for one in all_unsettled if one is not None])
        if waits_for:
            alike[timeout_ms, waits_for].append(number)
    for (timeout_ms, waits_for), numbers in alike.items():
        of_these = [responses[number] for number in numbers]
        for number, outcome in zip(
            numbers, _when_settled(services, timeout_ms, waits_for, of_these), strict=True
        ):
            outcomes[number] = outcome
            results = len(sent_with(responses[number]))
            if results > 1 and isinstance(outcome, PendingAnswer):
                outcome.held_bytes = RESULT_BYTES * results
    return outcomes


def when_set_is_durable(
    services: Services,
    timeout_ms: int,
    sent: Iterable[Sent],
    responses: Sequence[ProduceResponse],
) -> list[Outcome]:
    """As `when_durable`, for requests that have the same timeout and brought one of the sets
    each."""
    outcomes: list[Outcome] = []
    for unsettled, alike in groupby(sent, _unsettled_of):
        begin = len(outcomes)
        of_these = responses[begin : begin + len(list(alike))]
        if unsettled is None:
            outcomes += of_these
        else:
            outcomes += _when_settled(services, timeout_ms, (unsettled,), of_these)
    return outcomes


def _when_settled(
    services: Services,
    timeout_ms: int,
    waits_for: Sequence[Unsettled],
    responses: Sequence[ProduceResponse],
) -> Iterable[Outcome]:
    """The answers to requests that wait for the same."""
    waiting = _Waiting(services, timeout_ms, waits_for)
    if waiting.is_over:
        return map(waiting.answer, responses)
    parked = services.produces.park(
        waiting.awaited, waiting.look_at, timeout_ms, requests=len(responses)
    )
    ready = parked if len(responses) == 1 else SharedWait(parked)
    return map(PendingAnswer, repeat(ready), map(partial, repeat(waiting.answer), responses))


class _Waiting:
    """What is not as durable yet as it is to be, of requests that wait for the same."""

    __slots__ = ("_by_awaited", "_failed", "_left", "_services", "_timeout_ms")

    def __init__(self, services: Services, timeout_ms: int, waits_for: Sequence[Unsettled]) -> None:
        self._services = services
        self._timeout_ms = timeout_ms
        self._failed = False
        self._left = {one: None for one in waits_for if not self._is_settled(one)}
        self._by_awaited: dict[Awaited, list[Unsettled]] = {}
        for one in self._left:
            for awaited in one.awaited:
                self._by_awaited.setdefault(awaited, []).append(one)

    @property
    def awaited(self) -> Iterable[Awaited]:
        """What it waits for."""
        return self._by_awaited

    @property
    def is_over(self) -> bool:
        """Whether the requests wait for nothing any more."""
        return not self._left

    def look_at(self, awaited: Awaited) -> bool:
        """Look again at what was heard of; as `is_over`."""
        for one in self._by_awaited.get(awaited, ()):
            if one in self._left and self._is_settled(one):
                del self._left[one]
        return not self._left

    def _is_settled(self, one: Unsettled) -> bool:
        settled = one.is_settled(self._services)
        self._failed = self._failed or one.error is not None
        return settled

    def answer(self, response: ProduceResponse) -> ProduceResponse:
        """One of the responses when the wait is over."""
        if self._left or self._failed:
            self._refuse(response)
        return response

    def _refuse(self, response: ProduceResponse) -> None:
        """Say in a response of what there is not what was waited for."""
        for one in sent_with(response):
            if one.unsettled is None:
                continue
            if not one.unsettled.is_settled(self._services):
                # The messages are in the log, so the result keeps their offsets.
                error: CodedError | None = RequestTimedOut(
                    "the messages are in the log, but were not as durable as acks=-1 asks within "
                    f"the request's timeout of {self._timeout_ms} ms"
                )
            else:
                error = one.unsettled.error
            if error is not None:
                one.refuse(self._services, error)
