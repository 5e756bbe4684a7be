"""create-partitions: add partitions to existing topics."""

from typing import Final

from ...limits import MAX_PARTITIONS, MAX_REPLICAS, MAX_TOPICS
from ..rights import each
from ..schema import INT32, Api, array, boolean, error_text, int16, int32, message, string
from ..security.acl_terms import Operation, ResourceType


@message
class CreatePartitionsAssignment:
    broker_ids: list[int] = array(
        INT32, max_items=MAX_REPLICAS, doc="Brokers for the replicas of the partition."
    )


@message
class CreatePartitionsTopic:
    name: str = string(doc="Topic.")
    count: int = int32(doc="New number of partitions; more than the topic has.")
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment,
        max_items=MAX_PARTITIONS,
        nullable=True,
        default=None,
        doc="Kafka's manual assignment of the new partitions, in their order; null leaves it "
        "to the broker.",
    )


@message
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic, max_items=MAX_TOPICS)
    timeout_ms: int = int32(default=30_000, doc="How long to wait.")
    validate_only: bool = boolean(
        default=False, doc="Whether to check the request without a change."
    )


@message
class CreatePartitionsResult:
    name: str = string(doc="Topic.")
    error_code: int = int16(default=0, doc="0 if the topic has that many partitions now.")
    error_message: str | None = error_text(default=None)


@message
class CreatePartitionsResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is throttled, in ms.")
    results: list[CreatePartitionsResult] = array(CreatePartitionsResult, max_items=MAX_TOPICS)


CREATE_PARTITIONS: Final = Api(
    key=37,
    name="create-partitions",
    min_version=0,
    max_version=1,
    request=CreatePartitionsRequest,
    response=CreatePartitionsResponse,
    doc="Add partitions to topics. Stored messages stay in their partitions; new messages "
    "with the same key may go to another partition than before.",
    rights=(each(Operation.ALTER, ResourceType.TOPIC),),
    repeatable=False,
)
