"""produce: append record sets to partitions.

`acks` 0: there is no response at all; if a partition fails, the connection is closed instead. 1:
the broker answers when the set is in the log. -1 ("all"): it answers when the set is as durable as
the topic requires.
"""

from typing import Final

from ...limits import MAX_PARTITIONS, MAX_TOPICS
from ...records.layout import Buffer
from ..rights import CREATES_TOPIC, How, Need, When, each
from ..schema import (
    Api,
    array,
    error_text,
    int16,
    int32,
    int64,
    message,
    nullable_string,
    records,
    string,
)
from ..security.acl_terms import Operation, ResourceType


@message
class ProducePartition:
    partition: int = int32(doc="Partition to append to.")
    records: Buffer | None = records(doc="A message set; its offsets are assigned by the broker.")


@message
class ProduceTopic:
    name: str = string(doc="Topic.")
    partitions: list[ProducePartition] = array(ProducePartition, max_items=MAX_PARTITIONS)


@message
class ProduceRequest:
    transactional_id: str | None = nullable_string(
        since=3, default=None, doc="Transactional id; refused, because there are no transactions."
    )
    acks: int = int16(
        doc="When to answer. 0: never. 1: when the set is in the log. -1: when it is as durable "
        "as the topic's settings require."
    )
    timeout_ms: int = int32(default=30_000, doc="How long to wait for `acks` -1.")
    topics: list[ProduceTopic] = array(ProduceTopic, max_items=MAX_TOPICS)


@message
class ProducePartitionResult:
    partition: int = int32(doc="Partition.")
    error_code: int = int16(default=0, doc="0 if the set was appended.")
    base_offset: int = int64(default=-1, doc="Offset of the first message; -1 on error.")
    log_append_time_ms: int = int64(
        since=2, default=-1, doc="Append time of the set, on a LogAppendTime topic; else -1."
    )
    log_start_offset: int = int64(since=5, default=-1, doc="Log start offset; -1 if not known.")
    error_message: str | None = error_text(native=True, default=None)
    expired_before_ms: int = int64(
        native=True,
        default=-1,
        doc="Messages of the set with an earlier time are past `retention.ms` already, so they are "
        "deleted soon; -1 when there is none.",
    )


@message
class ProduceTopicResult:
    name: str = string(doc="Topic.")
    partitions: list[ProducePartitionResult] = array(
        ProducePartitionResult, max_items=MAX_PARTITIONS
    )


@message
class ProduceResponse:
    topics: list[ProduceTopicResult] = array(ProduceTopicResult, max_items=MAX_TOPICS)
    throttle_time_ms: int = int32(
        since=1, default=0, doc="How long the client is throttled, in ms."
    )


PRODUCE: Final = Api(
    key=0,
    name="produce",
    min_version=0,
    max_version=7,
    native_max_version=3,
    request=ProduceRequest,
    response=ProduceResponse,
    doc="Append message sets. A set is appended whole or not at all; partitions are independent.",
    rights=(
        each(Operation.WRITE, ResourceType.TOPIC),
        Need(CREATES_TOPIC, How.EACH, When.MADE),
    ),
    repeatable=False,
)
