"""Record batches: those that Kafka wrote, built ones, and what is refused."""

import json
from array import array
from dataclasses import replace
from pathlib import Path
from struct import pack_into
from typing import Any

import pytest

from horolog.protocol.errors import (
    CorruptMessage,
    HorologError,
    InvalidRecord,
    MessageTooLarge,
)
from horolog.protocol.records.batch import (
    NewRecord,
    Record,
    batch_records,
    build_batch,
    check_batch,
    find_in_batch,
    finish_batch,
    read_header,
    set_times_in_place,
)
from horolog.protocol.records.binary import BinaryColumn
from horolog.protocol.records.kernel import RecordEncoder, crc32c, varint
from horolog.protocol.records.latency import LatencyCounts
from horolog.protocol.records.layout import BATCH_OVERHEAD, Buffer, Codec, TimestampType
from horolog.testing.columns import binary_column

GOLDEN = Path(__file__).parent.parent / "golden" / "kafka-2.1"
TOPICS = sorted(path.parent.name for path in GOLDEN.glob("*/expected.json"))
LIMIT = 1 << 20
SENT = [
    NewRecord(b"value", b"key", 1000, (("a", b"1"), ("a", None), ("\u00e9", b""))),
    NewRecord(None, None, 3000),
    NewRecord(b"", b"", -1),
    NewRecord(bytes(300), b"k" * 70, 2000, (("", None),)),
    NewRecord(b"last", None, 3000),
]


def stored_batches(data: bytes) -> list[int]:
    """Where batches begin in a segment that may end with zeros."""
    found, position = [], 0
    while position < len(data):
        found.append(position)
        position += read_header(data, position).size_bytes
    return found


def records_of(data: Buffer, position: int = 0, from_offset: int = 0) -> list[Record]:
    given = batch_records(data, position, max_decompressed_bytes=LIMIT, from_offset=from_offset)
    return list(given)


def text(content: bytes | None) -> str | None:
    return None if content is None else content.decode()


@pytest.mark.parametrize("name", TOPICS)
def test_what_kafka_wrote_is_read_as_its_consumer_read_it(name: str) -> None:
    expected: dict[str, Any] = json.loads((GOLDEN / name / "expected.json").read_text())
    for state in ("clean", "killed"):
        messages = []
        for path in sorted((GOLDEN / name / state).glob("*.log")):
            data = path.read_bytes()
            for position in stored_batches(data):
                header = read_header(data, position)
                covered = crc32c(data, position + 21, position + header.size_bytes)
                assert covered == header.crc
                for record in records_of(data, position):
                    headers = [[name, text(content)] for name, content in record.headers]
                    found = [record.offset, record.timestamp_ms, text(record.key)]
                    messages.append([*found, text(record.value), headers])
        if messages or state == "clean":
            assert messages == expected["messages"]


@pytest.mark.parametrize("name", TOPICS)
def test_what_kafka_wrote_passes_the_check(name: str) -> None:
    data = b"".join(path.read_bytes() for path in sorted((GOLDEN / name / "clean").glob("*.log")))
    for position in stored_batches(data):
        header = read_header(data, position)
        if header.is_control:
            with pytest.raises(InvalidRecord, match="control batch"):
                check_batch(data, position, max_decompressed_bytes=LIMIT)
            assert records_of(data, position) == []
            continue
        checked = check_batch(data, position, max_decompressed_bytes=LIMIT, now_ms=0)
        assert checked.header == header
        if not header.is_append_time:
            assert checked.max_timestamp_ms == header.max_timestamp_ms
            times = [record.timestamp_ms for record in records_of(data, position)]
            assert checked.min_timestamp_ms == min(times)
            assert times.index(max(times)) == checked.max_delta


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.label)
def test_what_is_built_is_what_was_given(codec: Codec) -> None:
    batch = build_batch(SENT, codec=codec, base_offset=50)
    header = read_header(batch)
    assert header.size_bytes == len(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (50, 54, 5)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (1000, 3000)
    assert (header.codec, header.leader_epoch) == (codec, -1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert header.attributes == codec
    found = records_of(batch)
    assert [record.offset for record in found] == list(range(50, 55))
    assert {record.timestamp_type for record in found} == {TimestampType.CREATE_TIME}
    assert [NewRecord(r.value, r.key, r.timestamp_ms, r.headers) for r in found] == SENT
    assert records_of(batch, from_offset=53) == found[3:]
    assert records_of(batch, from_offset=55) == []


def test_the_bytes_of_a_batch() -> None:
    batch = build_batch([NewRecord(b"v", b"k", 1000, (("h", b"x"),))], base_offset=7)
    record = "00 00 00 02 6b 02 76 02 02 68 02 78"
    expected = bytes.fromhex(
        "0000000000000007 0000003e ffffffff 02 00000000 0000 00000000 00000000000003e8"
        " 00000000000003e8 ffffffffffffffff ffff ffffffff 00000001 18" + record
    )
    assert batch[:17] + bytes(4) + batch[21:] == expected
    assert int.from_bytes(batch[17:21], "big") == crc32c(expected, 21, len(expected))


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_varints(number: int, written: str) -> None:
    assert varint(number).hex() == written


def test_a_batch_of_nothing_is_empty() -> None:
    assert build_batch([]) == b""


def test_times_in_place() -> None:
    batch = build_batch(SENT, base_offset=50)
    content = batch[BATCH_OVERHEAD:]
    batch[:8] = (1000).to_bytes(8, "big")
    assert read_header(batch).crc == crc32c(batch, 21, len(batch))
    set_times_in_place(batch, 0, 9999, append_time=True)
    header = read_header(batch)
    assert header.crc == crc32c(batch, 21, len(batch))
    assert (header.is_append_time, header.max_timestamp_ms) == (True, 9999)
    assert batch[BATCH_OVERHEAD:] == content
    found = records_of(batch)
    assert [record.offset for record in found] == list(range(1000, 1005))
    assert {record.timestamp_ms for record in found} == {9999}
    assert {record.timestamp_type for record in found} == {TimestampType.LOG_APPEND_TIME}
    set_times_in_place(batch, 0, 3000, append_time=False)
    assert [record.timestamp_ms for record in records_of(batch)] == [1000, 3000, -1, 2000, 3000]
    assert read_header(batch).crc == crc32c(batch, 21, len(batch))


def test_columns_become_the_batch_that_records_do() -> None:
    values, keys, times = [b"a", None, b""], [b"k", None, b""], [5, 6, -1]
    for column in (keys, None):
        single, together = RecordEncoder(), RecordEncoder()
        for row, (value, time_ms) in enumerate(zip(values, times, strict=True)):
            single.add(value, None if column is None else column[row], time_ms)
        together.add_columns(values, column, times)
        assert finish_batch(together) == finish_batch(single)
        with pytest.raises(ValueError, match="zip"):
            together.add_columns(values, column, times[1:])


@pytest.mark.parametrize("limit", [1, 200, 500, 100_000])
def test_binary_columns_become_the_batches_that_records_do(limit: int) -> None:
    """As `add`, and cut before what might not fit."""
    values = [None if n % 7 == 3 else bytes([n]) * (n * 5 % 90) for n in range(60)]
    keys = [None if n % 4 == 1 else b"k" * (n % 5) for n in range(60)]
    times = array("q", [1000 - n for n in range(60)])
    for column in (keys, None):
        wanted, single = [], RecordEncoder()
        for row, value in enumerate(values):
            key = None if column is None else column[row]
            if (
                single.count
                and single.size_bytes + 36 + len(value or b"") + len(key or b"") > limit
            ):
                wanted.append(finish_batch(single))
            single.add(value, key, times[row])
        wanted.append(finish_batch(single))
        given_keys = None if column is None else binary_column(column)
        found, together, start = [], RecordEncoder(), 0
        while start < len(values):
            start = together.add_binary(
                binary_column(values), given_keys, times.tobytes(), start=start, limit_bytes=limit
            )
            found.append(finish_batch(together))
        assert found == wanted


def test_a_binary_column_behind_other_records() -> None:
    single, together = RecordEncoder(), RecordEncoder()
    for encoder in (single, together):
        encoder.add(b"first", b"k", 5, [("h", b"1")])
    for value in (b"a", b"b"):
        single.add(value, None, 6)
    times = array("q", [6, 6])
    column = binary_column([b"a", b"b"])
    assert together.add_binary(column, None, times.tobytes(), start=0, limit_bytes=1 << 20) == 2
    assert finish_batch(together) == finish_batch(single)


GOOD = binary_column([b"a", b"bc"])


@pytest.mark.parametrize(
    ("values", "keys", "times_ms", "start", "told"),
    [
        (GOOD, binary_column([b"k"]), [1, 2], 0, "there are 2"),
        (GOOD, None, [1], 0, "there are 2"),
        (GOOD, None, [1, 2, 3], 0, "there are 2"),
        (GOOD, None, [1, 2], 3, "row 3 of 2"),
        (GOOD, None, [1, 2], -1, "row -1 of 2"),
        (GOOD, None, [1, -2], 0, "timestamp -2"),
        (replace(GOOD, data=b"ab"), None, [1, 2], 0, "row 1"),
        (replace(GOOD, offsets=array("i", [0, 2, 1]).tobytes()), None, [1, 2], 0, "row 1"),
        (replace(GOOD, offsets=array("i", [-1, 1, 2]).tobytes()), None, [1, 2], 0, "row 0"),
        (replace(GOOD, offsets=b""), None, [], 0, "too short"),
        (replace(GOOD, valid=b""), None, [1, 2], 0, "too short"),
    ],
)
def test_binary_columns_that_cannot_be(
    values: BinaryColumn, keys: BinaryColumn | None, times_ms: list[int], start: int, told: str
) -> None:
    given = array("q", times_ms).tobytes()
    with pytest.raises(ValueError, match=told):
        RecordEncoder().add_binary(values, keys, given, start=start, limit_bytes=1000)


def test_an_append_time_at_building() -> None:
    encoder = RecordEncoder()
    encoder.add(b"v", None, 5)
    batch = finish_batch(
        encoder, append_time_ms=77, producer_id=9, producer_epoch=1, base_sequence=3
    )
    header = read_header(batch)
    assert (header.is_append_time, header.max_timestamp_ms, header.base_timestamp_ms) == (
        True,
        77,
        5,
    )
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 3)


def found_by_time(batch: Buffer, target_ms: int, from_offset: int = 0) -> tuple[int, int] | None:
    return find_in_batch(batch, 0, target_ms, max_decompressed_bytes=LIMIT, from_offset=from_offset)


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.label)
def test_the_first_record_of_a_time(codec: Codec) -> None:
    batch = build_batch(SENT, codec=codec, base_offset=50)
    assert found_by_time(batch, 0) == (50, 1000)
    assert found_by_time(batch, 1001) == (51, 3000)
    assert found_by_time(batch, 3000, from_offset=52) == (54, 3000)
    assert found_by_time(batch, 1, from_offset=52) == (53, 2000)
    assert found_by_time(batch, 3001) is None
    assert found_by_time(batch, 0, from_offset=55) is None
    set_times_in_place(batch, 0, 9999, append_time=True)
    assert found_by_time(batch, 9999) == (50, 9999)
    assert found_by_time(batch, 9999, from_offset=52) == (52, 9999)
    assert found_by_time(batch, 10_000) is None


def test_a_search_does_not_open_a_batch_that_ends_too_early() -> None:
    batch = build_batch(SENT, codec=Codec.ZSTD)
    batch[BATCH_OVERHEAD:] = bytes(len(batch) - BATCH_OVERHEAD)
    assert found_by_time(batch, 3001) is None
    with pytest.raises(CorruptMessage, match="zstd"):
        found_by_time(batch, 3000)


def test_latency_is_counted_from_the_records() -> None:
    checked = check_batch(build_batch(SENT), max_decompressed_bytes=LIMIT, now_ms=2500)
    assert isinstance(checked.latency, LatencyCounts)
    assert (checked.latency.timed, checked.latency.untimed, checked.latency.skewed) == (4, 1, 2)
    assert (checked.latency.sum_ms, checked.latency.max_ms) == (2000, 1500)
    assert (checked.min_timestamp_ms, checked.max_timestamp_ms) == (1000, 3000)
    assert (checked.max_delta, checked.untimed) == (1, 1)
    assert check_batch(build_batch(SENT), max_decompressed_bytes=LIMIT).latency is None


def changed(width: str, at: int, number: int) -> bytearray:
    batch = build_batch(SENT, base_offset=0)
    pack_into(f">{width}", batch, at, number)
    return batch


CONTENT_AT = BATCH_OVERHEAD


@pytest.mark.parametrize(
    ("batch", "error", "text"),
    [
        (changed("i", 57, 0), InvalidRecord, "says that it holds 0 records"),
        (changed("i", 57, 4), CorruptMessage, "says that it holds 4 records"),
        (changed("i", 57, 2**31 - 1), CorruptMessage, "it holds 5"),
        (changed("i", 57, -1), CorruptMessage, "holds -1 records"),
        (changed("i", 23, 5), CorruptMessage, "offset delta is 5"),
        (changed("h", 21, 0x20), InvalidRecord, "control batch"),
        (changed("h", 21, 7), CorruptMessage, "codec 7; known are 1 to 4"),
        (changed("h", 21, 4), CorruptMessage, "zstd"),
        (changed("q", 43, 5), InvalidRecord, "producer id 5, epoch -1"),
        (changed("q", 43, -2), InvalidRecord, "producer id -2"),
        (changed("b", 16, 1), CorruptMessage, "magic 1"),
        (changed("b", 16, 3), CorruptMessage, "magic 3"),
        (changed("i", 8, 48), CorruptMessage, "48 bytes; the smallest has 49"),
        (changed("i", 8, 2**31 - 1), CorruptMessage, "says that it has 2147483647 bytes"),
        (changed("B", CONTENT_AT, 0x0A), CorruptMessage, "record 0, at byte 0 .* its length"),
        (changed("B", CONTENT_AT, 0xFE), CorruptMessage, "record 0"),
        (changed("q", 27, 2**63 - 1), CorruptMessage, "record 1.*does not fit into 64 bits"),
        (build_batch(SENT)[:60], CorruptMessage, "incomplete: 60 bytes"),
        (build_batch(SENT)[:-1], CorruptMessage, "says that it has"),
    ],
)
def test_what_a_producer_may_not_send(
    batch: bytearray, error: type[HorologError], text: str
) -> None:
    with pytest.raises(error, match=text):
        check_batch(batch, max_decompressed_bytes=LIMIT)


@pytest.mark.parametrize("codec", list(Codec)[1:], ids=lambda codec: codec.label)
def test_a_bomb_is_not_unpacked(codec: Codec) -> None:
    batch = build_batch([NewRecord(bytes(100_000))], codec=codec)
    with pytest.raises(MessageTooLarge, match="99999 bytes"):
        check_batch(batch, max_decompressed_bytes=99_999)
    check_batch(batch, max_decompressed_bytes=100_100)


@pytest.mark.parametrize("timestamp_ms", [-2, 2**63])
def test_times_that_are_none(timestamp_ms: int) -> None:
    with pytest.raises(ValueError, match=str(timestamp_ms)):
        build_batch([NewRecord(b"v", None, timestamp_ms)])
