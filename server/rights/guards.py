"""One request and what its client may do; handlers that answer what may be done, and refuse the
rest."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from ...protocol.api.kafka.refusals import named_field, refused_each
from ...protocol.api.log.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirsResponse
from ...protocol.api.log.produce import PRODUCE
from ...protocol.api.pieces import Pieces
from ...protocol.api.rights import How, Need, When
from ...protocol.api.schema import Api, replaced
from ...protocol.api.security.acl_terms import CLUSTER_NAME, ResourceType, operation_title
from ...protocol.api.topics.describe_configs import BROKER_RESOURCE, TOPIC_RESOURCE
from ...protocol.api.topics.metadata import METADATA
from ...protocol.errors import (
    ClusterAuthorizationFailed,
    CodedError,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
)
from ..handlers.base import Services
from ..handlers.produce import NO_ANSWER
from ..outcomes import CloseConnection
from ..requests import Call, Handler, in_turns, then
from ..security.acls import Resource

ERRORS: Final[Mapping[ResourceType, type[CodedError]]] = MappingProxyType(
    {
        ResourceType.TOPIC: TopicAuthorizationFailed,
        ResourceType.GROUP: GroupAuthorizationFailed,
        ResourceType.CLUSTER: ClusterAuthorizationFailed,
    }
)

_CONSUMER: Final = -1


class CheckedRequest:
    """A request on its way to its handler."""

    __slots__ = ("_authorizer", "_rights", "api", "call", "request", "services")

    def __init__(self, services: Services, api: Api, request: Any, call: Call) -> None:
        self.services = services
        self.api = api
        self.request = request
        self.call = call
        self._authorizer = services.security.authorizer
        self._rights = self._authorizer.rights(call.principal, call.client_host)

    def may(self, need: Need, name: str) -> bool:
        """Whether a need is met for what is called `name`."""
        rights = self._rights
        for right in need.any_of:
            kind = right.resource_type
            if right.some:
                if rights.may_any(right.operation, kind):
                    return True
            elif rights.may(right.operation, kind, _named(kind, name)):
                return True
        return False

    def applies(self, need: Need, item: Any, name: str) -> bool:
        """Whether a need is one of this item of the request."""
        match need.when:
            case When.MADE:
                services = self.services
                return (
                    services.settings.auto_create_topics_enable
                    and getattr(self.request, "allow_auto_topic_creation", True)
                    and not services.creations.exists(name)
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
        """The error of a need that is not met, which is taken note of. Nothing in it depends on
        whether there is something of that name."""
        right = need.any_of[0]
        resource = Resource(right.resource_type, _named(right.resource_type, name)[:300])
        operation = operation_title(right.operation)
        principal, host = self.call.principal, self.call.client_host
        self._authorizer.refused(principal, host, self.api.name, operation, str(resource))
        error = ERRORS[right.resource_type]
        return error(
            f"{principal} may not {operation} {resource}: no rule allows it, or one denies it "
            "(horolog acl test)"
        )


def _named(kind: ResourceType, name: str) -> str:
    return CLUSTER_NAME if kind is ResourceType.CLUSTER else name


def guarded(api: Api, handler: Handler) -> Handler:
    """`handler` for clients that have the rights of the request."""
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
    """The topic or group that a request is about as a whole; empty for one about neither."""
    for field in ("group_id", "topic", "key"):
        name = getattr(request, field, None)
        if isinstance(name, str):
            return name
    return ""


def refused_whole(checked: CheckedRequest, need: Need, name: str) -> Any:
    """Refuses the request. Raises the error, where there is no other way that Kafka has."""
    error = checked.refusal(need, name)
    if checked.api is DESCRIBE_LOG_DIRS and checked.call.kafka:
        return DescribeLogDirsResponse(results=[])
    raise error


def answer_each(checked: CheckedRequest, needs: Sequence[Need], handler: Handler) -> Any:
    """The answer for those that the request names and that may be asked about; beside each of the
    others stands its error."""
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
        call = replace(call, version=max(call.version, 1))  # In version 0 none means all.
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
    """What something is called that a request names."""
    if isinstance(item, str):
        return item
    found = getattr(item, "name", None)
    return str(item.resource_name if found is None else found)


def _unanswered(
    checked: CheckedRequest, handler: Handler, kept: Sequence[Any], error: CodedError
) -> Any:
    """A produce with acks=0: what may be appended is, and then the connection is closed."""
    closing = CloseConnection(f"a produce with acks=0 was refused: {error.message}", error.code)

    def close(_: Any) -> Any:
        raise closing

    if not kept:
        raise closing
    smaller = replaced(checked.request, topics=list(kept))
    return then(handler(checked.services, smaller, checked.call), close)
