"""Messages as a consumer receives them and as a producer sends them, and record batches (magic 2):
reading, checking, changing in place, building.

A batch is one entry. A position is that of its first byte in the buffer.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from ...values import value_class
from ..errors import CorruptMessage, InvalidRecord
from .codecs.codec import compress, decompress, open_sent
from .kernel import RecordCursor, RecordEncoder, check_records, crc32c, find_timestamp
from .kernel.terms import NO_MORE, RECORD
from .latency import LatencyCounts
from .layout import (
    BATCH_ATTRIBUTES_AT,
    BATCH_CRC_AT,
    BATCH_MAGIC,
    BATCH_OVERHEAD,
    CODEC_MASK,
    CONTROL_BIT,
    ENTRY_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAX_TIMESTAMP_AT,
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    PRODUCER_ID_AT,
    TRANSACTIONAL_BIT,
    Buffer,
    Codec,
    TimestampType,
)
from .problems import record_error

_HEADER: Final = Struct(">qiiBIHiqqqhii")
_CRC: Final = Struct(">I")
_TIMESTAMP: Final = Struct(">q")
_PRODUCER: Final = Struct(">qhi")
_LOW_ATTRIBUTES_AT: Final = BATCH_ATTRIBUTES_AT + 1


@value_class
class Record:
    """One message as a consumer receives it."""

    offset: int
    timestamp_ms: int
    """Timestamp in ms since the epoch; -1 if the message has none."""
    timestamp_type: TimestampType | None
    """`None` for v0 messages, which have no time."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """Names and values, in the order in which they were sent; names can repeat. Only in v2."""


@value_class
class NewRecord:
    """A message that has no offset yet."""

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = NO_TIMESTAMP
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """Headers; only v2 has them."""


class BatchHeader(NamedTuple):
    """The fields before the records, in order."""

    base_offset: int
    """Offset of the first record."""
    size: int
    """Bytes of the batch without the first 12 (offset and size), as in every entry."""
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    """Timestamp of the first record; -1 for none."""
    max_timestamp_ms: int
    """Largest timestamp of the records, -1 for none; the append time if `is_append_time`."""
    producer_id: int
    """Id of an idempotent producer; -1 for none."""
    producer_epoch: int
    base_sequence: int
    """Sequence number of the first record; those of the others follow."""
    record_count: int

    @property
    def last_offset(self) -> int:
        """Offset of the last record, or of the one that was last before a compaction."""
        return self.base_offset + self.last_offset_delta

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch."""
        return self.size + ENTRY_OVERHEAD

    @property
    def codec(self) -> Codec:
        """Codec of the records. Raises `ValueError` for an unknown number, which a walk would have
        refused."""
        return Codec(self.attributes & CODEC_MASK)

    @property
    def is_append_time(self) -> bool:
        """Whether the time of all records is the broker's append time."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether this is a control batch, which holds no messages."""
        return bool(self.attributes & CONTROL_BIT)


class CheckedBatch(NamedTuple):
    """The result of checking a producer's batch."""

    header: BatchHeader
    """The header as sent."""
    content: memoryview
    """The records, decompressed."""
    for_all_readers: bool
    """Whether all clients can read the records as they are compressed (see `Opened`)."""
    min_timestamp_ms: int
    """Smallest timestamp of the records other than -1; -1 if there is none. Can be below -1."""
    max_timestamp_ms: int
    """Largest timestamp of the records, -1 for none, whatever the header says."""
    max_delta: int
    """Offset delta of the first record with the largest timestamp, -1 for none."""
    untimed: int
    """Number of records without a timestamp."""
    latency: LatencyCounts | None
    """Latencies against `now_ms`, counted as in `Walk.latency`."""


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header of the batch at `position`; the records need not be in the buffer.

    Raises `CorruptMessage` for fewer than 61 bytes, a smaller size, or another magic.
    """
    if len(buffer) - position < BATCH_OVERHEAD:
        raise CorruptMessage(
            f"the batch at byte {position} is incomplete: {len(buffer) - position} bytes of it are"
            f" there, its header has {BATCH_OVERHEAD}"
        )
    header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
    if header.magic != BATCH_MAGIC:
        raise CorruptMessage(
            f"the batch at byte {position} has magic {header.magic}; that of batches is 2"
        )
    if header.size < BATCH_OVERHEAD - ENTRY_OVERHEAD:
        raise CorruptMessage(
            f"the batch at byte {position} says that it has {header.size} bytes; the smallest has"
            f" {BATCH_OVERHEAD - ENTRY_OVERHEAD}"
        )
    return header


def batch_content(
    buffer: Buffer, position: int, header: BatchHeader, *, max_decompressed_bytes: int
) -> memoryview:
    """Return the records of a batch, decompressed.

    Raises `CorruptMessage` if the batch extends beyond the buffer or its compression is damaged,
    and `MessageTooLarge` if it decompresses to more than `max_decompressed_bytes`.
    """
    codec, content = _stored_content(buffer, position, header)
    if codec is Codec.NONE:
        return content
    return memoryview(
        decompress(codec, content, magic=BATCH_MAGIC, max_bytes=max_decompressed_bytes)
    )


def _stored_content(buffer: Buffer, position: int, header: BatchHeader) -> tuple[Codec, memoryview]:
    """Return the codec and the records of a batch as stored. Raises `CorruptMessage` as
    `batch_content`."""
    stop = position + header.size_bytes
    if stop > len(buffer):
        raise CorruptMessage(
            f"the batch at byte {position} says that it has {header.size} bytes; "
            f"{len(buffer) - position - ENTRY_OVERHEAD} are there"
        )
    codec = header.attributes & CODEC_MASK
    content = memoryview(buffer)[position + BATCH_OVERHEAD : stop]
    if not (content or header.record_count):
        return Codec.NONE, content  # Kafka does not open a batch without records.
    if codec > Codec.ZSTD:
        raise CorruptMessage(
            f"the batch at byte {position} is compressed with codec {codec}; known are 1 to 4"
        )
    return Codec(codec), content


def check_batch(
    buffer: Buffer,
    position: int = 0,
    *,
    max_decompressed_bytes: int,
    now_ms: int = -1,
    keyed: bool = False,
) -> CheckedBatch:
    """Decompress the batch at `position`, and check everything that a producer can get wrong in it.

    A walk must have passed the batch, so its CRC is right. Checked are: the header's record count,
    that the records fill the batch, and that their offset deltas are 0, 1, ...; the header's
    largest timestamp is not. `now_ms` >= 0 requests latencies. Raises `CorruptMessage` for damage,
    `MessageTooLarge` as `batch_content`, and `InvalidRecord` for a control batch, for a record
    count of 0, for a producer id with a negative epoch or sequence, and, if `keyed`, for a record
    without a key.
    """
    header = read_header(buffer, position)
    _check_header(header, position)
    codec, sent = _stored_content(buffer, position, header)
    content, for_all_readers = sent, True
    if codec is not Codec.NONE:
        max_bytes = max_decompressed_bytes
        opened = open_sent(codec, sent, magic=BATCH_MAGIC, max_bytes=max_bytes)
        content, for_all_readers = memoryview(opened.content), opened.for_all_readers
    found = check_records(
        content,
        0,
        len(content),
        base_timestamp_ms=header.base_timestamp_ms,
        now_ms=now_ms,
        keyed=keyed,
    )
    if found.problem != NO_MORE:
        raise record_error(found.problem, found.count, found.problem_position, position)
    if not found.count == header.record_count == header.last_offset_delta + 1:
        raise CorruptMessage(
            f"the batch at byte {position} says that it holds {header.record_count} records and"
            f" that the last one's offset delta is {header.last_offset_delta}; it holds"
            f" {found.count}"
        )
    return CheckedBatch(
        header,
        content,
        for_all_readers,
        found.min_timestamp_ms,
        found.max_timestamp_ms,
        found.max_delta,
        found.untimed,
        found.latency,
    )


def _check_header(header: BatchHeader, position: int) -> None:
    """Raise `InvalidRecord` for a header that no producer may send; `position` is that of the
    batch."""
    if header.attributes & CONTROL_BIT:
        raise InvalidRecord(
            f"the batch at byte {position} is a control batch; only brokers write those"
        )
    if not header.record_count:
        raise InvalidRecord(
            f"the batch at byte {position} says that it holds 0 records; a producer's batch holds"
            " at least one"
        )
    if header.producer_id != NO_PRODUCER_ID and (
        header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0
    ):
        raise InvalidRecord(
            f"the batch at byte {position} has producer id {header.producer_id}, epoch"
            f" {header.producer_epoch} and sequence {header.base_sequence}; none of them may be"
            " negative unless the id is -1"
        )


def batch_records(
    buffer: Buffer, position: int = 0, *, max_decompressed_bytes: int, from_offset: int = 0
) -> Iterator[Record]:
    """Yield the records of the batch at `position` from `from_offset` on.

    A control batch has none. In a batch with an append time, all records have that time. Raises
    `CorruptMessage` and `MessageTooLarge` as `batch_content`, also after some records.
    """
    header = read_header(buffer, position)
    if header.is_control or header.last_offset < from_offset:
        return
    content = batch_content(buffer, position, header, max_decompressed_bytes=max_decompressed_bytes)
    cursor = RecordCursor(content, 0, len(content))
    count = 0
    while (step := cursor.step()) == RECORD:
        count += 1
        if header.base_offset + cursor.offset_delta >= from_offset:
            yield _record(header, cursor)
    if step != NO_MORE:
        raise record_error(step, count, cursor.position, position)


def find_in_batch(
    buffer: Buffer,
    position: int,
    target_ms: int,
    *,
    max_decompressed_bytes: int,
    from_offset: int = 0,
) -> tuple[int, int] | None:
    """Return the offset and timestamp of the first record with a timestamp >= `target_ms` in the
    batch at `position`; `None` if there is none.

    Records below `from_offset` and those of a control batch are ignored. The batch is decompressed
    only if its largest timestamp makes a match possible. Raises as `batch_records`.
    """
    header = read_header(buffer, position)
    if header.is_control or header.max_timestamp_ms < target_ms or header.last_offset < from_offset:
        return None
    if header.is_append_time:
        target_ms = -(2**63)
    content = batch_content(buffer, position, header, max_decompressed_bytes=max_decompressed_bytes)
    cursor = RecordCursor(content, 0, len(content))
    while (step := find_timestamp(cursor, header.base_timestamp_ms, target_ms)) == RECORD:
        offset = header.base_offset + cursor.offset_delta
        if offset >= from_offset:
            return offset, _time_of(header, cursor)
    if step != NO_MORE:
        raise record_error(step, -1, cursor.position, position)
    return None


def _time_of(header: BatchHeader, cursor: RecordCursor) -> int:
    """Return the timestamp of the record at `cursor`."""
    if header.is_append_time:
        return header.max_timestamp_ms
    return header.base_timestamp_ms + cursor.timestamp_delta_ms


def _record(header: BatchHeader, cursor: RecordCursor) -> Record:
    kinds = TimestampType
    return Record(
        header.base_offset + cursor.offset_delta,
        _time_of(header, cursor),
        kinds.LOG_APPEND_TIME if header.is_append_time else kinds.CREATE_TIME,
        cursor.key(),
        cursor.value(),
        cursor.headers(),
    )


def set_times_in_place(
    buffer: bytearray | memoryview, position: int, max_timestamp_ms: int, *, append_time: bool
) -> None:
    """Set the largest timestamp of the batch at `position`, and its CRC.

    With `append_time` that is the time at which a broker appended the batch, and becomes the time
    of all its records. A walk must have passed the batch.
    """
    if append_time:
        buffer[position + _LOW_ATTRIBUTES_AT] |= LOG_APPEND_TIME_BIT
    else:
        buffer[position + _LOW_ATTRIBUTES_AT] &= ~LOG_APPEND_TIME_BIT & 0xFF
    _TIMESTAMP.pack_into(buffer, position + MAX_TIMESTAMP_AT, max_timestamp_ms)
    _renew_crc(buffer, position)


def set_producer(
    buffer: bytearray | memoryview,
    position: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> None:
    """Set the producer id, epoch and base sequence of the batch at `position`, and its CRC."""
    _PRODUCER.pack_into(
        buffer, position + PRODUCER_ID_AT, producer_id, producer_epoch, base_sequence
    )
    _renew_crc(buffer, position)


def _renew_crc(buffer: bytearray | memoryview, position: int) -> None:
    stop = position + read_header(buffer, position).size_bytes
    _CRC.pack_into(
        buffer, position + BATCH_CRC_AT, crc32c(buffer, position + BATCH_ATTRIBUTES_AT, stop)
    )


def build_batch(
    records: Sequence[NewRecord], *, codec: Codec = Codec.NONE, base_offset: int = 0
) -> bytearray:
    """Return a batch as a producer sends it; empty for no records. Raises `ValueError` as
    `RecordEncoder.add`."""
    if not records:
        return bytearray()
    encoder = RecordEncoder()
    for record in records:
        encoder.add(record.value, record.key, record.timestamp_ms, record.headers)
    return finish_batch(encoder, codec=codec, base_offset=base_offset)


def finish_batch(
    encoder: RecordEncoder,
    *,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
    append_time_ms: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """Return the batch with the records of `encoder` (at least one), and empty the encoder.

    `append_time_ms` replaces the times of all records.
    """
    count = encoder.count
    base_timestamp_ms, max_timestamp_ms = encoder.base_timestamp_ms, encoder.max_timestamp_ms
    assert count
    batch = encoder.finish()
    attributes = int(codec)
    if codec is not Codec.NONE:
        compressed = compress(codec, memoryview(batch)[BATCH_OVERHEAD:], magic=BATCH_MAGIC)
        batch = bytearray(BATCH_OVERHEAD) + compressed
    if append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp_ms = append_time_ms
    header = BatchHeader(
        base_offset,
        len(batch) - ENTRY_OVERHEAD,
        NO_LEADER_EPOCH,
        BATCH_MAGIC,
        0,
        attributes,
        count - 1,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    write_header(batch, header)
    return batch


def write_header(batch: bytearray, header: BatchHeader) -> None:
    """Write `header` to the start of `batch`, which holds exactly one batch, with the right CRC."""
    _HEADER.pack_into(batch, 0, *header)
    _CRC.pack_into(batch, BATCH_CRC_AT, crc32c(batch, BATCH_ATTRIBUTES_AT, len(batch)))
