"""describe-removals: what left the logs of a topic, and from when on its partitions are complete.
Kafka has no such request."""

from typing import Final

from ...limits import MAX_PARTITIONS
from ..rights import whole
from ..schema import (
    INT32,
    Api,
    ServedBy,
    array,
    error_text,
    int16,
    int32,
    int64,
    message,
    string,
)
from ..security.acl_terms import Operation, ResourceType

MAX_REMOVALS: Final = 2000
"""Most removals in an answer: those of the journal, and those that only this broker has."""


@message
class DescribeRemovalsRequest:
    topic: str = string(doc="Topic; it may be deleted.")
    partitions: list[int] = array(
        INT32,
        max_items=MAX_PARTITIONS,
        default=(),
        doc="Partitions whose completeness is described. The removals are those of all partitions.",
    )


@message
class DescribedRemoval:
    cause: str = string(
        doc="`retention`, `trim`, `deletion` of the topic, `truncation` at this broker, or "
        "`cleaning`."
    )
    rule: str = string(
        doc="The setting with its value; for a trim or a deletion the principal; for a truncation "
        "why. Empty, except for a truncation, if the client may not DescribeConfigs on the topic."
    )
    topic_id: str = string(doc="Id of the topic then; a later topic of the same name has another.")
    partition: int = int32(doc="Partition.")
    first_offset: int = int64(doc="Offset of the first message; -1 if it is not known.")
    end_offset: int = int64(doc="Offset after the last message; -1 if it is not known.")
    messages: int = int64(doc="Number of messages; -1 if it is not known.")
    first_timestamp_ms: int = int64(
        doc="Timestamp of the first message; -1 if it has none or is not known."
    )
    largest_timestamp_ms: int = int64(
        doc="Largest timestamp; -1 if no message has one, or it is not known."
    )
    began_ms: int = int64(doc="When the first of these messages were removed.")
    at_ms: int = int64(doc="When the last of them were removed.")
    times: int = int64(doc="How many removals are joined in this one.")


@message
class PartitionCompleteness:
    partition: int = int32(doc="Partition.")
    error_code: int = int16(default=0, doc="0 if the partition exists.")
    error_message: str | None = error_text(default=None)
    log_start_offset: int = int64(default=-1, doc="Log start offset.")
    complete_from_ms: int = int64(
        default=-1,
        doc="From this time on, no message has left the partition. 0: none has left it; -1: it is "
        "not known.",
    )


@message
class DescribeRemovalsResponse:
    error_code: int = int16(default=0, doc="0 if the removals could be described.")
    error_message: str | None = error_text(default=None)
    topic_id: str = string(default="", doc="Id of the topic; empty if it does not exist.")
    removals: list[DescribedRemoval] = array(
        DescribedRemoval,
        max_items=MAX_REMOVALS,
        default=(),
        doc="Those that were last changed the longest ago first.",
    )
    partitions: list[PartitionCompleteness] = array(
        PartitionCompleteness, max_items=MAX_PARTITIONS, default=()
    )


DESCRIBE_REMOVALS: Final = Api(
    key=1007,
    name="describe-removals",
    min_version=0,
    max_version=0,
    request=DescribeRemovalsRequest,
    response=DescribeRemovalsResponse,
    doc="List what left the logs of a topic: when, by which rule or user, which offsets and times. "
    "A deleted topic has its list, too.",
    native=True,
    rights=(whole(Operation.DESCRIBE, ResourceType.TOPIC),),
    served_by=ServedBy.ANY_BROKER,
)
