"""Admission: what producers sent becomes what is stored, checked, stamped, converted, with offsets.

A set is taken whole or refused whole, with neither clock nor disk. Most sets are stored as they
were sent, with offsets and append times written in place. The fast path (`admit_fast`) takes many
of those in one walk of the kernel and stops at the first set that needs more. `admit` takes one set
of any kind and builds anew what cannot be stored as it was sent (`admitted.rebuild`).

**Every place where a time is stamped**, in a message or beside it:

| What | Where | Time |
|---|---|---|
| choice of the append time | `Appender._next_stamp` | the clock, never below the last stamp |
| sets of the fast path | `admit_fast` (kernel `take_unchanged`) | append time |
| v1 messages stored as sent | `_admit_plain` (kernel `stamp`) | append time in each |
| wrapper stored as sent | `_admit_compressed` | append time, or the largest inside |
| batch stored as sent | `_set_times` | append time, or the largest inside |
| v0 and v1 messages built anew | `_joined`, called by `rebuild` | append time in each of v1 |
| wrapper built anew | `rebuild` | append time, or the largest inside |
| batch built anew | `_finished`, called by `rebuild` | append time, or the largest inside |
| set admitted in a thread | `give_append_time` (`Appender._give_append_time`) | append time |
| record of the metadata log | `append_record` | CreateTime, by the leader's clock |
| `.appendtime` of a segment | `Segment.commit` | append time, else the clock |
| `.appendtime` of a follower | `Segment.commit` | those of the leader's file |
| file of the time index | `Segment.keep_creation_time` | when the segment was created |
| files of a follower | `ReplicaLog._take_file_times` | those of the leader's files |
| log file that repair writes anew | `PartitionRepair._rewrite` | that of the old file |

The append time goes into messages on LogAppendTime topics only, into v1 and v2, with bit 3 of the
attributes; v0 has no place for it. On CreateTime topics the producer's times stay (a time that the
topic does not accept refuses the set, see `timestamp_range`); only a wrapper or batch that names
another largest time than its messages have is corrected. A follower stores the leader's bytes,
recovery and repair keep or remove whole entries, and a conversion for an old reader changes nothing
that is stored: none of them stamps a message.
"""

from collections.abc import Sequence
from typing import Final

from ...config.topic import TopicSettings
from ...protocol.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidRequest,
    UnsupportedForMessageFormat,
    UnsupportedVersion,
)
from ...protocol.records.batch import CheckedBatch, check_batch, set_times_in_place
from ...protocol.records.codecs.codec import open_sent
from ...protocol.records.kernel import (
    Walk,
    gather_records,
    producer_numbers,
    stamp,
    take_unchanged,
    time_spans,
    walk,
)
from ...protocol.records.kernel.terms import Offsets, Problem
from ...protocol.records.latency import LatencyCounts
from ...protocol.records.layout import (
    BATCH_MAGIC,
    ENTRY_OVERHEAD,
    MAGIC_AT,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Codec,
)
from ...protocol.records.messages.downconversion import runs
from ...protocol.records.messages.sets import (
    Entry,
    entries,
    set_append_time,
    set_offset,
    set_timestamp,
)
from ...protocol.records.problems import problem_error, without_key
from ...values import value_class
from ..files import Buffer
from ..index.time_map import BLOCK_BYTES, CLOSE_MS, SetTimes
from ..producers.producer_states import ProducerStates, producer_runs, sets_in_turn
from ..segment.segment import Segment
from .admitted import (
    LAST_FIRST_OFFSET,
    NOT_NUMBERED,
    Admitted,
    AppendTarget,
    Conversion,
    Numbered,
    SentPart,
    StoredForm,
    batch_times,
    check_entry_size,
    finished,
    is_spread,
    joined_spans,
    joined_times,
    needs_spans,
    rebuild,
    rebuild_batches,
    set_times_of,
)
from .timestamp_range import accepted_range, check_batch_timestamps, check_timestamps

OPENED_BYTES: Final = 256 * 1024
"""Maximum that the event loop decompresses of one set, in bytes: a quarter of a
millisecond's work."""

LARGE_SET_BYTES: Final = 8 * 1024 * 1024
"""Walking over a larger set takes milliseconds, whatever it contains."""

_SMALL_BYTES: Final = 8 * 1024
_PLAIN_BYTES: Final = 256 * 1024
_COMPRESSED_BYTES: Final = 128 * 1024
_BATCHES_MAX: Final = 128
"""Outside the fast path, each batch takes some microseconds."""

_PLAIN: Final = 1 << Codec.NONE
_ALL_V1: Final = 1 << 1
_BATCHES: Final = 1 << BATCH_MAGIC
_KEPT: Final = ("producer", "uncompressed")


def takes_long(record_set: Buffer, settings: TopicSettings) -> bool:
    """Whether `admit` would block the event loop, even if the set decompresses to no more than
    `OPENED_BYTES`."""
    size = len(record_set)
    if size <= _SMALL_BYTES:
        return False
    if size > _PLAIN_BYTES:
        return True
    if size <= _COMPRESSED_BYTES and record_set[MAGIC_AT] != BATCH_MAGIC:
        return False  # Batches after a message are refused without decompression.
    found = walk(record_set, 0, size, check_crc=False)
    is_plain = not found.codecs & ~_PLAIN and settings.compression_type in _KEPT
    return found.batches > _BATCHES_MAX or not (is_plain or size <= _COMPRESSED_BYTES)


def admit_fast(
    record_sets: Sequence[Buffer],
    settings: TopicSettings,
    active: Segment,
    states: ProducerStates,
    now_ms: int,
) -> Admitted | None:
    """The fast path: admit the first sets, as they will be stored in `active`. Stops before the
    first set that cannot be stored as sent, or that may need a new segment. Returns `None` if that
    is the first one.

    `states` are the producers of the log. `now_ms` is the append time. A single writable set is
    changed in place; several sets are copied.
    """
    formats = settings.kept_formats
    if not (formats and active.size_bytes and active.next_offset <= LAST_FIRST_OFFSET):
        return None
    stamp_ms = now_ms if settings.stamps_append_time else NO_TIMESTAMP
    latest_ms = active.latest_time_ms(settings.segment_ms, now_ms)
    if stamp_ms > latest_ms:
        return None
    lowest_ms = 0
    if settings.limits_times:
        earliest_ms, limit_ms = accepted_range(settings, now_ms)
        lowest_ms = max(earliest_ms or 0, 0)
        latest_ms = latest_ms if limit_ms is None else min(limit_ms, latest_ms)
    sets = list(record_sets)
    formats_before = active.magic_changes
    numbered = producer_numbers(sets)
    if numbered:
        due = sets_in_turn(numbered, states)
        if due < len(numbered):
            del sets[numbered[due][0] :]
    found = take_unchanged(
        sets,
        base_offset=active.next_offset,
        now_ms=now_ms,
        magics=formats,
        append_time_ms=stamp_ms,
        lowest_ms=lowest_ms,
        highest_ms=latest_ms,
        entry_max_bytes=settings.max_message_bytes,
        room_bytes=settings.segment_bytes - active.size_bytes,
        marks_max=min(active.offset_index.room, active.time_index.room),
        interval_bytes=settings.index_interval_bytes,
        since_bytes=active.since_bytes,
        largest_ms=active.largest[0],
        magic=formats_before[-1][1] if formats_before else -1,
        segment_offset=active.base_offset,
        segment_position=active.size_bytes,
        close_ms=CLOSE_MS,
        block_bytes=BLOCK_BYTES if active.time_map.makes else 0,
        block_since_bytes=active.time_map.since_bytes,
        keyed=settings.compacts,
    )
    if found is None:
        return None
    offsets = found.first_offsets
    assert found.latency is not None
    return Admitted(
        found.data,
        found,
        offsets,
        found.last_offset,
        stamp_ms,
        found.latency,
        runs=producer_runs(numbered, offsets, stamp_ms) if numbered else (),
        fits=True,
        spans=found.spans or b"",
        times=None if found.spans else set_times_of(found),
    )


@value_class
class _CheckedBatches:
    """The checked batches of a set."""

    batches: list[tuple[int, CheckedBatch]]
    """Position and content of each batch."""
    latency: LatencyCounts
    numbered: Numbered | None
    times: SetTimes | None


def admit(record_set: Buffer, settings: TopicSettings, target: AppendTarget) -> Admitted | None:
    """Check `record_set` and turn it into the form in which it is stored. Returns `None` if it is
    empty.

    A writable buffer is changed in place, even if the set is refused. An incomplete message at the
    end is dropped; an incomplete batch is refused. Raises `CorruptMessage`, `MessageTooLarge`,
    `InvalidTimestamp`, `InvalidRecord`, `UnsupportedForMessageFormat`, `UnsupportedVersion`, and
    `InvalidRequest` if the log has no offsets left.
    """
    if target.next_offset > LAST_FIRST_OFFSET:
        raise InvalidRequest(
            f"the log ends at offset {target.next_offset}; a set begins at {LAST_FIRST_OFFSET} at "
            "the latest, because offsets end at 2**63: go on with another topic"
        )
    data: bytearray | memoryview
    if isinstance(record_set, bytes) or memoryview(record_set).readonly:
        data = bytearray(record_set)
    else:
        data = record_set
    found = walk(
        data,
        0,
        len(data),
        offsets=Offsets.ASSIGN,
        base_offset=target.next_offset,
        now_ms=target.now_ms,
        interval_bytes=settings.index_interval_bytes,
        since_bytes=target.since_bytes,
        largest_ms=target.largest_ms,
        magic=target.magic,
        segment_offset=target.segment_offset,
        segment_position=target.segment_position,
        keyed=settings.compacts,
    )
    _check_walk(data, found, settings)
    if not found.count and not found.batches:
        return None
    if found.magics & _BATCHES:
        return _admit_batches(data, found, settings, target)
    if found.codecs == _PLAIN and settings.compression_type in ("producer", "uncompressed"):
        return _admit_plain(data, found, settings, target)
    return _admit_compressed(data, found, settings, target)


def _admit_plain(
    data: bytearray | memoryview, found: Walk, settings: TopicSettings, target: AppendTarget
) -> Admitted:
    """Admit a set without wrapper messages, which the topic does not compress."""
    check_timestamps(data, found, settings, target.now_ms)
    magic = settings.format_magic
    if not settings.stamps_append_time and (magic is None or found.magics == 1 << magic):
        assert found.latency is not None
        return Admitted(
            memoryview(data)[: found.end],
            found,
            (found.first_offset,),
            found.last_offset,
            NO_TIMESTAMP,
            found.latency,
            times=set_times_of(found),
        )
    if settings.stamps_append_time and found.magics == _ALL_V1 and magic != BATCH_MAGIC:
        stamp(data, 0, found.end, target.stamp_ms)
        stored = memoryview(data)[: found.end]
        admitted = finished(stored, found.count, _latency(found), settings, target)
        admitted.times = set_times_of(found)
        return admitted
    part = SentPart(data, found.end, found.count, found.max_timestamp_ms)
    admitted = _rebuilt([part], found, Codec.NONE, _latency(found), settings, target)
    admitted.times = set_times_of(found)
    return admitted


def _admit_batches(
    data: bytearray | memoryview, found: Walk, settings: TopicSettings, target: AppendTarget
) -> Admitted:
    """Admit a set of record batches."""
    if found.magics != _BATCHES:
        raise InvalidRecord("the set has record batches and messages of an older format in it")
    budget_bytes = target.budget_bytes(settings)
    sent = _check_batches(data, found.end, settings, target.now_ms, budget_bytes)
    if settings.format_magic not in (None, BATCH_MAGIC) or not _is_kept(sent, settings):
        return _rebuilt_batches(sent, found, settings, target)
    stored = memoryview(data)[: found.end]
    if _set_times(stored, sent, settings, target.stamp_ms):
        admitted = finished(stored, found.count, sent.latency, settings, target)
    else:
        first, last = (found.first_offset,), found.last_offset
        admitted = Admitted(stored, found, first, last, NO_TIMESTAMP, sent.latency)
    admitted.numbered = sent.numbered
    admitted.times = sent.times
    admitted.spans = _batch_spans(sent)
    return admitted


def _rebuilt_batches(
    sent: _CheckedBatches, found: Walk, settings: TopicSettings, target: AppendTarget
) -> Admitted:
    """Rebuild batches in another format or with another compression."""
    began = target.stopwatch()
    magic = BATCH_MAGIC if settings.format_magic is None else settings.format_magic
    if sent.numbered is not None and magic != BATCH_MAGIC:
        raise UnsupportedForMessageFormat(
            f"the batch has sequence numbers (producer id {sent.numbered.producer_id}), and the "
            "topic stores messages in an older format, which has no place for them "
            f"(message.format.version = {settings.message_format_version}): produce with "
            "enable.idempotence=false, or set the topic's format to producer"
        )
    form = StoredForm(
        magic,
        _target_codec(settings, Codec(found.last_codec), magic),
        target.next_offset,
        target.stamp_ms if settings.stamps_append_time else None,
        sent.numbered or NOT_NUMBERED,
    )
    stored, converted, headers = rebuild_batches([batch for _, batch in sent.batches], form)
    admitted = finished(stored, found.count, sent.latency, settings, target)
    admitted.numbered = sent.numbered
    admitted.times = sent.times
    if needs_spans(admitted):
        admitted.spans = joined_spans(admitted, (_timestamps(one) for _, one in sent.batches))
    if converted:
        seconds = target.stopwatch() - began
        admitted.conversion = Conversion(magic, False, converted, found.end, seconds, headers)
    return admitted


def _latency(found: Walk) -> LatencyCounts:
    """Return the latency counts of a walk, ignoring values that cannot be timestamps.

    Topics of format v0 refuse no timestamp, because they store none.
    """
    assert found.latency is not None
    if found.min_timestamp_ms < NO_TIMESTAMP:
        return LatencyCounts(untimed=found.count)
    return found.latency


def _check_walk(data: bytearray | memoryview, found: Walk, settings: TopicSettings) -> None:
    """Raise the error for a set that the walk could not pass. The size limit is checked before the
    CRC."""
    problem = found.problem
    position = found.problem_position
    largest = found.largest_entry_bytes
    if problem not in (Problem.NONE, Problem.PARTIAL, Problem.SIZE):
        largest = max(largest, ENTRY_OVERHEAD + _size_at(data, position))
    check_entry_size(largest, settings)
    if problem not in (Problem.NONE, Problem.PARTIAL):
        raise problem_error(data, found, len(data))
    if problem is Problem.PARTIAL and _is_batch(data, position):
        raise CorruptMessage(
            f"the batch at byte {position} is cut off: {len(data) - position} bytes of it are there"
        )


def _is_batch(data: bytearray | memoryview, position: int) -> bool:
    """Whether the entry at `position` is a batch, as far as enough bytes are there to tell."""
    return len(data) > position + MAGIC_AT and data[position + MAGIC_AT] == BATCH_MAGIC


def _size_at(data: bytearray | memoryview, position: int) -> int:
    return int.from_bytes(data[position + 8 : position + 12], "big", signed=True)


def _shortened(data: bytearray | memoryview, end: int) -> bytearray | memoryview:
    return data if end == len(data) else data[:end]


def _admit_compressed(
    data: bytearray | memoryview, found: Walk, settings: TopicSettings, target: AppendTarget
) -> Admitted:
    """Admit a set that contains wrapper messages, or that the topic compresses."""
    parts: list[SentPart] = []
    times: list[SetTimes | None] = []
    latency = LatencyCounts()
    keeps_payload = False
    budget_bytes = target.budget_bytes(settings)
    for start, end, codec in runs(data, 0, found.end):
        wrapper = None
        inner: Buffer = memoryview(data)[start:end]
        if codec is Codec.NONE:
            walked = walk(inner, 0, len(inner), check_crc=False, now_ms=target.now_ms)
        else:
            (wrapper,) = entries(data, start, end, verify_crc=False)
            inner, walked, for_all_readers = _open_wrapper(
                wrapper, budget_bytes, target.now_ms, keyed=settings.compacts
            )
            keeps_payload = walked.literal and for_all_readers
            budget_bytes -= len(inner)
        check_timestamps(inner, walked, settings, target.now_ms, wrapper)
        latency.add(_latency(walked))
        times.append(set_times_of(walked, wrapper))
        parts.append(SentPart(inner, walked.end, walked.count, walked.max_timestamp_ms))
    codec = _target_codec(settings, Codec(found.last_codec), settings.format_magic)
    as_sent = found.count == 1 and found.magics == _ALL_V1 and found.last_codec == codec
    if not (as_sent and keeps_payload and settings.format_magic in (None, 1)):
        admitted = _rebuilt(parts, found, codec, latency, settings, target)
        admitted.times = joined_times(times)
        if needs_spans(admitted):
            admitted.spans = joined_spans(admitted, (part.timestamps for part in parts))
        return admitted
    (part,) = parts
    stored = _shortened(data, found.end)
    set_offset(stored, 0, target.next_offset + part.count - 1)
    size = found.end - ENTRY_OVERHEAD
    if settings.stamps_append_time:
        set_append_time(stored, 0, size, target.stamp_ms)
    elif part.largest_ms != found.first_timestamp_ms:
        set_timestamp(stored, 0, size, part.largest_ms)
    admitted = finished(stored, part.count, latency, settings, target)
    (admitted.times,) = times
    if is_spread(admitted.times):
        admitted.spans = joined_spans(admitted, (part.timestamps,))
    return admitted


def _rebuilt(
    parts: list[SentPart],
    found: Walk,
    codec: Codec,
    latency: LatencyCounts,
    settings: TopicSettings,
    target: AppendTarget,
) -> Admitted:
    """Rebuild the set from its `parts`. `found` is the walk over the set as sent."""
    began = target.stopwatch()
    form = StoredForm(
        _target_magic(settings, codec, found.magics),
        codec,
        target.next_offset,
        target.stamp_ms if settings.stamps_append_time else None,
    )
    stored, converted = rebuild(parts, form)
    count = sum(part.count for part in parts)
    admitted = finished(stored, count, latency, settings, target)
    if converted:
        seconds = target.stopwatch() - began
        lowest = (found.magics & -found.magics).bit_length() - 1
        magic = form.magic or 0
        admitted.conversion = Conversion(magic, magic > lowest, converted, found.end, seconds)
    return admitted


def _target_magic(settings: TopicSettings, codec: Codec, magics: int) -> int | None:
    """Return the format of a rebuilt set; `None` keeps the format of each message.

    `magics` is the bit set of formats in the set, as in a walk. All messages inside a wrapper have
    the same format.
    """
    if codec is Codec.ZSTD:
        return BATCH_MAGIC
    if settings.stamps_append_time and settings.format_magic is None:
        return 1
    if settings.format_magic is not None or codec is Codec.NONE:
        return settings.format_magic
    magic = magics.bit_length() - 1
    # Most current readers refuse the LZ4 frames of v0, whose header checksum differs.
    return max(magic, 1) if codec is Codec.LZ4 else magic


def _target_codec(settings: TopicSettings, source: Codec, magic: int | None) -> Codec:
    """Return the codec for a set of format `magic`. Only batches may use zstd; older formats get
    gzip, which compresses nearly as well."""
    if settings.compression_type == "uncompressed":
        return Codec.NONE
    codec = source
    if settings.compression_type != "producer":
        codec = Codec[settings.compression_type.upper()]
    older = magic is not None and magic < BATCH_MAGIC
    return Codec.GZIP if codec is Codec.ZSTD and older else codec


def _open_wrapper(
    wrapper: Entry, budget_bytes: int, now_ms: int, *, keyed: bool
) -> tuple[bytes, Walk, bool]:
    """Decompress a wrapper message and check every message in it. Return the content, the walk over
    it, and whether all clients can read its compression."""
    if wrapper.value is None:
        raise CorruptMessage("a compressed message has a null value; it must hold a message set")
    inner, for_all_readers = open_sent(
        wrapper.codec, wrapper.value, magic=wrapper.magic, max_bytes=max(budget_bytes, 0)
    )
    walked = walk(inner, 0, len(inner), now_ms=now_ms, keyed=keyed)
    where = f"inside the compressed message at byte {wrapper.position} of the set"
    if walked.problem is Problem.KEY:
        raise without_key(f"{where}: the message at byte {walked.problem_position}")
    if walked.problem is not Problem.NONE:
        raise CorruptMessage(f"{where}: {problem_error(inner, walked, len(inner)).message}")
    if not walked.count:
        raise CorruptMessage(f"{where}: there is no message")
    if walked.codecs != _PLAIN:
        raise CorruptMessage(f"{where}: a message is compressed again; one level is allowed")
    if walked.magics != 1 << wrapper.magic:
        raise CorruptMessage(
            f"{where}: a message has another format than it (magic {wrapper.magic})"
        )
    return inner, walked, for_all_readers


def give_append_time(admitted: Admitted, stamp_ms: int) -> None:
    """Replace the append time of an admitted set that has one. The walk of the set
    is not updated."""
    stored, found = admitted.data, admitted.walk
    admitted.append_time_ms = stamp_ms
    if found.codecs != _PLAIN and found.magics == _ALL_V1:
        set_append_time(stored, 0, len(stored) - ENTRY_OVERHEAD, stamp_ms)
    elif found.magics in (_ALL_V1, _BATCHES):
        stamp(stored, 0, len(stored), stamp_ms)


def _check_batches(
    data: bytearray | memoryview,
    end: int,
    settings: TopicSettings,
    now_ms: int,
    max_decompressed_bytes: int,
) -> _CheckedBatches:
    """Check the batches in `data[:end]`, which a walk has passed.

    Raises `CorruptMessage`, `InvalidRecord`, `InvalidTimestamp`, `UnsupportedVersion`, and
    `MessageTooLarge` if the batches together decompress to more than `max_decompressed_bytes`.
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
    return _CheckedBatches(batches, latency or LatencyCounts(), numbered, times)


def _batch_spans(sent: _CheckedBatches) -> bytes:
    """Return the time spans of batches stored as sent, if some are compressed and their times are
    far apart; else nothing."""
    if not is_spread(sent.times) or not any(checked.header.codec for _, checked in sent.batches):
        return b""
    rows = b""
    for _, checked in sent.batches:
        header = checked.header
        rows += time_spans(
            _timestamps(checked), log_bytes=header.size_bytes, offsets=header.record_count
        )
    return rows


def _timestamps(checked: CheckedBatch) -> bytearray:
    """Return the times of the records of a batch (int64)."""
    found, _ = gather_records(
        checked.content,
        base_offset=0,
        base_timestamp_ms=checked.header.base_timestamp_ms,
        with_keys=False,
        with_values=False,
        with_headers=False,
    )
    return found.timestamps


def _is_kept(sent: _CheckedBatches, settings: TopicSettings) -> bool:
    """Whether the batches can be stored as sent, apart from offsets and append times."""
    if not all(checked.for_all_readers for _, checked in sent.batches):
        return False
    wanted = settings.compression_type
    if wanted == "producer":
        return True
    codec = Codec.NONE if wanted == "uncompressed" else Codec[wanted.upper()]
    return all(checked.header.codec is codec for _, checked in sent.batches)


def _set_times(
    data: bytearray | memoryview, sent: _CheckedBatches, settings: TopicSettings, stamp_ms: int
) -> bool:
    """Write the append time into the batches, or correct a wrong largest timestamp. Return whether
    any batch changed."""
    changed = False
    for position, checked in sent.batches:
        if settings.stamps_append_time:
            set_times_in_place(data, position, stamp_ms, append_time=True)
            changed = True
        elif checked.max_timestamp_ms != checked.header.max_timestamp_ms:
            set_times_in_place(data, position, checked.max_timestamp_ms, append_time=False)
            changed = True
    return changed
