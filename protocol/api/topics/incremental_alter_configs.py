"""incremental-alter-configs: change some settings of a topic, and keep the others."""

from typing import Final

from ...limits import MAX_CONFIGS, MAX_TOPICS
from ..rights import ALTERS_CONFIGS
from ..schema import (
    Api,
    array,
    boolean,
    error_text,
    flexible_since,
    int8,
    int16,
    int32,
    message,
    nullable_string,
    string,
)
from .describe_configs import TOPIC_RESOURCE

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3
"""Values of `config_operation`."""


@message
class IncrementalConfig:
    name: str = string(doc="Setting.")
    config_operation: int = int8(
        default=SET,
        doc="0 set, 1 unset. 2 append and 3 subtract are refused: no setting is a list.",
    )
    value: str | None = nullable_string(default=None, doc="New value as text; ignored for `unset`.")


@message
class IncrementalAlterConfigsResource:
    resource_type: int = int8(default=TOPIC_RESOURCE, doc="2 topic.")
    resource_name: str = string(doc="Name of the topic.")
    configs: list[IncrementalConfig] = array(IncrementalConfig, max_items=MAX_CONFIGS)


@flexible_since(1)
@message
class IncrementalAlterConfigsRequest:
    resources: list[IncrementalAlterConfigsResource] = array(
        IncrementalAlterConfigsResource, max_items=MAX_TOPICS
    )
    validate_only: bool = boolean(
        default=False, doc="Whether to check the request without a change."
    )


@message
class IncrementalAlterConfigsResult:
    error_code: int = int16(default=0, doc="0 if all changes of this resource were made.")
    error_message: str | None = error_text(default=None)
    resource_type: int = int8(doc="As in the request.")
    resource_name: str = string(doc="As in the request.")


@flexible_since(1)
@message
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is throttled, in ms.")
    responses: list[IncrementalAlterConfigsResult] = array(
        IncrementalAlterConfigsResult, max_items=MAX_TOPICS
    )


INCREMENTAL_ALTER_CONFIGS: Final = Api(
    key=44,
    name="incremental-alter-configs",
    min_version=0,
    max_version=1,
    request=IncrementalAlterConfigsRequest,
    response=IncrementalAlterConfigsResponse,
    doc="Change the named settings of a topic, all of them or none. They apply from the next "
    "append or maintenance pass on. Version 1 is the same in Kafka's compact encoding.",
    rights=ALTERS_CONFIGS,
)
