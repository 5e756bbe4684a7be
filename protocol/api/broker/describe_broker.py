"""describe-broker: what a broker reports about itself and its machine. Kafka has no such
request."""

from typing import Final

from ..rights import DESCRIBES_CLUSTER
from ..schema import Api, ServedBy, boolean, int32, int64, message, string


@message
class DescribeBrokerRequest:
    """An empty request."""


@message
class DescribeBrokerResponse:
    broker_version: str = string(doc="Version of the program.")
    kernel: str = string(doc="How messages are scanned: `compiled` or `reference`.")
    now_ms: int = int64(doc="The broker's wall clock.")
    clock_caution: str = string(
        default="", doc="Why retention does not trust that clock; empty if it does."
    )
    data_dir: str = string(doc="The data directory, on the broker's machine.")
    disk_bytes: int = int64(
        default=-1, doc="Size of the file system of the data directory; -1 if not known."
    )
    disk_free_bytes: int = int64(default=-1, doc="Free space in that file system; -1 if not known.")
    files_limit: int = int32(doc="How many files the process may open.")
    files_wanted: int = int32(
        doc="How many files the broker may need: `max.connections`, `max.open.files`, the "
        "HTTP port and a reserve."
    )
    damaged_segments: int = int32(doc="Segments in which damage was found since the start.")
    failed_partitions: int = int32(
        doc="Partitions that stopped taking messages since the start, because a write failed."
    )
    kafka_listen: str = string(
        default="", doc="Address of the port for Kafka's clients; empty if none is configured."
    )
    kafka_open: bool = boolean(default=False, doc="Whether that port is open.")
    kafka_advertised: str = string(
        default="",
        doc="The address that Kafka's clients are told; empty: the one at which they connected.",
    )
    in_sync_most: int = int32(
        default=-1, doc="How many replicas can be in sync, this broker included; -1 if not known."
    )
    min_insync_replicas: int = int32(default=1, doc="`min.insync.replicas` of the broker.")
    unmet_topics: int = int32(
        default=0, doc="Topics whose own `min.insync.replicas` is larger than that."
    )
    unmet_topic: str = string(default="", doc="One of these topics.")


DESCRIBE_BROKER: Final = Api(
    key=1001,
    name="describe-broker",
    min_version=0,
    max_version=0,
    request=DescribeBrokerRequest,
    response=DescribeBrokerResponse,
    doc="Describe a broker and its machine.",
    native=True,
    rights=DESCRIBES_CLUSTER,
    served_by=ServedBy.ANY_BROKER,
)
