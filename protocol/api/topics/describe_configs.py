"""describe-configs: the settings that apply to a topic, and where each comes from."""

from typing import Final

from ...limits import MAX_CONFIGS, MAX_TOPICS
from ..rights import When, each
from ..schema import (
    Api,
    ServedBy,
    Text,
    array,
    boolean,
    error_text,
    int8,
    int16,
    int32,
    message,
    nullable_string,
    string,
)
from ..security.acl_terms import Operation, ResourceType

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
"""Values of `resource_type`, here and in alter-configs."""

FROM_TOPIC: Final = 1
FROM_BROKER: Final = 4
FROM_DEFAULT: Final = 5
"""Values of `config_source`."""

MAX_SYNONYMS: Final = 10
"""Sources that a setting can come from; there are three here, and six in Kafka."""


@message
class DescribeConfigsResource:
    resource_type: int = int8(default=TOPIC_RESOURCE, doc="2 topic, 4 broker.")
    resource_name: str = string(doc="Name of the topic, or id of the broker.")
    configuration_keys: list[str] | None = array(
        Text(), max_items=MAX_CONFIGS, nullable=True, default=None, doc="Null: all settings."
    )


@message
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource, max_items=MAX_TOPICS)
    include_synonyms: bool = boolean(
        since=1,
        default=False,
        doc="Whether the answer has, for each setting, every source that has a value.",
    )


@message
class ConfigSynonym:
    name: str = string(doc="Name of the setting at that source.")
    value: str | None = nullable_string(doc="Value at that source.")
    source: int = int8(doc="The source, as in `config_source`.")


@message
class DescribedConfig:
    name: str = string(doc="Setting.")
    value: str | None = nullable_string(doc="Its value as text; null if it has none.")
    read_only: bool = boolean(default=False, doc="Whether it cannot be changed.")
    is_default: bool = boolean(until=0, default=False, doc="Whether it was not set.")
    config_source: int = int8(
        since=1,
        default=-1,
        doc="Source of the value: 1 the topic, 4 the broker's settings, 5 the default.",
    )
    is_sensitive: bool = boolean(default=False, doc="Always false.")
    synonyms: list[ConfigSynonym] = array(
        ConfigSynonym,
        max_items=MAX_SYNONYMS,
        since=1,
        default=(),
        doc="Every source that has a value, the effective one first; empty if not requested.",
    )
    source: str = string(native=True, default="", doc="`topic`, `broker` or `default`.")


@message
class DescribeConfigsResult:
    error_code: int = int16(default=0, doc="0 if the resource exists.")
    error_message: str | None = error_text(default=None)
    resource_type: int = int8(doc="As in the request.")
    resource_name: str = string(doc="As in the request.")
    configs: list[DescribedConfig] = array(DescribedConfig, max_items=MAX_CONFIGS, default=())


@message
class DescribeConfigsResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is throttled, in ms.")
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult, max_items=MAX_TOPICS)


DESCRIBE_CONFIGS: Final = Api(
    key=32,
    name="describe-configs",
    min_version=0,
    max_version=2,
    request=DescribeConfigsRequest,
    response=DescribeConfigsResponse,
    doc="List the effective settings, each with its source.",
    rights=(
        each(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, When.OF_TOPIC),
        each(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, When.OF_BROKER),
    ),
    served_by=ServedBy.ANY_BROKER,
)
