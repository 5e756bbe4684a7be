"""The kernel in plain Python: what the compiled one does, one obvious step at a time.

Everything that goes over the bytes of messages and records is here. Tests hold the compiled kernel
against this one, and where nothing was compiled it is what runs: right, and slow. A set that is
stored as it was sent costs it a few microseconds a message.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import add
from struct import Struct
from typing import Final
from zlib import crc32 as crc32

from ..binary import BinaryColumn
from ..latency import LATENCY_BUCKETS_MS, LatencyCounts
from ..layout import (
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    BATCH_ATTRIBUTES_AT,
    BATCH_CRC_AT,
    BATCH_OVERHEAD,
    CODEC_MASK,
    CRC_AT,
    ENTRY_OVERHEAD,
    LAST_DELTA_AT,
    LEADER_EPOCH_AT,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    MESSAGE_CODECS,
    MESSAGE_OVERHEAD,
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORD_COUNT_AT,
    RESERVED_MASK,
    SIZE_AT,
    TIMESTAMP_AT,
    Buffer,
    Codec,
)
from ..marks import NO_MARKS, Marks
from .reference_fields import (
    FieldReader as FieldReader,
)
from .reference_fields import (
    FieldWriter as FieldWriter,
)
from .reference_fields import (
    MessageReader as MessageReader,
)
from .reference_fields import (
    MessageWriter as MessageWriter,
)
from .reference_packed import (
    PackedField as PackedField,
)
from .reference_packed import (
    PackedMessage as PackedMessage,
)
from .terms import (
    BAD_END,
    BAD_FIELD,
    BAD_LENGTH,
    BAD_OFFSET,
    BAD_RECORD_OFFSET,
    BAD_SIZE,
    BAD_TIME,
    MOST_OVERHEAD,
    NO_MORE,
    NOT_FOUND,
    OWN,
    RECORD,
    SMALLEST_RECORD,
    Headers,
    Offsets,
    Problem,
    RecordHeaders,
    Rewritten,
)

FORM: Final = "reference"

_LARGEST_INT32: Final = 2**31 - 1
_LARGEST_INT64: Final = 2**63 - 1
_SMALLEST_INT64: Final = -(2**63)
_LARGE_OFFSET: Final = 2**62
"""Up to here offsets can be added to each other in 64 bits."""
_V0_OVERHEAD, _V1_OVERHEAD = MESSAGE_OVERHEAD[0], MESSAGE_OVERHEAD[1]
_HIGHEST_MESSAGE_CODEC: Final = int(max(MESSAGE_CODECS))
_HIGHEST_CODEC: Final = int(max(Codec))
_LENGTH_BYTES: Final = 4
_TIME_BYTES: Final = 8

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_UINT32: Final = Struct(">I")
_INT64: Final = Struct(">q")
_HEAD: Final = Struct(">qi")
"""Offset and size of an entry."""
_V0_HEAD: Final = Struct(">BB")
_V1_HEAD: Final = Struct(">BBq")
"""Magic, attributes, and in v1 the timestamp."""


def _int32(data: Buffer, at: int) -> int:
    number: int = _INT32.unpack_from(data, at)[0]
    return number


def _int64(data: Buffer, at: int) -> int:
    number: int = _INT64.unpack_from(data, at)[0]
    return number


def _wrapped(number: int) -> int:
    """`number` in 64 bits: a sum of what messages say may be anything."""
    return (number + 2**63) % 2**64 - 2**63


def _flat(buffer: Buffer) -> memoryview:
    view = memoryview(buffer)
    if view.itemsize != 1 or not view.c_contiguous:
        raise BufferError("the bytes of a message set must follow each other in memory")
    return view


def _part(buffer: Buffer, start: int, end: int) -> memoryview:
    view = _flat(buffer)
    if not 0 <= start <= len(view) or end > len(view):
        raise IndexError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    return view


def crc32c(buffer: Buffer, start: int, end: int) -> int:
    """CRC-32C of `buffer[start:end]`. The library wants bytes and nothing else."""
    import google_crc32c  # only record batches have it

    view = _flat(buffer)
    if not 0 <= start <= end <= len(view):
        raise IndexError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    crc: int = google_crc32c.value(bytes(view[start:end]))
    return crc


class Walk:
    """What a walk found: everything here is about the good entries before `end`.

    end: position after the last good entry.
    count: how many messages there are; a wrapper counts as one, a batch as its records.
    batches: how many of the entries are batches.
    first_offset, last_offset: as stored, or as assigned; -1 when there is no entry. For a batch
        the first is that of its first record, the last that of its last.
    magics: bit `1 << magic` for each magic met.
    codecs: bit `1 << codec` for each codec met.
    last_codec: codec of the last compressed entry, else 0.
    literal: the offsets as sent were 0, 1, ..., count - 1.
    min_timestamp_ms, max_timestamp_ms: over the timestamps that are not -1 (a broken sender's can
        be below it); -1 without any.
    max_position, max_offset: the first entry that has the largest timestamp; -1 without any. The
        timestamp of a batch is the largest of its records', its offset here that of the last one.
    first_timestamp_ms: of the first entry, -1 for none.
    last_append_time_ms: timestamp of the last entry if a broker stamped it (bit 3), else -1.
    append_time_bits: how many v1 and v2 entries have bit 3.
    untimed: how many messages have no timestamp, those of v0 included; of a batch all or none.
    largest_entry_bytes: of the largest entry, the 12 bytes in front of it included.
    problem: why the walk stopped.
    problem_position: where the entry begins that stopped it; `end` without a problem.
    marks: index marks, as far as an index entry can hold them.
    since_bytes: bytes since the last mark.
    largest_ms: the larger of `max_timestamp_ms` and the `largest_ms` passed in.
    magic_changes: position and magic of each entry whose magic is not that of the entry before.
    latency: latencies against `now_ms`, if they were asked for. A set with a timestamp below -1,
        which cannot be one, has none: all its messages are `untimed`. `None` also when there are
        batches: only their records know (`check_records`).
    """

    __slots__ = (
        "append_time_bits",
        "batches",
        "codecs",
        "count",
        "end",
        "first_offset",
        "first_timestamp_ms",
        "largest_entry_bytes",
        "largest_ms",
        "last_append_time_ms",
        "last_codec",
        "last_offset",
        "latency",
        "literal",
        "magic_changes",
        "magics",
        "marks",
        "max_offset",
        "max_position",
        "max_timestamp_ms",
        "min_timestamp_ms",
        "problem",
        "problem_position",
        "since_bytes",
        "untimed",
    )

    def __init__(self) -> None:
        self.end = self.problem_position = self.count = self.batches = 0
        self.first_offset = self.last_offset = -1
        self.magics = self.codecs = self.last_codec = 0
        self.literal = True
        self.min_timestamp_ms = self.max_timestamp_ms = NO_TIMESTAMP
        self.max_position = self.max_offset = -1
        self.first_timestamp_ms = self.last_append_time_ms = NO_TIMESTAMP
        self.append_time_bits = self.untimed = self.largest_entry_bytes = 0
        self.problem = Problem.NONE
        self.marks = NO_MARKS
        self.since_bytes = 0
        self.largest_ms = NO_TIMESTAMP
        self.magic_changes: list[tuple[int, int]] = []
        self.latency: LatencyCounts | None = None


class _Entry:
    """The fields of an entry at `position`, all of whose bytes are there and good."""

    __slots__ = ("attributes", "delta", "magic", "offset", "position", "records", "stop", "time_ms")

    def __init__(
        self,
        position: int,
        stop: int,
        offset: int,
        magic: int,
        attributes: int,
        time_ms: int,
        records: int = 1,
        delta: int = 0,
    ) -> None:
        self.position, self.stop, self.offset, self.magic = position, stop, offset, magic
        self.attributes, self.time_ms, self.records, self.delta = (
            attributes,
            time_ms,
            records,
            delta,
        )


def _read_entry(view: memoryview, position: int, end: int, check_crc: bool) -> _Entry | Problem:  # noqa: C901, PLR0912 - the checks of one entry, in order
    """The entry at `position`, or what is wrong with it."""
    if end - position < ENTRY_OVERHEAD:
        return Problem.PARTIAL
    offset, size = _HEAD.unpack_from(view, position)
    stop = position + ENTRY_OVERHEAD + size
    if size < _V0_OVERHEAD:
        return Problem.SIZE
    if stop > end:
        return Problem.PARTIAL
    magic = view[position + MAGIC_AT]
    if magic == 2:
        problem = Problem(batch_problem(view, position, stop, check_crc))
        if problem:
            return problem
        return _Entry(
            position,
            stop,
            offset,
            magic,
            view[position + BATCH_ATTRIBUTES_AT + 1],
            _int64(view, position + MAX_TIMESTAMP_AT),
            _int32(view, position + RECORD_COUNT_AT),
            _int32(view, position + LAST_DELTA_AT),
        )
    if magic > 2:
        return Problem.MAGIC
    if size < MESSAGE_OVERHEAD[magic]:
        return Problem.SIZE
    if check_crc:
        (stored,) = _UINT32.unpack_from(view, position + CRC_AT)
        if crc32(view[position + MAGIC_AT : stop]) != stored:
            return Problem.CRC
    key_at = position + TIMESTAMP_AT + (_TIME_BYTES if magic else 0)
    body_bytes = size - MESSAGE_OVERHEAD[magic]
    key_bytes = _int32(view, key_at)
    if key_bytes > 0:
        key_at += key_bytes
        body_bytes -= key_bytes
        if body_bytes < 0:
            return Problem.LENGTHS
    value_bytes = _int32(view, key_at + _LENGTH_BYTES)
    if value_bytes != body_bytes and (value_bytes >= 0 or body_bytes > 0):
        return Problem.LENGTHS
    attributes = view[position + ATTRIBUTES_AT]
    if attributes & CODEC_MASK > _HIGHEST_MESSAGE_CODEC:
        return Problem.CODEC
    time_ms = _int64(view, position + TIMESTAMP_AT) if magic else NO_TIMESTAMP
    return _Entry(position, stop, offset, magic, attributes, time_ms)


def batch_problem(view: memoryview, position: int, stop: int, check_crc: bool) -> int:
    """The `Problem` of the batch that is all of `view[position:stop]`, 0 for none.

    A compaction leaves fewer records than offsets, so only more are a fault.
    """
    if not 0 <= position < stop <= len(view) or stop - position < BATCH_OVERHEAD:
        return Problem.SIZE
    if check_crc:
        (stored,) = _UINT32.unpack_from(view, position + BATCH_CRC_AT)
        if crc32c(view, position + BATCH_ATTRIBUTES_AT, stop) != stored:
            return Problem.CRC
    if view[position + BATCH_ATTRIBUTES_AT + 1] & CODEC_MASK > _HIGHEST_CODEC:
        return Problem.CODEC
    delta = _int32(view, position + LAST_DELTA_AT)
    records = _int32(view, position + RECORD_COUNT_AT)
    if records < 0 or delta < 0 or records - 1 > delta:
        return Problem.COUNT
    return Problem.NONE


def walk(  # noqa: C901, PLR0912, PLR0915 - one loop over entries
    buffer: Buffer,
    start: int,
    end: int,
    *,
    offsets: Offsets = Offsets.ANY,
    base_offset: int = 0,
    check_crc: bool = True,
    now_ms: int = -1,
    interval_bytes: int = -1,
    since_bytes: int = 0,
    largest_ms: int = -1,
    magic: int = -1,
    segment_offset: int = 0,
    segment_position: int = 0,
) -> Walk:
    """Walk the entries of `buffer[start:end]`, shallow: wrappers and batches are not opened.

    The walk stops at `end` or at the first entry that is not good, and says which; no content
    makes it raise. `now_ms` >= 0 asks for latencies against that time. `interval_bytes` >= 0 asks
    for index marks: an entry gets one when more than that many bytes have gone by since the last,
    of which `since_bytes` before `start`; they are counted from a segment's base offset
    `segment_offset`, and `segment_position` is that of `start` in its log file. `magic` is that
    of the entry before `start`, if any.
    """
    view = _part(buffer, start, end)
    if offsets == Offsets.ASSIGN and view.readonly:
        raise TypeError("offsets cannot be assigned in a buffer that is read-only")
    found = Walk()
    times: list[int] = []
    marks = _MarksAt(segment_offset, segment_position - start, interval_bytes, start - since_bytes)
    position, last_offset, compressed = start, base_offset - 1, 0
    entry: _Entry | Problem = Problem.NONE
    while position < end:
        entry = _read_entry(view, position, end, check_crc)
        if isinstance(entry, Problem):
            found.problem = entry
            break
        offset, records, attributes = entry.offset, entry.records, entry.attributes
        codec = attributes & CODEC_MASK
        if offsets != Offsets.ASSIGN and offset > _LARGEST_INT64 - entry.delta:
            found.problem = Problem.OFFSET
            break
        if offsets > Offsets.ASSIGN and _breaks_rule(entry, codec, offsets, last_offset):
            found.problem = Problem.OFFSET
            break
        if offset != found.count:
            found.literal = False
        if offsets == Offsets.ASSIGN:
            offset = last_offset + 1
            _INT64.pack_into(view, position, offset)
            if entry.magic == 2:
                _INT32.pack_into(view, position + LEADER_EPOCH_AT, NO_LEADER_EPOCH)
        last_offset = offset + entry.delta
        if position == start:
            found.first_offset = offset
            found.first_timestamp_ms = entry.time_ms
            found.magics = 1 << entry.magic
        if entry.magic != magic:
            magic = entry.magic
            found.magics |= 1 << magic
            found.magic_changes.append((position, magic))
        if codec:
            compressed += records
            found.codecs |= 1 << codec
            found.last_codec = codec
        stamped = magic > 0 and bool(attributes & LOG_APPEND_TIME_BIT)
        found.append_time_bits += stamped
        found.last_append_time_ms = entry.time_ms if stamped else NO_TIMESTAMP
        if entry.time_ms == NO_TIMESTAMP:
            found.untimed += records
        else:
            times.append(entry.time_ms)
            if entry.time_ms > found.max_timestamp_ms or found.max_position < 0:
                found.max_timestamp_ms = entry.time_ms
                found.max_position, found.max_offset = position, last_offset
        marks.pass_by(position, last_offset, max(largest_ms, found.max_timestamp_ms))
        found.largest_entry_bytes = max(found.largest_entry_bytes, entry.stop - position)
        found.count += records
        if magic == 2:
            found.batches += 1
            found.codecs |= codec == 0
        position = entry.stop
    if position > start:
        found.last_offset = last_offset
        found.codecs |= compressed < found.count
    if times:
        found.min_timestamp_ms = min(times)
    found.end = found.problem_position = position
    found.marks = marks.finish()
    found.since_bytes = position - marks.marked_at
    found.largest_ms = max(largest_ms, found.max_timestamp_ms)
    if now_ms >= 0 and not found.batches:
        found.latency = _latency(times, found.untimed, now_ms)
    return found


def _breaks_rule(entry: _Entry, codec: int, rule: Offsets, last_offset: int) -> bool:
    if entry.offset <= last_offset:
        return True
    is_exact = rule == Offsets.CONTIGUOUS and (codec == 0 or entry.magic == 2)
    return is_exact and entry.offset != last_offset + 1


class _MarksAt:
    """Index marks that are made on the way; `shift` makes a position one in the log file."""

    def __init__(self, base_offset: int, shift: int, interval_bytes: int, marked_at: int) -> None:
        self._base_offset, self._shift, self._interval = base_offset, shift, interval_bytes
        self.marked_at = marked_at
        self._marks = Marks()

    def pass_by(self, position: int, offset: int, largest_ms: int) -> None:
        """Mark the entry if it is far enough from the last mark, and an index entry can hold it."""
        if self._interval < 0 or position - self.marked_at <= self._interval:
            return
        relative = offset - self._base_offset
        # The next offset is in the index too.
        if position + self._shift > _LARGEST_INT32 or not 0 <= relative < _LARGEST_INT32:
            return
        marks = self._marks
        marks.offsets.append(relative)
        marks.positions.append(position + self._shift)
        if largest_ms > (marks.timestamps_ms[-1] if marks.timestamps_ms else NO_TIMESTAMP):
            marks.timestamps_ms.append(largest_ms)
            marks.next_offsets.append(relative + 1)
        self.marked_at = position

    def finish(self) -> Marks:
        return self._marks if len(self._marks) else NO_MARKS


def _latency(times: Sequence[int], untimed: int, now_ms: int) -> LatencyCounts:
    """Latencies of messages with these times. A time below -1 cannot be one, and spoils all."""
    if not times or min(times) < NO_TIMESTAMP:
        return LatencyCounts(untimed=untimed + len(times))
    found = LatencyCounts(untimed=untimed)
    for time_ms in times:
        latency_ms = max(now_ms - time_ms, 0)
        found.counts[bisect_left(LATENCY_BUCKETS_MS, latency_ms)] += 1
        found.skewed += time_ms > now_ms
        found.sum_ms += latency_ms
    found.max_ms = max(now_ms - min(times), 0)
    return found


def scan_offset(buffer: Buffer, start: int, end: int, target_offset: int) -> tuple[int, int]:
    """Find the first entry whose offset, for a batch its last one, is >= `target_offset`.

    Returns `(position, stopped)`: the entry's position, or `NOT_FOUND`, `BAD_SIZE`, `BAD_OFFSET`,
    and the position of the first entry that was not passed. An entry counts as soon as its first
    `SCANNED_BYTES` are in the buffer, a message as soon as its first 17 bytes are. No CRC is
    verified.
    """
    view = _part(buffer, start, end)
    last = -1
    position = start
    while end - position >= ENTRY_OVERHEAD:
        offset, size = _HEAD.unpack_from(view, position)
        if size < _V0_OVERHEAD:
            return BAD_SIZE, position
        if offset <= last:
            return BAD_OFFSET, position
        if end - position <= MAGIC_AT:
            break
        if view[position + MAGIC_AT] == 2:
            if end - position < LAST_DELTA_AT + _LENGTH_BYTES:
                break
            delta = _int32(view, position + LAST_DELTA_AT)
            if delta < 0 or offset > _LARGEST_INT64 - delta:
                return BAD_OFFSET, position
            offset += delta
        if offset >= target_offset:
            return position, position
        last = offset
        position += ENTRY_OVERHEAD + size
    return NOT_FOUND, position


def scan_timestamp(buffer: Buffer, start: int, end: int, target_ms: int) -> tuple[int, int]:
    """Find the first complete v1 entry, or batch, whose own timestamp is >= `target_ms`.

    That of a wrapper or batch is the largest of its messages', so one that is returned has to be
    opened. Entries of v0 have no time and never match. Returns as `scan_offset` does.
    """
    view = _part(buffer, start, end)
    position = start
    while end - position >= ENTRY_OVERHEAD:
        size = _int32(view, position + SIZE_AT)
        if size < _V0_OVERHEAD:
            return BAD_SIZE, position
        following = position + ENTRY_OVERHEAD + size
        if following > end:
            break
        magic = view[position + MAGIC_AT]
        if magic in (1, 2):
            if size < (_V1_OVERHEAD if magic == 1 else BATCH_OVERHEAD - ENTRY_OVERHEAD):
                return BAD_SIZE, position
            time_at = TIMESTAMP_AT if magic == 1 else MAX_TIMESTAMP_AT
            if _int64(view, position + time_at) >= target_ms:
                return position, position
        position = following
    return NOT_FOUND, position


def first_offsets(buffer: Buffer, set_ends: list[int]) -> list[int] | None:
    """The first offset of each of the sets that stand one behind the other in `buffer`.

    Their ends rise, the last one is no more than the buffer's. `None` when an entry does not end
    where its set does, or a set has none.
    """
    view = _flat(buffer)
    found: list[int] = []
    position = 0
    for end in set_ends:
        if end > len(view) or end - position < ENTRY_OVERHEAD:
            return None
        found.append(_int64(view, position))
        while end - position >= ENTRY_OVERHEAD:
            size = _int32(view, position + SIZE_AT)
            if size < _V0_OVERHEAD:
                return None
            position += ENTRY_OVERHEAD + size
        if position != end:
            return None
    return found


class _Message:
    """A plain message, in an entry that ends at `stop`: key and value by their place."""

    __slots__ = ("attributes", "content_at", "key", "magic", "offset", "stop", "time_ms", "value")

    def __init__(self, view: memoryview, position: int, end: int) -> None:
        """`ValueError` where there is none; nothing is believed."""
        size = _int32(view, position + SIZE_AT) if end - position >= ENTRY_OVERHEAD else -1
        self.stop = position + ENTRY_OVERHEAD + size
        if size < _V0_OVERHEAD or self.stop > end or view[position + MAGIC_AT] > 1:
            raise _not_good(position)
        self.offset = _int64(view, position)
        self.magic, self.attributes = view[position + MAGIC_AT], view[position + ATTRIBUTES_AT]
        if size < MESSAGE_OVERHEAD[self.magic]:
            raise ValueError(f"the entry at byte {position} is too small")
        self.time_ms = _int64(view, position + TIMESTAMP_AT) if self.magic else NO_TIMESTAMP
        self.content_at = at = position + TIMESTAMP_AT + (_TIME_BYTES if self.magic else 0)
        self.key, at = self._string(view, at, position, "key")
        self.value, _ = self._string(view, at, position, "value")

    def _string(
        self, view: memoryview, at: int, position: int, what: str
    ) -> tuple[memoryview | None, int]:
        if at + _LENGTH_BYTES > self.stop:
            raise ValueError(f"the key of the entry at byte {position} is too long")
        length = _int32(view, at)
        at += _LENGTH_BYTES
        if length < 0:
            return None, at
        if at + length > self.stop:
            raise ValueError(f"the {what} of the entry at byte {position} is too long")
        return view[at : at + length], at + length


def _not_good(position: int) -> ValueError:
    return ValueError(f"the entry at byte {position} is no good plain message")


def _bad_timestamp(timestamp_ms: int) -> ValueError:
    return ValueError(
        f"timestamp {timestamp_ms}: it must be -1 (none), or from 0 to {_LARGEST_INT64}"
    )


def _string(content: bytes | None) -> bytes:
    """A key or value with its length."""
    return _INT32.pack(-1) if content is None else _INT32.pack(len(content)) + content


def _content(content: Buffer | None) -> bytes | None:
    """The bytes of a key or value. `TypeError` for what is none."""
    if content is None or type(content) is bytes:
        return content
    return bytes(memoryview(content))


def _entry(offset: int, body: bytes) -> bytes:
    """An entry with a message whose bytes from the magic on are `body`."""
    return _HEAD.pack(offset, len(body) + 4) + _UINT32.pack(crc32(body)) + body


class SetEncoder:
    """A message set that grows message by message, with offsets that count up.

    `magic` is 0 or 1, else `ValueError`.
    """

    __slots__ = ("_magic", "_offset", "_out")

    def __init__(self, magic: int = 1, first_offset: int = 0) -> None:
        if magic not in (0, 1):
            raise ValueError(f"magic {magic}: only 0 and 1 can be built")
        self._magic = magic
        self._offset = first_offset
        self._out = bytearray()

    def add(self, value: Buffer | None, key: Buffer | None, timestamp_ms: int) -> None:
        """Add a message.

        Raises `ValueError` for a timestamp below -1 or above 2**63 - 1, for any timestamp in a v0
        message, which has no place for one, and for a message of 2 GiB.
        """
        if not NO_TIMESTAMP <= timestamp_ms <= _LARGEST_INT64:
            raise _bad_timestamp(timestamp_ms)
        if self._magic == 0 and timestamp_ms != NO_TIMESTAMP:
            raise ValueError(f"timestamp {timestamp_ms}: a message of magic 0 cannot carry one")
        value, key = _content(value), _content(key)
        size = MESSAGE_OVERHEAD[self._magic] + len(value or b"") + len(key or b"")
        if size > _LARGEST_INT32:
            raise ValueError(f"a message of {size} bytes: it must be below 2 GiB")
        head = _V1_HEAD.pack(1, 0, timestamp_ms) if self._magic else _V0_HEAD.pack(0, 0)
        self._out += _entry(self._offset, head + _string(key) + _string(value))
        self._offset += 1

    def add_columns(
        self,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None,
        timestamps_ms: Sequence[int],
    ) -> None:
        """Add messages that are given as columns; `None` for no keys at all.

        Raises `ValueError` as `add`, and for columns of different lengths; the messages before the
        one that is wrong are added then.
        """
        for value, key, timestamp_ms in _columns(values, keys, timestamps_ms):
            self.add(value, key, timestamp_ms)

    def finish(self) -> bytearray:
        """The set; the encoder begins a new one, whose offsets go on from there."""
        out, self._out = self._out, bytearray()
        return out


def _columns(
    values: Sequence[Buffer | None],
    keys: Sequence[Buffer | None] | None,
    timestamps_ms: Sequence[int],
) -> Iterator[tuple[Buffer | None, Buffer | None, int]]:
    if keys is None:
        for value, timestamp_ms in zip(values, timestamps_ms, strict=True):
            yield value, None, timestamp_ms
    else:
        yield from zip(values, keys, timestamps_ms, strict=True)


def stamp(buffer: bytearray | memoryview, start: int, end: int, append_time_ms: int) -> None:
    """Give the plain v1 entries of `buffer[start:end]` an append time and their new CRC, in place.

    A walk must have found them good, without wrappers and v0 messages: `ValueError` at the first
    that cannot be, after those before it have got their time.
    """
    view = _flat(buffer)
    if view.readonly:
        raise TypeError("append times cannot be written to a buffer that is read-only")
    if start < 0 or end > len(view):
        raise ValueError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    position = start
    while position < end:
        size = _int32(view, position + SIZE_AT) if end - position >= ENTRY_OVERHEAD else -1
        stop = position + ENTRY_OVERHEAD + size
        if size < _V1_OVERHEAD or stop > end or view[position + MAGIC_AT] != 1:
            raise ValueError(f"the entry at byte {position} is no good v1 message")
        if view[position + ATTRIBUTES_AT] & CODEC_MASK:
            raise ValueError(f"the entry at byte {position} is compressed")
        view[position + ATTRIBUTES_AT] |= LOG_APPEND_TIME_BIT
        _INT64.pack_into(view, position + TIMESTAMP_AT, append_time_ms)
        _UINT32.pack_into(view, position + CRC_AT, crc32(view[position + MAGIC_AT : stop]))
        position = stop


def rewrite(
    target: bytearray,
    buffer: Buffer,
    start: int,
    end: int,
    magic: int,
    first_offset: int,
    offset_shift: int,
    stamp_ms: int,
) -> int:
    """Add the plain entries of `buffer[start:end]` to `target`; how many changed their format.

    What the arguments mean is said at `conversion.convert_entries`, which has `None` for `OWN`. A
    walk must have found the entries good: `ValueError` if they cannot be, and `target` is as it
    was.
    """
    view = _flat(buffer)
    if start < 0 or start > end or end > len(view):
        raise ValueError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    written = bytearray()
    converted = 0
    position = start
    while position < end:
        size = _int32(view, position + SIZE_AT) if end - position >= ENTRY_OVERHEAD else -1
        stop = position + ENTRY_OVERHEAD + size
        if size < _V0_OVERHEAD or stop > end:
            raise _not_good(position)
        own_magic, attributes = view[position + MAGIC_AT], view[position + ATTRIBUTES_AT]
        if own_magic > 1 or size < MESSAGE_OVERHEAD[own_magic]:
            raise _not_good(position)
        offset = _wrapped(_int64(view, position) + offset_shift)
        if first_offset != OWN:
            offset = first_offset
            first_offset += 1
        wanted = own_magic if magic == OWN else magic
        converted += wanted != own_magic
        time_ms = _int64(view, position + TIMESTAMP_AT) if own_magic else NO_TIMESTAMP
        content = view[position + TIMESTAMP_AT + (_TIME_BYTES if own_magic else 0) : stop]
        is_kept = wanted == 0 or (stamp_ms == OWN and not attributes & LOG_APPEND_TIME_BIT)
        if wanted == own_magic and is_kept:
            written += _INT64.pack(offset) + view[position + SIZE_AT : stop]
        elif wanted == 0:
            written += _entry(offset, _V0_HEAD.pack(0, attributes & RESERVED_MASK) + content)
        else:
            attributes &= RESERVED_MASK
            if stamp_ms != OWN:
                attributes, time_ms = attributes | LOG_APPEND_TIME_BIT, stamp_ms
            written += _entry(offset, _V1_HEAD.pack(1, attributes, time_ms) + content)
        position = stop
    target += written
    return converted


def plain_end(buffer: Buffer, start: int, end: int) -> int:
    """Where the first wrapper or batch of `buffer[start:end]` begins, or `end`. The entries must
    be good: `ValueError` if they cannot be."""
    view = _flat(buffer)
    if start < 0 or end > len(view):
        raise ValueError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    position = start
    while position < end:
        size = _int32(view, position + SIZE_AT) if end - position >= ENTRY_OVERHEAD else -1
        if size < _V0_OVERHEAD or position + ENTRY_OVERHEAD + size > end:
            raise _not_good(position)
        if view[position + ATTRIBUTES_AT] & CODEC_MASK or view[position + MAGIC_AT] > 1:
            break
        position += ENTRY_OVERHEAD + size
    return position


class RecordCursor:
    """Goes over the records in `view[start:end]`, which are not compressed.

    `step` goes to the next one, and never looks behind the bytes it is given, whatever they say.
    What follows is about the record it came to:

    position: where it begins.
    following: where the next one begins.
    attributes: 0 to 255; no bit means anything so far.
    timestamp_delta_ms, offset_delta: to be added to those of the batch.
    key_at, key_bytes: where the key is, and its length; negative for null.
    value_at, value_bytes: the same for the value.
    header_count: how many headers it has.
    headers_at: where they begin; they end with the record.
    """

    __slots__ = (
        "_at",
        "_end",
        "_stop",
        "_view",
        "attributes",
        "following",
        "header_count",
        "headers_at",
        "key_at",
        "key_bytes",
        "offset_delta",
        "position",
        "timestamp_delta_ms",
        "value_at",
        "value_bytes",
    )

    def __init__(self, view: memoryview, start: int, end: int) -> None:
        self._view = _flat(view)
        self.begin(start, end)

    def begin(self, start: int, end: int) -> None:
        """Go over the records in `view[start:end]` from now on."""
        if not 0 <= start <= end <= len(self._view):
            raise IndexError(f"no bytes {start} to {end} in a buffer of {len(self._view)}")
        self._end = end
        self._at = self._stop = self.following = self.position = start
        self.attributes = self.header_count = self.headers_at = 0
        self.timestamp_delta_ms = self.offset_delta = 0
        self.key_at = self.key_bytes = self.value_at = self.value_bytes = 0

    def step(self) -> int:
        """Go to the next record: `RECORD`, `NO_MORE`, or what is wrong with it.

        At a bad record it stays for ever.
        """
        if self.following >= self._end:
            return NO_MORE
        self.position = self._at = self.following
        self._stop = self._end
        length = self._int32()
        if length < SMALLEST_RECORD or length > self._end - self._at:
            return BAD_LENGTH
        self._stop = self._at + length
        self.attributes = self._view[self._at]
        self._at += 1
        self.timestamp_delta_ms = self._int64()
        self.offset_delta = self._int32()
        self.key_bytes = self._int32()
        self.key_at = self._at
        if not self._skip(self.key_bytes):
            return BAD_FIELD
        self.value_bytes = self._int32()
        self.value_at = self._at
        if not self._skip(self.value_bytes):
            return BAD_FIELD
        self.header_count = self._int32()
        self.headers_at = self._at
        if self.header_count < 0 or 2 * self.header_count > self._stop - self._at:
            return BAD_FIELD
        for _ in range(self.header_count):
            name_bytes = self._int32()
            if name_bytes < 0 or not self._skip(name_bytes) or not self._skip(self._int32()):
                return BAD_FIELD
        if self._at != self._stop:
            return BAD_END
        self.following = self._stop
        return RECORD

    def _skip(self, length: int) -> bool:
        """Go behind a string of that length, if it is inside the record."""
        if length > self._stop - self._at:
            return False
        self._at += max(length, 0)
        return True

    def _int32(self) -> int:
        return self._varint(5, 0x0F)

    def _int64(self) -> int:
        return self._varint(10, 0x01)

    def _varint(self, most_bytes: int, top: int) -> int:
        """The number at `_at`, which goes behind it, or behind `_stop` where there is none.

        There no length is possible, so that the caller has to look only at those.
        """
        number = 0
        for place in range(most_bytes):
            at = self._at + place
            if at >= self._stop:
                break
            byte = self._view[at]
            if place == most_bytes - 1 and byte > top:
                break
            number |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                self._at = at + 1
                return number >> 1 ^ -(number & 1)
        self._at = self._stop + 1
        return 0

    def key(self) -> bytes | None:
        """The key of the record."""
        return self._bytes(self.key_at, self.key_bytes)

    def value(self) -> bytes | None:
        """The value of the record."""
        return self._bytes(self.value_at, self.value_bytes)

    def _bytes(self, at: int, length: int) -> bytes | None:
        return None if length < 0 else bytes(self._view[at : at + length])

    def headers(self) -> RecordHeaders:
        """The headers of the record, in their order; what is not UTF-8 in a name is replaced."""
        found = []
        self._at = self.headers_at
        for _ in range(self.header_count):
            length = self._int32()
            name = str(self._view[self._at : self._at + length], "utf-8", "replace")
            self._at += length
            length = self._int32()
            found.append((name, self._bytes(self._at, length)))
            self._at += max(length, 0)
        return tuple(found)


class RecordsFound:
    """What is in the good records of a batch, up to the first that is not good.

    count: how many there are.
    min_timestamp_ms, max_timestamp_ms: over the timestamps that are not -1 (a broken sender's can
        be below it); -1 without any.
    max_delta: offset delta of the first record that has the largest timestamp; -1 without any.
    untimed: how many have no timestamp.
    problem: `NO_MORE` when all are good, else what is wrong with the one that is not.
    problem_position: where that one begins.
    latency: latencies against `now_ms`, if they were asked for, by the rules of `Walk.latency`.
    """

    __slots__ = (
        "count",
        "latency",
        "max_delta",
        "max_timestamp_ms",
        "min_timestamp_ms",
        "problem",
        "problem_position",
        "untimed",
    )

    count: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    max_delta: int
    untimed: int
    problem: int
    problem_position: int
    latency: LatencyCounts | None


class RecordTally:
    """Adds up what the records of batches say, batch by batch.

    now_ms: latencies are counted against it, if it is >= 0.
    count, untimed: of the batch that was added last: how many good records, how many of those have
        no timestamp.
    max_timestamp_ms, max_delta: of that batch, as in `RecordsFound`.
    all_count, all_untimed, all_min_ms, all_max_ms: over all batches; times as in `RecordsFound`.
    """

    __slots__ = (
        "_times",
        "all_count",
        "all_max_ms",
        "all_min_ms",
        "all_untimed",
        "count",
        "max_delta",
        "max_timestamp_ms",
        "now_ms",
        "untimed",
    )

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self._times: list[int] = []
        self.count = self.untimed = self.all_count = self.all_untimed = 0
        self.all_min_ms = self.all_max_ms = self.max_timestamp_ms = self.max_delta = NO_TIMESTAMP

    def add(self, cursor: RecordCursor, base_timestamp_ms: int) -> int:
        """Add the records of a batch that `cursor` has before it; returns what its last `step` did,
        or `BAD_RECORD_OFFSET`, `BAD_TIME`.

        Their offset deltas must be 0, 1, ... as a producer's are.
        """
        self.count = self.untimed = 0
        self.max_timestamp_ms = self.max_delta = NO_TIMESTAMP
        times: list[int] = []
        while (step := cursor.step()) == RECORD:
            if cursor.offset_delta != self.count:
                step = BAD_RECORD_OFFSET
                break
            timestamp = base_timestamp_ms + cursor.timestamp_delta_ms
            if not _SMALLEST_INT64 <= timestamp <= _LARGEST_INT64:
                step = BAD_TIME
                break
            if timestamp == NO_TIMESTAMP:
                self.untimed += 1
            else:
                if not times or timestamp > self.max_timestamp_ms:
                    self.max_timestamp_ms, self.max_delta = timestamp, self.count
                times.append(timestamp)
            self.count += 1
        if times:
            before = [self.all_min_ms, self.all_max_ms] if self._times else []
            self.all_min_ms = min([*times, *before])
            self.all_max_ms = max([*times, *before])
            self._times += times
        self.all_count += self.count
        self.all_untimed += self.untimed
        return step

    def latency(self) -> LatencyCounts | None:
        """Latencies of all, by the rules of `Walk.latency`; `None` if they were not asked for."""
        return None if self.now_ms < 0 else _latency(self._times, self.all_untimed, self.now_ms)


def check_records(
    buffer: Buffer, start: int, end: int, *, base_timestamp_ms: int, now_ms: int = -1
) -> RecordsFound:
    """Go over the uncompressed records in `buffer[start:end]`; no content makes it raise.

    Their offset deltas must be 0, 1, ... as a producer's are. `now_ms` >= 0 asks for latencies.
    """
    cursor = RecordCursor(memoryview(buffer), start, end)
    tally = RecordTally(now_ms)
    found = RecordsFound()
    found.problem = tally.add(cursor, base_timestamp_ms)
    found.problem_position = cursor.position if found.problem != NO_MORE else end
    found.count, found.untimed = tally.count, tally.untimed
    found.min_timestamp_ms, found.max_timestamp_ms = tally.all_min_ms, tally.max_timestamp_ms
    found.max_delta = tally.max_delta
    found.latency = tally.latency()
    return found


def find_timestamp(cursor: RecordCursor, base_timestamp_ms: int, target_ms: int) -> int:
    """Bring `cursor` to its next record that has a timestamp >= `target_ms`.

    Returns what its last `step` did: `RECORD` where there is one.
    """
    while (step := cursor.step()) == RECORD:
        if _wrapped(cursor.timestamp_delta_ms + base_timestamp_ms) >= target_ms:
            break
    return step


class RecordEncoder:
    """The records of a batch that grows record by record, with offsets 0, 1, ...

    count: how many there are.
    size_bytes: of a batch with these records, if it is not compressed.
    base_timestamp_ms: of the first record, -1 for none.
    max_timestamp_ms: the largest, -1 for none.
    """

    __slots__ = ("_out", "base_timestamp_ms", "count", "max_timestamp_ms")

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._out = bytearray(BATCH_OVERHEAD)
        self.count = 0
        self.base_timestamp_ms = self.max_timestamp_ms = NO_TIMESTAMP

    @property
    def size_bytes(self) -> int:
        return len(self._out)

    def add(
        self, value: Buffer | None, key: Buffer | None, timestamp_ms: int, headers: Headers = ()
    ) -> None:
        """Add a record.

        Raises `ValueError` for a timestamp below -1 or above 2**63 - 1, and for one that makes
        the batch 2 GiB large; `TypeError` for headers that are not pairs of text and bytes.
        """
        self._add(value, key, timestamp_ms, _written_headers(headers))

    def _add(
        self, value: Buffer | None, key: Buffer | None, timestamp_ms: int, headers: Buffer
    ) -> None:
        """Add a record whose headers come as they are written, with their count."""
        if not NO_TIMESTAMP <= timestamp_ms <= _LARGEST_INT64:
            raise _bad_timestamp(timestamp_ms)
        base_ms = timestamp_ms if self.count == 0 else self.base_timestamp_ms
        if base_ms < 0 and timestamp_ms == _LARGEST_INT64:
            raise ValueError(
                f"timestamp {timestamp_ms}: behind a first record without one it must be at most "
                f"{timestamp_ms - 1}"
            )
        value, key = _content(value), _content(key)
        most = MOST_OVERHEAD + len(value or b"") + len(key or b"") + len(headers)
        if self.size_bytes + most > _LARGEST_INT32:
            raise ValueError(f"a batch of {self.size_bytes + most} bytes: it must be below 2 GiB")
        body = b"\0" + varint(timestamp_ms - base_ms) + varint(self.count)
        body += _written_string(key) + _written_string(value) + headers
        self._out += varint(len(body)) + body
        self.base_timestamp_ms = base_ms
        self.max_timestamp_ms = max(self.max_timestamp_ms, timestamp_ms)
        self.count += 1

    def add_columns(
        self,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None,
        timestamps_ms: Sequence[int],
    ) -> None:
        """Add records without headers that are given as columns; `None` for no keys at all.

        Raises `ValueError` as `add`, and for columns of different lengths; the records before the
        one that is wrong are added then.
        """
        for value, key, timestamp_ms in _columns(values, keys, timestamps_ms):
            self.add(value, key, timestamp_ms)

    def add_binary(
        self,
        values: BinaryColumn,
        keys: BinaryColumn | None,
        timestamps_ms: Buffer,
        *,
        start: int,
        limit_bytes: int,
    ) -> int:
        """Add records without headers, from row `start` on, up to one that might make the batch
        larger than `limit_bytes`; an empty batch takes one of any size. Says which row is next.

        `timestamps_ms` are int64 in this machine's byte order. Raises `ValueError` as `add`, and
        for columns that cannot be; the records before are added then.
        """
        value_column = _Strings(values)
        key_column = None if keys is None else _Strings(keys)
        rows = value_column.rows
        times = memoryview(timestamps_ms).cast("B")
        if (key_column is not None and key_column.rows != rows) or len(times) != 8 * rows:
            raise ValueError(f"a column is not as long as the values, of which there are {rows}")
        if start < 0 or start > rows:
            raise ValueError(f"row {start} of {rows}")
        row = start
        for row in range(start, rows):
            value = value_column.row(row)
            key = None if key_column is None else key_column.row(row)
            most = MOST_OVERHEAD + len(value or b"") + len(key or b"")
            if self.count and self.size_bytes + most > limit_bytes:
                return row
            self.add(value, key, times.cast("q")[row])
        return rows

    def add_messages(self, buffer: Buffer, start: int, end: int) -> None:
        """Add the plain v0 and v1 entries of `buffer[start:end]`, with their times.

        A walk must have found them good; `ValueError` if they cannot be, after those before the
        bad one were added, and as `add`.
        """
        view = _flat(buffer)
        if start < 0 or start > end or end > len(view):
            raise ValueError(f"no bytes {start} to {end} in a buffer of {len(view)}")
        position = start
        while position < end:
            message = _Message(view, position, end)
            self.add(message.value, message.key, message.time_ms)
            position = message.stop

    def add_records(
        self, content: Buffer, base_timestamp_ms: int, append_time_ms: int = NO_TIMESTAMP
    ) -> None:
        """Add the uncompressed records of another batch, headers and all.

        `append_time_ms` >= 0 is the time of all of them. `ValueError` as `add_messages`.
        """
        view = _flat(content)
        cursor = RecordCursor(view, 0, len(view))
        while (step := cursor.step()) == RECORD:
            time_ms = append_time_ms
            if append_time_ms < 0:
                time_ms = _wrapped(base_timestamp_ms + cursor.timestamp_delta_ms)
            headers_at = cursor.value_at + max(cursor.value_bytes, 0)
            self._add(cursor.value(), cursor.key(), time_ms, view[headers_at : cursor.following])
        if step != NO_MORE:
            raise ValueError(f"record {self.count}, at byte {cursor.position}, is not good")

    def finish(self) -> bytearray:
        """The batch with its header still blank, 61 zeros; the encoder begins another one."""
        out = self._out
        self._clear()
        return out


class _Strings:
    """A `BinaryColumn` that is read row by row."""

    def __init__(self, column: BinaryColumn) -> None:
        self._ends = memoryview(column.offsets).cast("B")
        self._data = memoryview(column.data).cast("B")
        self._valid = None if column.valid is None else memoryview(column.valid).cast("B")
        self.rows = len(self._ends) // 4 - 1
        if self.rows < 0 or (self._valid is not None and 8 * len(self._valid) < self.rows):
            raise ValueError("a column whose buffers are too short")
        self._ends = self._ends[: 4 * self.rows + 4].cast("i")

    def row(self, row: int) -> memoryview | None:
        """The string of a row."""
        if self._valid is not None and not self._valid[row >> 3] >> (row & 7) & 1:
            return None
        start, end = self._ends[row], self._ends[row + 1]
        if start < 0 or end < start or end > len(self._data):
            raise ValueError(f"row {row} of a column is not in its data")
        return self._data[start:end]


def varint(number: int) -> bytes:
    """A number of up to 64 bits as it is written in records."""
    folded = number << 1 if number >= 0 else ~(number << 1)
    written = bytearray()
    while folded > 0x7F:
        written.append(folded & 0x7F | 0x80)
        folded >>= 7
    written.append(folded)
    return bytes(written)


def _written_string(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def _written_headers(headers: Headers) -> bytes:
    """The header count and the headers."""
    pairs = [varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        pairs += (varint(len(encoded)), encoded, _written_string(value))
    return b"".join(pairs)


def records_to_messages(
    target: bytearray,
    content: Buffer,
    start: int,
    *,
    magic: int,
    base_offset: int,
    base_timestamp_ms: int,
    first_offset: int = OWN,
    stamp_ms: int = OWN,
    max_bytes: int = -1,
) -> Rewritten:
    """Add the uncompressed records in `content` from `start` on to `target`, each as a message.

    Their offsets count up from `first_offset`, or are those of a batch with `base_offset`. In v1
    they keep their times, or all have the append time `stamp_ms`. With `max_bytes` >= 0 it stops
    after the first message that makes `target` grow by that or more. `ValueError` for a record
    that is not good.
    """
    view = _flat(content)
    cursor = RecordCursor(view, start, len(view))
    written = bytearray()
    count = headers = 0
    step, last_offset = NO_MORE, -1
    while max_bytes < 0 or len(written) < max_bytes:
        step = cursor.step()
        if step != RECORD:
            break
        last_offset = first_offset + count
        if first_offset == OWN:
            last_offset = _wrapped(base_offset + cursor.offset_delta)
        attributes, time_ms = LOG_APPEND_TIME_BIT, stamp_ms
        if stamp_ms == OWN:
            attributes, time_ms = 0, _wrapped(base_timestamp_ms + cursor.timestamp_delta_ms)
        head = _V1_HEAD.pack(1, attributes, time_ms) if magic else _V0_HEAD.pack(0, 0)
        written += _entry(last_offset, head + _string(cursor.key()) + _string(cursor.value()))
        headers += cursor.header_count
        count += 1
    if step < NO_MORE:
        raise ValueError(f"record {count}, at byte {cursor.position} of its batch, is not good")
    target += written
    return Rewritten(count, headers, cursor.following, last_offset)


class UsualBatches:
    """What is in sets of usual batches.

    first_offsets: of each set, as it stands in its first batch.
    numbered: for each batch of a producer that numbers its batches, in their order: which set that
        is, producer id, epoch, sequence number of the first record, records. It is alone in its
        set.
    min_timestamp_ms: the smallest of the records' that is not -1; -1 without any. Can be below -1.
    max_timestamp_ms: the largest, -1 without any.
    true_times: whether each batch's largest timestamp is what its header says.
    latency: against `now_ms`, by the rules of `Walk.latency`.
    """

    __slots__ = (
        "first_offsets",
        "latency",
        "max_timestamp_ms",
        "min_timestamp_ms",
        "numbered",
        "true_times",
    )

    def __init__(self) -> None:
        self.first_offsets: list[int] = []
        self.numbered: list[tuple[int, int, int, int, int]] = []
        self.min_timestamp_ms = self.max_timestamp_ms = NO_TIMESTAMP
        self.true_times = True
        self.latency: LatencyCounts | None = None


def check_usual(buffer: Buffer, set_ends: list[int], now_ms: int) -> UsualBatches | None:  # noqa: C901 - the checks of one batch, in order
    """Check the batches of the sets that stand one behind the other in `buffer`.

    Their ends rise, the last one is no more than the buffer's; `now_ms` >= 0 is for the latencies.
    `None` when something is wrong with one of them, and when one is not usual: it is compressed, or
    has any other attribute, or its producer's number is none, or a set is empty.
    """
    view = _flat(buffer)
    cursor = RecordCursor(view, 0, 0)
    tally = RecordTally(now_ms)
    found = UsualBatches()
    position = 0
    for end in set_ends:
        start = position
        if end > len(view) or end - start < ENTRY_OVERHEAD:
            return None
        found.first_offsets.append(_int64(view, start))
        while position < end:
            if end - position < BATCH_OVERHEAD or view[position + MAGIC_AT] != 2:
                return None
            stop = position + ENTRY_OVERHEAD + _int32(view, position + SIZE_AT)
            if stop - position < BATCH_OVERHEAD or stop > end:
                return None
            if any(view[position + BATCH_ATTRIBUTES_AT : position + BATCH_ATTRIBUTES_AT + 2]):
                return None
            cursor.begin(position + BATCH_OVERHEAD, stop)
            if tally.add(cursor, _int64(view, position + BASE_TIMESTAMP_AT)) != NO_MORE:
                return None
            records = _int32(view, position + RECORD_COUNT_AT)
            if records != tally.count or not records:
                return None
            if _int32(view, position + LAST_DELTA_AT) != records - 1:
                return None
            if _int64(view, position + MAX_TIMESTAMP_AT) != tally.max_timestamp_ms:
                found.true_times = False
            producer_id = _int64(view, position + PRODUCER_ID_AT)
            if producer_id != NO_PRODUCER_ID:
                (epoch,) = _INT16.unpack_from(view, position + PRODUCER_EPOCH_AT)
                sequence = _int32(view, position + BASE_SEQUENCE_AT)
                if min(producer_id, epoch, sequence) < 0 or (position, stop) != (start, end):
                    return None
                number = len(found.first_offsets) - 1
                found.numbered.append((number, producer_id, epoch, sequence, records))
            position = stop
    found.min_timestamp_ms, found.max_timestamp_ms = tally.all_min_ms, tally.all_max_ms
    found.latency = tally.latency()
    return found


def stamp_batches(buffer: bytearray | memoryview, end: int, append_time_ms: int) -> None:
    """Give the batches that `buffer[:end]` is made of their append time, as `set_times_in_place`
    does."""
    view = _part(buffer, 0, end)
    if view.readonly:
        raise TypeError("times cannot be written into a buffer that is read-only")
    position = 0
    while end - position >= BATCH_OVERHEAD:
        stop = position + ENTRY_OVERHEAD + _int32(view, position + SIZE_AT)
        if stop - position < BATCH_OVERHEAD or stop > end:
            return
        view[position + BATCH_ATTRIBUTES_AT + 1] |= LOG_APPEND_TIME_BIT
        _INT64.pack_into(view, position + MAX_TIMESTAMP_AT, append_time_ms)
        crc = crc32c(view, position + BATCH_ATTRIBUTES_AT, stop)
        _UINT32.pack_into(view, position + BATCH_CRC_AT, crc)
        position = stop


class Gathered:
    """Messages in columns; see `columns` for what the buffers hold."""

    __slots__ = (
        "count",
        "key_data",
        "key_nulls",
        "key_offsets",
        "key_valid",
        "offsets",
        "timestamp_types",
        "timestamps",
        "value_data",
        "value_nulls",
        "value_offsets",
        "value_valid",
    )

    def __init__(self) -> None:
        self.count = self.key_nulls = self.value_nulls = 0
        self.offsets, self.timestamps, self.timestamp_types = bytearray(), bytearray(), bytearray()
        self.key_offsets, self.value_offsets = bytearray(4), bytearray(4)
        self.key_data, self.value_data = bytearray(), bytearray()
        self.key_valid, self.value_valid = bytearray(), bytearray()


_OWN_INT32: Final = Struct("=i")
_OWN_INT64: Final = Struct("=q")


def columns_for(count: int, key_bytes: int, value_bytes: int) -> Gathered:
    """Columns with room for so many messages, and so many bytes of keys and of values.

    What is in them is undefined, but for where the first key and value begin and for the valid
    bits, which are 0.
    """
    found = Gathered()
    found.offsets, found.timestamps = bytearray(8 * count), bytearray(8 * count)
    found.timestamp_types = bytearray(count)
    found.key_offsets, found.value_offsets = bytearray(4 * count + 4), bytearray(4 * count + 4)
    found.key_data, found.value_data = bytearray(key_bytes), bytearray(value_bytes)
    found.key_valid, found.value_valid = bytearray((count + 7) // 8), bytearray((count + 7) // 8)
    return found


def _add_row(
    columns: Gathered,
    offset: int,
    time_ms: int,
    time_type: int,
    key: Buffer | None,
    value: Buffer | None,
) -> None:
    row = columns.count
    columns.offsets += _OWN_INT64.pack(offset)
    columns.timestamps += _OWN_INT64.pack(time_ms)
    columns.timestamp_types.append(time_type)
    if row % 8 == 0:
        columns.key_valid.append(0)
        columns.value_valid.append(0)
    if key is None:
        columns.key_nulls += 1
    else:
        columns.key_valid[row >> 3] |= 1 << (row & 7)
        columns.key_data += key
    if value is None:
        columns.value_nulls += 1
    else:
        columns.value_valid[row >> 3] |= 1 << (row & 7)
        columns.value_data += value
    columns.key_offsets += _OWN_INT32.pack(len(columns.key_data))
    columns.value_offsets += _OWN_INT32.pack(len(columns.value_data))
    columns.count += 1


def _no_room(view: memoryview, start: int, end: int, count: int) -> ValueError:
    return ValueError(f"bytes {start} to {end} of {len(view)} do not hold {count} messages")


def _time_of(message: _Message, timestamp_type: int, timestamp_ms: int) -> tuple[int, int]:
    """The time of a message and its type, as `gather` has them."""
    if message.magic == 0:
        return message.time_ms, 255
    if timestamp_type == 1:
        return timestamp_ms, 1
    is_stamped = timestamp_type == OWN and bool(message.attributes & LOG_APPEND_TIME_BIT)
    return message.time_ms, int(is_stamped)


def gather(
    buffer: Buffer,
    start: int,
    end: int,
    count: int,
    *,
    offset_shift: int = 0,
    from_offset: int = 0,
    timestamp_type: int = OWN,
    timestamp_ms: int = NO_TIMESTAMP,
    with_keys: bool = True,
    with_values: bool = True,
) -> Gathered:
    """The `count` plain entries of `buffer[start:end]` in columns, but for offsets too low.

    A walk must have found them good; `ValueError` if they cannot be, or are not so many.
    `offset_shift` is added to their offsets, and those below `from_offset` are left out.
    `timestamp_type` 0 says that all times are their producers', 1 that all v1 messages have the
    append time `timestamp_ms`. Keys and values that are not asked for are all null: nothing of them
    is copied.
    """
    view = _flat(buffer)
    smallest = ENTRY_OVERHEAD + _V0_OVERHEAD
    room = end - start - count * smallest
    if start < 0 or count < 0 or end > len(view) or not 0 <= room <= _LARGEST_INT32:
        raise _no_room(view, start, end, count)
    if not -_LARGE_OFFSET <= offset_shift <= _LARGE_OFFSET:
        raise ValueError(f"offsets cannot be shifted by {offset_shift}")
    found = Gathered()
    position, following = start, count
    while position < end:
        if following == 0:
            raise _not_good(position)
        following -= 1
        message = _Message(view, position, end)
        if end - message.stop < following * smallest:
            raise _no_room(view, start, end, count)
        if not -_LARGE_OFFSET <= message.offset <= _LARGE_OFFSET:
            raise ValueError(f"the entry at byte {position} has the offset {message.offset}")
        if message.offset + offset_shift >= from_offset:
            time_ms, time_type = _time_of(message, timestamp_type, timestamp_ms)
            key = message.key if with_keys else None
            value = message.value if with_values else None
            _add_row(found, message.offset + offset_shift, time_ms, time_type, key, value)
        position = message.stop
    return found


def gather_records(
    buffer: Buffer,
    *,
    base_offset: int,
    base_timestamp_ms: int,
    append_time_ms: int = NO_TIMESTAMP,
    from_offset: int = 0,
    with_keys: bool = True,
    with_values: bool = True,
    with_headers: bool = True,
) -> tuple[Gathered, list[RecordHeaders] | None]:
    """The uncompressed records that `buffer` holds, in columns, but for offsets too low.

    The headers of each come beside them, `None` when none has any. `append_time_ms` >= 0 is the
    time of all. Keys and values that are not asked for are all null, and headers `None`: nothing
    of them is copied. `ValueError` for records that are not good.
    """
    view = _flat(buffer)
    if len(view) > _LARGEST_INT32:
        raise ValueError(f"{len(view)} bytes of records; columns hold less than 2 GiB")
    found = Gathered()
    headers: list[RecordHeaders] = []
    cursor = RecordCursor(view, 0, len(view))
    number = 0
    while cursor.step() == RECORD:
        number += 1
        offset = _wrapped(base_offset + cursor.offset_delta)
        if offset < from_offset:
            continue
        time_ms, time_type = append_time_ms, 1
        if append_time_ms < 0:
            time_ms, time_type = _wrapped(base_timestamp_ms + cursor.timestamp_delta_ms), 0
        key = cursor.key() if with_keys else None
        value = cursor.value() if with_values else None
        _add_row(found, offset, time_ms, time_type, key, value)
        headers.append(cursor.headers() if with_headers else ())
    if cursor.following != len(view):
        raise ValueError(f"record {number}, at byte {cursor.position} of its batch, is not good")
    return found, headers if any(headers) else None


def only_bytes(column: Iterable[object]) -> bool:
    """Whether all are bytes (no subclass) or None."""
    return all(item is None or type(item) is bytes for item in column)


def only_times(column: Sequence[int], smallest_ms: int, largest_ms: int) -> bool:
    """Whether all are ints (no subclass) from `smallest_ms` to `largest_ms`, which are in 64
    bits."""
    return all(type(item) is int and smallest_ms <= item <= largest_ms for item in column)


def row_ends(
    values: Sequence[bytes | None], keys: Sequence[bytes | None] | None, overhead: int
) -> Sequence[int]:
    """How many bytes each row takes together with all before it: value, key and `overhead`.

    `ValueError` for columns of different lengths.
    """
    count = len(values)
    sizes = [overhead if value is None else overhead + len(value) for value in values]
    of_keys = [0] * count if keys is None else [0 if key is None else len(key) for key in keys]
    if not len(sizes) == len(of_keys) == count or (keys is not None and len(keys) != count):
        raise ValueError(f"a column is not as long as the values, of which there are {count}")
    return list(accumulate(map(add, sizes, of_keys)))
