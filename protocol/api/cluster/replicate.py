"""replicate: the messages between followers and their leader. Kafka has no such request.

A follower opens a connection, sends a hello, and from then on has one fetch pending, which the
leader answers when it has news. Positions that change meanwhile are confirmed, without an answer.
Each message belongs to one connection and one leader epoch.

A follower also asks the leader to create topics that the follower's clients requested. That message
stands alone and may use any connection.
"""

from enum import IntEnum
from typing import Any, Final

from ...limits import (
    MAX_COPY_FACTS_BYTES,
    MAX_DATA_BYTES,
    MAX_LEADER_EPOCHS,
    MAX_PARTITIONS,
    MAX_PRODUCER_STATE_PIECES,
    MAX_REPLICAS,
    MAX_REPLICATE_VALUES,
    MAX_TOPICS,
)
from ..rights import whole
from ..schema import (
    INT32,
    Api,
    Data,
    ServedBy,
    Text,
    array,
    boolean,
    data,
    error_text,
    holds_values,
    int8,
    int16,
    int32,
    int64,
    message,
    records,
    string,
    unsent,
)
from ..security.acl_terms import Operation, ResourceType


class Says(IntEnum):
    """Kinds of messages from a follower."""

    HELLO = 0
    FETCH = 1
    CONFIRM = 2
    MAKE = 3


class Answers(IntEnum):
    """Kinds of messages from a leader."""

    WELCOME = 0
    REFUSAL = 1
    FETCHED = 2
    HANDED_OVER = 3
    MADE = 4


@message
class ReplicaPosition:
    topic: str = string(doc="Topic.")
    topic_id: str = string(default="", doc="Topic id; empty for the metadata log.")
    partition: int = int32(doc="Partition.")
    end_offset: int = int64(doc="First offset that the follower does not have.")
    last_epoch: int = int32(doc="Leader epoch of its last message; -1 if it has none.")
    synced_offset: int = int64(doc="Everything below this offset is synced at the follower.")
    log_start_offset: int = int64(doc="Log start offset of the follower.")
    check: bool = boolean(
        since=1,
        default=False,
        doc="Fetch: the messages that the leader sent from `end_offset` on were damaged, so "
        "it has to check its log there.",
    )


@holds_values(MAX_REPLICATE_VALUES)
@message
class EpochOwner:
    epoch: int = int32(doc="Leader epoch.")
    broker_id: int = int32(doc="Broker that led in it.")
    nonce: int = int64(doc="Nonce of its directory.")


@message
class ReplicateRequest:
    says: int = int8(doc="0 hello, 1 fetch, 2 confirm, 3 make.")
    connection: int = int64(doc="Number that the follower chose at random for this connection.")
    epoch: int = int32(default=-1, doc="Leader epoch of the request; -1 in a first hello.")
    broker_id: int = int32(default=0, doc="Hello: id of the follower.")
    nonce: int = int64(default=0, doc="Hello: nonce of its directory.")
    highest_epoch: int = int32(default=-1, doc="Hello: the highest leader epoch that it knows.")
    cluster_id: str = string(
        default="", doc="Hello: id of its cluster; empty if it belongs to none yet."
    )
    address: str = string(default="", doc="Hello: its address for native clients.")
    kafka_address: str = string(default="", doc="Hello: its address for Kafka's clients.")
    positions: list[ReplicaPosition] = array(
        ReplicaPosition,
        max_items=MAX_PARTITIONS,
        default=(),
        doc="Fetch and confirm: the partitions whose position changed; in the first fetch all "
        "partitions.",
    )
    ahead: bool = boolean(
        default=False,
        doc="Fetch: the last answer is not appended yet; continue behind the messages that "
        "were sent.",
    )
    owners: list[EpochOwner] = array(
        EpochOwner,
        max_items=MAX_LEADER_EPOCHS,
        since=1,
        default=(),
        doc="Hello: the leader of each epoch, as the follower knows it.",
    )
    leaving: bool = boolean(
        since=1,
        default=False,
        doc="Confirm: the follower stops. The leader removes it from the in-sync replicas, "
        "and then answers its fetch.",
    )
    topics: list[str] = array(
        Text(),
        max_items=MAX_TOPICS,
        default=(),
        doc="Make: topics to create if they do not exist, as for a client that requests their "
        "metadata (auto.create.topics.enable).",
    )


@message
class EpochBegin:
    epoch: int = int32(doc="Leader epoch; -1 for messages that no leader wrote.")
    offset: int = int64(doc="Its first offset.")


@message
class ReplicatedPart:
    topic: str = string(doc="Topic.")
    topic_id: str = string(default="", doc="Topic id; empty for the metadata log.")
    partition: int = int32(doc="Partition.")
    diverging: list[EpochBegin] = array(
        EpochBegin,
        max_items=1,
        default=(),
        doc="Set if the follower's log has diverged: the greatest epoch of the leader that is "
        "not above that of the follower's last message, and the end offset of that epoch.",
    )
    next_offset: int = int64(default=-1, doc="First offset behind `records`.")
    records: bytes | None = records(
        default=None, doc="Messages, as they are stored in the leader's file."
    )
    facts: bytes = data(
        max_bytes=MAX_COPY_FACTS_BYTES,
        default=b"",
        doc="Data about these messages: append times, file times, epochs, and their segment.",
    )
    epochs: list[EpochBegin] = array(
        EpochBegin, max_items=MAX_LEADER_EPOCHS, default=(), doc="Leader epochs of these messages."
    )
    log_start_offset: int = int64(doc="Log start of the leader, at the first offset of a set.")
    first_visible_offset: int = int64(doc="Log start offset for consumers.")
    high_watermark: int = int64(doc="High watermark; -1 if not known.")
    sync_to: int = int64(doc="The leader waits until everything below this offset is synced.")
    producers: list[bytes] = array(
        Data(),
        max_items=MAX_PRODUCER_STATE_PIECES,
        default=(),
        doc="State of idempotent producers from before the log start, in pieces of up to 1 "
        "MiB, for a follower that copies the log from its start.",
    )
    state: bytes = data(
        max_bytes=MAX_DATA_BYTES,
        default=b"",
        doc="A part of the state of the metadata log at its start, for a follower that copies "
        "it from there.",
    )
    state_position: int = int64(default=0, doc="Position of `state` in the whole state.")
    state_bytes: int = int64(default=0, doc="Size of the whole state; 0 if nothing is sent.")
    state_offset: int = int64(
        default=0, doc="The whole state includes all records below this offset."
    )
    stored: Any = unsent(
        default=None,
        doc="`Stored`: where the messages are in the leader's log, or what the follower was sent.",
    )
    producer_state: Any = unsent(
        default=None, doc="What `PartitionLog.producers_at_start` of the leader gave."
    )


@message
class ReplicaPlace:
    broker_id: int = int32(doc="Id of a connected follower.")
    address: str = string(default="", doc="Its address for native clients.")
    kafka_address: str = string(
        default="", doc="Its address for Kafka's clients; empty if it has none."
    )


@message
class TopicNotMade:
    name: str = string(doc="Topic.")
    error_code: int = int16(doc="Why it does not exist.")
    error_message: str | None = error_text(default=None)


@message
class DamagedPartition:
    topic: str = string(doc="Topic.")
    partition: int = int32(doc="Partition.")


@message
class ReplicateResponse:
    answers: int = int8(doc="0 welcome, 1 refusal, 2 fetched, 3 handed over, 4 made.")
    epoch: int = int32(doc="Leader epoch; in a refusal the highest that the broker knows.")
    broker_id: int = int32(default=0, doc="Id of the answering broker.")
    cluster_id: str = string(default="", doc="In a welcome: id of the cluster.")
    kafka_address: str = string(
        default="", doc="In a welcome: the leader's address for Kafka's clients."
    )
    owners: list[EpochOwner] = array(
        EpochOwner,
        max_items=MAX_LEADER_EPOCHS,
        since=1,
        default=(),
        doc="In a welcome: the leader of each epoch. A follower that knows another leader of "
        "one of these epochs does not follow.",
    )
    damaged: list[DamagedPartition] = array(
        DamagedPartition,
        max_items=MAX_PARTITIONS,
        since=1,
        default=(),
        doc="In a welcome: partitions that are damaged at the leader. A follower keeps its "
        "messages of them, damaged or not.",
    )
    parts: list[ReplicatedPart] = array(
        ReplicatedPart,
        max_items=MAX_PARTITIONS,
        default=(),
        doc="Partitions with new messages or offsets.",
    )
    behind_messages: int = int64(
        default=0, doc="How many messages of the leader the follower has not confirmed."
    )
    unreadable: str = string(
        since=1,
        default="",
        doc="Partitions that the leader cannot read for its followers, with the reasons; "
        "empty if there are none.",
    )
    in_sync: list[int] = array(
        INT32,
        max_items=MAX_REPLICAS,
        default=(),
        doc="The in-sync replicas, as the leader knows them.",
    )
    members: list[ReplicaPlace] = array(
        ReplicaPlace,
        max_items=MAX_REPLICAS,
        default=(),
        doc="The connected followers, including the one that gets this answer; empty if it "
        "has the list already.",
    )
    not_made: list[TopicNotMade] = array(
        TopicNotMade,
        max_items=MAX_TOPICS,
        default=(),
        doc="Made: topics that still do not exist.",
    )


REPLICATE: Final = Api(
    key=1004,
    name="replicate",
    min_version=0,
    max_version=1,
    request=ReplicateRequest,
    response=ReplicateResponse,
    doc="Between brokers: a follower copies all topics. A confirmation (`says` 2) gets no "
    "answer. Refused with INVALID_REQUEST by a broker that is in no cluster, and with "
    "INCONSISTENT_CLUSTER_ID by a broker of another cluster.",
    native=True,
    rights=(whole(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),),
    served_by=ServedBy.ANY_BROKER,
)
