"""Records against a slow decoder and encoder that take one obvious step at a time.

What is drawn is mostly good; the rest has bytes changed, added or cut. Both forms of everything
that can be compiled must say what the slow one says, and none may raise anything else.
"""

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from struct import pack, unpack
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from horolog.protocol.records.kernel import (
    RecordCursor,
    RecordEncoder,
    SetEncoder,
    check_records,
    find_timestamp,
    gather_records,
    records_to_messages,
    varint,
)
from horolog.protocol.records.kernel.terms import NO_MORE, RECORD
from horolog.protocol.records.latency import LATENCY_BUCKETS_MS, LatencyCounts
from horolog.protocol.records.layout import BATCH_OVERHEAD
from horolog.protocol.records.messages.sets import entries
from horolog.tests.properties.examples import examples

NOW_MS = 1_700_000_000_000
INT64_MAX = 2**63 - 1


class Wrong(Exception):
    pass


@dataclass(frozen=True)
class Slow:
    attributes: int
    time_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def slow_varint(data: bytes, at: int, bits: int) -> tuple[int, int]:
    number, shift = 0, 0
    while True:
        if at >= len(data):
            raise Wrong
        number |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            break
        if shift >= bits:
            raise Wrong
    if number >= 1 << bits:
        raise Wrong
    return (number >> 1 if number % 2 == 0 else -(number >> 1) - 1), at


def slow_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = slow_varint(data, at, 32)
    if length > len(data) - at:
        raise Wrong
    return (None if length < 0 else data[at : at + length]), at + max(length, 0)


def slow_record(data: bytes, at: int) -> tuple[Slow, int]:
    length, at = slow_varint(data, at, 32)
    if not 6 <= length <= len(data) - at:
        raise Wrong
    body, stop = data[at : at + length], at + length
    time_delta, at = slow_varint(body, 1, 64)
    offset_delta, at = slow_varint(body, at, 32)
    key, at = slow_bytes(body, at)
    value, at = slow_bytes(body, at)
    count, at = slow_varint(body, at, 32)
    if count < 0:
        raise Wrong
    headers = []
    for _ in range(count):
        name, at = slow_bytes(body, at)
        content, at = slow_bytes(body, at)
        if name is None:
            raise Wrong
        headers.append((name, content))
    if at != len(body):
        raise Wrong
    return Slow(body[0], time_delta, offset_delta, key, value, tuple(headers)), stop


def slow_records(data: bytes) -> tuple[list[Slow], int]:
    """The good records, and where the first bad one begins, or the end."""
    found, at = [], 0
    while at < len(data):
        try:
            record, at = slow_record(data, at)
        except Wrong:
            break
        found.append(record)
    return found, at


def starts_of(data: bytes) -> list[int]:
    """Where the good records begin, and where the first bad one does, or the end."""
    starts = [0]
    for _ in slow_records(data)[0]:
        starts.append(slow_record(data, starts[-1])[1])
    return starts


def written(record: Slow) -> bytes:
    body = bytes((record.attributes,)) + varint(record.time_delta) + varint(record.offset_delta)
    for content in (record.key, record.value):
        body += varint(-1) if content is None else varint(len(content)) + content
    body += varint(len(record.headers))
    for name, value in record.headers:
        body += varint(len(name)) + name
        body += varint(-1) if value is None else varint(len(value)) + value
    return varint(len(body)) + body


contents = st.one_of(st.none(), st.just(b""), st.binary(max_size=90))
header_lists = st.lists(st.tuples(st.text(max_size=3), contents), max_size=3)
int64s = st.one_of(
    st.integers(-5, 5), st.integers(-(10**8), 10**8), st.sampled_from([-(2**63), 2**63 - 1])
)
slow_lists = st.lists(
    st.builds(
        Slow,
        st.sampled_from([0, 0, 255]),
        int64s,
        st.integers(0, 4),
        contents,
        contents,
        header_lists.map(lambda pairs: tuple((name.encode(), value) for name, value in pairs)),
    ),
    max_size=5,
)


@st.composite
def record_bytes(draw: st.DrawFn) -> bytes:
    records = draw(slow_lists)
    if draw(st.booleans()):
        records = [
            Slow(r.attributes, r.time_delta, number, r.key, r.value, r.headers)
            for number, r in enumerate(records)
        ]
    data = bytearray(b"".join(map(written, records)))
    if draw(st.integers(0, 2)) == 0:
        for place, byte in draw(
            st.lists(st.tuples(st.integers(0, 300), st.sampled_from([0, 1, 127, 128, 255])))
        ):
            if place < len(data):
                data[place] = byte
        data += draw(st.binary(max_size=8))
        del data[draw(st.one_of(st.just(len(data)), st.integers(0, len(data)))) :]
    return bytes(data)


@examples(800)
@given(data=record_bytes(), before=st.binary(max_size=9), behind=st.binary(max_size=9))
def test_the_cursor_reads_what_the_slow_decoder_reads(
    data: bytes, before: bytes, behind: bytes
) -> None:
    expected, good_bytes = slow_records(data)
    start = len(before)
    cursor = RecordCursor(memoryview(before + data + behind), start, start + len(data))
    for record in expected:
        assert cursor.step() == RECORD
        assert (cursor.attributes, cursor.offset_delta) == (record.attributes, record.offset_delta)
        assert cursor.timestamp_delta_ms == record.time_delta
        assert (cursor.key(), cursor.value()) == (record.key, record.value)
        assert cursor.headers() == tuple(
            (name.decode("utf-8", "replace"), value) for name, value in record.headers
        )
    assert cursor.following == start + good_bytes
    last = cursor.step()
    assert (last == NO_MORE) == (good_bytes == len(data))
    assert last <= NO_MORE
    assert cursor.step() == last


@examples(800)
@given(
    data=record_bytes(),
    base_ms=st.one_of(st.integers(NOW_MS - 100, NOW_MS + 100), int64s),
    now_ms=st.sampled_from([-1, NOW_MS, 0, INT64_MAX]),
)
def test_the_check_says_what_the_slow_decoder_says(data: bytes, base_ms: int, now_ms: int) -> None:
    check_like_the_slow_decoder(data, base_ms, now_ms)


@st.composite
def runs_of_records(draw: st.DrawFn) -> bytes:
    """Records like those of most producers, which are counted many at a time; one of them may have
    a wrong offset, a header, or a time far from the others."""
    deltas = draw(st.lists(st.sampled_from([-200, -3, -1, 0, 0, 1, 5, 499, 8191]), max_size=30))
    key, value = draw(st.tuples(st.sampled_from([None, b"", b"k" * 70]), contents))
    records = [Slow(0, delta, number, key, value) for number, delta in enumerate(deltas)]
    if draw(st.booleans()) and records:
        number = draw(st.integers(0, len(records) - 1))
        unlike = [
            Slow(0, 0, number + 1, key, value),
            Slow(0, 2**40, number, key, value),
            Slow(0, 3, number, key, value, ((b"h", b""),)),
        ]
        records[number] = draw(st.sampled_from(unlike))
    return b"".join(map(written, records))


def run_of(*deltas: int) -> bytes:
    return b"".join(written(Slow(0, delta, n, None, b"value")) for n, delta in enumerate(deltas))


@examples(400)
@example(run_of(*[0] * 9), 2**62 - 1, INT64_MAX)  # times of which the sum takes more than 64 bits
@example(run_of(0, *[-1] * 7), 2**61, INT64_MAX)  # and of which a part of the sum does
@given(
    data=runs_of_records(),
    base_ms=st.one_of(
        st.integers(NOW_MS - 1200, NOW_MS + 300),
        st.sampled_from([-2, -1, 0, 3, 2**32 - 2, 2**62 - 1, 2**62, INT64_MAX - 400]),
    ),
    now_ms=st.sampled_from([-1, NOW_MS, INT64_MAX]),
)
def test_runs_are_counted_as_the_slow_decoder_counts(
    data: bytes, base_ms: int, now_ms: int
) -> None:
    check_like_the_slow_decoder(data, base_ms, now_ms)


def check_like_the_slow_decoder(data: bytes, base_ms: int, now_ms: int) -> None:
    good: list[int] = []
    records, good_bytes = slow_records(data)
    fits = len(records)
    for number, record in enumerate(records):
        time = base_ms + record.time_delta
        if record.offset_delta != number or not -(2**63) <= time <= INT64_MAX:
            fits = number
            break
        good.append(time)
    found = check_records(data, 0, len(data), base_timestamp_ms=base_ms, now_ms=now_ms)
    times = [time for time in good if time != -1]
    assert found.count == fits
    whole = fits == len(records) and good_bytes == len(data)
    assert (found.problem == NO_MORE) == whole
    assert found.problem_position == (len(data) if whole else starts_of(data)[fits])
    assert (found.min_timestamp_ms, found.max_timestamp_ms) == (
        min(times, default=-1),
        max(times, default=-1),
    )
    assert found.max_delta == (good.index(max(times)) if times else -1)
    assert found.untimed == len(good) - len(times)
    assert found.latency == slow_latency(good, now_ms)


def slow_latency(times: list[int], now_ms: int) -> LatencyCounts | None:
    if now_ms < 0:
        return None
    counts = LatencyCounts()
    if any(time < -1 for time in times):
        counts.untimed = len(times)
        return counts
    for time in times:
        if time == -1:
            counts.untimed += 1
            continue
        latency_ms = max(now_ms - time, 0)
        counts.counts[bisect_left(LATENCY_BUCKETS_MS, latency_ms)] += 1
        counts.skewed += time > now_ms
        counts.sum_ms += latency_ms
        counts.max_ms = max(counts.max_ms, latency_ms)
    return counts


new_records = st.lists(
    st.tuples(
        contents,
        contents,
        st.one_of(st.just(-1), st.integers(0, 2**41), st.just(INT64_MAX - 1)),
        header_lists,
    ),
    max_size=8,
)
NewRecords = list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]]


@examples(100)
@given(new_records)
def test_the_encoder_writes_what_the_slow_decoder_reads(sent: NewRecords) -> None:
    encoder = RecordEncoder()
    for value, key, timestamp_ms, headers in sent:
        encoder.add(value, key, timestamp_ms, headers)
    times = [timestamp_ms for _, _, timestamp_ms, _ in sent]
    base_ms = times[0] if times else -1
    assert (encoder.base_timestamp_ms, encoder.max_timestamp_ms) == (base_ms, max([-1, *times]))
    assert encoder.count == len(sent)
    size = encoder.size_bytes
    batch = encoder.finish()
    assert len(batch) == size
    assert batch[:BATCH_OVERHEAD] == bytes(BATCH_OVERHEAD)
    data = bytes(batch[BATCH_OVERHEAD:])
    found, end = slow_records(data)
    assert end == len(data)
    assert data == b"".join(map(written, found)), "the shortest way to write them"
    assert [(r.value, r.key, base_ms + r.time_delta) for r in found] == [r[:3] for r in sent]
    assert [r.offset_delta for r in found] == list(range(len(sent)))
    assert [r.headers for r in found] == [
        tuple((name.encode(), value) for name, value in headers) for *_, headers in sent
    ]
    again = RecordEncoder()
    again.add_records(data, base_ms)
    assert again.finish() == batch
    assert encoder.count == 0


@examples(100)
@given(sent=new_records, magic=st.sampled_from([0, 1]), base_offset=st.integers(0, 2**40))
def test_messages_become_records_and_records_messages(
    sent: NewRecords, magic: int, base_offset: int
) -> None:
    messages = SetEncoder(magic, base_offset)
    for value, key, timestamp_ms, _ in sent:
        messages.add(value, key, timestamp_ms if magic else -1)
    data = messages.finish()
    encoder = RecordEncoder()
    encoder.add_messages(data, 0, len(data))
    base_ms = encoder.base_timestamp_ms
    assert encoder.count == len(sent)
    content = encoder.finish()[BATCH_OVERHEAD:]
    assert [(r.value, r.key) for r in slow_records(bytes(content))[0]] == [r[:2] for r in sent]
    for max_bytes in (-1, 0, 50):
        back, at = bytearray(b"before"), 0
        while at < len(content):
            done = records_to_messages(
                back,
                content,
                at,
                magic=magic,
                base_offset=base_offset,
                base_timestamp_ms=base_ms,
                max_bytes=max_bytes if max_bytes else 1,
            )
            assert done.messages
            at = done.following
        assert back == b"before" + data


@examples(100)
@given(data=record_bytes(), magic=st.sampled_from([0, 1]), stamp_ms=st.sampled_from([-1, 77]))
def test_what_is_not_good_becomes_no_message(data: bytes, magic: int, stamp_ms: int) -> None:
    records, end = slow_records(data)
    target = bytearray(b"before")

    def rewrite() -> tuple[int, int]:
        done = records_to_messages(
            target,
            data,
            0,
            magic=magic,
            base_offset=5,
            base_timestamp_ms=0,
            first_offset=9,
            stamp_ms=stamp_ms,
        )
        return done.messages, done.headers

    if end != len(data):
        with pytest.raises(ValueError, match="is not good"):
            rewrite()
        assert target == b"before"
        return
    assert rewrite() == (len(records), sum(len(record.headers) for record in records))
    found = list(entries(target[6:]))
    assert [(e.offset, e.key, e.value) for e in found] == [
        (9 + number, record.key, record.value) for number, record in enumerate(records)
    ]
    if magic:
        times = [record.time_delta if stamp_ms < 0 else stamp_ms for record in records]
        assert [e.timestamp_ms for e in found] == times
        assert {e.is_append_time for e in found} <= {stamp_ms >= 0}


@examples(100)
@given(
    data=record_bytes(),
    from_offset=st.integers(0, 4),
    append_time_ms=st.sampled_from([-1, 77]),
    wanted=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_columns_hold_what_the_slow_decoder_reads(
    data: bytes, from_offset: int, append_time_ms: int, wanted: tuple[bool, bool, bool]
) -> None:
    records, end = slow_records(data)
    options: dict[str, Any] = {
        "base_timestamp_ms": 0,
        "append_time_ms": append_time_ms,
        "from_offset": from_offset,
        "with_keys": wanted[0],
        "with_values": wanted[1],
        "with_headers": wanted[2],
    }
    if end != len(data):
        with pytest.raises(ValueError, match="is not good"):
            gather_records(data, base_offset=0, **options)
        return
    found, headers = gather_records(data, base_offset=0, **options)
    kept = [record for record in records if record.offset_delta >= from_offset]
    assert found.count == len(kept)
    assert unpack(f"={len(kept)}q", found.offsets) == tuple(r.offset_delta for r in kept)
    times = [append_time_ms if append_time_ms >= 0 else record.time_delta for record in kept]
    assert unpack(f"={len(kept)}q", found.timestamps) == tuple(times)
    assert found.timestamp_types == pack("B", append_time_ms >= 0) * len(kept)
    for content, offsets, nulls, valid, values in (
        (
            found.key_data,
            found.key_offsets,
            found.key_nulls,
            found.key_valid,
            [r.key if wanted[0] else None for r in kept],
        ),
        (
            found.value_data,
            found.value_offsets,
            found.value_nulls,
            found.value_valid,
            [r.value if wanted[1] else None for r in kept],
        ),
    ):
        ends = unpack(f"={len(kept) + 1}i", offsets)
        rows = [bytes(content[a:b]) for a, b in pairwise(ends)]
        assert rows == [value or b"" for value in values]
        assert nulls == sum(value is None for value in values)
        assert [bool(valid[row >> 3] & 1 << (row & 7)) for row in range(len(values))] == [
            value is not None for value in values
        ]
    if wanted[2] and any(record.headers for record in kept):
        assert headers is not None
        assert [len(row) for row in headers] == [len(record.headers) for record in kept]
    else:
        assert headers is None


@examples(100)
@given(data=record_bytes(), target_ms=st.integers(-5, 5))
def test_the_first_time_is_what_the_slow_decoder_finds(data: bytes, target_ms: int) -> None:
    records, end = slow_records(data)
    cursor = RecordCursor(memoryview(data), 0, len(data))
    expected = [place for place, r in enumerate(records) if 10 + r.time_delta >= target_ms]
    if any(10 + record.time_delta > INT64_MAX for record in records):
        return
    step = find_timestamp(cursor, 10, target_ms)
    if expected:
        assert step == RECORD
        assert cursor.position == starts_of(data)[expected[0]]
        assert cursor.timestamp_delta_ms == records[expected[0]].time_delta
    else:
        assert (step == NO_MORE) == (end == len(data))
