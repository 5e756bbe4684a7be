"""describe-log-dirs: the sizes of partitions.

describe-log-dirs (key 35): versions 0 to 1, native 0 to 1 (KIP-113)
     1  the response comes before the client is throttled (KIP-219)

Left out: sizes of volumes (KIP-827).
"""

from collections.abc import Iterable

from ...protocol.api.log.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ...protocol.errors import UnknownTopicOrPartition
from ..requests import Call, PendingAnswer
from .base import Services
from .registration import handles


@handles(DESCRIBE_LOG_DIRS)
def handle(services: Services, request: DescribeLogDirsRequest, call: Call) -> PendingAnswer:
    task = services.work.start(_describe(services, request))
    return PendingAnswer(task, task.result)


async def _describe(services: Services, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    turns = services.work.turns()
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for topic, partition in _asked(services, request):
        described = _partition(services, topic, partition)
        if described is not None:
            topics.setdefault(topic, []).append(described)
        await turns.give_way()
    result = DescribeLogDirsResult(
        log_dir=str(services.settings.data_dir.absolute()),
        topics=[DescribeLogDirsTopic(name=name, partitions=of) for name, of in topics.items()],
    )
    return DescribeLogDirsResponse(results=[result])


def _asked(services: Services, request: DescribeLogDirsRequest) -> Iterable[tuple[str, int]]:
    if request.topics is None:
        return list(services.directory.partitions())
    # What is asked for twice is answered once.
    asked = {topic.name: dict[int, None]() for topic in request.topics}
    for topic in request.topics:
        asked[topic.name] |= dict.fromkeys(topic.partitions)
    return [(name, partition) for name, numbers in asked.items() for partition in numbers]


def _partition(services: Services, topic: str, partition: int) -> DescribeLogDirsPartition | None:
    try:
        size_bytes = services.logs.find(topic, partition).size_bytes
    except UnknownTopicOrPartition:
        return None
    except Exception as error:
        code, message = services.outcomes.of(error, api="describe-log-dirs")
        return DescribeLogDirsPartition(
            partition=partition, size_bytes=-1, error_code=code, error_message=message
        )
    return DescribeLogDirsPartition(partition=partition, size_bytes=size_bytes)
