"""Every handler behind the rights of its request, and a short way for the frequent requests.

One that is guarded answers what its client may do, and refuses the rest. In answers that list
things, what may not be described is left out. Handlers that change topics or settings also write
the changes to the audit log.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, TypeVar

from ..protocol.api.groups.list_groups import LIST_GROUPS, ListGroupsResponse
from ..protocol.api.groups.offset_fetch import (
    LIST_NAMES,
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from ..protocol.api.kafka.refusals import named_field, refused_each
from ..protocol.api.log.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirsResponse
from ..protocol.api.log.fetch import FETCH
from ..protocol.api.log.list_offsets import LIST_OFFSETS
from ..protocol.api.log.produce import PRODUCE
from ..protocol.api.pieces import Pieces
from ..protocol.api.registry import APIS
from ..protocol.api.rights import How, Need, When
from ..protocol.api.schema import Api, replaced
from ..protocol.api.security.acl_terms import CLUSTER_NAME, Operation, ResourceType, operation_title
from ..protocol.api.topics.alter_configs import ALTER_CONFIGS
from ..protocol.api.topics.create_partitions import CREATE_PARTITIONS
from ..protocol.api.topics.create_topics import CREATE_TOPICS
from ..protocol.api.topics.delete_records import DELETE_RECORDS
from ..protocol.api.topics.delete_topics import DELETE_TOPICS
from ..protocol.api.topics.describe_configs import BROKER_RESOURCE, TOPIC_RESOURCE
from ..protocol.api.topics.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from ..protocol.api.topics.metadata import METADATA, MetadataRequest, MetadataResponse
from ..protocol.errors import (
    ClusterAuthorizationFailed,
    CodedError,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
)
from ..values import value_class
from .handlers.base import Services
from .handlers.produce import NO_ANSWER
from .network.endpoint import Caller
from .outcomes import CloseConnection, error_name
from .requests import Call, Handler, PendingAnswer, in_turns, then
from .security.acl_store import Rights
from .security.acls import Resource
from .security.audit import DONE
from .window_topics import guarded_name

Outcomes = Iterable[tuple[str, int]]
"""Name and error code of each thing that a request was to change."""

States = Mapping[str, object]
"""State of things by name."""

T = TypeVar("T")

ERRORS: Final[Mapping[ResourceType, type[CodedError]]] = MappingProxyType(
    {
        ResourceType.TOPIC: TopicAuthorizationFailed,
        ResourceType.GROUP: GroupAuthorizationFailed,
        ResourceType.CLUSTER: ClusterAuthorizationFailed,
    }
)

Allows = Callable[[Any], bool]
"""Whether all that a request asks for is permitted."""

_CONSUMER: Final = -1


def _topics(response: Any) -> Outcomes:
    return ((each.name, each.error_code) for each in response.topics)


def _results(response: Any) -> Outcomes:
    return ((each.name, each.error_code) for each in response.results)


def _responses(response: Any) -> Outcomes:
    return ((each.name, each.error_code) for each in response.responses)


def _resources(response: Any) -> Outcomes:
    return ((each.resource_name, each.error_code) for each in response.responses)


def _partitions(response: Any) -> Outcomes:
    return (
        (f"{topic.name}-{each.partition}", each.error_code)
        for topic in response.topics
        for each in topic.partitions
    )


def _none(services: Services, request: Any) -> States:
    return {}


def _log_starts(services: Services, request: Any) -> States:
    found: dict[str, object] = {}
    for topic in request.topics:
        for each in topic.partitions:
            log = services.directory.opened_log((topic.name, each.partition))
            if log is not None:
                found[f"{topic.name}-{each.partition}"] = log.log_start_offset
    return found


def _overrides(services: Services, request: Any) -> States:
    there = services.directory.topics()
    names = {resource.resource_name for resource in request.resources}
    return {name: dict(there[name].overrides) for name in names if name in there}


@value_class
class _Change:
    """How the audit log describes the change of a request."""

    event: str
    what: str
    outcomes: Callable[[Any], Outcomes]
    """Returns the outcomes in a response."""
    states: Callable[[Services, Any], States] = _none
    """Returns the state of the things that a request names. A thing with the same state before and
    after was not changed."""


_SETTINGS: Final = _Change("settings_changed", "altered", _resources, _overrides)

_CHANGES: Final[Mapping[int, _Change]] = MappingProxyType(
    {
        CREATE_TOPICS.key: _Change("topic_changed", "created", _topics),
        DELETE_TOPICS.key: _Change("topic_changed", "deleted", _responses),
        CREATE_PARTITIONS.key: _Change("topic_changed", "given partitions", _results),
        DELETE_RECORDS.key: _Change("topic_changed", "trimmed", _partitions, _log_starts),
        ALTER_CONFIGS.key: _SETTINGS,
        INCREMENTAL_ALTER_CONFIGS.key: _SETTINGS,
    }
)
"""Audited changes by API key."""


def audited(handlers: Mapping[int, Handler]) -> Mapping[int, Handler]:
    """Return the handlers, with audit lines for changes. A thing that stayed the same has no
    line."""
    return {
        key: _audited(handler, _CHANGES[key]) if key in _CHANGES else handler
        for key, handler in handlers.items()
    }


def _audited(handler: Handler, change: _Change) -> Handler:
    def handle(services: Services, request: Any, call: Call) -> Any:
        if getattr(request, "validate_only", False):
            return handler(services, request, call)
        before = change.states(services, request)

        def audit(response: Any) -> Pieces[Any]:
            after = change.states(services, request)
            for name, code in change.outcomes(response):
                if code or name not in before or before[name] != after.get(name):
                    services.security.audit.changed(
                        change.event,
                        name,
                        call.principal,
                        call.client_host,
                        error_name(code) if code else DONE,
                        change=change.what,
                    )
                yield
            return response

        answer = handler(services, request, call)
        return then(answer, lambda response: in_turns(services.work, audit(response)))

    return handle


class CheckedRequest:
    """A request on its way to its handler, with checks of the principal's rights."""

    __slots__ = ("_authorizer", "_rights", "api", "call", "request", "services")

    def __init__(self, services: Services, api: Api, request: Any, call: Call) -> None:
        self.services = services
        self.api = api
        self.request = request
        self.call = call
        self._authorizer = services.security.authorizer
        self._rights = self._authorizer.rights(call.principal, call.client_host)

    def may(self, need: Need, name: str) -> bool:
        """Whether the principal meets a need for the resource `name`."""
        rights = self._rights
        for right in need.any_of:
            kind = right.resource_type
            if right.some:
                if rights.may_any(right.operation, kind):
                    return True
            elif rights.may(right.operation, kind, self._named(kind, name)):
                return True
        return False

    def applies(self, need: Need, item: Any, name: str) -> bool:
        """Whether a need applies to this item of the request."""
        match need.when:
            case When.MADE:
                services = self.services
                return (
                    services.settings.auto_create_topics_enable
                    and getattr(self.request, "allow_auto_topic_creation", True)
                    and not services.creations.exists(name)
                    and not services.logs.is_window(name)
                )
            case When.CONSUMER:
                return bool(self.request.replica_id == _CONSUMER)
            case When.FOLLOWER:
                return bool(self.request.replica_id != _CONSUMER)
            case When.OF_TOPIC:
                return bool(item.resource_type == TOPIC_RESOURCE)
            case When.OF_BROKER:
                return bool(item.resource_type == BROKER_RESOURCE)
            case When.NOT_NAMED:
                return False
            case _:
                return True

    def refusal(self, need: Need, name: str) -> CodedError:
        """Return the error of an unmet need, and record the refusal. The error does not reveal
        whether the resource exists."""
        right = need.any_of[0]
        named = self._named(right.resource_type, name)
        resource = Resource(right.resource_type, named[:300])
        operation = operation_title(right.operation)
        principal, host = self.call.principal, self.call.client_host
        self._authorizer.refused(principal, host, self.api.name, operation, str(resource))
        error = ERRORS[right.resource_type]
        return error(
            f"{principal} may not {operation} {resource}: no rule allows it, or one denies it "
            "(horolog acl test)"
        )

    def _named(self, kind: ResourceType, name: str) -> str:
        """The name of the resource; for a window that of the topic whose messages it shows."""
        if kind is ResourceType.CLUSTER:
            return CLUSTER_NAME
        if kind is ResourceType.TOPIC:
            return guarded_name(self.services.creations.exists, name)
        return name


def _needs(api: Api, how: How) -> list[Need]:
    return [need for need in api.rights if need.how is how]


def _listed(api: Api, kind: ResourceType) -> Need:
    """Return the need without which a list omits resources of this type."""
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
    """Wrap the metadata handler: named topics are checked one by one; a list of all topics contains
    only those that the principal may describe."""

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
    """Wrap the list-groups handler: the answer contains only groups that the principal may
    describe."""

    def handle(services: Services, request: Any, call: Call) -> Any:
        checked = CheckedRequest(services, LIST_GROUPS, request, call)
        if not call.kafka:
            return _later(services, _visible_page(checked, handler, _cut_groups))

        def cut(response: ListGroupsResponse) -> Pieces[ListGroupsResponse]:
            response.groups = yield from _seen(checked, _SEEN_GROUP, response.groups, _id_of)
            return response

        return then(handler(services, request, call), lambda got: in_turns(services.work, cut(got)))

    return handle


def positions(handler: Handler) -> Handler:
    """Wrap the offset-fetch handler: the answer contains only positions, or names, that the
    principal may see."""

    def handle(services: Services, request: OffsetFetchRequest, call: Call) -> Any:
        checked = CheckedRequest(services, OFFSET_FETCH, request, call)
        if request.listing == LIST_NAMES:
            return _later(services, _visible_page(checked, handler, _cut_names))
        if not checked.may(_POSITIONS_GROUP, request.group_id):
            error = checked.refusal(_POSITIONS_GROUP, request.group_id)
            if not call.kafka:
                raise error
            # Versions 0 and 1 have only error codes of partitions.
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
    """Return the items of a list that the principal may describe."""
    seen: list[T] = []
    for item in items:
        if checked.may(need, name_of(item)):
            seen.append(item)
        yield
    return seen


def _later(services: Services, work: Any) -> PendingAnswer:
    task = services.work.start(work)
    return PendingAnswer(task, task.result)


Cut = Callable[[CheckedRequest, Any], Pieces["_Page"]]


@value_class
class _Page:
    """A page of a list after the removal of what the principal may not see."""

    last: str
    """Name of the page's last item before the removal; empty for an empty page."""
    is_empty: bool


def _cut_names(checked: CheckedRequest, response: OffsetFetchResponse) -> Pieces[_Page]:
    last = response.names[-1] if response.names else ""
    response.names = yield from _seen(checked, _POSITIONS_SEEN_GROUP, response.names, str)
    return _Page(last, not response.names)


def _cut_topics(checked: CheckedRequest, response: OffsetFetchResponse) -> Pieces[_Page]:
    last = response.topics[-1].name if response.topics else ""
    response.topics = yield from _seen(checked, _POSITIONS_SEEN_TOPIC, response.topics, _name_of)
    return _Page(last, not response.topics)


def _cut_groups(checked: CheckedRequest, response: ListGroupsResponse) -> Pieces[_Page]:
    last = response.groups[-1].group_id if response.groups else ""
    response.groups = yield from _seen(checked, _SEEN_GROUP, response.groups, _id_of)
    return _Page(last, not response.groups)


async def _visible_page(checked: CheckedRequest, handler: Handler, cut: Cut) -> Any:
    """Return the first page with visible items, because clients continue after the last item that
    they see."""
    request, work = checked.request, checked.services.work
    turns = work.turns()
    while True:
        outcome = handler(checked.services, request, checked.call)
        while isinstance(outcome, PendingAnswer):
            assert isinstance(outcome.ready, asyncio.Future)
            await outcome.ready
            outcome = outcome.make()
        page = await work.finish(cut(checked, outcome), turns)
        if not (page.is_empty and outcome.more and page.last):
            return outcome
        request = replaced(request, after=page.last)


def guarded(api: Api, handler: Handler) -> Handler:
    """Return `handler` with the checks of the request's rights in front."""
    whole = [need for need in api.rights if need.how is How.WHOLE]
    each = [need for need in api.rights if need.how is How.EACH]

    def handle(services: Services, request: Any, call: Call) -> Any:
        checked = CheckedRequest(services, api, request, call)
        for need in whole:
            name = whole_name(request)
            if not checked.may(need, name):
                return refused_whole(checked, need, name)
        return answer_each(checked, each, handler) if each else handler(services, request, call)

    return handle


def whole_name(request: Any) -> str:
    """Return the topic or group that the whole request is about; empty if there is none."""
    for field in ("group_id", "topic", "key"):
        name = getattr(request, field, None)
        if isinstance(name, str):
            return name
    return ""


def refused_whole(checked: CheckedRequest, need: Need, name: str) -> Any:
    """Refuse a whole request. Raises the error, unless Kafka answers such a request with an empty
    result."""
    error = checked.refusal(need, name)
    if checked.api is DESCRIBE_LOG_DIRS and checked.call.kafka:
        return DescribeLogDirsResponse(results=[])
    raise error


def answer_each(checked: CheckedRequest, needs: Sequence[Need], handler: Handler) -> Any:
    """Handle the permitted items of a request. Each of the other items gets its error in the
    response."""
    return in_turns(checked.services.work, _answer_each(checked, needs, handler))


def _answer_each(checked: CheckedRequest, needs: Sequence[Need], handler: Handler) -> Pieces[Any]:
    services, request, call = checked.services, checked.request, checked.call
    context = services.creations.context
    field = named_field(type(request))
    kept: list[Any] = []
    refused: list[tuple[Any, CodedError]] = []
    for item in getattr(request, field) or ():
        error = _error_of(checked, needs, item)
        if error is None:
            kept.append(item)
        else:
            refused.append((item, error))
        yield
    services.creations.context = context
    if not refused:
        return handler(services, request, call)
    if checked.api is PRODUCE and request.acks == NO_ANSWER:
        return _unanswered(checked, handler, kept, refused[0][1])
    name, results = yield from refused_each(checked.api.response, refused)
    services.creations.context = context
    if not kept and checked.api is METADATA:
        call = replace(call, version=max(call.version, 1))  # in version 0, [] means all
    elif not kept:
        return checked.api.response(**{name: results})
    smaller = replaced(request, **{field: kept})

    def add(response: Any) -> Any:
        getattr(response, name).extend(results)
        return response

    return then(handler(services, smaller, call), add)


def _error_of(checked: CheckedRequest, needs: Sequence[Need], item: Any) -> CodedError | None:
    name = item_name(item)
    for need in needs:
        if checked.applies(need, item, name) and not checked.may(need, name):
            return checked.refusal(need, name)
    return None


def item_name(item: Any) -> str:
    """Return the name of an item of a request."""
    if isinstance(item, str):
        return item
    found = getattr(item, "name", None)
    return str(item.resource_name if found is None else found)


def _unanswered(
    checked: CheckedRequest, handler: Handler, kept: Sequence[Any], error: CodedError
) -> Any:
    """Handle a produce with acks=0 that is refused in part: append the permitted topics, then close
    the connection."""
    closing = CloseConnection(f"a produce with acks=0 was refused: {error.message}", error.code)

    def close(_: Any) -> Any:
        raise closing

    if not kept:
        raise closing
    smaller = replaced(checked.request, topics=list(kept))
    return then(handler(checked.services, smaller, checked.call), close)


_LISTS: Final[Mapping[int, Callable[[Handler], Handler]]] = MappingProxyType(
    {METADATA.key: metadata, LIST_GROUPS.key: list_groups, OFFSET_FETCH.key: positions}
)


class Guard:
    """Checks the rights of the principal of a request."""

    def __init__(self, services: Services, handlers: Mapping[int, Handler]) -> None:
        self._authorizer = services.security.authorizer
        self._exists = services.creations.exists
        self.handlers: Mapping[int, Handler] = {
            key: _LISTS[key](handler) if key in _LISTS else guarded(APIS[key], handler)
            for key, handler in handlers.items()
        }
        """Handlers that refuse what is not permitted."""

    def allows(self, api_key: int, caller: Caller) -> Allows:
        """Return the test whether a request may take the fast path, which checks nothing more. The
        other requests go to `handlers`, which check item by item."""
        rights = self._authorizer.rights(caller.principal, caller.host)
        found = rights.short.get(api_key)
        if found is None:
            make = _SHORT.get(api_key)
            found = _never if make is None else make(rights, self._exists)
            rights.short[api_key] = found
        return found


def _never(_: Any) -> bool:
    return False


def _produce(rights: Rights, exists: Callable[[str], bool]) -> Allows:
    may, known = rights.may, rights.writable

    def allows(request: Any) -> bool:
        for topic in request.topics:
            name = topic.name
            if name not in known and not may(Operation.WRITE, ResourceType.TOPIC, name):
                return False
            if not exists(name):
                return False
        return True

    return allows


def _fetch(rights: Rights, exists: Callable[[str], bool]) -> Allows:
    may, known = rights.may, rights.readable

    def allows(request: Any) -> bool:
        for topic in request.topics:
            name = topic.name
            if name in known and exists(name):
                continue
            if not may(Operation.READ, ResourceType.TOPIC, guarded_name(exists, name)):
                return False
        return bool(request.replica_id == _CONSUMER)

    return allows


def _list_offsets(rights: Rights, exists: Callable[[str], bool]) -> Allows:
    def allows(request: Any) -> bool:
        may = rights.may
        return all(
            may(Operation.DESCRIBE, ResourceType.TOPIC, guarded_name(exists, topic.name))
            for topic in request.topics
        )

    return allows


_SHORT: Final[Mapping[int, Callable[[Rights, Callable[[str], bool]], Allows]]] = MappingProxyType(
    {PRODUCE.key: _produce, FETCH.key: _fetch, LIST_OFFSETS.key: _list_offsets}
)
