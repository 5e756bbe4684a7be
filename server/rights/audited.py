"""Handlers whose changes of topics and settings are audited."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from ...protocol.api.topics.alter_configs import ALTER_CONFIGS
from ...protocol.api.topics.create_partitions import CREATE_PARTITIONS
from ...protocol.api.topics.create_topics import CREATE_TOPICS
from ...protocol.api.topics.delete_records import DELETE_RECORDS
from ...protocol.api.topics.delete_topics import DELETE_TOPICS
from ...protocol.api.topics.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from ..handlers.base import Call, Handler, Services, then
from ..outcomes import error_name

Outcomes = Iterable[tuple[str, int]]
"""Of each thing that was to be changed, its name and the error code."""


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


_CHANGES: Final[Mapping[int, tuple[str, str, Callable[[Any], Outcomes]]]] = MappingProxyType(
    {
        CREATE_TOPICS.key: ("topic_changed", "created", _topics),
        DELETE_TOPICS.key: ("topic_changed", "deleted", _responses),
        CREATE_PARTITIONS.key: ("topic_changed", "given partitions", _results),
        DELETE_RECORDS.key: ("topic_changed", "trimmed", _partitions),
        ALTER_CONFIGS.key: ("settings_changed", "altered", _resources),
        INCREMENTAL_ALTER_CONFIGS.key: ("settings_changed", "altered", _resources),
    }
)
"""By the key of the request: the event, what is done, and where the outcomes are."""


def audited(handlers: Mapping[int, Handler]) -> Mapping[int, Handler]:
    """The handlers; those that change something audit it."""
    return {
        key: _audited(handler, *_CHANGES[key]) if key in _CHANGES else handler
        for key, handler in handlers.items()
    }


def _audited(
    handler: Handler, event: str, change: str, outcomes: Callable[[Any], Outcomes]
) -> Handler:
    def handle(services: Services, request: Any, call: Call) -> Any:
        def audit(response: Any) -> Any:
            for name, code in outcomes(response):
                outcome = error_name(code) if code else "done"
                services.security.audit.changed(
                    event, name, call.principal, call.client_host, outcome, change=change
                )
            return response

        answer = handler(services, request, call)
        return answer if getattr(request, "validate_only", False) else then(answer, audit)

    return handle
