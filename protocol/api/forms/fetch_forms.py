"""Fetches of one partition that repeat one before them but for the offset: see `forms`."""

from typing import Final

from ..log.fetch import (
    FETCH,
    READ_COMMITTED,
    WHOLE_EPOCHS,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopicResult,
)
from ..native.frames import RequestHead
from .form import Form, KafkaWire, NativeWire, Wire

NATIVE: Final[Wire] = NativeWire(FETCH, "fetch_offset")
KAFKA: Final[Wire] = KafkaWire(FETCH, [4] * 5 + [8 + 4] * 2 + [8 + 4 + 4] * 4)
"""Behind the offset are the log start of a follower, the most bytes, and what is forgotten."""


class FetchForm(Form):
    """What such fetches ask for.

    The numbers of an answer are high watermark, last stable offset and log start.
    """

    __slots__ = ("topic", "wanted")

    def __init__(self, wire: Wire, head: RequestHead, request: FetchRequest) -> None:
        """The form of a request for which `has_form` holds."""
        (topic,) = request.topics
        (self.wanted,) = topic.partitions
        self.topic = topic.name
        result = FetchPartitionResult(partition=self.wanted.partition, records=b"")
        if request.isolation_level == READ_COMMITTED:
            result.aborted_transactions = []
        response = FetchResponse(topics=[FetchTopicResult(name=topic.name, partitions=[result])])
        numbers = "high_watermark", "last_stable_offset", "log_start_offset"
        super().__init__(wire, head, request, response, result, *numbers)


def has_form(request: FetchRequest) -> bool:
    """Whether there can be a form of it: for one partition, of no session, without append times."""
    return (
        len(request.topics) == 1
        and len(request.topics[0].partitions) == 1
        and request.session_epoch in WHOLE_EPOCHS
        and not request.forgotten_topics
        and not request.include_append_times
    )
