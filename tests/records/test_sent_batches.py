"""Usual batches, many at a time: what `check_batch` and `set_times_in_place` make of each."""

from itertools import accumulate
from struct import pack_into

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.errors import HorologError
from horolog.protocol.records.batches.batch import (
    CheckedBatch,
    build_batch,
    check_batch,
    finish_batch,
    read_header,
    set_base_offset,
    set_times_in_place,
    write_header,
)
from horolog.protocol.records.kernel import RecordEncoder, UsualBatches, check_usual, stamp_batches
from horolog.protocol.records.latency import LatencyCounts
from horolog.protocol.records.layout import BATCH_OVERHEAD, Codec
from horolog.protocol.records.record import NewRecord
from horolog.tests.properties.examples import examples

NOW_MS = 1_700_000_000_000
FIELDS = [name for name in dir(UsualBatches) if not name.startswith("_")]


def batch(
    *timestamps_ms: int,
    producer: tuple[int, int, int] = (-1, -1, -1),
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
) -> bytearray:
    encoder = RecordEncoder()
    for timestamp_ms in timestamps_ms:
        encoder.add(b"value", b"key", timestamp_ms, (("h", None),))
    producer_id, epoch, sequence = producer
    return finish_batch(
        encoder,
        codec=codec,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


times = st.one_of(st.integers(NOW_MS - 10**6, NOW_MS + 5), st.sampled_from([-1, -1, 0, 2**62]))
producers = st.sampled_from([(-1, -1, -1)] * 3 + [(7, 0, 0), (2**40, 3, 2**31 - 1), (7, -1, 0)])


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """One batch, mostly good, that a walk would pass."""
    made = batch(
        *draw(st.lists(times, min_size=1, max_size=4)),
        producer=draw(producers),
        codec=draw(st.sampled_from([Codec.NONE] * 7 + [Codec.GZIP])),
        base_offset=draw(st.integers(0, 2**40)),
    )
    spoiled = draw(st.sampled_from([None] * 9 + ["max", "base", "bits", "count", "record"]))
    header = read_header(made)
    if spoiled == "max":
        write_header(made, header._replace(max_timestamp_ms=draw(times)))
    elif spoiled == "base":
        base_ms = draw(st.sampled_from([-(2**63), -2, -1, 2**63 - 1]))
        write_header(made, header._replace(base_timestamp_ms=base_ms))
    elif spoiled == "bits":
        bit = draw(st.sampled_from([8, 16, 32, 64, 0x4000]))
        write_header(made, header._replace(attributes=header.attributes | bit))
    elif spoiled == "count":
        more = header.record_count + 1
        write_header(made, header._replace(record_count=more, last_offset_delta=more - 1))
    elif spoiled == "record":
        place = draw(st.integers(BATCH_OVERHEAD, len(made) - 1))
        made[place] ^= draw(st.integers(1, 255))
        write_header(made, header)
    return bytes(made)


set_lists = st.lists(
    st.one_of(batches(), st.lists(batches(), min_size=2, max_size=3).map(b"".join)),
    min_size=1,
    max_size=4,
)


def opened(sent: bytes) -> list[CheckedBatch] | None:
    """The batches of a set if all are usual."""
    found: list[CheckedBatch] = []
    at = 0
    while at < len(sent):
        if read_header(sent, at).attributes:
            return None
        try:
            found.append(check_batch(sent, at, max_decompressed_bytes=1, now_ms=NOW_MS))
        except HorologError:
            return None
        at += found[-1].header.size_bytes
    if len(found) > 1 and any(one.header.producer_id != -1 for one in found):
        return None
    return found


@examples(600)
@given(set_lists)
def test_many_are_checked_as_each_would_be(sets: list[bytes]) -> None:
    found = check_usual(b"".join(sets), list(accumulate(map(len, sets))), NOW_MS)
    each = [opened(sent) for sent in sets]
    if found is None:
        assert None in each
        return
    checked = [one for of_set in each if of_set is not None for one in of_set]
    assert None not in each
    assert found.first_offsets == [read_header(sent).base_offset for sent in sets]
    assert found.true_times == all(
        one.max_timestamp_ms == one.header.max_timestamp_ms for one in checked
    )
    timed = [one for one in checked if one.untimed < one.header.record_count]
    assert found.min_timestamp_ms == min((one.min_timestamp_ms for one in timed), default=-1)
    assert found.max_timestamp_ms == max((one.max_timestamp_ms for one in timed), default=-1)
    assert found.numbered == [
        (number, head.producer_id, head.producer_epoch, head.base_sequence, head.record_count)
        for number, head in enumerate(map(read_header, sets))
        if head.producer_id != -1
    ]
    if found.min_timestamp_ms >= -1:
        latency = LatencyCounts()
        for one in checked:
            assert one.latency is not None
            latency.add(one.latency)
        assert found.latency == latency


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\0" * 60,
        bytes(batch(1))[:-1],
        bytes(batch(1)) + b"\0",
        bytes(batch(1)).replace(b"\2", b"\1", 1),
    ],
    ids=["empty", "too short", "cut off", "more behind it", "a message"],
)
def test_what_no_walk_has_passed_is_not_usual(sent: bytes) -> None:
    good = bytes(batch(1))
    whole = good + sent + good
    ends = list(accumulate(map(len, (good, sent, good))))
    assert check_usual(whole, ends, NOW_MS) is None
    assert check_usual(good, [len(good) + 1], NOW_MS) is None


@pytest.mark.parametrize("size", [-(2**31), -13, -12, 0, 48, 2**31 - 1])
def test_a_size_that_leads_nowhere(size: int) -> None:
    data = batch(1)
    end = len(data)
    pack_into(">i", data, 8, size)
    before = bytes(data)
    assert check_usual(data, [end], NOW_MS) is None
    stamp_batches(data, end, NOW_MS)
    assert data == before


@examples(100)
@given(st.lists(st.lists(times, min_size=1, max_size=5), max_size=4), st.integers(0, 2**62))
def test_many_are_stamped_as_each_would_be(sent: list[list[int]], stamp_ms: int) -> None:
    each = [build_batch([NewRecord(b"v", None, at) for at in one]) for one in sent]
    together = bytearray().join(each) + b"\xff"
    stamp_batches(together, len(together) - 1, stamp_ms)
    for one in each:
        set_times_in_place(one, 0, stamp_ms, append_time=True)
    assert together == bytearray().join(each) + b"\xff"


def test_what_cannot_be_stamped() -> None:
    data = batch(1)
    with pytest.raises(TypeError, match="read-only"):
        stamp_batches(memoryview(bytes(data)), len(data), NOW_MS)
    with pytest.raises(IndexError):
        stamp_batches(data, len(data) + 1, NOW_MS)


def test_first_offsets_are_those_of_the_first_batches() -> None:
    sets = [batch(1) + batch(2), batch(3, 4)]
    for place, offset in ((0, 5), (len(batch(1)), 6)):
        set_base_offset(sets[0], place, offset)
    set_base_offset(sets[1], 0, 7)
    ends = [len(sets[0]), len(sets[0]) + len(sets[1])]
    found = check_usual(b"".join(sets), ends, NOW_MS)
    assert found is not None
    assert found.first_offsets == [5, 7]
