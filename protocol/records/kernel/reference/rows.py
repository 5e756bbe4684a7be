"""Produce requests as rows: the record set of each request for its only partition, and its
response. Also the index entries for the append times of rows."""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any, Final

_APPEND_ENTRY: Final = Struct(">iq")
_LARGEST_INT32: Final = 2**31 - 1

Target = tuple[str, int]
"""Name of a topic and number of a partition."""


class ProduceRows:
    """Builds rows, and responses around them, of given classes."""

    def __init__(self, sent: Any, topic_result: Any, response: Any) -> None:
        """`sent(target, records, partition=partition)` builds a row. `topic_result(name,
        partitions)` takes the row as its only partition, and `response(topics)` takes that as its
        only topic."""
        self._sent = sent
        self._topic_result = topic_result
        self._response = response

    def read(
        self, requests: Iterable[Any], acks: int
    ) -> tuple[dict[Target, list[Any]], list[Any]] | None:
        """Return the rows of the requests, in order, by topic and partition, and the response to
        each request. Returns `None` if a request names no partition or more than one, has other
        `acks`, or is transactional."""
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
        """Record in the first rows where each was appended: in as many rows as there are
        offsets."""
        for one, first_offset in zip(sent, first_offsets, strict=False):
            one.base_offset = first_offset
            one.log_start_offset = log_start_offset


def append_entries(first_offsets: Sequence[int], base_offset: int, append_time_ms: int) -> bytes:
    """Return the entries of an append time index (`storage/index/append_times.py`) for sets with
    these first offsets, in a segment with this base offset. Raises `OverflowError` for an offset
    outside of the segment's range."""
    for offset in first_offsets:
        if not base_offset <= offset <= base_offset + _LARGEST_INT32:
            raise OverflowError(f"no offset of a segment that begins with {base_offset}: {offset}")
    return b"".join(
        _APPEND_ENTRY.pack(offset - base_offset, append_time_ms) for offset in first_offsets
    )
