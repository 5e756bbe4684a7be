"""Answers that list things: what may not be described is not in them."""

import asyncio
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final, TypeVar

from ...protocol.api.groups.list_groups import LIST_GROUPS, ListGroupsResponse
from ...protocol.api.groups.offset_fetch import (
    LIST_NAMES,
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from ...protocol.api.kafka.refusals import refused_each
from ...protocol.api.pieces import Pieces
from ...protocol.api.rights import How, Need
from ...protocol.api.schema import Api, replaced
from ...protocol.api.security.acl_terms import ResourceType
from ...protocol.api.topics.metadata import METADATA, MetadataRequest, MetadataResponse
from ...protocol.errors import CodedError
from ...values import value_class
from ..handlers.base import Services
from ..requests import Call, Handler, PendingAnswer, in_turns, then
from .guards import CheckedRequest, answer_each

T = TypeVar("T")


def _needs(api: Api, how: How) -> list[Need]:
    return [need for need in api.rights if need.how is how]


def _listed(api: Api, kind: ResourceType) -> Need:
    """The right without which a list leaves out resources of a type."""
    return next(need for need in _needs(api, How.LEFT_OUT) if need.any_of[-1].resource_type is kind)


_name_of: Final[Callable[[Any], str]] = attrgetter("name")
_id_of: Final[Callable[[Any], str]] = attrgetter("group_id")

_EACH_TOPIC: Final = _needs(METADATA, How.EACH)
_SEEN_TOPIC: Final = _listed(METADATA, ResourceType.TOPIC)
_SEEN_GROUP: Final = _listed(LIST_GROUPS, ResourceType.GROUP)
_POSITIONS_GROUP: Final = _needs(OFFSET_FETCH, How.WHOLE)[0]
_POSITIONS_EACH: Final = _needs(OFFSET_FETCH, How.EACH)
_POSITIONS_SEEN_GROUP: Final = _listed(OFFSET_FETCH, ResourceType.GROUP)
_POSITIONS_SEEN_TOPIC: Final = _listed(OFFSET_FETCH, ResourceType.TOPIC)


def metadata(handler: Handler) -> Handler:
    """Topics that are named, each by itself; without names, those that may be seen."""

    def handle(services: Services, request: MetadataRequest, call: Call) -> Any:
        checked = CheckedRequest(services, METADATA, request, call)
        named = bool(request.topics) if call.version == 0 else request.topics is not None
        if named:
            return answer_each(checked, _EACH_TOPIC, handler)

        def cut(response: MetadataResponse) -> Pieces[MetadataResponse]:
            response.topics = yield from _seen(checked, _SEEN_TOPIC, response.topics, _name_of)
            return response

        return then(handler(services, request, call), lambda got: in_turns(services.work, cut(got)))

    return handle


def list_groups(handler: Handler) -> Handler:
    """The groups that may be seen."""

    def handle(services: Services, request: Any, call: Call) -> Any:
        checked = CheckedRequest(services, LIST_GROUPS, request, call)

        def cut(response: ListGroupsResponse) -> Pieces[ListGroupsResponse]:
            response.groups = yield from _seen(checked, _SEEN_GROUP, response.groups, _id_of)
            return response

        return then(handler(services, request, call), lambda got: in_turns(services.work, cut(got)))

    return handle


def positions(handler: Handler) -> Handler:
    """The positions of a name that may be seen, or the names."""

    def handle(services: Services, request: OffsetFetchRequest, call: Call) -> Any:
        checked = CheckedRequest(services, OFFSET_FETCH, request, call)
        if request.listing == LIST_NAMES:
            return _later(services, _visible_page(checked, handler, _cut_names))
        if not checked.may(_POSITIONS_GROUP, request.group_id):
            error = checked.refusal(_POSITIONS_GROUP, request.group_id)
            if not call.kafka:
                raise error
            # Version 0 and 1 say it beside each partition only.
            return in_turns(services.work, _all_refused(request, error))
        if request.topics is not None and not request.listing:
            return answer_each(checked, _POSITIONS_EACH, handler)
        return _later(services, _visible_page(checked, handler, _cut_topics))

    return handle


def _all_refused(request: OffsetFetchRequest, error: CodedError) -> Pieces[OffsetFetchResponse]:
    refused = [(topic, error) for topic in request.topics or ()]
    _, topics = yield from refused_each(OffsetFetchResponse, refused)
    return OffsetFetchResponse(topics=topics, error_code=error.code)


def _seen(
    checked: CheckedRequest, need: Need, items: Iterable[T], name_of: Callable[[T], str]
) -> Pieces[list[T]]:
    """What of a list may be seen."""
    seen: list[T] = []
    for item in items:
        if checked.may(need, name_of(item)):
            seen.append(item)
        yield
    return seen


def _later(services: Services, work: Any) -> PendingAnswer:
    task = services.work.start(work)
    return PendingAnswer(task, task.result)


Cut = Callable[[CheckedRequest, OffsetFetchResponse], Pieces["_Page"]]


@value_class
class _Page:
    """A part of a list, without what may not be seen."""

    last: str
    """With what it ended before that was left out; empty for nothing."""
    is_empty: bool


def _cut_names(checked: CheckedRequest, response: OffsetFetchResponse) -> Pieces[_Page]:
    last = response.names[-1] if response.names else ""
    response.names = yield from _seen(checked, _POSITIONS_SEEN_GROUP, response.names, str)
    return _Page(last, not response.names)


def _cut_topics(checked: CheckedRequest, response: OffsetFetchResponse) -> Pieces[_Page]:
    last = response.topics[-1].name if response.topics else ""
    response.topics = yield from _seen(checked, _POSITIONS_SEEN_TOPIC, response.topics, _name_of)
    return _Page(last, not response.topics)


async def _visible_page(checked: CheckedRequest, handler: Handler, cut: Cut) -> OffsetFetchResponse:
    """The first page in which something may be seen: clients go on behind the last that they
    see."""
    request, work = checked.request, checked.services.work
    turns = work.turns()
    while True:
        outcome = handler(checked.services, request, checked.call)
        while isinstance(outcome, PendingAnswer):
            assert isinstance(outcome.ready, asyncio.Future)
            await outcome.ready
            outcome = outcome.make()
        response: OffsetFetchResponse = outcome
        page = await work.finish(cut(checked, response), turns)
        if not (page.is_empty and response.more and page.last):
            return response
        request = replaced(request, after=page.last)
