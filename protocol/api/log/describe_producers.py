"""describe-producers: the idempotent producers that partitions remember."""

from typing import Final

from ...limits import MAX_LISTED_PRODUCERS, MAX_PARTITIONS, MAX_TOPICS
from ..rights import each
from ..schema import INT32, Api, array, error_text, flexible, int16, int32, int64, message, string
from ..security.acl_terms import Operation, ResourceType


@message
class DescribeProducersTopic:
    name: str = string(doc="Topic.")
    partitions: list[int] = array(INT32, max_items=MAX_PARTITIONS, doc="Partitions.")


@flexible
@message
class DescribeProducersRequest:
    topics: list[DescribeProducersTopic] = array(DescribeProducersTopic, max_items=MAX_TOPICS)


@message
class ProducerState:
    producer_id: int = int64(doc="Id of the producer.")
    producer_epoch: int = int32(doc="Epoch of the producer.")
    last_sequence: int = int32(default=-1, doc="Sequence number of its last message.")
    last_timestamp: int = int64(
        default=-1, doc="When its last batch was appended, by the broker's clock."
    )
    coordinator_epoch: int = int32(default=-1, doc="Always -1: there are no transactions.")
    current_txn_start_offset: int = int64(
        default=-1, doc="Start offset of its open transaction; -1 if there is none."
    )


@message
class DescribeProducersPartitionResult:
    partition: int = int32(doc="Partition.")
    error_code: int = int16(default=0, doc="0 if the partition exists.")
    error_message: str | None = error_text(default=None)
    active_producers: list[ProducerState] = array(
        ProducerState,
        max_items=MAX_LISTED_PRODUCERS,
        default=(),
        doc="The producers that the partition knows, those that sent last first: at most "
        f"{MAX_LISTED_PRODUCERS}.",
    )


@message
class DescribeProducersTopicResult:
    name: str = string(doc="Topic.")
    partitions: list[DescribeProducersPartitionResult] = array(
        DescribeProducersPartitionResult, max_items=MAX_PARTITIONS
    )


@flexible
@message
class DescribeProducersResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is throttled, in ms.")
    topics: list[DescribeProducersTopicResult] = array(
        DescribeProducersTopicResult, max_items=MAX_TOPICS
    )


DESCRIBE_PRODUCERS: Final = Api(
    key=61,
    name="describe-producers",
    min_version=0,
    max_version=0,
    native_max_version=-1,
    request=DescribeProducersRequest,
    response=DescribeProducersResponse,
    doc="List the idempotent producers whose state partitions keep.",
    rights=(each(Operation.READ, ResourceType.TOPIC),),
)
