"""Admission of record batches (magic 2): what a producer sent becomes what is stored.

The part of `admission` that knows batches. Each is opened and checked whole, whatever becomes of
it; most are stored as they came, with another first offset, and on LogAppendTime topics with their
append time in the header.
"""

from ...config.topic import TopicSettings
from ...protocol.errors import InvalidRecord, UnsupportedVersion
from ...protocol.records.batches.batch import CheckedBatch, check_batch, set_times_in_place
from ...protocol.records.kernel import gather_records, time_spans
from ...protocol.records.latency import LatencyCounts
from ...protocol.records.layout import NO_PRODUCER_ID, Codec
from ...values import value_class
from ..index.time_map import SetTimes
from .rebuilding import Numbered
from .set_times import batch_times, is_spread
from .timestamp_range import check_batch_timestamps


@value_class
class SentBatches:
    """The batches of a set, checked."""

    batches: list[tuple[int, CheckedBatch]]
    """Where each begins, and what is in it."""
    latency: LatencyCounts
    numbered: Numbered | None
    times: SetTimes | None


def check_batches(
    data: bytearray | memoryview,
    end: int,
    settings: TopicSettings,
    now_ms: int,
    max_decompressed_bytes: int,
) -> SentBatches:
    """Check the batches that `data[:end]` is made of; a walk has passed them.

    Raises `CorruptMessage`, `InvalidRecord`, `InvalidTimestamp`, `MessageTooLarge` where all of
    them decompress to more than `max_decompressed_bytes`, `UnsupportedVersion`.
    """
    batches: list[tuple[int, CheckedBatch]] = []
    latency: LatencyCounts | None = None
    numbered = None
    budget_bytes = max_decompressed_bytes
    position = 0
    while position < end:
        checked = check_batch(
            data,
            position,
            max_decompressed_bytes=max(budget_bytes, 0),
            now_ms=now_ms,
            keyed=settings.compacts,
        )
        header = checked.header
        if header.is_transactional:
            raise UnsupportedVersion(
                f"the batch at byte {position} of the set belongs to a transaction; there are no "
                "transactions in Horolog: produce without transactional.id"
            )
        if header.producer_id != NO_PRODUCER_ID:
            numbered = Numbered(header.producer_id, header.producer_epoch, header.base_sequence)
        check_batch_timestamps(checked, settings, now_ms)
        if header.codec:
            budget_bytes -= len(checked.content)
        assert checked.latency is not None
        if latency is None:
            latency = checked.latency
        else:
            latency.add(checked.latency)
        batches.append((position, checked))
        position += header.size_bytes
    if numbered is not None and len(batches) > 1:
        raise InvalidRecord(
            f"the set has {len(batches)} batches, and one has sequence numbers (producer id "
            f"{numbered.producer_id}); such a set has one batch alone"
        )
    times = batch_times(checked for _, checked in batches)
    return SentBatches(batches, latency or LatencyCounts(), numbered, times)


def batch_spans(sent: SentBatches) -> bytes:
    """The spans of the messages of batches that are stored as they were sent, where some are
    compressed and their times are not close together; else none."""
    if not is_spread(sent.times) or not any(checked.header.codec for _, checked in sent.batches):
        return b""
    rows = b""
    for _, checked in sent.batches:
        header = checked.header
        found, _ = gather_records(
            checked.content,
            base_offset=0,
            base_timestamp_ms=header.base_timestamp_ms,
            with_keys=False,
            with_values=False,
            with_headers=False,
        )
        rows += time_spans(
            found.timestamps, log_bytes=header.size_bytes, offsets=header.record_count
        )
    return rows


def is_kept(sent: SentBatches, settings: TopicSettings) -> bool:
    """Whether the batches can be stored as they were sent, but for offsets and append times."""
    if not all(checked.for_all_readers for _, checked in sent.batches):
        return False
    wanted = settings.compression_type
    if wanted == "producer":
        return True
    codec = Codec.NONE if wanted == "uncompressed" else Codec[wanted.upper()]
    return all(checked.header.codec is codec for _, checked in sent.batches)


def set_times(
    data: bytearray | memoryview, sent: SentBatches, settings: TopicSettings, stamp_ms: int
) -> bool:
    """Give the batches their append time, or put a largest timestamp right that is not; say whether
    any was changed."""
    changed = False
    for position, checked in sent.batches:
        if settings.stamps_append_time:
            set_times_in_place(data, position, stamp_ms, append_time=True)
            changed = True
        elif checked.max_timestamp_ms != checked.header.max_timestamp_ms:
            set_times_in_place(data, position, checked.max_timestamp_ms, append_time=False)
            changed = True
    return changed
