"""describe-removals: what left the logs of a topic, and from when on its partitions are complete.

describe-removals (key 1007): native 0

Kafka has no such request.
"""

from ...protocol.api.log.describe_removals import (
    DESCRIBE_REMOVALS,
    MAX_REMOVALS,
    DescribedRemoval,
    DescribeRemovalsRequest,
    DescribeRemovalsResponse,
    PartitionCompleteness,
)
from ...protocol.api.security.acl_terms import Operation, ResourceType
from ...protocol.window_topics import base_of
from ...storage.directory.journal import Cause, Removal
from ..requests import Call, PendingAnswer
from .base import Services, allowed_bits
from .registration import handles


@handles(DESCRIBE_REMOVALS)
def handle(services: Services, request: DescribeRemovalsRequest, call: Call) -> PendingAnswer:
    task = services.work.start(_answer(services, request, call))
    return PendingAnswer(task, task.result)


async def _answer(
    services: Services, request: DescribeRemovalsRequest, call: Call
) -> DescribeRemovalsResponse:
    topics = services.directory.topics()
    base = base_of(topics, request.topic)
    entry = topics.get(base)
    topic_id = "" if entry is None else entry.topic_id
    truncations = services.directory.truncations
    if truncations.loaded is None:
        await services.work.in_storage_thread(truncations.load)
    removals = removals_of(services, base)[-MAX_REMOVALS:]
    right = Operation.DESCRIBE_CONFIGS
    if not allowed_bits(services, call, ResourceType.TOPIC, base, (right,)):
        removals = [_without_rule(each) for each in removals]
    response = DescribeRemovalsResponse(
        topic_id=topic_id, removals=[_described(each) for each in removals], partitions=[]
    )
    turns = services.work.turns()
    for partition in dict.fromkeys(request.partitions):
        found = _completeness(services, base, partition)
        response.partitions.append(found)
        await turns.give_way()
    return response


def removals_of(services: Services, topic: str) -> list[Removal]:
    """Return what left a topic, the least recently changed first, with the truncations at this
    broker if they are loaded."""
    truncations = services.directory.truncations.loaded
    cut = [] if truncations is None else truncations.of(topic)
    return sorted([*services.metadata.removals(topic), *cut], key=lambda each: each.at_ms)


def _without_rule(removal: Removal) -> Removal:
    """Return a removal without what reveals a setting or a user."""
    return removal if removal.cause == Cause.TRUNCATION else removal._replace(rule="")


def _described(removal: Removal) -> DescribedRemoval:
    return DescribedRemoval(
        cause=removal.cause,
        rule=removal.rule,
        topic_id=removal.topic_id,
        partition=removal.partition,
        first_offset=removal.first_offset,
        end_offset=removal.end_offset,
        messages=removal.messages,
        first_timestamp_ms=removal.first_timestamp_ms,
        largest_timestamp_ms=removal.largest_timestamp_ms,
        began_ms=removal.began_ms,
        at_ms=removal.at_ms,
        times=removal.times,
    )


def _completeness(services: Services, topic: str, partition: int) -> PartitionCompleteness:
    result = PartitionCompleteness(partition=partition)
    try:
        log = services.logs.find(topic, partition)
    except Exception as error:
        outcome = services.outcomes.of(error, api="describe-removals")
        result.error_code, result.error_message = outcome
    else:
        result.log_start_offset = log.log_start_offset
        result.complete_from_ms = services.completeness.complete_from_ms(log)
    return result
