"""delete-records: delete the oldest messages of partitions."""

from typing import Final

from ...limits import MAX_PARTITIONS, MAX_TOPICS
from ..rights import each
from ..schema import Api, array, error_text, int16, int32, int64, message, string
from ..security.acl_terms import Operation, ResourceType

ALL_READABLE: Final = -1
"""Offset that stands for the high watermark: delete every message that can be read now."""


@message
class DeleteRecordsPartition:
    partition: int = int32(doc="Partition.")
    offset: int = int64(
        doc="The first offset to keep; -1 for the high watermark, which keeps no message."
    )


@message
class DeleteRecordsTopic:
    name: str = string(doc="Topic.")
    partitions: list[DeleteRecordsPartition] = array(
        DeleteRecordsPartition, max_items=MAX_PARTITIONS
    )


@message
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic, max_items=MAX_TOPICS)
    timeout_ms: int = int32(default=30_000, doc="How long to wait.")


@message
class DeleteRecordsPartitionResult:
    partition: int = int32(doc="Partition.")
    low_watermark: int = int64(default=-1, doc="The new log start offset; -1 on error.")
    error_code: int = int16(
        default=0,
        doc="0 if no message below the offset can be read any more; 1 if the offset is above "
        "the high watermark.",
    )
    error_message: str | None = error_text(native=True, default=None)


@message
class DeleteRecordsTopicResult:
    name: str = string(doc="Topic.")
    partitions: list[DeleteRecordsPartitionResult] = array(
        DeleteRecordsPartitionResult, max_items=MAX_PARTITIONS
    )


@message
class DeleteRecordsResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is throttled, in ms.")
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult, max_items=MAX_TOPICS)


DELETE_RECORDS: Final = Api(
    key=21,
    name="delete-records",
    min_version=0,
    max_version=1,
    request=DeleteRecordsRequest,
    response=DeleteRecordsResponse,
    doc="Delete all messages below an offset. The change is durable when the request is "
    "answered. Disk space is freed in whole segments.",
    rights=(each(Operation.DELETE, ResourceType.TOPIC),),
)
