"""Usual sets, many at a time: what `walk`, `check_batch` and `stamp` make of each."""

from array import array
from collections.abc import Sequence
from struct import pack_into
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from horolog.protocol.errors import HorologError
from horolog.protocol.records.batch import (
    CheckedBatch,
    NewRecord,
    build_batch,
    check_batch,
    finish_batch,
    read_header,
    set_times_in_place,
    write_header,
)
from horolog.protocol.records.kernel import (
    RecordEncoder,
    UnchangedSets,
    entry_spans,
    reference,
    stamp,
    take_unchanged,
    walk,
)
from horolog.protocol.records.kernel.terms import Offsets
from horolog.protocol.records.latency import LatencyCounts
from horolog.protocol.records.layout import BATCH_OVERHEAD, Codec
from horolog.protocol.records.marks import Marks
from horolog.protocol.records.messages.sets import build_set
from horolog.tests.properties.examples import examples

from . import unchanged_sets

NOW_MS = 1_700_000_000_000


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
    spoiled = draw(st.sampled_from([None] * 9 + ["max", "base", "bits", "count", "none", "record"]))
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
    elif spoiled == "none":
        write_header(made, header._replace(record_count=0))
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


def take(
    sets: Sequence[bytes | bytearray],
    *,
    magics: int = 0b111,
    append_time_ms: int = -1,
    lowest_ms: int = -(2**63),
    highest_ms: int = 2**63 - 1,
    entry_max_bytes: int = 2**31,
    room_bytes: int = 2**31,
    marks_max: int = 1000,
    interval_bytes: int = 100,
    close_ms: int = 0,
    block_bytes: int = 0,
    block_since_bytes: int = 0,
    keyed: bool = False,
) -> UnchangedSets | None:
    call = take_unchanged
    if call is reference.take_unchanged:  # It takes none.
        call = unchanged_sets.take_unchanged
    return call(
        list(sets),
        base_offset=100,
        now_ms=NOW_MS,
        magics=magics,
        append_time_ms=append_time_ms,
        lowest_ms=lowest_ms,
        highest_ms=highest_ms,
        entry_max_bytes=entry_max_bytes,
        room_bytes=room_bytes,
        marks_max=marks_max,
        interval_bytes=interval_bytes,
        since_bytes=0,
        largest_ms=-1,
        magic=-1,
        segment_offset=90,
        segment_position=1000,
        close_ms=close_ms,
        block_bytes=block_bytes,
        block_since_bytes=block_since_bytes,
        keyed=keyed,
    )


def taken(sets: Sequence[bytes | bytearray], *, keyed: bool = False, **limits: Any) -> int:
    """How many sets are taken."""
    found = take(sets, keyed=keyed, **limits)
    return 0 if found is None else len(found.first_offsets)


@example(
    # The first of two batches says no largest time.
    sets=[
        bytes.fromhex(
            "000000000000000000000043ffffffff024ca66dc70000000000000000018bcfd625c0ff"
            "ffffffffffffffffffffffffffffffffffffffffff0000000122000000066b65790a7661"
            "6c756502026801"
        ),
        bytes.fromhex(
            "000000000000000000000043ffffffff0267a22e5f0000000000000000018bcfd625c100"
            "00018bcfd625c1ffffffffffffffffffffffffffff0000000122000000066b65790a7661"
            "6c756502026801"
        ),
    ],
    append_time_ms=NOW_MS,
)
@examples(600)
@given(set_lists, st.sampled_from([-1, NOW_MS]))
def test_many_are_checked_as_each_would_be(sets: list[bytes], append_time_ms: int) -> None:
    found = take(sets, append_time_ms=append_time_ms)
    each = [opened(sent) for sent in sets]
    good = [
        of_set is not None
        and (
            append_time_ms >= 0
            or all(one.max_timestamp_ms == one.header.max_timestamp_ms for one in of_set)
        )
        for of_set in each
    ]
    usual = [*good, False].index(False)
    if found is None:
        assert usual == 0
        return
    checked = [one for of_set in each[:usual] for one in of_set or ()]
    offsets = [100]
    for of_set in each[:usual]:
        offsets.append(offsets[-1] + sum(one.header.record_count for one in of_set or ()))
    assert found.first_offsets == offsets[:-1]
    assert (found.count, found.last_offset) == (offsets[-1] - 100, offsets[-1] - 1)
    timed = [one for one in checked if one.untimed < one.header.record_count]
    assert found.min_timestamp_ms == min((one.min_timestamp_ms for one in timed), default=-1)
    newest = [append_time_ms] if append_time_ms >= 0 else [one.max_timestamp_ms for one in timed]
    assert found.max_timestamp_ms == max(newest, default=-1)
    if found.min_timestamp_ms >= -1:
        latency = LatencyCounts()
        for one in checked:
            assert one.latency is not None
            latency.add(one.latency)
        assert found.latency == latency


@examples(100)
@given(st.lists(st.lists(times, min_size=1, max_size=3), min_size=1, max_size=5), st.booleans())
def test_messages_are_stored_as_a_walk_and_a_stamp_make_them(
    sent: list[list[int]], stamped: bool
) -> None:
    sets = [bytes(build_set([NewRecord(b"v" * 50, None, at) for at in one])) for one in sent]
    found = take(sets, append_time_ms=NOW_MS if stamped else -1)
    assert found is not None
    whole = bytearray().join(sets)
    options: dict[str, Any] = {
        "interval_bytes": 100,
        "segment_offset": 90,
        "segment_position": 1000,
    }
    expected = walk(
        whole, 0, len(whole), offsets=Offsets.ASSIGN, base_offset=100, now_ms=NOW_MS, **options
    )
    assert found.latency == expected.latency
    if stamped:
        stamp(whole, 0, len(whole), NOW_MS)
        expected = walk(whole, 0, len(whole), **options)
    assert bytes(found.data) == whole
    for name in (
        "max_timestamp_ms",
        "max_offset",
        "first_timestamp_ms",
        "since_bytes",
        "magic_changes",
    ):
        assert getattr(found, name) == getattr(expected, name)
    for name in Marks.__slots__:
        assert getattr(found.marks, name) == getattr(expected.marks, name)


GOOD = bytes(batch(NOW_MS))
MESSAGE = bytes(build_set([NewRecord(b"v", None, NOW_MS)]))


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\0" * 60,
        GOOD[:-1],
        GOOD + b"\0",
        GOOD.replace(b"\2", b"\1", 1),
        GOOD + MESSAGE,
        MESSAGE + GOOD,
        MESSAGE + MESSAGE[:20],
        MESSAGE[:-1] + b"x",
        bytes(build_set([NewRecord(b"v", None, NOW_MS)], codec=Codec.GZIP)),
        bytes(batch(NOW_MS, codec=Codec.GZIP)),
        bytes(batch(NOW_MS, producer=(7, 0, 0)) + batch(NOW_MS)),
    ],
    ids=[
        *("empty", "too short", "cut off", "more behind it", "a format it is not"),
        *("a message behind a batch", "a batch behind a message", "cut off message", "crc"),
        *("wrapper", "compressed batch", "numbered with another"),
    ],
)
def test_what_is_not_usual_ends_the_sets(sent: bytes) -> None:
    assert taken([GOOD, MESSAGE, sent, GOOD]) == 2
    assert taken([sent, GOOD]) == 0
    assert taken([bytearray(sent)]) == 0


@pytest.mark.parametrize("good", [GOOD, MESSAGE], ids=["batch", "message"])
def test_the_limits(good: bytes) -> None:
    sets = [good] * 3
    size = len(good)
    assert taken(sets, room_bytes=3 * size) == 3
    assert taken(sets, room_bytes=3 * size - 1) == 2
    assert taken(sets, room_bytes=-1) == 0
    assert taken(sets, entry_max_bytes=size) == 3
    assert taken(sets, entry_max_bytes=size - 1) == 0
    assert taken(sets, lowest_ms=NOW_MS, highest_ms=NOW_MS) == 3
    assert taken(sets, lowest_ms=NOW_MS + 1) == 0
    assert taken(sets, highest_ms=NOW_MS - 1) == 0
    assert taken(sets, interval_bytes=0, marks_max=2) == 3
    assert taken([*sets, good], interval_bytes=0, marks_max=2) == 3, "no set behind the last mark"
    assert taken(sets, marks_max=0) == 0
    assert taken(sets, magics=0b111 & ~(1 << good[16])) == 0


@pytest.mark.parametrize("size", [-(2**31), -13, -12, 0, 48, 2**31 - 1])
def test_a_size_that_leads_nowhere(size: int) -> None:
    data = batch(1)
    pack_into(">i", data, 8, size)
    before = bytes(data)
    assert taken([bytes(data)]) == 0
    with pytest.raises(ValueError, match="no good v1 message or batch"):
        stamp(data, 0, len(data), NOW_MS)
    assert data == before


@examples(100)
@given(st.lists(st.lists(times, min_size=1, max_size=5), max_size=4), st.integers(0, 2**62))
def test_many_are_stamped_as_each_would_be(sent: list[list[int]], stamp_ms: int) -> None:
    each = [build_batch([NewRecord(b"v", None, at) for at in one]) for one in sent]
    together = bytearray().join(each) + b"\xff"
    stamp(together, 0, len(together) - 1, stamp_ms)
    for one in each:
        set_times_in_place(one, 0, stamp_ms, append_time=True)
    assert together == bytearray().join(each) + b"\xff"


@examples(200)
@given(
    st.lists(st.lists(times, min_size=1, max_size=40), min_size=1, max_size=6),
    st.sampled_from([1, 2]),
    st.sampled_from([-1, 0, 1_000]),
    st.sampled_from([100, 1_000, 65_536]),
    st.data(),
)
def test_their_spans_are_those_of_their_entries(
    sent: list[list[int]], magic: int, close_ms: int, block_bytes: int, data: st.DataObject
) -> None:
    """In rows, as they are found in what is stored, unless all times are close together."""
    each = [
        bytes(build_set([NewRecord(b"v" * 20, None, at) for at in one], magic=magic))
        for one in sent
    ]
    since = data.draw(st.integers(0, block_bytes - 1))
    block: dict[str, Any] = {"block_bytes": block_bytes, "block_since_bytes": since}
    found = take(each, lowest_ms=0, close_ms=close_ms, **block)
    if found is None:
        return
    assert take(each, lowest_ms=0).spans is None  # type: ignore[union-attr]
    stamped = take(each, append_time_ms=NOW_MS, **block)
    assert stamped is None or stamped.spans is None
    all_times = [at for one in sent[: len(found.first_offsets)] for at in one]
    timed = [at for at in all_times if at >= 0]
    close = close_ms >= 0 and (
        not timed or (len(timed) == len(all_times) and max(timed) - min(timed) <= close_ms)
    )
    assert found.spans is not None or len(found.data) > 16 * block_bytes
    if found.spans is None:
        return
    rows, first_offset, given, left = found.spans
    assert (first_offset, given) == (100, since)
    if close:
        row = (len(found.data), len(all_times), min(timed, default=-1), max(timed, default=-1))
        assert list(array("q", rows)) == [*row, len(all_times), 1]
        assert left == (since + len(found.data)) * (since + len(found.data) < block_bytes)
    else:
        of_entries = entry_spans(
            found.data,
            0,
            block_bytes=block_bytes,
            since_bytes=since,
            next_offset=100,
            check_crc=True,
        )
        assert (rows, left) == (of_entries[0], of_entries[3])


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize(("messages", "noted"), [(4_096, True), (4_097, False)])
def test_more_times_than_there_is_room_for_are_not_noted(
    magic: int, messages: int, noted: bool
) -> None:
    sent = build_set([NewRecord(b"", None, 5_000 * at) for at in range(messages)], magic=magic)
    found = take([bytes(sent)], interval_bytes=4_096, close_ms=1_000, block_bytes=65_536)
    assert found is not None
    assert (found.spans is not None) == (noted or isinstance(found, reference.UnchangedSets))


def test_a_set_that_is_not_taken_leaves_no_times() -> None:
    good, late = ([NewRecord(b"v", None, at) for at in some] for some in ((5, 9_000), (7, NOW_MS)))
    sets = [bytes(build_set(good)), bytes(build_set(late))]
    for block_bytes in (30, 50, 1_000):
        found = take(sets, highest_ms=10_000, close_ms=1_000, block_bytes=block_bytes)
        alone = take(sets[:1], close_ms=1_000, block_bytes=block_bytes)
        assert found is not None
        assert alone is not None
        assert found.spans == alone.spans is not None


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("place", [0, 1, 5, 999])
def test_where_messages_are_to_be_keyed_one_without_a_key_is_not_usual(
    magic: int, place: int
) -> None:
    """A key of no bytes is one; a message without a value has one too."""
    at_ms = NOW_MS if magic else -1
    keyed = [NewRecord(b"v", b"key", at_ms), NewRecord(None, b"", at_ms)] * 500
    without = [*keyed[:place], NewRecord(b"v", None, at_ms), *keyed[place:]]
    sets = [bytes(build_set(one, magic=magic)) for one in (keyed, keyed, without, keyed)]
    assert taken(sets, interval_bytes=10**6) == 4
    assert taken(sets, keyed=True, interval_bytes=10**6) == 2
    assert taken(sets[2:], keyed=True) == 0
    assert taken([bytearray(sets[2])], keyed=True) == 0
