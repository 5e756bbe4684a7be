"""elect-leaders: move leadership between replicas, which Horolog refuses."""

from typing import Final

from ...limits import MAX_PARTITIONS, MAX_TOPICS
from ..rights import ALTERS_CLUSTER
from ..schema import INT32, Api, ServedBy, array, error_text, int8, int16, int32, message, string


@message
class ElectLeadersTopic:
    topic: str = string(doc="Topic.")
    partitions: list[int] = array(INT32, max_items=MAX_PARTITIONS, doc="Partitions.")


@message
class ElectLeadersRequest:
    election_type: int = int8(default=0, doc="0 the preferred replica, 1 any replica.")
    topic_partitions: list[ElectLeadersTopic] | None = array(
        ElectLeadersTopic, max_items=MAX_TOPICS, nullable=True, doc="Null for all."
    )
    timeout_ms: int = int32(default=60_000, doc="Ignored: the answer never waits.")


@message
class ElectLeadersPartitionResult:
    partition: int = int32(doc="Partition.")
    error_code: int = int16(default=0, doc="35: this is refused.")
    error_message: str | None = error_text(default=None)


@message
class ElectLeadersTopicResult:
    topic: str = string(doc="Topic.")
    partitions: list[ElectLeadersPartitionResult] = array(
        ElectLeadersPartitionResult, max_items=MAX_PARTITIONS
    )


@message
class ElectLeadersResponse:
    throttle_time_ms: int = int32(default=0, doc="How long the client is throttled, in ms.")
    error_code: int = int16(
        default=0,
        doc="0: each partition has the refusal, with an explanation. 35 if the request names "
        "no partition.",
    )
    topics: list[ElectLeadersTopicResult] = array(
        ElectLeadersTopicResult, max_items=MAX_TOPICS, default=()
    )


ELECT_LEADERS: Final = Api(
    key=43,
    name="elect-leaders",
    min_version=1,  # Version 0 has no field for the refusal of a request without partitions.
    max_version=1,
    native_max_version=-1,
    request=ElectLeadersRequest,
    response=ElectLeadersResponse,
    doc="Refused: one broker leads all partitions. `horolog cluster promote`, or etcd, makes "
    "another broker the leader.",
    rights=ALTERS_CLUSTER,
    served_by=ServedBy.ANY_BROKER,
)
