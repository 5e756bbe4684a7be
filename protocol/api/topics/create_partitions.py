"""create-partitions: add partitions to existing topics."""

from typing import Final

from ...limits import MAX_PARTITIONS, MAX_REPLICAS, MAX_TOPICS
from ..rights import each
from ..schema import INT32, Api, array, boolean, error_text, int16, int32, message, string
from ..security.acl_terms import Operation, ResourceType


@message
class CreatePartitionsAssignment:
    broker_ids: list[int] = array(INT32, max_items=MAX_REPLICAS, doc="Where it is to live.")


@message
class CreatePartitionsTopic:
    name: str = string(doc="Topic.")
    count: int = int32(doc="How many partitions it is to have; more than it has.")
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment,
        max_items=MAX_PARTITIONS,
        nullable=True,
        default=None,
        doc="Kafka's manual placement of the new ones, in order; null leaves it to the broker.",
    )


@message
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic, max_items=MAX_TOPICS)
    timeout_ms: int = int32(default=30_000, doc="How long to wait.")
    validate_only: bool = boolean(default=False, doc="True: check, and change nothing.")


@message
class CreatePartitionsResult:
    name: str = string(doc="Topic.")
    error_code: int = int16(default=0, doc="0 when it has that many partitions now.")
    error_message: str | None = error_text(default=None)


@message
class CreatePartitionsResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is not listened to.")
    results: list[CreatePartitionsResult] = array(CreatePartitionsResult, max_items=MAX_TOPICS)


CREATE_PARTITIONS: Final = Api(
    key=37,
    name="create-partitions",
    min_version=0,
    max_version=1,
    request=CreatePartitionsRequest,
    response=CreatePartitionsResponse,
    doc="Give topics more partitions, never fewer. Messages stay where they are; those with a key "
    "may go to another partition from then on.",
    rights=(each(Operation.ALTER, ResourceType.TOPIC),),
    repeatable=False,
)
