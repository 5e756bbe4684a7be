"""Sets out of messages, and columns out of sets, against a decoder of obvious steps."""

import zlib
from array import array
from collections.abc import Iterable
from itertools import pairwise
from struct import pack
from typing import Any, TypeVar

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from horolog.protocol.errors import CorruptMessage, HorologError, UnsupportedForMessageFormat
from horolog.protocol.records.binary import BinaryColumn
from horolog.protocol.records.columns import CONTENT, Columns, Content, read_columns
from horolog.protocol.records.kernel import Gathered, SetEncoder, gather, reference, stamp
from horolog.protocol.records.layout import MESSAGE_CODECS, Buffer, Codec, TimestampType
from horolog.protocol.records.messages.sets import (
    NewRecord,
    build_columns,
    build_set,
    build_wrapper,
    entries,
    records,
    set_append_time,
    set_offset,
)
from horolog.tests.properties.examples import examples

T = TypeVar("T")

INT64_MAX = 2**63 - 1
MIB = 1 << 20

contents = st.one_of(st.none(), st.binary(max_size=40), st.just(bytes(700)))
messages = st.tuples(contents, contents, st.integers(-1, INT64_MAX))
TYPES = {TimestampType.CREATE_TIME: 0, TimestampType.LOG_APPEND_TIME: 1, None: -1}


def plainly(offset: int, magic: int, value: bytes | None, key: bytes | None, time: int) -> bytes:
    body = pack(">BB", magic, 0) + (pack(">q", time) if magic else b"")
    for content in (key, value):
        body += pack(">i", -1 if content is None else len(content)) + (content or b"")
    return pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


@examples(100)
@given(st.lists(messages, max_size=12), st.integers(0, 1), st.integers(0, 2**62))
def test_a_set_is_its_messages_one_after_the_other(
    sent: list[tuple[bytes | None, bytes | None, int]], magic: int, first: int
) -> None:
    encoder = SetEncoder(magic, first)
    expected = b""
    for offset, (value, key, time) in enumerate(sent, first):
        time_ms = time if magic else -1
        encoder.add(value, key, time_ms)
        expected += plainly(offset, magic, value, key, time_ms)
    assert encoder.finish() == expected
    assert encoder.finish() == b""
    encoder.add(b"more", None, -1)
    assert encoder.finish() == plainly(first + len(sent), magic, b"more", None, -1)


@pytest.mark.parametrize("holder", [bytes, bytearray, memoryview])
def test_contents_come_in_any_holder_of_bytes(holder: type[Buffer]) -> None:
    encoder = SetEncoder()
    encoder.add(holder(b"value"), holder(b"key"), 5)
    assert encoder.finish() == plainly(0, 1, b"value", b"key", 5)


@pytest.mark.parametrize("wrong", [5, "text", [1]])
def test_what_is_not_bytes_is_refused(wrong: bytes) -> None:
    for value, key in ((wrong, None), (b"v", wrong)):
        with pytest.raises(TypeError):
            SetEncoder().add(value, key, 5)


@pytest.mark.parametrize("time", [-2, -(2**63), 2**63, -(2**80), 2**80])
def test_times_that_cannot_be_are_refused(time: int) -> None:
    encoder = SetEncoder()
    with pytest.raises(ValueError, match=f"^timestamp {time}: "):
        encoder.add(b"v", None, time)
    encoder.add(b"v", None, INT64_MAX)
    assert encoder.finish() == plainly(0, 1, b"v", None, INT64_MAX)


def test_v0_has_no_place_for_a_time_and_v2_is_not_built() -> None:
    with pytest.raises(ValueError, match="magic 0 cannot carry one"):
        SetEncoder(0).add(b"v", None, 0)
    with pytest.raises(ValueError, match="magic 2"):
        SetEncoder(2)


def test_columns_become_the_set_that_records_do() -> None:
    sent = [NewRecord(b"a", b"k", 5), NewRecord(None, None, 6), NewRecord(b"", b"", -1)]
    values, keys = [r.value for r in sent], [r.key for r in sent]
    times = [r.timestamp_ms for r in sent]
    assert build_columns(values, times, keys, base_offset=7) == build_set(sent, base_offset=7)
    without = [NewRecord(r.value, None, r.timestamp_ms) for r in sent]
    assert build_columns(values, times) == build_set(without)
    with pytest.raises(ValueError, match="zip"):
        build_columns(values, times[1:])


@pytest.mark.parametrize("magic", [0, 1])
def test_columns_in_part(magic: int) -> None:
    """What comes before the wrong one is added, and what comes then goes on behind it."""
    values = [b"a", None, bytearray(b"bc"), b"", b"d", b"e"]
    times = [5, 6, 7, -1, 2**63 - 1, 2**63] if magic else [-1, -1, -1, -1, -1, 5]
    together, single = SetEncoder(magic, 3), SetEncoder(magic, 3)
    with pytest.raises(ValueError, match="timestamp"):
        together.add_columns(values, None, times)
    with pytest.raises(ValueError, match="zip"):
        together.add_columns([b"last", b"without a time"], None, [-1])
    for value, time_ms in zip([*values[:5], b"last"], [*times[:5], -1], strict=True):
        single.add(value, None, time_ms)
    assert together.finish() == single.finish()


# Append times


@examples(100)
@given(st.lists(messages, min_size=1, max_size=6), st.integers(0, INT64_MAX), st.data())
def test_stamping_a_set_is_stamping_each_message(
    sent: list[tuple[bytes | None, bytes | None, int]], now_ms: int, data: st.DataObject
) -> None:
    stored = build_set([NewRecord(*one) for one in sent])
    ends = [0, *(entry.end for entry in entries(stored))]
    first = data.draw(st.integers(0, len(sent)))
    expected = bytearray(stored)
    for start, end in pairwise(ends[first:]):
        set_append_time(expected, start, end - start - 12, now_ms)
    stamp(stored, ends[first], len(stored), now_ms)
    assert stored == expected


@pytest.mark.parametrize(
    ("spoiled", "why"),
    [
        (build_set([NewRecord(b"v")], magic=0), "no good v1 message"),
        (build_set([NewRecord(b"v")], codec=Codec.GZIP), "compressed"),
        (build_set([NewRecord(b"v")])[:-1], "no good v1 message"),
        (build_set([NewRecord(b"v")])[:5], "no good v1 message"),
    ],
    ids=["v0", "wrapper", "cut", "head-cut"],
)
def test_only_plain_v1_messages_are_stamped(spoiled: bytearray, why: str) -> None:
    good = build_set([NewRecord(b"v", None, 5)])
    data = good + spoiled
    with pytest.raises(ValueError, match=f"byte 35 is {why}"):
        stamp(data, 0, len(data), 70)
    assert data[35:] == spoiled
    with pytest.raises(ValueError, match="in a buffer of"):
        stamp(data, 0, len(data) + 1, 70)
    with pytest.raises(TypeError, match="read-only"):
        stamp(memoryview(bytes(good)), 0, len(good), 70)


# Columns out of sets


def strings(offsets: Buffer, data: Buffer, valid: Buffer | None) -> list[bytes | None]:
    ends = array("i", bytes(offsets))
    present = [valid is None or bool(valid[n >> 3] >> (n & 7) & 1) for n in range(len(ends) - 1)]
    return [
        bytes(data[ends[n] : ends[n + 1]]) if there else None for n, there in enumerate(present)
    ]


def rows(found: Columns) -> list[tuple[int, int, int, bytes | None, bytes | None]]:
    columns = []
    for column in (found.keys, found.values):
        assert isinstance(column, BinaryColumn)
        columns.append(strings(column.offsets, column.data, column.valid))
        assert columns[-1].count(None) == column.nulls
        assert (column.valid is None) == (column.nulls == 0)
    numbers = [array("q", bytes(numbers)) for numbers in (found.offsets, found.timestamps)]
    types = array("b", bytes(found.timestamp_types))
    assert found.count == len(types)
    return list(zip(*numbers, types, *columns, strict=True))


def of_records(data: Buffer, from_offset: int) -> list[object]:
    found = records(data, max_decompressed_bytes=MIB, from_offset=from_offset)
    return [(r.offset, r.timestamp_ms, TYPES[r.timestamp_type], r.key, r.value) for r in found]


@examples(100)
@given(data=st.data())
def test_columns_hold_what_records_give(data: st.DataObject) -> None:
    stored, offset = bytearray(), 0
    for _ in range(data.draw(st.integers(0, 4))):
        sent = [NewRecord(*one) for one in data.draw(st.lists(messages, min_size=1, max_size=9))]
        magic = data.draw(st.integers(0, 1))
        if not magic:
            sent = [NewRecord(record.value, record.key) for record in sent]
        codec = data.draw(st.sampled_from(MESSAGE_CODECS))
        made = build_set(sent, magic=magic, codec=codec, base_offset=offset)
        if magic and data.draw(st.booleans()):
            set_append_time(made, 0, int.from_bytes(made[8:12], "big"), 77)
        stored += made
        offset += len(sent)
    from_offset = data.draw(st.integers(0, 40))
    pieces = read_columns(stored, max_decompressed_bytes=MIB, from_offset=from_offset)
    assert [row for piece in pieces for row in rows(piece)] == of_records(stored, from_offset)


@examples(200)
@given(
    sent=st.lists(messages, min_size=1, max_size=6),
    spoiled=st.lists(st.tuples(st.integers(0, 9999), st.integers(1, 15)), max_size=3),
    from_offset=st.integers(0, 3),
)
def test_columns_of_a_damaged_set_end_where_its_records_do(
    sent: list[Any], spoiled: list[tuple[int, int]], from_offset: int
) -> None:
    data = build_set([NewRecord(*one) for one in sent])
    for at, bits in spoiled:
        data[at % len(data)] ^= bits
    pieces = read_columns(data, max_decompressed_bytes=MIB, from_offset=from_offset)
    given, why = until_error(row for piece in pieces for row in rows(piece))
    read = records(data, max_decompressed_bytes=MIB)
    expected, wanted_why = until_error(
        (one.offset, one.timestamp_ms, TYPES[one.timestamp_type], one.key, one.value)
        for one in read
    )
    assert given == [row for row in expected if row[0] >= from_offset]
    assert why == wanted_why


def until_error(found: Iterable[T]) -> tuple[list[T], str]:
    taken: list[T] = []
    try:
        taken.extend(found)
    except HorologError as error:
        return taken, error.message
    return taken, ""


@examples(100)
@given(
    sent=st.lists(messages, min_size=1, max_size=9),
    magic=st.integers(0, 2),
    codec=st.sampled_from(MESSAGE_CODECS),
    content=st.sets(st.sampled_from(sorted(CONTENT))),
)
def test_columns_left_out_are_null_and_the_others_as_they_were(
    sent: list[Any], magic: int, codec: Codec, content: set[Content]
) -> None:
    # They would be 2**63 apart, which a batch cannot say.
    assume(magic < 2 or sent[0][2] != -1 or all(time != INT64_MAX for _, _, time in sent))
    headers = (("h", b"1"),) if magic == 2 else ()
    new = [NewRecord(v, k, t if magic else -1, headers) for v, k, t in sent]
    data = build_set(new, magic=magic, codec=codec, base_offset=0)
    full = list(read_columns(data, max_decompressed_bytes=MIB))
    some = list(read_columns(data, max_decompressed_bytes=MIB, content=content))
    assert [piece.count for piece in some] == [piece.count for piece in full]
    for whole, part in zip(full, some, strict=True):
        for name in ("offsets", "timestamps", "timestamp_types"):
            assert getattr(part, name) == getattr(whole, name)
        for name, found, wanted in (
            ("keys", part.keys, whole.keys),
            ("values", part.values, whole.values),
        ):
            if name in content:
                assert found == wanted
            else:
                assert strings(found.offsets, found.data, found.valid) == [None] * part.count
                assert (found.nulls, len(found.data)) == (part.count, 0)
        assert part.headers == (whole.headers if "headers" in content else None)


def test_the_times_of_a_stamped_wrapper_are_its_own() -> None:
    inner = build_set([NewRecord(b"a", None, 5), NewRecord(b"b", b"k", 6)])
    wrapper = build_wrapper(
        inner, offset=11, timestamp_ms=70, magic=1, codec=Codec.GZIP, append_time=True
    )
    (found,) = read_columns(wrapper, max_decompressed_bytes=MIB)
    assert rows(found) == [(10, 70, 1, None, b"a"), (11, 70, 1, b"k", b"b")]


def test_columns_stop_where_records_do() -> None:
    data = build_set([NewRecord(b"a", None, 5)] * 2)
    data[-1] ^= 1
    pieces = read_columns(data, max_decompressed_bytes=MIB)
    assert next(pieces).count == 1
    with pytest.raises(CorruptMessage):
        next(pieces)
    data[35 + 16] = 3
    with pytest.raises(UnsupportedForMessageFormat):
        list(read_columns(data, max_decompressed_bytes=MIB))
    data = build_set([NewRecord(b"a", None, 5)])
    set_offset(data, 0, INT64_MAX)
    with pytest.raises(CorruptMessage, match="offset 9223372036854775807"):
        list(read_columns(data, max_decompressed_bytes=MIB))


# Bytes that no walk has passed


def outcome(
    gathering: object,
    data: bytes,
    start: int,
    end: int,
    count: int,
    wanted: tuple[bool, bool, bool] = (True, True, False),
) -> dict[str, object] | str:
    assert callable(gathering)
    try:
        found = gathering(
            data,
            start,
            end,
            count,
            from_offset=-INT64_MAX,
            with_keys=wanted[0],
            with_values=wanted[1],
            check_crc=wanted[2],
        )
    except ValueError as error:
        return str(error)
    return {name: getattr(found, name) for name in dir(Gathered) if not name.startswith("_")}


@examples(400)
@given(
    sent=st.lists(messages, min_size=1, max_size=4),
    spoiled=st.lists(st.tuples(st.integers(0, 200), st.sampled_from([0, 1, 127, 128, 255]))),
    window=st.tuples(st.integers(-2, 60), st.integers(-2, 300), st.integers(-1, 6)),
    whole=st.booleans(),
    wanted=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_both_forms_make_the_same_of_any_bytes(
    sent: list[tuple[bytes | None, bytes | None, int]],
    spoiled: list[tuple[int, int]],
    window: tuple[int, int, int],
    whole: bool,
    wanted: tuple[bool, bool, bool],
) -> None:
    data = build_set([NewRecord(*one) for one in sent])
    for at, byte in spoiled:
        data[at % len(data)] = byte
    if whole:
        window = (0, len(data), len(sent))
    found = outcome(gather, bytes(data), *window, wanted)
    assert found == outcome(reference.gather, bytes(data), *window, wanted)
