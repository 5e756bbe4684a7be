"""metadata: the brokers, and the topics with their partitions.

metadata (key 3): versions 0 to 10, native 0
     1  controller_id, is_internal, racks; no list means all topics
     2  cluster_id (KIP-78)
     3  throttle_time_ms in the response (KIP-13)
     4  allow_auto_topic_creation
     5  offline_replicas (KIP-112)
     6  the response comes before the client is throttled (KIP-219)
     7  leader_epoch (KIP-320)
     8  authorized operations (KIP-430)
     9  compact encoding (KIP-482)
    10  topic ids (KIP-516)

A single broker offers versions to 7 only: from 9 on clients trust leader epochs. Left out: metadata
by topic id (KIP-516, version 12).
"""

from collections.abc import Mapping
from typing import Final

from ...protocol.api.pieces import Pieces
from ...protocol.api.topics.metadata import (
    METADATA,
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopicResult,
)
from ...protocol.errors import InvalidRequest
from ...protocol.limits import MAX_WINDOW_PARTITIONS
from ...protocol.window_topics import base_of, may_name_window
from ...storage.directory.topics import TopicEntry
from ..requests import Call, PendingAnswer, in_turns
from ..window_topics import is_reserved
from .base import Services
from .registration import handles

_PARTITIONS_AT_ONCE: Final = 200


@handles(METADATA)
def handle(
    services: Services, request: MetadataRequest, call: Call
) -> MetadataResponse | PendingAnswer:
    """Answer with brokers and topics. Missing topics are created first, if request and settings
    allow it."""
    return in_turns(services.work, _answering(services, request, call))


def _answering(
    services: Services, request: MetadataRequest, call: Call
) -> Pieces[MetadataResponse | PendingAnswer]:
    creations = services.creations
    if _names_topics(request, call) and request.allow_auto_topic_creation:
        context = creations.context
        missing = yield from creations.find_missing(topic.name for topic in request.topics or ())
        if missing:
            creations.context = context
            creating = creations.make(missing)
            return PendingAnswer(
                creating.ready,
                lambda: in_turns(
                    services.work, _answer(services, request, call, creating.failures())
                ),
                alone=True,
            )
    return (yield from _answer(services, request, call, {}))


def _answer(
    services: Services, request: MetadataRequest, call: Call, failures: Mapping[str, Exception]
) -> Pieces[MetadataResponse]:
    """Make the answer; `failures` has the error of each topic that could not be created."""
    host, port = call.local_address
    node_id = services.settings.broker_id
    topics: list[MetadataTopicResult] = []
    if _names_topics(request, call):
        # A name given twice is answered once; the order is that of the request.
        names = dict.fromkeys(topic.name for topic in request.topics or ())
        create = request.allow_auto_topic_creation
        of_windows = 0
        for name in names:
            result = yield from _named(services, name, create, failures.get(name), of_windows)
            topics.append(result)
            if may_name_window(name) and name not in services.directory.topics():
                of_windows += len(result.partitions)
            yield
    else:
        for entry in list(services.directory.topics().values()):
            topics.append((yield from _describe(node_id, entry, entry.name)))
            yield
    return MetadataResponse(
        brokers=[MetadataBroker(node_id=node_id, host=host, port=port)],
        cluster_id=services.directory.cluster_id(),
        controller_id=node_id,
        topics=topics,
        node_id=node_id,
    )


def _names_topics(request: MetadataRequest, call: Call) -> bool:
    """Whether the request names topics, perhaps none, instead of asking for all."""
    if call.version == 0:
        return bool(request.topics)
    return request.topics is not None


def _named(
    services: Services, name: str, create: bool, failure: Exception | None, of_windows: int
) -> Pieces[MetadataTopicResult]:
    """Return what there is to say of a name. `of_windows` is the number of partitions of windows
    that the answer has."""
    try:
        if failure is not None:
            raise failure
        topics = services.directory.topics()
        if create and name not in topics and not is_reserved(topics, name):
            services.logs.create(name)
        entry = services.logs.topic(base_of(topics, name))
        if entry.name != name:
            _check_room(of_windows, entry.partitions)
    except Exception as error:
        code, message = services.outcomes.of(error, api="metadata")
        return MetadataTopicResult(name=name, error_code=code, error_message=message)
    return (yield from _describe(services.settings.broker_id, entry, name))


def _check_room(of_windows: int, partitions: int) -> None:
    """Raise `InvalidRequest` if an answer has no room for the partitions of one more window."""
    if of_windows and of_windows + partitions > MAX_WINDOW_PARTITIONS:
        raise InvalidRequest(
            f"the answer has {of_windows} partitions of windows already, and this window has "
            f"{partitions}; it may have {MAX_WINDOW_PARTITIONS}: name fewer windows in a request"
        )


def _describe(node_id: int, entry: TopicEntry, name: str) -> Pieces[MetadataTopicResult]:
    partitions: list[MetadataPartition] = []
    while len(partitions) < entry.partitions:
        begin = len(partitions)
        partitions += [
            MetadataPartition(
                partition=partition,
                leader_id=node_id,
                replica_nodes=[node_id],
                isr_nodes=[node_id],
            )
            for partition in range(begin, min(begin + _PARTITIONS_AT_ONCE, entry.partitions))
        ]
        if len(partitions) < entry.partitions:
            yield
    return MetadataTopicResult(name=name, topic_id=entry.topic_id, partitions=partitions)
