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
    topic_id: str = string(default="", doc="Its id; empty for the metadata log.")
    partition: int = int32(doc="Partition.")
    end_offset: int = int64(doc="First offset that the follower does not have.")
    last_epoch: int = int32(doc="Leader epoch of its last message; -1 for none.")
    synced_offset: int = int64(doc="Everything below it is on its stable storage.")
    log_start_offset: int = int64(doc="First offset that it has.")
    check: bool = boolean(
        since=1,
        default=False,
        doc="Fetch: the messages sent from `end_offset` on were damaged: the leader checks what it "
        "has stored there.",
    )


@holds_values(MAX_REPLICATE_VALUES)
@message
class EpochOwner:
    epoch: int = int32(doc="Leader epoch.")
    broker_id: int = int32(doc="Broker that led in it.")
    nonce: int = int64(doc="Number of its directory.")


@message
class ReplicateRequest:
    says: int = int8(doc="0 hello, 1 fetch, 2 confirm, 3 make.")
    connection: int = int64(doc="Number that the follower chose at random for this connection.")
    epoch: int = int32(default=-1, doc="Leader epoch that this is for; -1 in a first hello.")
    broker_id: int = int32(default=0, doc="Hello: who follows.")
    nonce: int = int64(default=0, doc="Hello: number of its directory.")
    highest_epoch: int = int32(default=-1, doc="Hello: the highest leader epoch that it knows.")
    cluster_id: str = string(default="", doc="Hello: cluster that it is of; empty for any.")
    address: str = string(default="", doc="Hello: where it takes clients of the native protocol.")
    kafka_address: str = string(default="", doc="Hello: where it takes clients of Kafka's.")
    positions: list[ReplicaPosition] = array(
        ReplicaPosition,
        max_items=MAX_PARTITIONS,
        default=(),
        doc="Fetch and confirm: those that changed; all of them in the first fetch.",
    )
    ahead: bool = boolean(
        default=False,
        doc="Fetch: the last answer is not appended yet; go on behind what was sent.",
    )
    owners: list[EpochOwner] = array(
        EpochOwner,
        max_items=MAX_LEADER_EPOCHS,
        since=1,
        default=(),
        doc="Hello: who led in which epoch, as the follower knows it.",
    )
    leaving: bool = boolean(
        since=1,
        default=False,
        doc="Confirm: the follower stops. The leader takes it out of the in-sync replicas and "
        "answers its fetch then.",
    )
    topics: list[str] = array(
        Text(),
        max_items=MAX_TOPICS,
        default=(),
        doc="Make: topics to be made where they do not exist, as for a client that asks about them "
        "(auto.create.topics.enable).",
    )


@message
class EpochBegin:
    epoch: int = int32(doc="Leader epoch; -1 for messages from before there were any.")
    offset: int = int64(doc="Its first offset.")


@message
class ReplicatedPart:
    topic: str = string(doc="Topic.")
    topic_id: str = string(default="", doc="Its id; empty for the metadata log.")
    partition: int = int32(doc="Partition.")
    diverging: list[EpochBegin] = array(
        EpochBegin,
        max_items=1,
        default=(),
        doc="Where the follower's log leaves the leader's: the greatest epoch at or below the one "
        "of its last message, and the offset where that one ends.",
    )
    next_offset: int = int64(default=-1, doc="First offset behind `records`.")
    records: bytes | None = records(default=None, doc="Messages as they lie in the leader's file.")
    facts: bytes = data(
        max_bytes=MAX_COPY_FACTS_BYTES,
        default=b"",
        doc="What goes with them: append times, file times, epochs, the segment they are in.",
    )
    epochs: list[EpochBegin] = array(
        EpochBegin, max_items=MAX_LEADER_EPOCHS, default=(), doc="Epochs of these messages."
    )
    log_start_offset: int = int64(doc="Where the leader's log begins, at a whole set.")
    first_visible_offset: int = int64(doc="First offset that consumers get.")
    high_watermark: int = int64(doc="First offset that consumers do not get; -1 for not known.")
    sync_to: int = int64(doc="The leader wants everything below it on stable storage.")
    producers: list[bytes] = array(
        Data(),
        max_items=MAX_PRODUCER_STATE_PIECES,
        default=(),
        doc="What is known of idempotent producers from before the log start, for a log that is "
        "copied from there, in pieces of up to 1 MiB.",
    )
    state: bytes = data(
        max_bytes=MAX_DATA_BYTES,
        default=b"",
        doc="A part of what the metadata log said before its start, for a copy that begins there.",
    )
    state_position: int = int64(default=0, doc="Where in the whole `state` begins.")
    state_bytes: int = int64(default=0, doc="How large the whole is; 0 where nothing is sent.")
    state_offset: int = int64(default=0, doc="First offset that the whole does not have.")
    stored: Any = unsent(
        default=None,
        doc="`Stored`: where the messages are in the leader's log, or what the follower was sent.",
    )
    producer_state: Any = unsent(
        default=None, doc="What `PartitionLog.producers_at_start` of the leader gave."
    )


@message
class ReplicaPlace:
    broker_id: int = int32(doc="A follower that is there.")
    address: str = string(default="", doc="Where it takes clients of the native protocol.")
    kafka_address: str = string(default="", doc="Where it takes clients of Kafka's, if anywhere.")


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
    epoch: int = int32(doc="Leader epoch; of a refusal the highest that the broker knows.")
    broker_id: int = int32(default=0, doc="Who answers.")
    cluster_id: str = string(default="", doc="The cluster, in a welcome.")
    kafka_address: str = string(
        default="", doc="In a welcome: where the leader takes clients of Kafka's protocol."
    )
    owners: list[EpochOwner] = array(
        EpochOwner,
        max_items=MAX_LEADER_EPOCHS,
        since=1,
        default=(),
        doc="In a welcome: who led in which epoch. Where the follower knows another owner of an "
        "epoch, it does not follow.",
    )
    damaged: list[DamagedPartition] = array(
        DamagedPartition,
        max_items=MAX_PARTITIONS,
        since=1,
        default=(),
        doc="In a welcome: partitions that are damaged at the leader. A follower keeps what it has "
        "of them, damaged or not.",
    )
    parts: list[ReplicatedPart] = array(
        ReplicatedPart, max_items=MAX_PARTITIONS, default=(), doc="Partitions with news."
    )
    behind_messages: int = int64(
        default=0, doc="How many messages the leader had that the follower had not said to have."
    )
    unreadable: str = string(
        since=1,
        default="",
        doc="Which partitions the leader cannot read for its followers, and why; empty: none.",
    )
    in_sync: list[int] = array(
        INT32, max_items=MAX_REPLICAS, default=(), doc="The in-sync replicas, as the leader counts."
    )
    members: list[ReplicaPlace] = array(
        ReplicaPlace,
        max_items=MAX_REPLICAS,
        default=(),
        doc="The followers that are there, the one that asks among them; empty if it has the list.",
    )
    not_made: list[TopicNotMade] = array(
        TopicNotMade,
        max_items=MAX_TOPICS,
        default=(),
        doc="Made: the topics that do not exist all the same.",
    )


REPLICATE: Final = Api(
    key=1004,
    name="replicate",
    min_version=0,
    max_version=1,
    request=ReplicateRequest,
    response=ReplicateResponse,
    doc="Between brokers: a follower's side of the copying of all topics. A confirmation is not "
    "answered (`says` 2). Refused with INVALID_REQUEST by a broker that is in no cluster, and with "
    "INCONSISTENT_CLUSTER_ID by one of another cluster.",
    native=True,
    rights=(whole(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),),
    served_by=ServedBy.ANY_BROKER,
)
