"""Every handler behind the rights of its request, and a short way for the frequent requests."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from ...protocol.api.groups.list_groups import LIST_GROUPS
from ...protocol.api.groups.offset_fetch import OFFSET_FETCH
from ...protocol.api.log.fetch import FETCH
from ...protocol.api.log.list_offsets import LIST_OFFSETS
from ...protocol.api.log.produce import PRODUCE
from ...protocol.api.registry import APIS
from ...protocol.api.security.acl_terms import Operation, ResourceType
from ...protocol.api.topics.metadata import METADATA
from ..handlers.base import Handler, Services
from ..network.endpoint import Caller
from ..security.authorizer import Rights
from ..window_topics import guarded_name
from .guards import guarded
from .lists import list_groups, metadata, positions

Allows = Callable[[Any], bool]
"""Whether all that a request asks for may be done."""

_CONSUMER: Final = -1

_LISTS: Final[Mapping[int, Callable[[Handler], Handler]]] = MappingProxyType(
    {METADATA.key: metadata, LIST_GROUPS.key: list_groups, OFFSET_FETCH.key: positions}
)


class Guard:
    """Looks at the rights of the principal of a request."""

    def __init__(self, services: Services, handlers: Mapping[int, Handler]) -> None:
        self._authorizer = services.security.authorizer
        self._exists = services.creations.exists
        self.handlers: Mapping[int, Handler] = {
            key: _LISTS[key](handler) if key in _LISTS else guarded(APIS[key], handler)
            for key, handler in handlers.items()
        }
        """Those that refuse what may not be done."""

    def allows(self, api_key: int, caller: Caller) -> Allows:
        """Whether a request may go the short way, on which nothing is looked at any more. Those
        that may not are taken up one by one, by `handlers`."""
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
