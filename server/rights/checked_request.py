"""One request, and what the one who sent it may do."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from ...protocol.api.rights import Need, When
from ...protocol.api.schema import Api
from ...protocol.api.security.acl_terms import CLUSTER_NAME, ResourceType, operation_title
from ...protocol.api.topics.describe_configs import BROKER_RESOURCE, TOPIC_RESOURCE
from ...protocol.errors import (
    ClusterAuthorizationFailed,
    CodedError,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
)
from ..handlers.base import Call, Services
from ..security.acls import Resource
from ..window_topics import guarded_name

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
            elif rights.may(right.operation, kind, self._named(kind, name)):
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
        """The error of a need that is not met, which is taken note of. Nothing in it depends on
        whether there is something of that name."""
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
