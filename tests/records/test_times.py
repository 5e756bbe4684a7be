"""Time maps: what is written of blocks, and what a map answers, against a plain list of times."""

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.records import kernel
from horolog.protocol.records.kernel import reference
from horolog.protocol.records.kernel.reference.spans import MOST_SPANS
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import NewRecord, build_set

FORMS = pytest.mark.parametrize("form", [kernel, reference], ids=["kernel", "reference"])

DAY_MS = 86_400_000
TIMES = st.one_of(
    st.integers(-1, 3 * DAY_MS),
    st.integers(1_479_000_000_000, 1_479_000_600_000),
    st.integers(1_400_000_000_000, 1_500_000_000_000),
    st.sampled_from([-1, 0, 2**63 - 1]),
)
BLOCKS = st.lists(st.lists(TIMES, max_size=80), max_size=6)
BOUNDS = st.integers(0, 2**63 - 1) | st.integers(1_478_999_000_000, 1_479_001_000_000)


def block_of(form: Any, times: list[int]) -> bytes:
    """The map of a block of 7 bytes a message."""
    if not times:
        return b""
    size_bytes = 7 * len(times)
    rows = form.time_spans(array("q", times), log_bytes=size_bytes, offsets=len(times))
    made: bytes = form.time_blocks(rows, block_bytes=size_bytes, whole=False)[0]
    return made


def map_of(form: Any, blocks: list[list[int]]) -> bytes:
    return b"".join(block_of(form, times) for times in blocks)


def answers(form: Any, call: str, *arguments: Any, **named: Any) -> Any:
    """What a call gives, or the kind of its exception."""
    try:
        return getattr(form, call)(*arguments, **named)
    except (ValueError, OverflowError) as error:
        return type(error)


@given(times=st.lists(TIMES, max_size=400))
def test_both_forms_write_the_same(times: list[int]) -> None:
    assert block_of(kernel, times) == block_of(reference, times)


@FORMS
@given(times=st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=400))
def test_a_block_says_how_many_messages_are_in_few_spans(form: Any, times: list[int]) -> None:
    found = list(reference.times.time_map_blocks(block_of(form, times), 0))
    (block,) = found
    assert len(block.spans) <= MOST_SPANS
    for span in block.spans:
        assert span.messages == sum(span.low <= time <= span.high for time in times) > 0
        assert {span.low, span.high} <= set(times)
    assert sum(span.messages for span in block.spans) == len(times)


@FORMS
@given(blocks=BLOCKS, bounds=st.tuples(BOUNDS, BOUNDS))
def test_no_block_that_holds_an_answer_is_left_out(
    form: Any, blocks: list[list[int]], bounds: tuple[int, int]
) -> None:
    rows = map_of(form, blocks)
    from_ms, until_ms = sorted(bounds)
    ends = {time for times in blocks if times for time in (min(times), max(times)) if time >= 0}
    for first_ms, last_ms in [(from_ms, until_ms - 1), *((time, time) for time in sorted(ends))]:
        runs = form.time_map_runs(rows, base_offset=100, from_ms=first_ms, last_ms=last_ms)
        covered = {offset for _, _, begin, end in runs for offset in range(begin, end)}
        offset = 100
        for times in blocks:
            if any(first_ms <= time <= last_ms for time in times):
                assert set(range(offset, offset + len(times))) <= covered
            offset += len(times)
        for position, end, begin, behind in runs:
            assert end - position == 7 * (behind - begin)
            assert position == 7 * (begin - 100)


@FORMS
@given(
    blocks=BLOCKS,
    bounds=st.tuples(BOUNDS, BOUNDS),
    intervals=st.integers(1, 9),
    cut=st.tuples(st.integers(95, 700), st.integers(95, 700)),
)
def test_counts_of_the_map_and_of_the_blocks_that_it_names_are_those_of_all_messages(
    form: Any,
    blocks: list[list[int]],
    bounds: tuple[int, int],
    intervals: int,
    cut: tuple[int, int],
) -> None:
    (from_ms, until_ms), (begin, end) = sorted(bounds), sorted(cut)
    every_ms = max(-(-(until_ms - from_ms) // intervals), 1)
    window = {"from_ms": from_ms, "last_ms": until_ms - 1, "every_ms": every_ms}
    window |= {"begin_offset": begin, "end_offset": end}
    counts = array("q", bytes(8 * intervals))
    (messages, untimed, first_ms, last_ms), runs = form.time_map_counts(
        map_of(form, blocks), counts, base_offset=100, **window
    )
    times = [time for block in blocks for time in block]
    found = [(messages, untimed, first_ms, last_ms)]
    for _, _, first, behind in runs:
        of_block = array("q", times[first - 100 : behind - 100])
        offsets = array("q", range(first, behind))
        found.append(form.count_times(offsets, of_block, counts, **window))
    inside = [
        time
        for offset, time in enumerate(times, 100)
        if begin <= offset < end and from_ms <= time < until_ms
    ]
    expected = [0] * intervals
    for time in inside:
        expected[(time - from_ms) // every_ms] += 1
    assert counts.tolist() == expected
    assert sum(one[0] for one in found) == len(inside)
    assert sum(one[1] for one in found) == sum(
        time < 0 for offset, time in enumerate(times, 100) if begin <= offset < end
    )
    assert min((one[2] for one in found if one[0]), default=-1) == min(inside, default=-1)
    assert max(one[3] for one in found) == max(inside, default=-1)


@given(
    data=st.binary(max_size=60)
    | BLOCKS.map(lambda blocks: map_of(kernel, blocks)).flatmap(
        lambda made: st.integers(0, len(made)).map(lambda cut: made[:cut])
    ),
    bounds=st.tuples(BOUNDS, BOUNDS),
)
def test_both_forms_say_the_same_of_any_bytes(data: bytes, bounds: tuple[int, int]) -> None:
    from_ms, until_ms = sorted(bounds)
    asked: tuple[tuple[str, dict[str, int]], ...] = (
        ("time_map_extent", {}),
        ("time_map_runs", {"base_offset": 5, "from_ms": from_ms, "last_ms": until_ms - 1}),
    )
    for call, named in asked:
        assert answers(kernel, call, data, **named) == answers(reference, call, data, **named)
    window = {"from_ms": from_ms, "last_ms": until_ms - 1, "every_ms": max(until_ms - from_ms, 1)}
    window |= {"base_offset": 5, "begin_offset": 9, "end_offset": 90}
    told = [
        answers(form, "time_map_counts", data, array("q", [0]), **window)
        for form in (kernel, reference)
    ]
    assert told[0] == told[1]


@FORMS
def test_intervals_without_a_count_are_refused(form: Any) -> None:
    window = {"begin_offset": 0, "end_offset": 9, "from_ms": 0, "every_ms": 10}
    for last_ms, fits in ((9, True), (10, False)):
        counts = array("q", [0])
        found = answers(form, "count_times", b"", b"", counts, last_ms=last_ms, **window)
        assert (found is ValueError) != fits
    with pytest.raises(TypeError):
        form.count_times(b"", b"", bytes(8), last_ms=9, **window)


ROW = 6


@given(
    data=st.data(),
    block_bytes=st.sampled_from([1, 100, 400, 65_536]),
    check_crc=st.booleans(),
)
def test_rows_of_entries_are_the_times_of_their_messages(
    data: st.DataObject, block_bytes: int, check_crc: bool
) -> None:
    """In both forms, and however the entries are read: in parts, each from where the one before
    ended, blocks are the same."""
    entries, times = bytearray(), list[int]()
    for some in data.draw(st.lists(st.lists(TIMES, min_size=1, max_size=60), min_size=1)):
        magic = data.draw(st.sampled_from([0, 1, 2]))
        base = len(times)
        records = [
            NewRecord(b"v", timestamp_ms=min(time_ms, 2**62) if magic else -1) for time_ms in some
        ]
        entries += build_set(records, magic=magic, base_offset=base)
        times += [record.timestamp_ms for record in records]
    since = data.draw(st.integers(0, block_bytes - 1))
    wanted: dict[str, Any] = {"block_bytes": block_bytes, "check_crc": check_crc}
    found = kernel.entry_spans(entries, 0, since_bytes=since, next_offset=0, **wanted)
    assert found == reference.entry_spans(entries, 0, since_bytes=since, next_offset=0, **wanted)
    rows, end, next_offset, left = found
    assert (end, next_offset) == (len(entries), len(times))
    assert left < block_bytes
    numbers = array("q", rows)
    assert sum(numbers[0::ROW]) == end
    timed = sum(n for low, n in zip(numbers[2::ROW], numbers[4::ROW], strict=True) if low >= 0)
    assert timed == sum(time_ms >= 0 for time_ms in times)
    cut = data.draw(st.integers(0, len(entries)))
    first, end, offset, left = kernel.entry_spans(
        entries[:cut], 0, since_bytes=0, next_offset=0, **wanted
    )
    rest, *_ = kernel.entry_spans(entries, end, since_bytes=left, next_offset=offset, **wanted)
    whole, *_ = kernel.entry_spans(entries, 0, since_bytes=0, next_offset=0, **wanted)
    made = [
        kernel.time_blocks(array("q", rows), block_bytes=block_bytes, whole=True)
        for rows in (first + rest, whole)
    ]
    assert made[0][0] == made[1][0]


@FORMS
def test_rows_end_in_front_of_what_is_not_simply_there(form: Any) -> None:
    records = [NewRecord(b"v" * 40, timestamp_ms=number) for number in range(9)]
    good = bytes(build_set(records[:3], magic=1))
    wanted = {"block_bytes": 65_536, "since_bytes": 0, "check_crc": True}
    for codec, magic in ((Codec.GZIP, 1), (Codec.SNAPPY, 2)):
        opened = bytes(build_set(records, magic=magic, codec=codec, base_offset=3))
        _, end, next_offset, _ = form.entry_spans(good + opened, 0, next_offset=0, **wanted)
        assert (end, next_offset) == (len(good), 3)
    flipped = bytearray(good)
    flipped[-1] ^= 1
    rows, end, next_offset, left = form.entry_spans(flipped, 0, next_offset=0, **wanted)
    assert (end, next_offset, left) == (2 * len(good) // 3, 2, 2 * len(good) // 3)
    assert list(array("q", rows)) == [0, 0, 0, 0, 1, 1, end, 2, 1, 1, 1, 1]
    assert form.entry_spans(good, 0, next_offset=1, **wanted) == (b"", 0, 1, 0)
    with pytest.raises(ValueError, match="no place in a buffer"):
        form.entry_spans(good, len(good) + 1, next_offset=0, **wanted)
