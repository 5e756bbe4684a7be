"""Requests that name a partition more than once. Each repeat would take memory and time for its
result, and a request has room for 100,000 of them: so repeats are removed before the request is
handled.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ...protocol.api.kafka.refusals import refused_each
from ...protocol.api.pieces import finish
from ...protocol.api.schema import Api, replaced
from ...protocol.errors import InvalidRequest
from ..requests import Call, Handler, then
from .base import Services


def refusing_repeats(api: Api) -> Callable[[Handler], Handler]:
    """Return a decorator of handlers. The handler gets only partitions that the request names once.
    A partition that is named more often is refused, once, with INVALID_REQUEST, as list-offsets
    does."""

    def decorate(handler: Handler) -> Handler:
        def handle(services: Services, request: Any, call: Call) -> Any:
            repeated = repeats(request.topics)
            if not repeated:
                return handler(services, request, call)
            return _answer_others(api, repeated, handler, services, request, call)

        return handle

    return decorate


def _answer_others(
    api: Api,
    repeated: Mapping[str, Collection[int]],
    handler: Handler,
    services: Services,
    request: Any,
    call: Call,
) -> Any:
    """The answer to a request in which some partitions are `repeated`."""
    topics = {topic.name: topic for topic in request.topics}
    error = InvalidRequest("the request names this partition more than once; name it once")
    refused = [
        (replaced(topics[name], partitions=list(numbers)), error)
        for name, numbers in repeated.items()
    ]
    field, results = finish(refused_each(api.response, refused))
    kept = _without(request.topics, repeated)
    if not kept:
        return api.response(**{field: results})

    def add(response: Any) -> Any:
        getattr(response, field).extend(results)
        return response

    return then(handler(services, replaced(request, topics=kept), call), add)


def answering_once(handler: Handler) -> Handler:
    """Return `handler` with repeats removed: each partition is answered once, unless the request
    has more about partitions than their numbers."""

    def handle(services: Services, request: Any, call: Call) -> Any:
        topics = request.topics
        if topics and not any(topic.offsets for topic in topics) and repeats(topics):
            request = replaced(request, topics=_once(topics))
        return handler(services, request, call)

    return handle


def repeats(topics: Iterable[Any]) -> Mapping[str, Collection[int]]:
    """By topic: the partitions that are named more than once, in the order of the request."""
    named: dict[str, list[int]] = {}
    for topic in topics:
        named.setdefault(topic.name, []).extend(_numbers(topic.partitions))
    return {
        name: dict.fromkeys(number for number, times in Counter(numbers).items() if times > 1)
        for name, numbers in named.items()
        if len(numbers) > 1 and len(set(numbers)) < len(numbers)
    }


def _without(topics: Iterable[Any], repeated: Mapping[str, Collection[int]]) -> list[Any]:
    """Return the topics without the `repeated` partitions; topics left with none are omitted."""
    kept = []
    for topic in topics:
        doubled = repeated.get(topic.name, ())
        partitions = [
            each
            for each, number in zip(topic.partitions, _numbers(topic.partitions), strict=True)
            if number not in doubled
        ]
        if partitions or not topic.partitions:
            kept.append(replaced(topic, partitions=partitions))
    return kept


def _once(topics: Iterable[Any]) -> list[Any]:
    """Return the topics with each partition only where it is named first; topics left with none are
    omitted."""
    kept = []
    answered: dict[str, dict[int, None]] = {}
    for topic in topics:
        known = answered.setdefault(topic.name, {})
        numbers = [number for number in dict.fromkeys(topic.partitions) if number not in known]
        known.update(dict.fromkeys(numbers))
        if numbers or not topic.partitions:
            kept.append(replaced(topic, partitions=numbers))
    return kept


def _numbers(partitions: Sequence[Any]) -> Sequence[int]:
    """Return the partition numbers; some requests have nothing but the numbers."""
    if not partitions or isinstance(partitions[0], int):
        return partitions
    return [each.partition for each in partitions]
