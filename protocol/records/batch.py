"""Record batches (magic 2): reading, checking, changing in place, building.

Places are of the batch, which is one entry: where it begins in the buffer.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

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
    PRODUCER_ID_AT,
    TRANSACTIONAL_BIT,
    Buffer,
    Codec,
    TimestampType,
)
from .problems import record_error
from .record import NewRecord, Record

_HEADER: Final = Struct(">qiiBIHiqqqhii")
_CRC: Final = Struct(">I")
_TIMESTAMP: Final = Struct(">q")
_PRODUCER: Final = Struct(">qhi")
_LOW_ATTRIBUTES_AT: Final = BATCH_ATTRIBUTES_AT + 1


class BatchHeader(NamedTuple):
    """What stands before the records, field by field."""

    base_offset: int
    """Of the first record."""
    size: int
    """Bytes of the batch without the 12 in front of it, as in every entry."""
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    """Of the first record; -1 if it has none."""
    max_timestamp_ms: int
    """The largest of the records', -1 without any; the append time if `is_append_time`."""
    producer_id: int
    """-1 for none."""
    producer_epoch: int
    base_sequence: int
    """Sequence number of the first record; the others count on from it."""
    record_count: int

    @property
    def last_offset(self) -> int:
        """Of the last record, or of the last that was there before a compaction."""
        return self.base_offset + self.last_offset_delta

    @property
    def size_bytes(self) -> int:
        """The whole batch."""
        return self.size + ENTRY_OVERHEAD

    @property
    def codec(self) -> Codec:
        """`ValueError` for a number that names none; a walk has refused those."""
        return Codec(self.attributes & CODEC_MASK)

    @property
    def is_append_time(self) -> bool:
        """The records' times are the one that a broker gave at append."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """It is a mark in the log and holds no messages."""
        return bool(self.attributes & CONTROL_BIT)


class CheckedBatch(NamedTuple):
    """What a producer's batch holds."""

    header: BatchHeader
    """As sent."""
    content: memoryview
    """The records, decompressed."""
    for_all_readers: bool
    """Whether all clients read the records as they are compressed (`Opened`)."""
    min_timestamp_ms: int
    """The smallest of the records' that is not -1; -1 without any. Can be below -1."""
    max_timestamp_ms: int
    """The largest of the records', -1 without any, whatever the header says."""
    max_delta: int
    """Offset delta of the first record with the largest timestamp, -1 without any."""
    untimed: int
    """Records without a timestamp."""
    latency: LatencyCounts | None
    """Against `now_ms`, by the rules of `Walk.latency`."""


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`; the records need not be in the buffer.

    Raises `CorruptMessage` for fewer than 61 bytes, a size below that, or another magic.
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
    """The records of a batch, decompressed if they are not as they are.

    Raises `CorruptMessage` when the batch goes behind the buffer's end or its codec finds fault,
    and `MessageTooLarge` when it decompresses to more than `max_decompressed_bytes`.
    """
    codec, content = _stored_content(buffer, position, header)
    if codec is Codec.NONE:
        return content
    return memoryview(
        decompress(codec, content, magic=BATCH_MAGIC, max_bytes=max_decompressed_bytes)
    )


def _stored_content(buffer: Buffer, position: int, header: BatchHeader) -> tuple[Codec, memoryview]:
    """The records of a batch as they are there, and how they are compressed. Raises
    `CorruptMessage` as `batch_content`."""
    stop = position + header.size_bytes
    if stop > len(buffer):
        raise CorruptMessage(
            f"the batch at byte {position} says that it has {header.size} bytes; "
            f"{len(buffer) - position - ENTRY_OVERHEAD} are there"
        )
    codec = header.attributes & CODEC_MASK
    content = memoryview(buffer)[position + BATCH_OVERHEAD : stop]
    if not (content or header.record_count):
        return Codec.NONE, content  # Kafka opens no batch that says that it has no records.
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
    """Open the batch at `position` and check all that a producer can do wrong in it.

    A walk has passed it: the CRC is right. The header counts the records rightly, they fill the
    batch, and their offset deltas are 0, 1, ...; the header's largest timestamp is not judged.
    `now_ms` >= 0 asks for latencies. Raises `CorruptMessage` for what is broken, `MessageTooLarge`
    as `batch_content`, `InvalidRecord` for a control batch, for one that says that it has no
    records, for a producer id with a negative epoch or sequence, and, where records are to be
    `keyed`, for one without a key.
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
    """Raise `InvalidRecord` for a header that no producer may send; `position` is the batch's."""
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
    """The records of the batch at `position`, but for those below `from_offset`.

    None for a control batch. In a batch with an append time all have that. Raises
    `CorruptMessage`, `MessageTooLarge` as `batch_content`, also after some records.
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
    """Offset and timestamp of the first record of the batch at `position` with a timestamp >=
    `target_ms`.

    Records below `from_offset` do not count, and nothing in a control batch does. The batch is
    opened only when its largest timestamp says that there can be one. Raises as `batch_records`.
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
    """The timestamp of the record that `cursor` is at."""
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
    """Give the batch at `position` another largest timestamp, and its CRC.

    With `append_time` that is the time at which a broker appended it, and from then on the time
    of all its records. A walk has passed the batch.
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
    """Say which producer the batch at `position` is from, and its place in that one's sequence."""
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
    """A batch as a producer sends it; empty for no records. Raises `ValueError` as
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
    """The batch of the records in `encoder`, at least one, which is then empty again.

    `append_time_ms` is the time of all of them instead of their own.
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
    """Write `header` to the first bytes of the batch that `batch` is, with the right CRC."""
    _HEADER.pack_into(batch, 0, *header)
    _CRC.pack_into(batch, BATCH_CRC_AT, crc32c(batch, BATCH_ATTRIBUTES_AT, len(batch)))
