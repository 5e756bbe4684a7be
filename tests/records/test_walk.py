"""Corner cases of the walk: order of checks, offset rules, index marks, times, latencies."""

import zlib
from struct import pack, pack_into

import pytest

from horolog.protocol.records.kernel import walk
from horolog.protocol.records.kernel.terms import Offsets, Problem
from horolog.protocol.records.latency import LATENCY_BUCKETS_MS, LatencyCounts
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import (
    NewRecord,
    build_message,
    build_set,
    build_wrapper,
    set_append_time,
    set_timestamp,
)


def test_what_is_tested_is_the_form_that_was_asked_for(form: str) -> None:
    assert f".kernel.{form}." in f"{walk.__module__}."


def test_reading_walks_leave_the_buffer_alone() -> None:
    data = bytes(build_set([NewRecord(b"x")] * 3))
    for offsets in (Offsets.ANY, Offsets.CONTIGUOUS, Offsets.RISING):
        assert walk(data, 0, len(data), offsets=offsets).count == 3
    with pytest.raises(TypeError):
        walk(data, 0, len(data), offsets=Offsets.ASSIGN)


def test_a_window_of_a_larger_buffer() -> None:
    one = bytes(build_set([NewRecord(b"x", None, 5)]))
    walked = walk(memoryview(one * 5), len(one), 4 * len(one))
    assert (walked.count, walked.end, walked.max_position) == (3, 4 * len(one), len(one))


@pytest.mark.parametrize("spoiled", ["size", "crc", "lengths", "codec"])
def test_the_first_problem_in_the_order_of_the_checks_wins(spoiled: str) -> None:
    """Each spoiled thing comes with everything that is checked after it."""
    order = ["size", "magic", "crc", "lengths", "codec"]
    entry = build_set([NewRecord(b"hello", None, 5)], base_offset=7)
    wrong = order[order.index(spoiled) :]
    if "codec" in wrong:
        entry[17] = 0x05
    if "lengths" in wrong:
        pack_into(">i", entry, 26, 3)
    pack_into(">I", entry, 12, zlib.crc32(entry[16:]) ^ ("crc" in wrong))
    if "magic" in wrong:
        entry[16] = 2
    if "size" in wrong:
        pack_into(">i", entry, 8, 13)
    problem = walk(entry, 0, len(entry), offsets=Offsets.CONTIGUOUS).problem
    assert problem is Problem[spoiled.upper()]


@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_other_magics_are_named_before_their_crc_is_looked_at(magic: int) -> None:
    batch_like = bytes(8) + pack(">i", 49) + bytes(4) + bytes((magic,)) + bytes(44)
    walked = walk(batch_like, 0, len(batch_like))
    assert (walked.problem, walked.problem_position) == (Problem.MAGIC, 0)


@pytest.mark.parametrize(
    ("key_bytes", "value_bytes"),
    [(1, 5), (6, -1), (-1, 4), (-1, 6), (0, -1), (2**31 - 1, 5), (5, 2**31 - 1), (9, 0), (10, 0)],
)
def test_lengths_add_up_exactly_m9(key_bytes: int, value_bytes: int) -> None:
    """The message has room for five bytes of key and value together."""
    body = build_set([NewRecord(b"hello", None, 5)])[16:]
    pack_into(">i", body, 10, key_bytes)
    at = 14 + max(key_bytes, 0)
    if at + 4 <= len(body):
        pack_into(">i", body, at, value_bytes)
    entry = pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
    assert walk(entry, 0, len(entry)).problem is Problem.LENGTHS


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (0, 40), (36, 40)])
def test_a_window_that_is_not_in_the_buffer_is_refused(start: int, end: int) -> None:
    data = build_set([NewRecord(b"hello")])
    with pytest.raises(IndexError, match="in a buffer of 39"):
        walk(data, start, end)


def test_only_bytes_that_follow_each_other_can_be_walked() -> None:
    data = bytes(100)
    for view in (memoryview(data)[::2], memoryview(data)[::-1], memoryview(data).cast("i")):
        with pytest.raises(BufferError, match="follow each other"):
            walk(view, 0, len(view))


# Offset rules


def stored(*offsets: int, wrappers: tuple[int, ...] = ()) -> bytes:
    return b"".join(
        pack(">qi", offset, 23) + build_message(None, b"v", attributes=offset in wrappers)
        for offset in offsets
    )


@pytest.mark.parametrize(
    ("rule", "offsets", "wrappers", "good"),
    [
        pytest.param(Offsets.ANY, (5, 3, 3, -1), (), 4, id="any"),
        pytest.param(Offsets.CONTIGUOUS, (10, 11, 12), (), 3, id="contiguous"),
        pytest.param(Offsets.CONTIGUOUS, (11, 12), (), 0, id="contiguous-late-start"),
        pytest.param(Offsets.CONTIGUOUS, (9, 10), (), 0, id="contiguous-early-start"),
        pytest.param(Offsets.CONTIGUOUS, (10, 12), (), 1, id="contiguous-gap"),
        pytest.param(Offsets.CONTIGUOUS, (10, 10), (), 1, id="contiguous-repeated"),
        pytest.param(Offsets.CONTIGUOUS, (12, 15, 16), (12, 15), 3, id="contiguous-wrappers"),
        pytest.param(Offsets.CONTIGUOUS, (12, 12), (12,), 1, id="contiguous-wrapper-repeated"),
        pytest.param(Offsets.CONTIGUOUS, (9,), (9,), 0, id="contiguous-wrapper-early"),
        pytest.param(Offsets.RISING, (10, 17, 18, 400), (), 4, id="rising"),
        pytest.param(Offsets.RISING, (9, 10), (), 0, id="rising-early-start"),
        pytest.param(Offsets.RISING, (10, 12, 12), (), 2, id="rising-repeated"),
        pytest.param(Offsets.RISING, (10, 12, 11), (12,), 2, id="rising-falling"),
    ],
)
def test_offset_rules(
    rule: Offsets, offsets: tuple[int, ...], wrappers: tuple[int, ...], good: int
) -> None:
    data = stored(*offsets, wrappers=wrappers)
    walked = walk(data, 0, len(data), offsets=rule, base_offset=10)
    assert walked.count == good
    expected = Problem.NONE if good == len(offsets) else Problem.OFFSET
    assert walked.problem is expected


@pytest.mark.parametrize(
    ("offsets", "literal"),
    [
        ((), True),
        ((0,), True),
        ((0, 1, 2), True),
        ((1, 2), False),
        ((0, 2), False),
        ((0, 0), False),
    ],
)
def test_literal_offsets_p36(offsets: tuple[int, ...], literal: bool) -> None:
    data = bytearray(stored(*offsets))
    assert walk(data, 0, len(data)).literal is literal
    assert walk(data, 0, len(data), offsets=Offsets.ASSIGN, base_offset=40).literal is literal


def test_the_largest_offset_has_none_after_it() -> None:
    largest = 2**63 - 1
    data = stored(largest, largest, 5)
    assert walk(data, 0, len(data)).last_offset == 5
    for rule in (Offsets.RISING, Offsets.CONTIGUOUS):
        walked = walk(data, 0, len(data), offsets=rule, base_offset=largest)
        assert (walked.count, walked.last_offset) == (1, largest)
    found = walk(data, 0, len(data), interval_bytes=0, since_bytes=1, segment_offset=largest)
    assert (list(found.marks.offsets), list(found.marks.positions)) == ([0, 0], [0, 35])


# Index marks


def test_marks_come_after_more_than_the_interval_i10() -> None:
    """Entries of 39 bytes, interval 2 * 39 - 1: each second entry from the third on gets a mark."""
    data = build_set([NewRecord(b"hello", None, 10 * offset) for offset in range(40, 50)])
    walked = walk(
        data,
        0,
        len(data),
        interval_bytes=77,
        offsets=Offsets.ASSIGN,
        base_offset=40,
        segment_offset=30,
        segment_position=1000,
    )
    marked = (2, 4, 6, 8)
    assert list(walked.marks.offsets) == [10 + place for place in marked]
    assert list(walked.marks.positions) == [1000 + 39 * place for place in marked]
    assert list(walked.marks.timestamps_ms) == [10 * (40 + place) for place in marked]
    assert list(walked.marks.next_offsets) == [11 + place for place in marked]
    assert walked.since_bytes == 2 * 39


@pytest.mark.parametrize(
    ("interval_bytes", "since_bytes", "marked"),
    [
        pytest.param(0, 0, [1, 2, 3], id="I-11-interval-0"),
        pytest.param(39, 0, [2], id="equal-is-not-more"),
        pytest.param(38, 0, [1, 2, 3], id="one-less"),
        pytest.param(39, 40, [0, 2], id="bytes-before"),
        pytest.param(39, 39, [1, 3], id="bytes-before-not-enough"),
        pytest.param(-1, 10**9, [], id="not-asked-for"),
    ],
)
def test_mark_boundaries(interval_bytes: int, since_bytes: int, marked: list[int]) -> None:
    data = build_set([NewRecord(b"hello")] * 4)
    walked = walk(data, 0, len(data), interval_bytes=interval_bytes, since_bytes=since_bytes)
    assert list(walked.marks.offsets) == marked


def test_a_mark_tells_a_time_only_when_it_is_later_than_before() -> None:
    times = (7, 5, 9, 8, -1, 9, 10)
    data = build_set([NewRecord(b"v", None, time) for time in times])
    walked = walk(data, 0, len(data), interval_bytes=0, largest_ms=8)
    assert list(walked.marks.offsets) == [1, 2, 3, 4, 5, 6]
    assert list(walked.marks.timestamps_ms) == [8, 9, 10]
    assert list(walked.marks.next_offsets) == [2, 3, 7]
    first = walked.marks.first(5)
    assert list(first.offsets) == [1, 2, 3, 4, 5]
    assert (list(first.timestamps_ms), list(first.next_offsets)) == ([8, 9], [2, 3])
    none = walked.marks.first(0)
    assert (len(none), len(none.next_offsets)) == (0, 0)


@pytest.mark.parametrize(
    ("segment_offset", "segment_position", "marked"),
    [
        pytest.param(2**40, 2**31 - 1 - 35, 1, id="the-last-position"),
        pytest.param(2**40, 2**31 - 35, 0, id="a-position-beyond"),
        pytest.param(2**40 + 1 - (2**31 - 2), 0, 1, id="the-last-offset"),
        pytest.param(2**40 + 1 - (2**31 - 1), 0, 0, id="an-offset-beyond"),
        pytest.param(2**40 + 2, 0, 0, id="an-offset-before"),
    ],
)
def test_what_an_index_entry_cannot_hold_gets_no_mark(
    segment_offset: int, segment_position: int, marked: int
) -> None:
    data = stored(2**40, 2**40 + 1)
    walked = walk(
        data,
        0,
        len(data),
        interval_bytes=0,
        segment_offset=segment_offset,
        segment_position=segment_position,
    )
    assert len(walked.marks) == marked


def test_without_an_interval_the_bytes_are_only_counted() -> None:
    data = build_set([NewRecord(b"hello")] * 4)
    walked = walk(data, 0, len(data))
    assert (len(walked.marks), walked.since_bytes) == (0, len(data))


# Times


def test_largest_timestamp_is_that_of_the_first_message_that_has_it_i15() -> None:
    data = build_set([NewRecord(b"v", None, time) for time in (5, 9, 9, 3)])
    walked = walk(data, 0, len(data))
    assert (walked.min_timestamp_ms, walked.max_timestamp_ms) == (3, 9)
    assert (walked.max_offset, walked.max_position) == (1, 35)


def test_a_wrapper_counts_as_one_entry_with_its_own_time() -> None:
    inner = build_set([NewRecord(b"v", None, 5), NewRecord(b"v", None, 9)])
    data = build_wrapper(inner, offset=1, timestamp_ms=9, magic=1, codec=Codec.LZ4)
    set_append_time(data, 0, len(data) - 12, 70)
    walked = walk(data, 0, len(data), now_ms=100)
    assert (walked.count, walked.codecs, walked.last_codec) == (1, 1 << 3, 3)
    assert (walked.max_timestamp_ms, walked.last_append_time_ms) == (70, 70)
    assert walked.latency is not None
    assert walked.latency.max_ms == 30


def test_last_append_time_is_only_that_of_the_last_entry() -> None:
    data = build_set([NewRecord(b"v", None, 5)] * 2)
    set_append_time(data, 0, 23, 70)
    walked = walk(data, 0, len(data))
    assert (walked.last_append_time_ms, walked.append_time_bits) == (-1, 1)


# Latencies


def test_the_latency_buckets() -> None:
    seconds = (1, 2, 5, 10, 30, 60, 300, 3_600, 86_400)
    milliseconds = (1, 2, 5, 10, 20, 50, 100, 200, 500)
    assert (*milliseconds, *(1000 * bound for bound in seconds)) == LATENCY_BUCKETS_MS
    assert LatencyCounts() == LatencyCounts([0] * 19, skewed=0, untimed=0, sum_ms=0, max_ms=0)


@pytest.mark.parametrize("bound", LATENCY_BUCKETS_MS)
def test_latency_bounds_are_inclusive(bound: int) -> None:
    data = build_set([NewRecord(b"v", None, 100_000_000 - bound - more) for more in (0, 1)])
    latency = walk(data, 0, len(data), now_ms=100_000_000).latency
    assert latency is not None
    place = LATENCY_BUCKETS_MS.index(bound)
    expected = [0] * 19
    expected[place] = expected[place + 1] = 1
    assert latency.counts == expected


@pytest.mark.parametrize(
    ("times", "skewed", "total_ms"),
    [
        pytest.param([1000, 1000], 0, 0, id="now"),
        pytest.param([1001, 9999], 2, 0, id="all-from-the-future"),
        pytest.param([1001, 1000], 1, 0, id="one-from-the-future"),
        pytest.param([999, 1001], 1, 1, id="both-sides"),
    ],
)
def test_clock_skew_is_clamped_and_counted(times: list[int], skewed: int, total_ms: int) -> None:
    data = build_set([NewRecord(b"v", None, time) for time in times])
    latency = walk(data, 0, len(data), now_ms=1000).latency
    assert latency is not None
    assert (latency.skewed, latency.sum_ms, latency.counts[0]) == (skewed, total_ms, 2)


@pytest.mark.parametrize("time", [-2, -(2**63)])
def test_a_time_that_cannot_be_one_leaves_no_latencies(time: int) -> None:
    data = build_set([NewRecord(b"v", None, 5), NewRecord(b"v", None, 900)])
    set_timestamp(data, 35, 23, time)
    walked = walk(data, 0, len(data), now_ms=1000)
    assert walked.latency == LatencyCounts(untimed=2)
    assert (walked.min_timestamp_ms, walked.untimed) == (time, 0)


@pytest.mark.parametrize("times", [[0, 0, 1], [0, 2**62, 2**63 - 1], [1, 2**63 - 2, -1]])
def test_sums_do_not_overflow(times: list[int]) -> None:
    now_ms = 2**63 - 1
    data = build_set([NewRecord(b"v", None, time) for time in times])
    latency = walk(data, 0, len(data), now_ms=now_ms).latency
    assert latency is not None
    assert latency.sum_ms == sum(now_ms - time for time in times if time >= 0)


def test_latencies_only_when_asked_for() -> None:
    data = build_set([NewRecord(b"v", None, 0)])
    assert walk(data, 0, len(data)).latency is None
    latency = walk(data, 0, len(data), now_ms=0).latency
    assert latency is not None
    assert (latency.timed, latency.skewed) == (1, 0)


def test_messages_without_a_time_are_counted_apart() -> None:
    data = build_set([NewRecord(b"v")] * 3) + build_set([NewRecord(b"v")], magic=0)
    latency = walk(data, 0, len(data), now_ms=1000).latency
    assert latency == LatencyCounts(untimed=4)
    assert latency.timed == 0


def test_latency_counts_add_up() -> None:
    data = build_set([NewRecord(b"v", None, time) for time in (990, 400, 2000, -1)])
    latency = walk(data, 0, len(data), now_ms=1000).latency
    assert latency is not None
    total = LatencyCounts()
    total.add(latency)
    total.add(latency)
    assert total.counts == [2 * count for count in latency.counts]
    assert (total.skewed, total.untimed, total.timed) == (2, 2, 6)
    assert (total.sum_ms, total.max_ms) == (2 * (10 + 600), 600)
