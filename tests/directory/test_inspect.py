import json
import struct
from dataclasses import asdict
from pathlib import Path

import pytest

from horolog.protocol.records.layout import Codec, TimestampType
from horolog.protocol.records.messages.sets import NewRecord, build_set, build_wrapper
from horolog.storage.check.dump import (
    Dumped,
    DumpedAppendTime,
    DumpedMessage,
    DumpedOffsetEntry,
    DumpedTimeEntry,
    DumpNote,
    dump,
)
from horolog.storage.entries.log_reader import CHUNK_BYTES
from horolog.storage.files import SystemFiles
from horolog.testing.logs import timed_set

BASE = "00000000000000000040"


def dumped(directory: Path, name: str, content: bytes | bytearray) -> list[Dumped]:
    (directory / name).write_bytes(content)
    return list(dump(SystemFiles(), directory / name))


GOLDEN = Path(__file__).parents[1] / "golden" / "kafka-0.10.2"


@pytest.mark.parametrize(
    "directory",
    [
        pytest.param(path, id=f"{path.parent.name}-{path.name}")
        for path in sorted([*GOLDEN.glob("*/clean"), *GOLDEN.glob("*/killed")])
    ],
)
def test_every_message_that_kafka_s_consumer_read(directory: Path, files: SystemFiles) -> None:
    expected = json.loads((directory.parent / "expected.json").read_text())["messages"]
    found = [item for path in sorted(directory.glob("*.log")) for item in dump(files, path)]
    messages = [item for item in found if isinstance(item, DumpedMessage)]
    assert messages == found
    assert [(m.offset, m.timestamp_ms) for m in messages] == [(e[0], e[1]) for e in expected]
    assert all(message.crc_ok for message in messages)


def test_the_fields_of_a_message(tmp_path: Path) -> None:
    content = build_set([NewRecord(b"value", b"key", 7)], base_offset=40)
    content += build_set([NewRecord(None)], magic=0, base_offset=41)
    content += build_set(
        [NewRecord(b"a", timestamp_ms=5), NewRecord(b"b", timestamp_ms=9)],
        codec=Codec.GZIP,
        base_offset=42,
    )
    plain, old, first, second = dumped(tmp_path, f"{BASE}.log", content)
    assert isinstance(plain, DumpedMessage)
    assert asdict(plain) == {
        "position": 0,
        "offset": 40,
        "timestamp_ms": 7,
        "timestamp_type": TimestampType.CREATE_TIME,
        "magic": 1,
        "codec": "none",
        "size_bytes": 12 + 22 + 8,
        "crc_ok": True,
        "key": b"key",
        "value": b"value",
        "headers": (),
    }
    assert isinstance(old, DumpedMessage)
    assert (old.position, old.magic, old.timestamp_ms, old.timestamp_type) == (42, 0, -1, None)
    assert old.value is None
    assert isinstance(first, DumpedMessage)
    assert isinstance(second, DumpedMessage)
    assert (first.offset, first.timestamp_ms, first.codec) == (42, 5, "gzip")
    assert (second.offset, second.timestamp_ms, second.position) == (43, 9, first.position)


def test_a_wrong_crc_is_shown_and_passed(tmp_path: Path) -> None:
    content = bytearray(timed_set(1, 2, 3))
    content[39 + 38] ^= 1
    items = dumped(tmp_path, f"{BASE}.log", content)
    assert [(m.offset, m.crc_ok) for m in items if isinstance(m, DumpedMessage)] == [
        (0, True),
        (1, False),
        (2, True),
    ]


def test_a_wrapper_with_a_wrong_crc_is_not_opened(tmp_path: Path) -> None:
    content = bytearray(timed_set(1, 2, codec=Codec.LZ4))
    content[-1] ^= 1
    [item] = dumped(tmp_path, f"{BASE}.log", content)
    assert isinstance(item, DumpedMessage)
    assert (item.codec, item.crc_ok, item.offset) == ("lz4", False, 1)


def test_what_a_wrapper_holds_must_make_sense(tmp_path: Path) -> None:
    inner = timed_set(1)
    content = build_wrapper(inner[:-3], offset=0, timestamp_ms=1, magic=1, codec=Codec.GZIP)
    content += timed_set(5, base_offset=1)
    remark, message = dumped(tmp_path, f"{BASE}.log", content)
    assert isinstance(remark, DumpNote)
    assert (remark.position, remark.error) == (0, True)
    assert isinstance(message, DumpedMessage)


@pytest.mark.parametrize(
    ("tail", "text"),
    [
        pytest.param(b"\0" * 500, "zeros", id="S-35-zero-tail"),
        pytest.param(b"\0" * 5, "zeros", id="few-zeros"),
        pytest.param(bytes(timed_set(1))[:-1], "past the end", id="partial"),
        pytest.param(bytes(timed_set(1, base_offset=2))[:11], "past the end", id="partial-head"),
        pytest.param(bytes(8) + b"\0\0\0\x0d" + bytes(20) + b"x", "smaller", id="M-8-size"),
        pytest.param(bytes(8) + b"\xff\xff\xff\xff" + b"x" * 20, "smaller", id="negative-size"),
        pytest.param(bytes(8) + b"\0\0\0\x20" + b"\0\0\0\0\x03" + bytes(40), "format", id="magic"),
    ],
)
def test_where_reading_has_to_stop(tail: bytes, text: str, tmp_path: Path) -> None:
    good = bytes(timed_set(1, 2))
    items = dumped(tmp_path, f"{BASE}.log", good + tail)
    assert [type(item) for item in items] == [DumpedMessage, DumpedMessage, DumpNote]
    remark = items[2]
    assert isinstance(remark, DumpNote)
    assert (remark.position, remark.error) == (len(good), True)
    assert text in remark.text
    assert f"{len(tail)} bytes" in remark.text


@pytest.mark.parametrize("extra", [-40, -13, -1, 0, 1, 25, 60])
def test_messages_across_the_pieces_that_are_read(extra: int, tmp_path: Path) -> None:
    sizes = [
        10,
        CHUNK_BYTES + extra,
        20,
        CHUNK_BYTES // 2 + extra,
        CHUNK_BYTES // 2,
        3 * CHUNK_BYTES,
    ]
    content = build_set([NewRecord(bytes(size)) for size in sizes])
    items = dumped(tmp_path, f"{BASE}.log", content)
    found = [len(item.value or b"") for item in items if isinstance(item, DumpedMessage)]
    assert found == sizes
    assert len(items) == len(sizes)


def test_an_offset_index(tmp_path: Path) -> None:
    content = bytes.fromhex("00000005000010000000000900002000")
    assert dumped(tmp_path, f"{BASE}.index", content) == [
        DumpedOffsetEntry(0, 45, 4096),
        DumpedOffsetEntry(8, 49, 8192),
    ]


def test_a_time_index_i3(tmp_path: Path) -> None:
    content = bytes.fromhex("000000000000001400000014")
    assert dumped(tmp_path, f"{BASE}.timeindex", content) == [DumpedTimeEntry(0, 20, 60)]


def test_slots_that_were_made_ahead(tmp_path: Path) -> None:
    content = bytes.fromhex("000000000000001400000000") + bytes(12 * 300_000)
    items = dumped(tmp_path, f"{BASE}.timeindex", content)
    assert items == [
        DumpedTimeEntry(0, 20, 40),
        DumpNote(12, "300000 slots of zeros, made ahead and never used", False),
    ]


def test_a_torn_index_entry(tmp_path: Path) -> None:
    items = dumped(tmp_path, f"{BASE}.index", bytes.fromhex("000000050000100000000009"))
    assert items == [
        DumpedOffsetEntry(0, 45, 4096),
        DumpNote(8, "4 bytes of an entry of 8: torn", True),
    ]


def entries(form: str, *numbers: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(form, *each) for each in numbers)


def block(log_bytes: int, *spans: tuple[int, int]) -> bytes:
    """Of a time map: a message in each span; how far it begins behind the one before, and how long
    it is."""
    numbers = [number for after, length in spans for number in (after, length, 1)]
    return bytes([log_bytes, len(spans), 0, len(spans), *numbers])


WRONG = {
    "falling offset": (".index", entries(">ii", (5, 100), (3, 200), (7, 300)), {1}),
    "falling position": (".index", entries(">ii", (5, 100), (6, 90)), {1}),
    "repeated": (".index", entries(">ii", (5, 100), (5, 100)), {1}),
    "negative": (".index", entries(">ii", (-5, 100), (5, -100)), {0, 1}),
    "falling time": (".timeindex", entries(">qi", (20, 3), (19, 4), (21, 5)), {1}),
    "falling offset of a time": (".timeindex", entries(">qi", (20, 3), (21, 2)), {1}),
    "no times": (".timeindex", entries(">qi", (-1, 3)), {0}),
    "append offset": (".appendtime", entries(">iq", (0, 9), (4, 9), (2, 8), (5, 7)), {2}),
    "append time": (".appendtime", entries(">iq", (0, 9), (4, -2)), {1}),
    "append zeros": (".appendtime", entries(">iq", (3, 9), (0, 0)), {1}),
    "no bytes": (".timemap", block(9, (4, 1)) + block(0, (4, 1)) + block(9, (4, 1)), {1}),
    "spans that touch": (".timemap", block(9, (4, 1), (1, 2)) + block(9, (4, 1), (0, 2)), {1}),
}


@pytest.mark.parametrize("case", WRONG)
def test_entries_that_cannot_be_true_are_shown_and_named(case: str, tmp_path: Path) -> None:
    suffix, content, wrong = WRONG[case]
    items = dumped(tmp_path, f"{BASE}{suffix}", content)
    shown: list[Dumped] = [item for item in items if not isinstance(item, DumpNote)]
    assert len(shown) >= len(wrong)
    assert [shown.index(items[at - 1]) for at, item in enumerate(items) if item not in shown] == (
        sorted(wrong)
    )
    remarks = [item for item in items if isinstance(item, DumpNote)]
    assert all(remark.error for remark in remarks)
    assert [remark.position for remark in remarks] == [shown[at].position for at in sorted(wrong)]


def test_entries_of_the_first_moment_are_right(tmp_path: Path) -> None:
    content = entries(">iq", (0, 0))
    assert dumped(tmp_path, f"{BASE}.appendtime", content) == [DumpedAppendTime(0, 40, 0)]
    content = entries(">iq", (0, -1), (3, 9), (4, 2))  # Clocks go back.
    assert not any(
        isinstance(item, DumpNote) for item in dumped(tmp_path, f"{BASE}.appendtime", content)
    )


def test_many_index_entries(tmp_path: Path) -> None:
    entries = [(number + 1, number * 7 + 1) for number in range(300_000)]
    content = b"".join(o.to_bytes(4, "big") + p.to_bytes(4, "big") for o, p in entries)
    items = dumped(tmp_path, f"{BASE}.index", content)
    assert items == [DumpedOffsetEntry(8 * n, 40 + o, p) for n, (o, p) in enumerate(entries)]


@pytest.mark.parametrize("suffix", [".deleted", ".broken", ".1234.broken", ".swap"])
def test_files_out_of_use_are_read_too(suffix: str, tmp_path: Path) -> None:
    [item] = dumped(tmp_path, f"{BASE}.index{suffix}", bytes.fromhex("0000000500001000"))
    assert item == DumpedOffsetEntry(0, 45, 4096)


def test_a_file_that_was_renamed(tmp_path: Path) -> None:
    remark, entry = dumped(tmp_path, "copy.index", bytes.fromhex("0000000500001000"))
    assert isinstance(remark, DumpNote)
    assert not remark.error
    assert entry == DumpedOffsetEntry(0, 5, 4096)


def test_empty_files(tmp_path: Path) -> None:
    for kind in ("log", "index", "timeindex"):
        assert dumped(tmp_path, f"{BASE}.{kind}", b"") == []


@pytest.mark.parametrize("name", ["topics.json", f"{BASE}.snapshot", "log"])
def test_other_files_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none of \.log, \.index, \.timeindex, \.timemap and"):
        dumped(tmp_path, name, b"x")


def test_a_missing_file(tmp_path: Path, files: SystemFiles) -> None:
    with pytest.raises(FileNotFoundError):
        list(dump(files, tmp_path / f"{BASE}.log"))


def test_bombs_are_bounded(tmp_path: Path, files: SystemFiles) -> None:
    content = build_set([NewRecord(bytes(1_000_000))], codec=Codec.GZIP)
    path = tmp_path / f"{BASE}.log"
    path.write_bytes(content)
    [remark] = dump(files, path, max_decompressed_bytes=100_000)
    assert isinstance(remark, DumpNote)
    assert "max.decompressed.bytes" in remark.text
