"""Searches in one partition that repeat one before them but for the time: see `forms`."""

from typing import Final

from ..log.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartitionResult,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResult,
)
from ..native.frames import RequestHead
from .form import Form, KafkaWire, NativeWire, Wire

NATIVE: Final[Wire] = NativeWire(LIST_OFFSETS, "timestamp")
KAFKA: Final[Wire] = KafkaWire(LIST_OFFSETS, [4, 0, 0, 0, 0])
"""Behind the time is the most offsets to list, in version 0."""


class ListOffsetsForm(Form):
    """What such searches ask for. The numbers of an answer are timestamp and offset."""

    __slots__ = ("topic", "wanted")

    def __init__(self, wire: Wire, head: RequestHead, request: ListOffsetsRequest) -> None:
        """The form of a request for which `has_form` holds."""
        (topic,) = request.topics
        (self.wanted,) = topic.partitions
        self.topic = topic.name
        result = ListOffsetsPartitionResult(partition=self.wanted.partition)
        answer = ListOffsetsTopicResult(name=topic.name, partitions=[result])
        response = ListOffsetsResponse(topics=[answer])
        super().__init__(wire, head, request, response, result, "timestamp", "offset")


def has_form(request: ListOffsetsRequest) -> bool:
    """Whether there can be a form of it: for one partition, and by timestamps."""
    topics = request.topics
    return len(topics) == 1 and len(topics[0].partitions) == 1 and not topics[0].partitions[0].by
