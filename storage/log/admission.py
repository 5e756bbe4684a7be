"""What was sent becomes what is stored: checked, stamped, converted, with its offsets.

A set is taken whole or refused whole, with neither clock nor disk. Most sets are stored as they
came, with offsets (and the append time of a wrapper) written in place; a set that cannot be is
rebuilt (`rebuilding`). The usual ones do not get here: the kernel admits many of them in one walk
(`usual_admission`) and stops at the first that needs more, which is then admitted here.
"""

from ...config.topic import TopicSettings
from ...protocol.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidRequest,
    UnsupportedForMessageFormat,
)
from ...protocol.records.codecs.codec import open_sent
from ...protocol.records.kernel import Walk, stamp, walk
from ...protocol.records.kernel.terms import Offsets, Problem
from ...protocol.records.latency import LatencyCounts
from ...protocol.records.layout import BATCH_MAGIC, ENTRY_OVERHEAD, MAGIC_AT, NO_TIMESTAMP, Codec
from ...protocol.records.messages.conversion import runs
from ...protocol.records.messages.message import Entry, entries
from ...protocol.records.messages.sets import set_append_time, set_offset, set_timestamp
from ...protocol.records.problems import problem_error, without_key
from ..files import Buffer
from ..index.time_map import SetTimes
from .admitted import LAST_FIRST_OFFSET, Admitted, LogEnd, check_entry_size, finished
from .appended import Conversion
from .batch_admission import SentBatches, batch_spans, check_batches, is_kept, set_times
from .rebuilding import NOT_NUMBERED, Form, Part, rebuild, rebuild_batches
from .set_times import is_spread, joined_times, set_times_of, wrapper_spans
from .timestamp_range import check_timestamps

_PLAIN = 1 << Codec.NONE
_ALL_V1 = 1 << 1
_BATCHES = 1 << BATCH_MAGIC


def admit(record_set: Buffer, settings: TopicSettings, target: LogEnd) -> Admitted | None:
    """Check `record_set` and give it the form in which it is stored; `None` if it is empty.

    A buffer that is writable is changed in place, also when the set is refused. An incomplete
    message at the end is dropped, an incomplete batch is refused. Raises `CorruptMessage`,
    `MessageTooLarge`, `InvalidTimestamp`, `InvalidRecord`, `UnsupportedForMessageFormat`, and
    `InvalidRequest` where the log is at the end of all offsets.
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
    data: bytearray | memoryview, found: Walk, settings: TopicSettings, target: LogEnd
) -> Admitted:
    """A set without wrappers that the topic does not want compressed either."""
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
    part = Part(data, found.end, found.count, found.max_timestamp_ms)
    return _rebuilt([part], found, Codec.NONE, _latency(found), settings, target)


def _admit_batches(
    data: bytearray | memoryview, found: Walk, settings: TopicSettings, target: LogEnd
) -> Admitted:
    """A set of record batches."""
    if found.magics != _BATCHES:
        raise InvalidRecord("the set has record batches and messages of an older format in it")
    budget_bytes = target.budget_bytes(settings)
    sent = check_batches(data, found.end, settings, target.now_ms, budget_bytes)
    if settings.format_magic not in (None, BATCH_MAGIC) or not is_kept(sent, settings):
        return _rebuilt_batches(sent, found, settings, target)
    stored = memoryview(data)[: found.end]
    if set_times(stored, sent, settings, target.stamp_ms):
        admitted = finished(stored, found.count, sent.latency, settings, target)
    else:
        first, last = (found.first_offset,), found.last_offset
        admitted = Admitted(stored, found, first, last, NO_TIMESTAMP, sent.latency)
    admitted.numbered = sent.numbered
    admitted.times = sent.times
    admitted.spans = batch_spans(sent)
    return admitted


def _rebuilt_batches(
    sent: SentBatches, found: Walk, settings: TopicSettings, target: LogEnd
) -> Admitted:
    """Batches in another format, or compressed in another way."""
    began = target.stopwatch()
    magic = BATCH_MAGIC if settings.format_magic is None else settings.format_magic
    if sent.numbered is not None and magic != BATCH_MAGIC:
        raise UnsupportedForMessageFormat(
            f"the batch has sequence numbers (producer id {sent.numbered.producer_id}), and the "
            "topic stores messages in an older format, which has no place for them "
            f"(message.format.version = {settings.message_format_version}): produce with "
            "enable.idempotence=false, or set the topic's format to producer"
        )
    form = Form(
        magic,
        _target_codec(settings, Codec(found.last_codec), magic),
        target.next_offset,
        target.stamp_ms if settings.stamps_append_time else None,
        sent.numbered or NOT_NUMBERED,
    )
    stored, converted, headers = rebuild_batches([batch for _, batch in sent.batches], form)
    admitted = finished(stored, found.count, sent.latency, settings, target)
    admitted.numbered = sent.numbered
    if converted:
        seconds = target.stopwatch() - began
        admitted.conversion = Conversion(magic, False, converted, found.end, seconds, headers)
    return admitted


def _latency(found: Walk) -> LatencyCounts:
    """The latency counts of a walk, without those of times that cannot be times.

    On a topic of format v0 no time is refused, because none is stored.
    """
    assert found.latency is not None
    if found.min_timestamp_ms < NO_TIMESTAMP:
        return LatencyCounts(untimed=found.count)
    return found.latency


def _check_walk(data: bytearray | memoryview, found: Walk, settings: TopicSettings) -> None:
    """Refuse what the walk could not pass; the size limit is judged before the CRC."""
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
    """Whether what begins there is a batch, as far as there is enough of it to tell."""
    return len(data) > position + MAGIC_AT and data[position + MAGIC_AT] == BATCH_MAGIC


def _size_at(data: bytearray | memoryview, position: int) -> int:
    return int.from_bytes(data[position + 8 : position + 12], "big", signed=True)


def _shortened(data: bytearray | memoryview, end: int) -> bytearray | memoryview:
    return data if end == len(data) else data[:end]


def _admit_compressed(
    data: bytearray | memoryview, found: Walk, settings: TopicSettings, target: LogEnd
) -> Admitted:
    """A set with wrappers in it, or one that the topic wants compressed."""
    parts: list[Part] = []
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
        parts.append(Part(inner, walked.end, walked.count, walked.max_timestamp_ms))
    codec = _target_codec(settings, Codec(found.last_codec), settings.format_magic)
    as_sent = found.count == 1 and found.magics == _ALL_V1 and found.last_codec == codec
    if not (as_sent and keeps_payload and settings.format_magic in (None, 1)):
        admitted = _rebuilt(parts, found, codec, latency, settings, target)
        admitted.times = joined_times(times)
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
        admitted.spans = wrapper_spans(part.data, part.count, size + ENTRY_OVERHEAD)
    return admitted


def _rebuilt(
    parts: list[Part],
    found: Walk,
    codec: Codec,
    latency: LatencyCounts,
    settings: TopicSettings,
    target: LogEnd,
) -> Admitted:
    """The set that `found` is the walk over and `parts` the content of, built anew."""
    began = target.stopwatch()
    form = Form(
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
    """The format of a set that is rebuilt; `None` leaves each message its own.

    `magics` are the formats in the set, as a walk has them. In a wrapper all have the same.
    """
    if codec is Codec.ZSTD:
        return BATCH_MAGIC
    if settings.stamps_append_time and settings.format_magic is None:
        return 1
    if settings.format_magic is not None or codec is Codec.NONE:
        return settings.format_magic
    magic = magics.bit_length() - 1
    # Most readers of today refuse the frames of v0, whose header checksum is another.
    return max(magic, 1) if codec is Codec.LZ4 else magic


def _target_codec(settings: TopicSettings, source: Codec, magic: int | None) -> Codec:
    """How a set of format `magic` is compressed; zstd is for batches, and gzip comes near it."""
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
    """The set inside of a wrapper, with every message of it checked, and whether all clients read
    it as it is compressed."""
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
    """Give a set that has an append time another one. Its walk does not follow."""
    stored, found = admitted.data, admitted.walk
    admitted.append_time_ms = stamp_ms
    if found.codecs != _PLAIN and found.magics == _ALL_V1:
        set_append_time(stored, 0, len(stored) - ENTRY_OVERHEAD, stamp_ms)
    elif found.magics in (_ALL_V1, _BATCHES):
        stamp(stored, 0, len(stored), stamp_ms)
