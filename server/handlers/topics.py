"""create-topics, create-partitions and delete-topics.

Topics are changed one after another, and the disk's part is done in a thread.

create-topics (key 19): versions 0 to 4, native 0 to 3 (KIP-4)
     1  validate_only, error_message
     2  throttle_time_ms in the response (KIP-13)
     3  the response comes before the client is throttled (KIP-219)
     4  partitions and replication factor may be -1 (KIP-464)
create-partitions (key 37): versions 0 to 1, native 0 to 1 (KIP-195)
     1  the response comes before the client is throttled (KIP-219)
delete-topics (key 20): versions 0 to 3, native 0 to 3 (KIP-4)
     1  throttle_time_ms in the response (KIP-13)
     2  the response comes before the client is throttled (KIP-219)
     3  TOPIC_DELETION_DISABLED (KIP-322)

Left out: settings and ids in the response of create-topics (KIP-525, KIP-516), deletion by id
(KIP-516).
"""

from collections import Counter
from collections.abc import Collection, Sequence

from ...protocol.api.topics.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsResult,
    CreatePartitionsTopic,
)
from ...protocol.api.topics.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ...protocol.api.topics.delete_topics import (
    DELETE_TOPICS,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from ...protocol.errors import (
    InvalidConfig,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
)
from ...storage.directory.journal import Removal
from ...storage.directory.topics import TopicEntry
from ...storage.stepped_change import Steps
from ..maintenance import removals_of_topic
from ..requests import Call, PendingAnswer
from ..window_topics import check_creation, check_not_window
from .base import Services
from .changing import answer_later
from .registration import handles
from .settings import warn_of_topic

DEFAULT = -1
"""`num_partitions` and `replication_factor` that leave the choice to the broker."""


@handles(CREATE_TOPICS)
def create(services: Services, request: CreateTopicsRequest, call: Call) -> PendingAnswer:
    times = Counter(topic.name for topic in request.topics)
    topics = {topic.name: topic for topic in request.topics}
    return answer_later(
        services,
        "create-topics",
        (
            (
                name,
                CreatableTopicResult(name=name),
                _creating(services, topic, times[name], request.validate_only),
            )
            for name, topic in topics.items()
        ),
        lambda results: CreateTopicsResponse(topics=results),
    )


def _check_named_once(name: str, times: int) -> None:
    if times > 1:
        raise InvalidRequest(f"the request names topic {name!r} more than once")


def _creating(
    services: Services, topic: CreatableTopic, times: int, validate_only: bool
) -> Steps[TopicEntry]:
    _check_named_once(topic.name, times)
    check_creation(services.directory.topics(), topic.name)
    partitions = topic.num_partitions
    if topic.assignments:
        if partitions != DEFAULT or topic.replication_factor != DEFAULT:
            raise InvalidRequest(
                "assignments come instead of num_partitions and replication_factor, which must "
                f"then be -1; they are {partitions} and {topic.replication_factor}"
            )
        partitions = _assigned_partitions(topic, services.replication.broker_ids())
    else:
        _check_replication_factor(services, topic.replication_factor)
    if partitions == DEFAULT:
        partitions = services.settings.num_partitions
    entry = yield from services.metadata.topics.create(
        topic.name, partitions, _overrides(topic), validate_only=validate_only
    )
    if not validate_only:
        warn_of_topic(services, entry)
    return entry


def _check_replication_factor(services: Services, factor: int) -> None:
    """Raise `InvalidReplicationFactor`, as Kafka does, for more replicas than brokers. Any other
    number is accepted, and each broker has a replica."""
    brokers = len(services.replication.broker_ids())
    if factor != DEFAULT and not 1 <= factor <= brokers:
        raise InvalidReplicationFactor(
            f"replication_factor is {factor}; it must be 1 to {brokers}, the number of brokers on "
            "record, or -1 for the default: each broker has all topics in any case"
        )


def _assigned_partitions(topic: CreatableTopic, known: Collection[int]) -> int:
    """Return how many partitions the assignments name. Raises `InvalidReplicaAssignment` unless
    they name each partition from 0 on once, on known brokers."""
    partitions = sorted(assignment.partition for assignment in topic.assignments)
    if partitions != list(range(len(partitions))):
        raise InvalidReplicaAssignment(
            f"the assignments must name partitions 0 to {len(partitions) - 1}, each once"
        )
    for assignment in topic.assignments:
        _check_assignment(assignment.partition, assignment.broker_ids, known)
    return len(partitions)


def _check_assignment(partition: int, broker_ids: Sequence[int], known: Collection[int]) -> None:
    named = set(broker_ids)
    if not named or len(named) < len(broker_ids) or not named <= set(known):
        there = ", ".join(map(str, sorted(known)))
        there = f"is only broker {there}" if len(known) == 1 else f"are {there}, each at most once"
        raise InvalidReplicaAssignment(
            f"partition {partition} is assigned to brokers {list(broker_ids[:10])}; there {there}"
        )


def _overrides(topic: CreatableTopic) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise InvalidConfig(f"setting {config.name!r} has no value; give one or leave it out")
        if config.name in overrides:
            raise InvalidRequest(f"the request sets {config.name!r} more than once")
        overrides[config.name] = config.value
    return overrides


@handles(CREATE_PARTITIONS)
def create_partitions(
    services: Services, request: CreatePartitionsRequest, call: Call
) -> PendingAnswer:
    times = Counter(topic.name for topic in request.topics)
    topics = {topic.name: topic for topic in request.topics}
    return answer_later(
        services,
        "create-partitions",
        (
            (
                name,
                CreatePartitionsResult(name=name),
                _raising(services, topic, times[name], request.validate_only),
            )
            for name, topic in topics.items()
        ),
        lambda results: CreatePartitionsResponse(results=results),
    )


def _raising(
    services: Services, topic: CreatePartitionsTopic, times: int, validate_only: bool
) -> Steps[TopicEntry]:
    _check_named_once(topic.name, times)
    check_not_window(services.directory.topics(), topic.name)
    if topic.assignments is not None:
        present = services.logs.topic(topic.name).partitions
        new = topic.count - present
        if len(topic.assignments) != max(new, 0):
            raise InvalidReplicaAssignment(
                f"there are {len(topic.assignments)} assignments for {max(new, 0)} new partitions; "
                "give one for each, or none at all"
            )
        known = services.replication.broker_ids()
        for partition, assignment in enumerate(topic.assignments, start=present):
            _check_assignment(partition, assignment.broker_ids, known)
    changes = services.metadata.topics
    return (
        yield from changes.raise_partitions(topic.name, topic.count, validate_only=validate_only)
    )


@handles(DELETE_TOPICS)
def delete(services: Services, request: DeleteTopicsRequest, call: Call) -> PendingAnswer:
    return answer_later(
        services,
        "delete-topics",
        (
            (name, DeletableTopicResult(name=name), _deleting(services, name, call.principal))
            for name in dict.fromkeys(request.topic_names)
        ),
        lambda results: DeleteTopicsResponse(responses=results),
    )


def _deleting(services: Services, name: str, principal: str) -> Steps[TopicEntry]:
    check_not_window(services.directory.topics(), name)
    now_ms = services.clock.now_ms()

    def removed(entry: TopicEntry) -> Sequence[Removal]:
        return removals_of_topic(services.directory, entry, principal, now_ms)

    return (yield from services.metadata.topics.delete(name, removed))
