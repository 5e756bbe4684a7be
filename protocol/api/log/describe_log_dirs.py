"""describe-log-dirs: the disk space that partitions take."""

from typing import Final

from ...limits import MAX_LOG_DIRS, MAX_PARTITIONS, MAX_TOPICS
from ..rights import DESCRIBES_CLUSTER
from ..schema import (
    INT32,
    Api,
    ServedBy,
    array,
    boolean,
    error_text,
    int16,
    int32,
    int64,
    message,
    string,
)


@message
class DescribableLogDirTopic:
    name: str = string(doc="Topic.")
    partitions: list[int] = array(INT32, max_items=MAX_PARTITIONS, doc="Partitions.")


@message
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None = array(
        DescribableLogDirTopic,
        max_items=MAX_TOPICS,
        nullable=True,
        default=None,
        doc="Null: all topics. Topics and partitions that do not exist are left out of the answer.",
    )


@message
class DescribeLogDirsPartition:
    partition: int = int32(doc="Partition.")
    size_bytes: int = int64(doc="Size of its log files; -1 if it cannot be opened.")
    offset_lag: int = int64(default=0, doc="Always 0.")
    is_future_key: bool = boolean(default=False, doc="Always false.")
    error_code: int = int16(native=True, default=0, doc="0 if the size is known.")
    error_message: str | None = error_text(native=True, default=None)


@message
class DescribeLogDirsTopic:
    name: str = string(doc="Topic.")
    partitions: list[DescribeLogDirsPartition] = array(
        DescribeLogDirsPartition, max_items=MAX_PARTITIONS
    )


@message
class DescribeLogDirsResult:
    error_code: int = int16(default=0, doc="0.")
    log_dir: str = string(doc="Absolute path of the data directory.")
    topics: list[DescribeLogDirsTopic] = array(
        DescribeLogDirsTopic, max_items=MAX_TOPICS, default=()
    )


@message
class DescribeLogDirsResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is throttled, in ms.")
    results: list[DescribeLogDirsResult] = array(
        DescribeLogDirsResult,
        max_items=MAX_LOG_DIRS,
        doc="One item, because there is one data directory.",
    )


DESCRIBE_LOG_DIRS: Final = Api(
    key=35,
    name="describe-log-dirs",
    min_version=0,
    max_version=1,
    request=DescribeLogDirsRequest,
    response=DescribeLogDirsResponse,
    doc="Get the size of each partition's log.",
    rights=DESCRIBES_CLUSTER,
    served_by=ServedBy.ANY_BROKER,
)
