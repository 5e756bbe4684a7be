"""create-topics and delete-topics."""

from collections import Counter

from ...protocol.api.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ...protocol.api.delete_topics import (
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
from .base import NODE_ID, Call, Services

DEFAULT = -1
"""`num_partitions` and `replication_factor` that leave the choice to the broker."""


def create(services: Services, request: CreateTopicsRequest, call: Call) -> CreateTopicsResponse:
    times = Counter(topic.name for topic in request.topics)
    results = {}
    for topic in request.topics:
        if topic.name in results:
            continue
        result = results[topic.name] = CreatableTopicResult(name=topic.name)
        try:
            if times[topic.name] > 1:
                raise InvalidRequest(f"the request names topic {topic.name!r} more than once")
            _create_one(services, topic)
        except Exception as error:
            outcome = services.outcomes.of(error, api="create-topics")
            result.error_code, result.error_message = outcome
    return CreateTopicsResponse(topics=list(results.values()))


def _create_one(services: Services, topic: CreatableTopic) -> None:
    partitions = topic.num_partitions
    if topic.assignments:
        if partitions != DEFAULT or topic.replication_factor != DEFAULT:
            raise InvalidRequest(
                "assignments come instead of num_partitions and replication_factor, which must "
                f"then be -1; they are {partitions} and {topic.replication_factor}"
            )
        partitions = _assigned_partitions(topic)
    elif topic.replication_factor not in (1, DEFAULT):
        raise InvalidReplicationFactor(
            f"replication_factor is {topic.replication_factor}; there is one broker, so it must "
            "be 1, or -1 for the default"
        )
    if partitions == DEFAULT:
        partitions = services.settings.num_partitions
    services.directory.create_topic(topic.name, partitions, _overrides(topic))


def _assigned_partitions(topic: CreatableTopic) -> int:
    """How many partitions the assignments name: each from 0 on once, each on this broker."""
    partitions = sorted(assignment.partition for assignment in topic.assignments)
    if partitions != list(range(len(partitions))):
        raise InvalidReplicaAssignment(
            f"the assignments must name partitions 0 to {len(partitions) - 1}, each once"
        )
    for assignment in topic.assignments:
        if assignment.broker_ids != [NODE_ID]:
            raise InvalidReplicaAssignment(
                f"partition {assignment.partition} is assigned to brokers "
                f"{assignment.broker_ids[:10]}; there is only broker {NODE_ID}"
            )
    return len(partitions)


def _overrides(topic: CreatableTopic) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise InvalidConfig(f"setting {config.name!r} has no value; give one or leave it out")
        if config.name in overrides:
            raise InvalidRequest(f"the request sets {config.name!r} more than once")
        overrides[config.name] = config.value
    return overrides


def delete(services: Services, request: DeleteTopicsRequest, call: Call) -> DeleteTopicsResponse:
    results = []
    for name in dict.fromkeys(request.topic_names):
        result = DeletableTopicResult(name=name)
        try:
            _delete_one(services, name)
        except Exception as error:
            outcome = services.outcomes.of(error, api="delete-topics")
            result.error_code, result.error_message = outcome
        results.append(result)
    return DeleteTopicsResponse(responses=results)


def _delete_one(services: Services, name: str) -> None:
    entry = services.directory.topics().get(name)
    try:
        services.directory.delete_topic(name)
    finally:
        # Even when the disk did not let it be finished, the topic is gone for everybody.
        if entry is not None and name not in services.directory.topics():
            services.figures.forget(name)
            services.logs.went_away(name, entry.partitions)
