"""Options of fetch requests, and the messages in fetch responses."""

import asyncio
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import field
from itertools import repeat
from typing import Final, TypeVar

from ...protocol.api.log.fetch import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    AbortedTransaction,
    AppendTime,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchTopic,
)
from ...protocol.errors import CorruptMessage, HorologError, MessageTooLarge, StorageError
from ...protocol.records.batch import read_header
from ...protocol.records.columns import CONTENT, Columns, Content, read_columns
from ...protocol.records.kernel import Walk, walk
from ...protocol.records.layout import (
    BATCH_MAGIC,
    BATCH_OVERHEAD,
    ENTRY_OVERHEAD,
    MAGIC_AT,
    NO_TIMESTAMP,
    SIZE_AT,
    Buffer,
    TimestampType,
)
from ...values import value_class
from ..cluster.retry import Backoff
from ..results import ColumnBatch, ConsumerRecord
from .time_bounds import TimeBounds

_SIZE_BYTES: Final = 4

_TAKEN_OVER_S: Final = 5.0
"""Seconds after which another replica has become leader, if one can, when a leader finds its
messages damaged."""


def without_aborted(records: Buffer, aborted: Sequence[AbortedTransaction] | None) -> Buffer:
    """Return the record set without the batches of the aborted transactions. A partial entry at the
    end is dropped.

    A transaction begins at its first offset, which may be before the set, and ends with the next
    control batch of its producer.
    """
    if not aborted:
        return records
    waiting = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
    producers: set[int] = set()
    kept = bytearray()
    view, position = memoryview(records), 0
    while len(view) - position >= ENTRY_OVERHEAD + MAGIC_AT:
        size_at = position + SIZE_AT
        size = int.from_bytes(view[size_at : size_at + _SIZE_BYTES], "big", signed=True)
        end = position + ENTRY_OVERHEAD + size
        if size < 0 or end > len(view):
            break
        wanted = True
        if view[position + MAGIC_AT] == BATCH_MAGIC and end - position >= BATCH_OVERHEAD:
            header = read_header(view, position)
            while waiting and waiting[-1].first_offset <= header.last_offset:
                producers.add(waiting.pop().producer_id)
            if header.is_control:
                producers.discard(header.producer_id)
            elif header.is_transactional:
                wanted = header.producer_id not in producers
        if wanted:
            kept += view[position:end]
        position = end
    return kept


TopicPartition = tuple[str, int]

T = TypeVar("T")

_TYPES: Final = {0: TimestampType.CREATE_TIME, 1: TimestampType.LOG_APPEND_TIME, -1: None}


@value_class
class FetchOptions:
    """Options shared by all fetches of a consumer; see `Consumer`."""

    min_bytes: int
    partition_max_bytes: int
    max_bytes: int
    max_decompressed_bytes: int
    append_times: bool
    read_committed: bool = False
    window: TimeBounds | None = None
    """Brokers may skip messages outside this window."""
    doubted: dict[TopicPartition, int] = field(init=False, default_factory=dict, compare=False)
    """Offsets at which damaged messages arrived. The next request makes the broker verify its log
    there."""
    _checked: dict[TopicPartition, int] = field(init=False, default_factory=dict, compare=False)
    """Offsets at which the broker was last asked to verify its log."""

    def request(self, offsets: dict[TopicPartition, int], max_wait_ms: int) -> FetchRequest:
        """Return the request for messages from these offsets on."""
        from_ms, until_ms, by = (self.window or TimeBounds(None, None)).request_fields
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            include_append_times=self.append_times,
            isolation_level=READ_COMMITTED if self.read_committed else READ_UNCOMMITTED,
            topics=[
                FetchTopic(
                    name=topic,
                    partitions=[
                        FetchPartition(
                            partition=partition,
                            fetch_offset=offset,
                            partition_max_bytes=self.partition_max_bytes,
                            window_from_ms=from_ms,
                            window_until_ms=until_ms,
                            window_by=by,
                            check=self._is_to_check((topic, partition), offset),
                        )
                    ],
                )
                for (topic, partition), offset in offsets.items()
            ],
        )

    def _is_to_check(self, key: TopicPartition, offset: int) -> bool:
        if self.doubted.pop(key, None) != offset:
            return False
        self._checked[key] = offset
        return True

    async def checked(self, attempt: Callable[[], Awaitable[T]], *, several: bool) -> T:
        """Return the result of `attempt`, which fetches and reads messages. If damaged messages
        arrived, repeat the attempt, and have the broker verify its log. With `several` brokers the
        repetition goes on for up to 5 s, because another broker may become leader."""
        try:
            return await attempt()
        except CorruptMessage:
            if not self.doubted:
                raise
        loop, backoff = asyncio.get_running_loop(), Backoff()
        until = loop.time() + (_TAKEN_OVER_S if several else 0.0)
        while True:
            try:
                return await attempt()
            except StorageError:
                wait_s = backoff.next_s()
                if loop.time() + wait_s > until:
                    raise
            await asyncio.sleep(wait_s)

    def records(
        self,
        topic: str,
        result: FetchPartitionResult,
        offset: int,
        entries: Walk | None = None,
    ) -> list[ConsumerRecord]:
        """Return the messages of one partition from `offset` on; `entries` is `entries_of(result)`.

        Messages before a damaged one are returned; the next fetch begins at the damaged one, and
        raises. An empty list for a result with bytes means that the bytes hold no message; reading
        continues at `next_offset`.
        """
        found = self._columns(result, offset, CONTENT, entries)
        append_times = _AppendTimes(result.append_times)
        runs = self._sound(
            (_consumer_records(topic, result.partition, run, append_times) for run in found),
            topic,
            result,
            offset,
        )
        return [record for run in runs for record in run]

    def columns(
        self,
        topic: str,
        result: FetchPartitionResult,
        offset: int,
        content: Collection[Content] = CONTENT,
        entries: Walk | None = None,
    ) -> list[ColumnBatch]:
        """Return the messages as `records` does, in columns. Columns that are not in `content` are
        nulls."""
        append_times = _AppendTimes(result.append_times) if self.append_times else None
        return self._sound(
            (
                ColumnBatch(
                    topic,
                    result.partition,
                    columns.count,
                    offsets := memoryview(columns.offsets).cast("q"),
                    memoryview(columns.timestamps).cast("q"),
                    memoryview(columns.timestamp_types).cast("b"),
                    columns.keys,
                    columns.values,
                    None if append_times is None else append_times.column(offsets),
                    columns.headers,
                )
                for columns in self._columns(result, offset, content, entries)
            ),
            topic,
            result,
            offset,
        )

    def _columns(
        self,
        result: FetchPartitionResult,
        offset: int,
        content: Collection[Content],
        entries: Walk | None,
    ) -> Iterator[Columns]:
        records: Buffer = result.records or b""
        if self.read_committed and result.aborted_transactions:
            records, entries = without_aborted(records, result.aborted_transactions), None
        return read_columns(
            records,
            max_decompressed_bytes=self.max_decompressed_bytes,
            from_offset=offset,
            content=content,
            walked=entries,
        )

    def _sound(
        self, found: Iterable[T], topic: str, result: FetchPartitionResult, offset: int
    ) -> list[T]:
        read: list[T] = []
        try:
            read.extend(found)  # keeps the items before an error
        except CorruptMessage as error:
            if not read:
                key = topic, result.partition
                if self._checked.get(key) != offset:
                    self.doubted[key] = offset
                raise CorruptMessage(
                    f"{topic}-{result.partition} cannot be read at offset {offset} or soon after "
                    f"it: {error.message}. If that stays so, what the broker stores is damaged: "
                    "`horolog verify` on its data directory tells where"
                ) from error
        except HorologError:
            if not read:
                raise
        if result.records and not read and next_offset(result, offset) == offset:
            raise MessageTooLarge(
                f"the message at offset {offset} of {topic}-{result.partition} is larger than "
                f"partition_max_bytes={self.partition_max_bytes}"
            )
        return read


def entries_of(result: FetchPartitionResult) -> Walk:
    """Walk the entries of a result without decoding the messages or verifying checksums."""
    records = result.records or b""
    return walk(records, 0, len(records), check_crc=False)


def next_offset(result: FetchPartitionResult, offset: int, entries: Walk | None = None) -> int:
    """Return the offset after the last entry of a result, found without decoding messages; `offset`
    if the result is empty. `entries` is `entries_of(result)`."""
    return max((entries or entries_of(result)).last_offset + 1, offset)


class _AppendTimes:
    """Append times in a fetch response."""

    def __init__(self, spans: Sequence[AppendTime]) -> None:
        self._offsets = [item.offset for item in spans]
        self._times_ms = [item.append_time_ms for item in spans]

    @property
    def known(self) -> bool:
        """Whether the response has any append times."""
        return bool(self._offsets)

    def of(self, offset: int) -> int | None:
        number = bisect_right(self._offsets, offset) - 1
        if number < 0 or self._times_ms[number] == NO_TIMESTAMP:
            return None
        return self._times_ms[number]

    def column(self, offsets: memoryview) -> memoryview:
        """Return the append times for these ascending offsets as int64; -1 where unknown."""
        return memoryview(array("q", b"".join(self._runs(offsets)))).cast("B").cast("q")

    def _runs(self, offsets: memoryview) -> Iterator[bytes]:
        number, row = -1, 0
        while row < len(offsets):
            number = max(bisect_right(self._offsets, offsets[row]) - 1, number)
            time_ms = self._times_ms[number] if number >= 0 else NO_TIMESTAMP
            last = number + 1 == len(self._offsets)
            end = len(offsets) if last else bisect_left(offsets, self._offsets[number + 1], row)
            yield array("q", [time_ms]).tobytes() * (end - row)
            row = end


def _consumer_records(
    topic: str, partition: int, columns: Columns, append_times: _AppendTimes
) -> list[ConsumerRecord]:
    """Return the rows as records. Building them column by column takes a sixth of the time of
    building them one by one."""
    offsets = memoryview(columns.offsets).cast("q")
    times_ms: Sequence[int | None] = memoryview(columns.timestamps).cast("q").tolist()
    if NO_TIMESTAMP in times_ms:
        times_ms = [None if time_ms == NO_TIMESTAMP else time_ms for time_ms in times_ms]
    appended: Iterable[int | None] = repeat(None)
    if append_times.known:
        appended = map(append_times.of, offsets)
    return list(
        map(
            ConsumerRecord,
            repeat(topic),
            repeat(partition),
            offsets.tolist(),
            times_ms,
            map(_TYPES.__getitem__, memoryview(columns.timestamp_types).cast("b").tolist()),
            columns.keys.contents(),
            columns.values.contents(),
            repeat(()) if columns.headers is None else columns.headers,
            appended,
        )
    )
