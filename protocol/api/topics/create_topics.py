"""create-topics: create topics with partitions and settings."""

from typing import Final

from ...limits import MAX_CONFIGS, MAX_PARTITIONS, MAX_REPLICAS, MAX_TOPICS
from ..rights import CREATES_TOPIC, How, Need
from ..schema import (
    INT32,
    Api,
    array,
    boolean,
    error_text,
    int16,
    int32,
    message,
    nullable_string,
    string,
)


@message
class CreatableAssignment:
    partition: int = int32(doc="Partition.")
    broker_ids: list[int] = array(
        INT32, max_items=MAX_REPLICAS, doc="Brokers for the replicas of the partition."
    )


@message
class CreatableConfig:
    name: str = string(doc="Setting.")
    value: str | None = nullable_string(doc="Its value as text.")


@message
class CreatableTopic:
    name: str = string(doc="Topic.")
    num_partitions: int = int32(default=-1, doc="-1: the broker's `num.partitions`.")
    replication_factor: int = int16(default=-1, doc="1, or -1 for the default.")
    assignments: list[CreatableAssignment] = array(
        CreatableAssignment,
        max_items=MAX_PARTITIONS,
        default=(),
        doc="Kafka's manual assignment, instead of `num_partitions`.",
    )
    configs: list[CreatableConfig] = array(
        CreatableConfig, max_items=MAX_CONFIGS, default=(), doc="Settings of this topic."
    )


@message
class CreateTopicsRequest:
    topics: list[CreatableTopic] = array(CreatableTopic, max_items=MAX_TOPICS)
    timeout_ms: int = int32(default=30_000, doc="How long to wait.")
    validate_only: bool = boolean(
        since=1, default=False, doc="Whether to check the request without creating topics."
    )


@message
class CreatableTopicResult:
    name: str = string(doc="Topic.")
    error_code: int = int16(default=0, doc="0 if the topic was created.")
    error_message: str | None = error_text(since=1, native_since=0, default=None)


@message
class CreateTopicsResponse:
    throttle_time_ms: int = int32(
        since=2, default=0, doc="How long the client is throttled, in ms."
    )
    topics: list[CreatableTopicResult] = array(CreatableTopicResult, max_items=MAX_TOPICS)


CREATE_TOPICS: Final = Api(
    key=19,
    name="create-topics",
    min_version=0,
    max_version=4,
    native_max_version=3,
    request=CreateTopicsRequest,
    response=CreateTopicsResponse,
    doc="Create topics; each succeeds or fails by itself. Kafka's clients leave out "
    "partitions and replication factor (-1) from version 4 on; the broker accepts that in "
    "every version.",
    rights=(Need(CREATES_TOPIC, How.EACH),),
    repeatable=False,
)
