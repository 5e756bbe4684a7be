"""Record batches for readers that know only messages."""

from struct import pack_into

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.errors import CorruptMessage, MessageTooLarge
from horolog.protocol.records.batch import NewRecord, build_batch, set_times_in_place
from horolog.protocol.records.codecs.codec import compress
from horolog.protocol.records.kernel import crc32c
from horolog.protocol.records.layout import BATCH_CRC_AT, Buffer, Codec, TimestampType
from horolog.protocol.records.messages.downconversion import (
    PIECE_BYTES,
    DamagedSlice,
    Downconverted,
    downconversion,
    run,
)
from horolog.protocol.records.messages.sets import entries, records
from horolog.tests.properties.examples import examples

MIB = 1 << 20
new_records = st.builds(
    NewRecord,
    st.one_of(st.none(), st.binary(max_size=50)),
    st.one_of(st.none(), st.binary(max_size=9)),
    st.integers(-1, 2**41),
    st.sampled_from([(), (("h", b"x"),), (("h", None), ("g", b""))]),
)


def converted(
    data: Buffer,
    *,
    magic: int,
    max_bytes: int = MIB,
    max_content_bytes: int = MIB,
    from_offset: int = 0,
) -> Downconverted:
    steps = downconversion(
        data,
        max_bytes=max_bytes,
        max_content_bytes=max_content_bytes,
        magic=magic,
        from_offset=from_offset,
    )
    return run(steps)


def batch(*values: str, codec: Codec = Codec.NONE, base_offset: int = 0) -> bytearray:
    sent = [NewRecord(value.encode(), None, 5, (("h", b""),)) for value in values]
    return build_batch(sent, codec=codec, base_offset=base_offset)


def renewed(data: bytearray) -> bytearray:
    pack_into(">I", data, BATCH_CRC_AT, crc32c(data, 21, len(data)))
    return data


@examples(100)
@given(
    st.lists(
        st.tuples(
            st.lists(new_records, min_size=1, max_size=6),
            st.sampled_from(Codec),
            st.integers(0, 3),
            st.booleans(),
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([0, 1]),
    st.integers(0, 40),
)
def test_old_readers_get_the_same_messages(
    parts: list[tuple[list[NewRecord], Codec, int, bool]], magic: int, from_offset: int
) -> None:
    """From the offset on that they ask for, also where that is in the middle of a batch."""
    data, offset = bytearray(), 7
    for sent, codec, gap, stamped in parts:
        made = build_batch(sent, codec=codec, base_offset=offset)
        if stamped:
            set_times_in_place(made, 0, 9999, append_time=True)
        data += made
        offset += len(sent) + gap
    result = converted(data, magic=magic, from_offset=from_offset)
    stored = list(records(data, max_decompressed_bytes=MIB, from_offset=from_offset))
    found = list(records(result.data, max_decompressed_bytes=MIB))
    contents = [(r.offset, r.key, r.value) for r in stored]
    assert [(r.offset, r.key, r.value) for r in found] == contents
    if magic:
        times = [(r.timestamp_ms, r.timestamp_type) for r in stored]
        assert [(r.timestamp_ms, r.timestamp_type) for r in found] == times
    assert result.messages == len(stored)
    assert result.headers == sum(len(record.headers) for record in stored)
    assert result.used_bytes == len(data)
    wanted: list[Codec] = []
    offset = 7
    for sent, codec, gap, _ in parts:
        kept = len([one for one in range(offset, offset + len(sent)) if one >= from_offset])
        wanted += [Codec.GZIP if codec is Codec.ZSTD else codec] * (min(kept, 1) if codec else kept)
        offset += len(sent) + gap
    assert [entry.codec for entry in entries(result.data)] == wanted
    assert {entry.magic for entry in entries(result.data)} <= {magic}


@pytest.mark.parametrize("magic", [0, 1])
def test_marks_are_no_messages(magic: int) -> None:
    mark = batch("mark", base_offset=1)
    mark[22] |= 0x20
    data = batch("a") + renewed(mark) + batch("b", base_offset=2)
    result = converted(data, magic=magic)
    found = list(records(result.data, max_decompressed_bytes=MIB))
    assert [(r.offset, r.value) for r in found] == [(0, b"a"), (2, b"b")]
    assert (result.messages, result.used_bytes) == (2, len(data))
    only = converted(mark, magic=magic)
    assert (bytes(only.data), only.messages, only.used_bytes) == (b"", 0, len(mark))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_holes_stay(codec: Codec) -> None:
    """As a compaction leaves them: offset deltas 2 and 3 of a batch of five offsets."""
    data = batch("a", "b", base_offset=10)
    at = 61
    for delta in (2, 3):
        data[at + 3] = delta * 2
        at += 1 + (data[at] >> 1)
    pack_into(">i", data, 23, 4)
    if codec is not Codec.NONE:
        data[61:] = compress(codec, bytes(data[61:]), magic=2)
        data[22] |= codec
        pack_into(">i", data, 8, len(data) - 12)
    renewed(data)
    for magic in (0, 1):
        found = records(converted(data, magic=magic).data, max_decompressed_bytes=MIB)
        assert [(r.offset, r.value) for r in found] == [(12, b"a"), (13, b"b")]


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.label)
def test_batches_are_converted_whole(codec: Codec) -> None:
    data = batch("a" * 90, "b", codec=codec) + batch("c", codec=codec, base_offset=2)
    first = converted(data, magic=1, max_bytes=1)
    assert first.messages == 2
    rest = converted(data[first.used_bytes :], magic=1, max_bytes=1)
    assert (rest.messages, first.used_bytes + rest.used_bytes) == (1, len(data))
    assert converted(data, magic=1).messages == 3


def test_a_cut_batch_is_left_out() -> None:
    data = batch("a") + batch("b", base_offset=1)
    whole = len(batch("a"))
    assert converted(data[:-1], magic=1).used_bytes == whole
    cut = converted(data[: whole - 1], magic=1)
    assert (cut.data, cut.messages) == (data[: whole - 1], 0)


def test_what_is_wrong() -> None:
    good = batch("a", codec=Codec.GZIP)
    bad = batch("b", codec=Codec.GZIP, base_offset=1)
    bad[-1] ^= 1
    assert converted(good + bad, magic=1).used_bytes == len(good)
    with pytest.raises(DamagedSlice, match="CRC"):
        converted(bad, magic=1)
    renewed(bad)
    assert converted(good + bad, magic=0).used_bytes == len(good)
    with pytest.raises(CorruptMessage, match="gzip"):
        converted(bad, magic=1)
    large = batch("x" * 2000, codec=Codec.ZSTD, base_offset=1)
    assert converted(good + large, magic=1, max_content_bytes=1000).used_bytes == len(good)
    with pytest.raises(MessageTooLarge):
        converted(large, magic=1, max_content_bytes=1000)
    short = batch("a")
    short[61] += 2
    with pytest.raises(CorruptMessage, match="is not good"):
        converted(renewed(short), magic=1)


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.label)
@pytest.mark.parametrize("magic", [0, 1])
def test_nothing_from_below_the_offset_that_was_asked_for(codec: Codec, magic: int) -> None:
    """Behind the last record of a batch, whose last offset was compacted away, there is nothing."""
    data = batch("a", "b", "c", codec=codec, base_offset=10)
    pack_into(">i", data, 23, 4)
    renewed(data)
    for from_offset in range(10, 16):
        result = converted(data, magic=magic, from_offset=from_offset)
        found = list(records(result.data, max_decompressed_bytes=MIB))
        assert [r.offset for r in found] == list(range(from_offset, 13))
        assert (result.messages, result.headers) == (len(found), len(found))
        assert result.used_bytes == len(data)
    both = data + batch("d", codec=codec, base_offset=15)
    result = converted(both[:-1], magic=magic, from_offset=13)
    assert (bytes(result.data), result.messages, result.used_bytes) == (b"", 0, len(data))
    result = converted(both, magic=magic, from_offset=13, max_bytes=1)
    assert [r.offset for r in records(result.data, max_decompressed_bytes=MIB)] == [15]


def test_a_bad_record_is_named_wherever_it_is() -> None:
    data = batch("a", "b", "c")
    data[61 + 2 * (1 + (data[61] >> 1))] += 2
    renewed(data)
    for from_offset in range(3):
        with pytest.raises(CorruptMessage, match="is not good"):
            converted(data, magic=1, from_offset=from_offset)


def test_what_is_passed_over_comes_in_pieces() -> None:
    """The loop goes on while a large batch is passed over."""
    data = build_batch([NewRecord(b"v" * 1000) for _ in range(100)])
    steps = downconversion(data, max_bytes=MIB, max_content_bytes=MIB, magic=1, from_offset=99)
    assert len(list(steps)) >= 100_000 // PIECE_BYTES


def test_append_times_are_said_of_each_message() -> None:
    data = batch("a", "b")
    set_times_in_place(data, 0, 77, append_time=True)
    found = list(records(converted(data, magic=1).data, max_decompressed_bytes=MIB))
    kinds = {(r.timestamp_ms, r.timestamp_type) for r in found}
    assert kinds == {(77, TimestampType.LOG_APPEND_TIME)}
