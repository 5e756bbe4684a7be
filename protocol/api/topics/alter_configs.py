"""alter-configs: change the settings of a topic."""

from typing import Final

from ...limits import MAX_CONFIGS, MAX_TOPICS
from ..rights import ALTERS_CONFIGS
from ..schema import (
    Api,
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
from .describe_configs import TOPIC_RESOURCE


@message
class AlterableConfig:
    name: str = string(doc="Setting.")
    value: str | None = nullable_string(doc="New value as text; null removes the setting.")


@message
class AlterConfigsResource:
    resource_type: int = int8(default=TOPIC_RESOURCE, doc="2 topic.")
    resource_name: str = string(doc="Name of the topic.")
    configs: list[AlterableConfig] = array(AlterableConfig, max_items=MAX_CONFIGS)


@message
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = array(AlterConfigsResource, max_items=MAX_TOPICS)
    validate_only: bool = boolean(
        default=False, doc="Whether to check the request without a change."
    )
    incremental: bool = boolean(
        native=True,
        default=False,
        doc="True: change the named settings and keep the others. False, as in Kafka: the "
        "topic keeps only the named settings.",
    )


@message
class AlterConfigsResult:
    error_code: int = int16(default=0, doc="0 if the change was made.")
    error_message: str | None = error_text(default=None)
    resource_type: int = int8(doc="As in the request.")
    resource_name: str = string(doc="As in the request.")


@message
class AlterConfigsResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is throttled, in ms.")
    responses: list[AlterConfigsResult] = array(AlterConfigsResult, max_items=MAX_TOPICS)


ALTER_CONFIGS: Final = Api(
    key=33,
    name="alter-configs",
    min_version=0,
    max_version=1,
    request=AlterConfigsRequest,
    response=AlterConfigsResponse,
    doc="Change settings of a topic, all of them or none. They apply from the next append or "
    "maintenance pass on.",
    rights=ALTERS_CONFIGS,
)
