"""describe-configs and alter-configs."""

from collections.abc import Callable

from ...config.broker import BROKER_SETTINGS
from ...config.topic import TOPIC_SETTINGS, check_overrides, effective
from ...protocol.api.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    AlterConfigsResult,
)
from ...protocol.api.describe_configs import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
)
from ...protocol.errors import InvalidRequest
from .base import NODE_ID, Call, Services


def describe(
    services: Services, request: DescribeConfigsRequest, call: Call
) -> DescribeConfigsResponse:
    results = []
    for resource in request.resources:
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            described = _describer(resource.resource_type)(services, resource.resource_name)
        except Exception as error:
            outcome = services.outcomes.of(error, api="describe-configs")
            result.error_code, result.error_message = outcome
        else:
            result.configs = _chosen(described, resource)
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _describer(resource_type: int) -> Callable[[Services, str], list[DescribedConfig]]:
    if resource_type == TOPIC_RESOURCE:
        return _describe_topic
    if resource_type == BROKER_RESOURCE:
        return _describe_broker
    raise InvalidRequest(
        f"resource_type is {resource_type}; it must be {TOPIC_RESOURCE} (topic) or "
        f"{BROKER_RESOURCE} (broker)"
    )


def _describe_topic(services: Services, name: str) -> list[DescribedConfig]:
    overrides = services.logs.topic(name).overrides
    return [
        DescribedConfig(name=setting, value=value, is_default=source == "default", source=source)
        for setting, value, source in effective(services.settings.topic_defaults, overrides)
    ]


def _describe_broker(services: Services, name: str) -> list[DescribedConfig]:
    if name != str(NODE_ID):
        raise InvalidRequest(f"broker {name!r} does not exist; there is only broker {NODE_ID}")
    described = []
    for setting in BROKER_SETTINGS.values():
        value = getattr(services.settings, setting.attribute)
        is_default = value == setting.default
        described.append(
            DescribedConfig(
                name=setting.name,
                value=setting.format(value),
                read_only=True,
                is_default=is_default,
                source="default" if is_default else "broker",
            )
        )
    for name, value, source in effective(services.settings.topic_defaults, {}):
        described.append(
            DescribedConfig(
                name=name,
                value=value,
                read_only=True,
                is_default=source == "default",
                source=source,
            )
        )
    return described


def _chosen(
    described: list[DescribedConfig], resource: DescribeConfigsResource
) -> list[DescribedConfig]:
    """The settings asked for, by any of their names; a name that is none is left out."""
    if resource.configuration_keys is None:
        return described
    wanted = set(resource.configuration_keys)
    return [config for config in described if not wanted.isdisjoint(_names(config.name))]


def _names(canonical: str) -> tuple[str, ...]:
    setting = TOPIC_SETTINGS.get(canonical) or BROKER_SETTINGS[canonical]
    return tuple(setting.names())


def alter(services: Services, request: AlterConfigsRequest, call: Call) -> AlterConfigsResponse:
    results = []
    for resource in request.resources:
        result = AlterConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            _alter_one(services, resource, request)
        except Exception as error:
            outcome = services.outcomes.of(error, api="alter-configs")
            result.error_code, result.error_message = outcome
        results.append(result)
    return AlterConfigsResponse(responses=results)


def _alter_one(
    services: Services, resource: AlterConfigsResource, request: AlterConfigsRequest
) -> None:
    if resource.resource_type != TOPIC_RESOURCE:
        raise InvalidRequest(
            f"resource_type is {resource.resource_type}; only topics ({TOPIC_RESOURCE}) can be "
            "altered while the broker runs"
        )
    entry = services.logs.topic(resource.resource_name)
    given = {config.name: config.value for config in resource.configs}
    if len(given) != len(resource.configs):
        raise InvalidRequest("the request names a setting more than once")
    overrides = dict(entry.overrides) if request.incremental else {}
    for name in (name for name, value in given.items() if value is None):
        overrides.pop(_canonical(name), None)
    overrides |= check_overrides(
        {name: value for name, value in given.items() if value is not None}
    )
    check_overrides(overrides)
    if not request.validate_only:
        services.directory.alter_topic(entry.name, overrides)


def _canonical(name: str) -> str:
    """The one name under which a topic's override is kept. Raises `InvalidConfig`."""
    for setting in TOPIC_SETTINGS.values():
        if name in setting.names():
            return setting.name
    return next(iter(check_overrides({name: ""})))  # an unknown name: this raises what it says
