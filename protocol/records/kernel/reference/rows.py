"""Produce requests as rows: the record set of each for the one partition that it names, and its
response; and the entries of the append times of rows."""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any, Final

_APPEND_ENTRY: Final = Struct(">iq")
_LARGEST_INT32: Final = 2**31 - 1

Target = tuple[str, int]
"""A topic's name and a partition's number."""


class ProduceRows:
    """Makes rows of classes that are given."""

    def __init__(self, sent: Any, topic_result: Any, response: Any) -> None:
        """A row is `sent(target, records, partition=partition)`. It is the one result in a
        `topic_result(name, partitions)`, which is that in a `response(topics)`."""
        self._sent = sent
        self._topic_result = topic_result
        self._response = response

    def read(
        self, requests: Iterable[Any], acks: int
    ) -> tuple[dict[Target, list[Any]], list[Any]] | None:
        """The rows of requests by what they are for, in their order, and the response to each
        request; `None` where one names no partition or more than one, wants other `acks`, or is of
        a transaction."""
        by_partition: dict[Target, list[Any]] = {}
        responses: list[Any] = []
        for request in requests:
            if len(request.topics) != 1 or request.transactional_id is not None:
                return None
            (topic,) = request.topics
            if len(topic.partitions) != 1 or request.acks != acks:
                return None
            (asked,) = topic.partitions
            target = topic.name, asked.partition
            records = b"" if asked.records is None else asked.records
            sent = self._sent(target, records, partition=asked.partition)
            by_partition.setdefault(target, []).append(sent)
            result = self._topic_result(name=topic.name, partitions=[sent])
            responses.append(self._response(topics=[result]))
        return by_partition, responses

    def appended(
        self, sent: Iterable[Any], first_offsets: Iterable[int], log_start_offset: int
    ) -> None:
        """Note in the first rows where each was appended: there are as many as offsets."""
        for one, first_offset in zip(sent, first_offsets, strict=False):
            one.base_offset = first_offset
            one.log_start_offset = log_start_offset


def append_entries(first_offsets: Sequence[int], base_offset: int, append_time_ms: int) -> bytes:
    """An entry of append times (`storage/index/append_times.py`) for each set that begins with one
    of these offsets, in a segment that begins with `base_offset`. Raises `OverflowError` for an
    offset that is not in it."""
    for offset in first_offsets:
        if not base_offset <= offset <= base_offset + _LARGEST_INT32:
            raise OverflowError(f"no offset of a segment that begins with {base_offset}: {offset}")
    return b"".join(
        _APPEND_ENTRY.pack(offset - base_offset, append_time_ms) for offset in first_offsets
    )
