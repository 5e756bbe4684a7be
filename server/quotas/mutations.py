"""How many partitions a request makes or deletes (KIP-599)."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from ...protocol.api.topics.create_partitions import CREATE_PARTITIONS, CreatePartitionsRequest
from ...protocol.api.topics.create_topics import CREATE_TOPICS, CreateTopicsRequest
from ...protocol.api.topics.delete_topics import DELETE_TOPICS, DeleteTopicsRequest
from ..handlers.base import Services


class Mutation:
    """A request that makes or deletes partitions, looked at before it is handled."""

    def __init__(self, by_topic: Mapping[str, int], answers: str) -> None:
        """`by_topic` is how many partitions each topic gets or loses; `answers` the field of the
        response with the outcome of each."""
        self._by_topic = by_topic
        self._answers = answers

    def partitions(self, response: Any) -> int:
        """How many there were, of the topics about which there is no error."""
        return sum(
            self._by_topic.get(each.name, 0)
            for each in getattr(response, self._answers)
            if not each.error_code
        )


def _created(services: Services, request: CreateTopicsRequest) -> Mutation:
    partitions = {
        topic.name: len(topic.assignments)
        or (topic.num_partitions if topic.num_partitions > 0 else services.settings.num_partitions)
        for topic in request.topics
    }
    return Mutation({} if request.validate_only else partitions, "topics")


def _deleted(services: Services, request: DeleteTopicsRequest) -> Mutation:
    return Mutation({name: _present(services, name) for name in request.topic_names}, "responses")


def _added(services: Services, request: CreatePartitionsRequest) -> Mutation:
    partitions = {
        topic.name: max(topic.count - _present(services, topic.name), 0) for topic in request.topics
    }
    return Mutation({} if request.validate_only else partitions, "results")


def _present(services: Services, name: str) -> int:
    entry = services.directory.topics().get(name)
    return 0 if entry is None else entry.partitions


MUTATIONS: Final[Mapping[int, Callable[[Services, Any], Mutation]]] = MappingProxyType(
    {CREATE_TOPICS.key: _created, DELETE_TOPICS.key: _deleted, CREATE_PARTITIONS.key: _added}
)
"""By the key of the request."""
