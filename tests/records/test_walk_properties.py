"""The walk against a slow decoder that takes one obvious step at a time."""

import zlib
from dataclasses import asdict, dataclass, field
from struct import pack, pack_into, unpack
from typing import Any

import google_crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from horolog.protocol.records.kernel import Walk, walk
from horolog.protocol.records.kernel.terms import Offsets, Problem
from horolog.protocol.records.latency import LATENCY_BUCKETS_MS
from horolog.protocol.records.marks import Marks
from horolog.tests.properties.examples import examples

NOW_MS = 1_479_144_272_509
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


@dataclass
class Options:
    offsets: Offsets = Offsets.ANY
    base_offset: int = 0
    check_crc: bool = True
    now_ms: int = -1
    interval_bytes: int = -1
    since_bytes: int = 0
    largest_ms: int = -1
    magic: int = -1
    segment_offset: int = 0
    segment_position: int = 0


@dataclass
class Slow:
    """One entry, and what to do about it, read with slices alone."""

    position: int
    offset: int
    sent_offset: int
    size: int
    magic: int
    attributes: int
    time: int
    records: int = 1
    delta: int = 0

    @property
    def last(self) -> int:
        return self.offset + self.delta

    @property
    def codec(self) -> int:
        return self.attributes & 7

    @property
    def stop(self) -> int:
        return self.position + 12 + self.size


def slow_entry(data: bytes, at: int, options: Options, expected: int) -> Problem | Slow:  # noqa: C901 - the checks of one entry, in order
    left = data[at:]
    if len(left) < 12:
        return Problem.PARTIAL
    offset, size = unpack(">qi", left[:12])
    if size < 14:
        return Problem.SIZE
    message = left[12 : 12 + size]
    if len(message) < size:
        return Problem.PARTIAL
    magic, attributes = message[4], message[5]
    if magic > 2:
        return Problem.MAGIC
    if magic == 2:
        return slow_batch(data[at : at + 12 + size], at, options, expected)
    if magic == 1 and size < 22:
        return Problem.SIZE
    if options.check_crc and zlib.crc32(message[4:]) != unpack(">I", message[:4])[0]:
        return Problem.CRC
    time = unpack(">q", message[6:14])[0] if magic else -1
    rest = message[14 if magic else 6 :]
    key_bytes = max(unpack(">i", rest[:4])[0], 0)
    rest = rest[4 + key_bytes :]
    if len(rest) < 4 or max(unpack(">i", rest[:4])[0], 0) != len(rest) - 4:
        return Problem.LENGTHS
    if attributes & 7 > 3:
        return Problem.CODEC
    if wrong_offset(offset, expected, options, exact=attributes & 7 == 0):
        return Problem.OFFSET
    stored = expected if options.offsets is Offsets.ASSIGN else offset
    return Slow(at, stored, offset, size, magic, attributes, time)


def slow_batch(batch: bytes, at: int, options: Options, expected: int) -> Problem | Slow:
    if len(batch) < 61:
        return Problem.SIZE
    if options.check_crc and google_crc32c.value(batch[21:]) != unpack(">I", batch[17:21])[0]:
        return Problem.CRC
    offset = unpack(">q", batch[:8])[0]
    attributes, delta, _, time = unpack(">hiqq", batch[21:43])
    records = unpack(">i", batch[57:61])[0]
    if attributes & 7 > 4:
        return Problem.CODEC
    if not 0 <= records <= delta + 1 or delta < 0:
        return Problem.COUNT
    if options.offsets is Offsets.ASSIGN:
        return Slow(at, expected, offset, len(batch) - 12, 2, attributes, time, records, delta)
    if offset + delta > INT64_MAX or wrong_offset(offset, expected, options, exact=True):
        return Problem.OFFSET
    return Slow(at, offset, offset, len(batch) - 12, 2, attributes, time, records, delta)


def wrong_offset(offset: int, expected: int, options: Options, *, exact: bool) -> bool:
    match options.offsets:
        case Offsets.CONTIGUOUS:
            return offset != expected if exact else offset < expected
        case Offsets.RISING:
            return offset < expected
    return False


@dataclass
class SlowWalk:
    found: list[Slow] = field(default_factory=list)
    problem: Problem = Problem.NONE


def slow_walk(data: bytes, start: int, options: Options) -> SlowWalk:
    result = SlowWalk()
    at, expected = start, options.base_offset
    while at < len(data):
        entry = slow_entry(data, at, options, expected)
        if isinstance(entry, Problem):
            result.problem = entry
            break
        result.found.append(entry)
        at, expected = entry.stop, entry.last + 1
    return result


def slow_latency(found: list[Slow], now_ms: int) -> dict[str, Any] | None:
    if now_ms < 0 or any(entry.magic == 2 for entry in found):
        return None
    latencies = [now_ms - entry.time for entry in found if entry.time != -1]
    if any(entry.time < -1 for entry in found):
        latencies = []
    counts = [0] * 19
    for latency in latencies:
        counts[sum(max(latency, 0) > bound for bound in LATENCY_BUCKETS_MS)] += 1
    return {
        "counts": counts,
        "skewed": sum(latency < 0 for latency in latencies),
        "untimed": len(found) - len(latencies),
        "sum_ms": sum(max(latency, 0) for latency in latencies),
        "max_ms": max([0, *latencies]),
    }


@dataclass
class SlowMarks:
    offsets: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    timestamps_ms: list[int] = field(default_factory=list)
    next_offsets: list[int] = field(default_factory=list)

    def add(self, offset: int, position: int, largest_ms: int) -> None:
        self.offsets.append(offset)
        self.positions.append(position)
        if largest_ms > max([-1, *self.timestamps_ms]):
            self.timestamps_ms.append(largest_ms)
            self.next_offsets.append(offset + 1)


def lists_of(marks: Marks) -> dict[str, list[int]]:
    return {name: list(getattr(marks, name)) for name in Marks.__slots__}


def slow_fields(data: bytes, start: int, options: Options) -> dict[str, Any]:
    """What `Walk` must say, each field from its definition."""
    slow = slow_walk(data, start, options)
    found = slow.found
    end = found[-1].stop if found else start
    times = [entry.time for entry in found if entry.time != -1]
    largest = [entry for entry in found if times and entry.time == max(times)]
    marks, since, largest_ms = SlowMarks(), options.since_bytes, options.largest_ms
    for entry in found:
        if entry.time != -1:
            largest_ms = max(largest_ms, entry.time)
        offset = entry.last - options.segment_offset
        position = entry.position - start + options.segment_position
        fits = 0 <= offset < INT32_MAX and position <= INT32_MAX
        if 0 <= options.interval_bytes < since and fits:
            marks.add(offset, position, largest_ms)
            since = 0
        since += 12 + entry.size
    magics = [options.magic, *(entry.magic for entry in found)]
    stamped = [entry.magic > 0 and bool(entry.attributes & 8) for entry in found]
    return {
        "end": end,
        "count": sum(entry.records for entry in found),
        "batches": sum(entry.magic == 2 for entry in found),
        "first_offset": found[0].offset if found else -1,
        "last_offset": found[-1].last if found else -1,
        "magics": sum(1 << magic for magic in {entry.magic for entry in found}),
        "codecs": sum(1 << codec for codec in {entry.codec for entry in found}),
        "last_codec": ([entry.codec for entry in found if entry.codec] or [0])[-1],
        "literal": [entry.sent_offset for entry in found]
        == [sum(entry.records for entry in found[:number]) for number in range(len(found))],
        "min_timestamp_ms": min(times, default=-1),
        "max_timestamp_ms": max(times, default=-1),
        "max_position": largest[0].position if largest else -1,
        "max_offset": largest[0].last if largest else -1,
        "first_timestamp_ms": found[0].time if found else -1,
        "last_append_time_ms": found[-1].time if found and stamped[-1] else -1,
        "append_time_bits": sum(stamped),
        "untimed": sum(entry.records for entry in found if entry.time == -1),
        "largest_entry_bytes": max((12 + entry.size for entry in found), default=0),
        "problem": slow.problem,
        "problem_position": end,
        "marks": asdict(marks),
        "since_bytes": since,
        "largest_ms": largest_ms,
        "magic_changes": [
            (entry.position, entry.magic)
            for entry, before in zip(found, magics, strict=False)
            if entry.magic != before
        ],
        "latency": slow_latency(found, options.now_ms),
    }


def raw_entry(
    offset: int, magic: int, attributes: int, time: int, fields: list[bytes | None]
) -> bytes:
    body = pack(">BB", magic, attributes) + (pack(">q", time) if magic else b"")
    for content in fields:
        body += pack(">i", -1 if content is None else len(content)) + (content or b"")
    return pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def raw_batch(
    offset: int, attributes: int, time: int, records: int, more: int, content: bytes
) -> bytes:
    covered = pack(">hiqqqhii", attributes, records - 1 + more, 7, time, -1, -1, -1, records)
    covered += content
    head = pack(">qiiBI", offset, len(covered) + 9, 5, 2, google_crc32c.value(covered))
    return head + covered


times = st.one_of(
    st.just(-1),
    st.integers(NOW_MS - 20, NOW_MS + 20),
    st.integers(NOW_MS - 10**8, NOW_MS + 10**8),
    st.sampled_from([0, 1, -2, INT64_MIN, INT64_MAX]),
)
contents = st.one_of(st.none(), st.just(b""), st.binary(max_size=30))
good_entries = st.builds(
    raw_entry,
    offset=st.one_of(st.integers(0, 8), st.sampled_from([-1, INT64_MIN, INT64_MAX - 1])),
    magic=st.sampled_from([0, 1, 1, 1]),
    attributes=st.one_of(st.just(0), st.sampled_from([1, 2, 3, 8, 9, 0x10, 0xF8])),
    time=times,
    fields=st.tuples(contents, contents).map(list),
)
good_batches = st.builds(
    raw_batch,
    offset=st.one_of(st.integers(0, 8), st.sampled_from([-1, INT64_MIN, INT64_MAX - 1])),
    attributes=st.sampled_from([0, 0, 1, 4, 8, 0x10, 0x3F8, 0x38]),
    time=times,
    records=st.integers(0, 3),
    more=st.sampled_from([1, 0, 0, 0, 5]),
    content=st.binary(max_size=30),
)
walkable_batches = good_batches.filter(lambda batch: batch[0] != 0x7F and batch[23] < 0x80)
"""Those whose last offset can be."""
bad_batches = st.builds(
    raw_batch,
    offset=st.integers(0, 8),
    attributes=st.integers(-1, 255),
    time=times,
    records=st.sampled_from([-(2**31) + 2, -1, 0, 1, 2**31 - 1]),
    more=st.sampled_from([0, 0, -1, 1]),
    content=st.just(b""),
)
bad_entries = st.builds(
    raw_entry,
    offset=st.integers(0, 8),
    magic=st.integers(0, 255),
    attributes=st.integers(0, 255),
    time=times,
    fields=st.lists(contents, max_size=4),
)
options_strategy = st.builds(
    Options,
    offsets=st.sampled_from(list(Offsets)),
    base_offset=st.integers(0, 8),
    check_crc=st.booleans(),
    now_ms=st.sampled_from([-1, NOW_MS, NOW_MS, NOW_MS + 5_000]),
    interval_bytes=st.integers(-1, 150),
    since_bytes=st.integers(0, 200),
    largest_ms=st.one_of(st.just(-1), times.filter(lambda time: time >= -1)),
    magic=st.sampled_from([-1, 0, 1, 2]),
    segment_offset=st.sampled_from([0, 0, 3, 2**62, INT64_MAX - 2]),
    segment_position=st.sampled_from([0, 1000, INT32_MAX - 100]),
)


def renumbered(parts: list[bytes]) -> list[bytes]:
    """With offsets that follow each other."""
    offset, result = 0, []
    for part in parts:
        result.append(pack(">q", offset) + part[8:])
        offset += 1 + (unpack(">i", part[23:27])[0] if part[16] == 2 else 0)
    return result


@st.composite
def message_sets(draw: st.DrawFn) -> bytes:
    """Mostly good entries, numbered now and then; sometimes with bytes changed, added or cut."""
    kinds = draw(st.sampled_from([good_entries, good_batches, good_entries | good_batches]))
    parts = draw(st.lists(kinds, max_size=12))
    if draw(st.booleans()):
        parts = renumbered(parts)
    if draw(st.integers(0, 3)) == 0:
        parts.insert(draw(st.integers(0, len(parts))), draw(bad_entries | bad_batches))
    data = bytearray(b"".join(parts))
    for place, byte in draw(
        st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=2)
    ):
        if draw(st.booleans()) and place < len(data):
            data[place] = byte
    data += draw(st.one_of(st.just(b""), st.binary(max_size=40)))
    return bytes(data[: draw(st.one_of(st.just(len(data)), st.integers(0, len(data))))])


@examples(800)
@given(data=message_sets(), before=st.binary(max_size=30), options=options_strategy)
@example(data=raw_entry(0, 1, 0, INT64_MIN, [None, None]) * 2, before=b"", options=Options())
@example(data=raw_entry(0, 1, 0, INT64_MAX, [None, b""]) * 2, before=b"", options=Options())
@example(data=raw_entry(0, 0, 0, -1, [None, None]), before=b"x", options=Options(magic=0))
def test_walk_equals_the_slow_decoder(data: bytes, before: bytes, options: Options) -> None:
    buffer = bytearray(before + data + b"not looked at")
    end = len(before) + len(data)
    expected = slow_fields(bytes(buffer[:end]), len(before), options)
    walked = walk(
        buffer,
        len(before),
        end,
        offsets=options.offsets,
        base_offset=options.base_offset,
        check_crc=options.check_crc,
        now_ms=options.now_ms,
        interval_bytes=options.interval_bytes,
        since_bytes=options.since_bytes,
        largest_ms=options.largest_ms,
        magic=options.magic,
        segment_offset=options.segment_offset,
        segment_position=options.segment_position,
    )
    said = {name: getattr(walked, name) for name in expected}
    said["latency"] = walked.latency and asdict(walked.latency)
    said["marks"] = lists_of(walked.marks)
    assert said == expected
    assert set(expected) == {name for name in dir(Walk) if not name.startswith("_")}


@examples(100)
@given(data=message_sets(), base_offset=st.integers(0, 2**40))
def test_assigning_changes_the_offsets_of_good_entries_and_nothing_else(
    data: bytes, base_offset: int
) -> None:
    buffer = bytearray(data)
    walked = walk(buffer, 0, len(buffer), offsets=Offsets.ASSIGN, base_offset=base_offset)
    expected = bytearray(data)
    found = slow_walk(data, 0, Options(Offsets.ASSIGN)).found
    offset = base_offset
    for entry in found:
        pack_into(">q", expected, entry.position, offset)
        offset += 1 + entry.delta
        if entry.magic == 2:
            pack_into(">i", expected, entry.position + 12, -1)
    assert buffer == expected
    assert walked.count == sum(entry.records for entry in found)


@examples(500)
@given(st.binary(max_size=200), options_strategy)
def test_no_bytes_make_the_walk_raise(data: bytes, options: Options) -> None:
    walked = walk(data, 0, len(data), check_crc=options.check_crc, now_ms=options.now_ms)
    assert 0 <= walked.end <= len(data)
    assert (walked.problem is Problem.NONE) == (walked.end == len(data))


@examples(100)
@given(
    st.lists(good_entries | walkable_batches, max_size=12), st.integers(0, 12), st.integers(0, 100)
)
def test_marks_do_not_depend_on_how_the_bytes_are_cut_i12(
    parts: list[bytes], cut: int, interval_bytes: int
) -> None:
    data = b"".join(parts)
    middle = len(b"".join(parts[:cut]))
    whole = walk(data, 0, len(data), interval_bytes=interval_bytes)
    first = walk(data, 0, middle, interval_bytes=interval_bytes)
    second = walk(
        data,
        middle,
        len(data),
        interval_bytes=interval_bytes,
        since_bytes=first.since_bytes,
        largest_ms=first.largest_ms,
        segment_position=middle,
    )
    both = Marks()
    both.extend(first.marks)
    both.extend(second.marks)
    assert lists_of(both) == lists_of(whole.marks)
    assert (second.since_bytes, second.largest_ms) == (whole.since_bytes, whole.largest_ms)
