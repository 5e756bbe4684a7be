"""elect-leaders and describe-quorum, which are refused by name, with the command to use.

elect-leaders (key 43): versions 1 (KIP-183, KIP-460)
describe-quorum (key 55): versions 0 to 2 (KIP-595)
     1  times of the last fetches (KIP-836)
     2  directory ids, nodes (KIP-853)

Left out: elections of single partitions, and a quorum of controllers.
"""

from collections.abc import Iterable
from typing import Final

from ...protocol.api.broker.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from ...protocol.api.pieces import Pieces
from ...protocol.api.topics.elect_leaders import (
    ELECT_LEADERS,
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicResult,
)
from ...protocol.errors import UnsupportedVersion
from ..requests import Call, PendingAnswer, in_turns
from .base import Services
from .registration import handles

_NO_ELECTION: Final = (
    "leaders of single partitions are not elected in Horolog: one broker leads all partitions; "
    "`horolog cluster promote` lets another one lead"
)
_NO_QUORUM: Final = (
    "there is no quorum of controllers in Horolog; `horolog cluster status` shows the brokers"
)


@handles(ELECT_LEADERS)
def elect_leaders(
    services: Services, request: ElectLeadersRequest, call: Call
) -> ElectLeadersResponse | PendingAnswer:
    """Refuse the election with an error at each partition, where Kafka's clients show its text."""
    if request.topic_partitions is None and not services.directory.topics():
        raise UnsupportedVersion(_NO_ELECTION)
    return in_turns(services.work, _refused(services, request))


def _refused(services: Services, request: ElectLeadersRequest) -> Pieces[ElectLeadersResponse]:
    code, message = services.outcomes.of(UnsupportedVersion(_NO_ELECTION), api="elect-leaders")
    meant: dict[str, Iterable[int]]
    if request.topic_partitions is None:
        known = services.directory.topics()
        meant = {name: range(entry.partitions) for name, entry in known.items()}
    else:
        named = {topic.topic: dict[int, None]() for topic in request.topic_partitions}
        for topic in request.topic_partitions:
            named[topic.topic] |= dict.fromkeys(topic.partitions)
            yield
        meant = dict(named)
    topics: list[ElectLeadersTopicResult] = []
    for name, numbers in meant.items():
        results: list[ElectLeadersPartitionResult] = []
        topics.append(ElectLeadersTopicResult(topic=name, partitions=results))
        for number in numbers:
            results.append(
                ElectLeadersPartitionResult(
                    partition=number, error_code=code, error_message=message
                )
            )
            yield
    return ElectLeadersResponse(topics=topics)


@handles(DESCRIBE_QUORUM)
def describe_quorum(
    services: Services, request: DescribeQuorumRequest, call: Call
) -> DescribeQuorumResponse:
    """Raise `UnsupportedVersion`; the response has a field for the error."""
    raise UnsupportedVersion(_NO_QUORUM)
