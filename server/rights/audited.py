"""Handlers whose changes of topics and settings are written to the audit log."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from ...protocol.api.pieces import Pieces
from ...protocol.api.topics.alter_configs import ALTER_CONFIGS
from ...protocol.api.topics.create_partitions import CREATE_PARTITIONS
from ...protocol.api.topics.create_topics import CREATE_TOPICS
from ...protocol.api.topics.delete_records import DELETE_RECORDS
from ...protocol.api.topics.delete_topics import DELETE_TOPICS
from ...protocol.api.topics.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from ...values import value_class
from ..handlers.base import Services
from ..outcomes import error_name
from ..requests import Call, Handler, in_turns, then
from ..security.audit import DONE

Outcomes = Iterable[tuple[str, int]]
"""Name and error code of each thing that a request was to change."""

States = Mapping[str, object]
"""State of things by name."""


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
