"""What is produced comes back; what is refused leaves no trace."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.errors import HorologError
from horolog.protocol.records.batch import batch_records
from horolog.protocol.records.layout import LOG_APPEND_TIME_BIT, MESSAGE_CODECS, Codec
from horolog.protocol.records.messages.sets import (
    NewRecord,
    build_message,
    build_set,
    build_wrapper,
    entries,
    open_wrapper,
    set_timestamp,
)
from horolog.testing.logs import LogFolder

from .examples import examples
from .filling import MAX_DECOMPRESSED_BYTES, RESTARTS, fill, produce, read_from, truncate
from .index_rules import state_of
from .logs import log_folder
from .model import LOG_APPEND_TIME, Model, Part, SentSet
from .strategies import NOW_MS, parts, set_lists, topic_settings_texts

STORED_CODECS = ["producer", "uncompressed", "gzip", "snappy", "lz4"]


def assert_stored_well(folder: LogFolder, codec: Codec | None) -> None:
    """Offsets rise without a hole and both levels of CRC are right; all of `codec` if given."""
    data = folder.stored()
    following = 0
    for entry in entries(data):
        if entry.is_batch:
            found = batch_records(data, entry.position, max_decompressed_bytes=1 << 24)
            offsets = [record.offset for record in found]
            assert offsets == list(range(following, entry.offset + 1))
            following = entry.offset + 1
            continue
        inner = (
            [entry]
            if entry.codec is Codec.NONE
            else open_wrapper(entry, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
        )
        assert entry.offset == following + len(inner) - 1
        assert all(two.offset == one.offset + 1 for one, two in pairwise(inner))
        if entry.codec is not Codec.NONE:
            assert inner[0].offset == (0 if entry.magic else following)
            assert {message.magic for message in inner} == {entry.magic}
        assert codec is None or entry.codec is codec
        following = entry.offset + 1


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("compression", STORED_CODECS)
@pytest.mark.parametrize("codec", MESSAGE_CODECS, ids=lambda codec: codec.label)
@pytest.mark.parametrize("magic", [0, 1], ids=["v0", "v1"])
def test_what_is_produced_is_fetched_v10(
    magic: int, codec: Codec, compression: str, kind: str
) -> None:
    @examples(4)
    @given(st.lists(st.builds(SentSet, st.tuples(parts(magic, codec))), min_size=1, max_size=4))
    def check(sets: list[SentSet]) -> None:
        settings = {"message.timestamp.type": kind, "compression.type": compression}
        with log_folder(settings) as folder:
            model = fill(folder, sets)
            assert read_from(folder.log, 0) == model.messages
            stored = (
                Codec[compression.upper()]
                if compression in ("gzip", "snappy", "lz4")
                else (codec if compression == "producer" else Codec.NONE)
            )
            assert_stored_well(folder, stored)

    check()


@examples(60)
@given(topic_settings_texts, set_lists)
def test_mixtures_come_back_as_sent_v10(overrides: dict[str, str], sets: list[SentSet]) -> None:
    with log_folder(overrides) as folder:
        model = fill(folder, sets)
        assert read_from(folder.log, 0) == model.messages
        assert_stored_well(folder, None)


def everything_of(folder: LogFolder) -> object:
    """The bytes in the folder, and what the log knows in memory."""
    log = folder.log
    return (
        folder.content(),
        (log.log_end_offset, log.high_watermark, log.recovery_point, log.unflushed_messages),
        [state_of(segment) for segment in log.segments],
    )


def renumber(message_set: bytearray) -> bytearray:
    """The set's plain entries with offsets 0, 1, ..."""
    for number, entry in enumerate(entries(bytes(message_set))):
        message_set[entry.position : entry.position + 8] = number.to_bytes(8, "big")
    return message_set


def as_entry(message: bytes) -> bytearray:
    return bytearray(bytes(8) + len(message).to_bytes(4, "big") + message)


GOOD = NewRecord(b"good", timestamp_ms=NOW_MS)


def flipped(data: bytearray, position: int) -> bytearray:
    data[position] ^= 1
    return data


def timed(data: bytearray, timestamp_ms: int) -> bytearray:
    set_timestamp(data, 0, len(data) - 12, timestamp_ms)
    return data


def wrapped(inner: bytes | bytearray, codec: Codec = Codec.GZIP, magic: int = 1) -> bytearray:
    return build_wrapper(inner, offset=0, timestamp_ms=-1, magic=magic, codec=codec)


BROKEN: dict[str, Callable[[], bytearray]] = {
    "wrong CRC": lambda: flipped(build_set([GOOD]), 12),
    "flipped value": lambda: flipped(build_set([GOOD]), -1),
    "wrong CRC in a wrapper": lambda: wrapped(flipped(build_set([GOOD]), -1)),
    "size below a message's": lambda: bytearray(11) + b"\x0d" + bytes(40),
    "magic 3": lambda: as_entry(bytes(4) + b"\x03" + bytes(60)),
    "codec 5": lambda: as_entry(build_message(None, b"x", attributes=5)),
    "lengths": lambda: as_entry(build_message(None, b"x")[:-1]),
    "timestamp -2": lambda: timed(build_set([GOOD]), -2),
    "timestamp INT64_MIN": lambda: timed(build_set([GOOD]), -(2**63)),
    "timestamp -2 in a wrapper": lambda: wrapped(timed(build_set([GOOD]), -2)),
    "append time bit": lambda: as_entry(build_message(None, b"x", attributes=LOG_APPEND_TIME_BIT)),
    "append time bit on a wrapper": lambda: build_wrapper(
        build_set([GOOD]), offset=0, timestamp_ms=1, magic=1, codec=Codec.LZ4, append_time=True
    ),
    "too far ahead": lambda: build_set([NewRecord(b"x", timestamp_ms=NOW_MS + 10**12)]),
    "too far back, in a wrapper": lambda: build_set(
        [NewRecord(b"x", timestamp_ms=NOW_MS - 10**12)], codec=Codec.SNAPPY
    ),
    "wrapper with null": lambda: as_entry(build_message(None, None, attributes=Codec.GZIP)),
    "wrapper with nothing": lambda: as_entry(build_message(None, b"", attributes=Codec.SNAPPY)),
    "wrapper with no message": lambda: wrapped(b""),
    "wrapper with half a message": lambda: wrapped(build_set([GOOD])[:-1]),
    "wrapper that is cut": lambda: as_entry(
        build_message(None, bytes(wrapped(build_set([GOOD]))[34:-3]), attributes=Codec.GZIP)
    ),
    "compressed twice": lambda: wrapped(build_set([GOOD], codec=Codec.GZIP)),
    "v0 in a v1 wrapper": lambda: wrapped(build_set([NewRecord(b"x")], magic=0)),
    "v1 in a v0 wrapper": lambda: wrapped(build_set([NewRecord(b"x")]), magic=0),
    "message too large": lambda: build_set([NewRecord(bytes(3_000))]),
    "set too large": lambda: build_set([NewRecord(Random(n).randbytes(500)) for n in range(5)]),
    "bomb": lambda: build_set([NewRecord(bytes(100_000))], codec=Codec.GZIP),
}
"""Sets of which every one is refused, by `STRICT` settings."""

STRICT = {
    "max.message.time.difference.ms": "1000000000",
    "max.message.bytes": "2000",
    "segment.bytes": "2400",
    "max.decompressed.bytes": "50000",
}
IN_RANGE = NewRecord(b"fine", timestamp_ms=NOW_MS)


@pytest.mark.parametrize("compression", ["producer", "uncompressed", "lz4"])
@pytest.mark.parametrize("what", BROKEN)
def test_a_refused_set_changes_nothing_v14(what: str, compression: str) -> None:
    """Behind good messages too, and when the set would have begun a new segment."""

    @examples(3)
    @given(st.integers(0, 3), st.integers(0, 3), st.booleans())
    def check(produced: int, good_before: int, roll_due: bool) -> None:
        with log_folder(STRICT | {"compression.type": compression}) as folder:
            fill(folder, [SentSet((Part(1, Codec.NONE, (IN_RANGE,) * 2),))] * produced)
            if roll_due:
                folder.set(segment_bytes=2_399, segment_ms=1)
            before = everything_of(folder)
            data = build_set([IN_RANGE] * good_before) + BROKEN[what]()
            with pytest.raises(HorologError):
                folder.log.appender.append(data)
            assert everything_of(folder) == before

    check()


@dataclass(frozen=True)
class Change:
    """One byte of a message set set to something else, or the set cut there."""

    place: float
    byte: int | None

    def apply(self, data: bytearray) -> bytearray:
        at = int(self.place * len(data))
        if self.byte is None:
            return data[:at]
        if at < len(data):
            data[at] = self.byte
        return data


changes = st.builds(Change, st.floats(0, 1), st.one_of(st.none(), st.integers(0, 255)))


@examples(120)
@given(topic_settings_texts, set_lists, st.lists(changes, min_size=1, max_size=3))
def test_damaged_sets_are_taken_whole_or_not_at_all_v14(
    overrides: dict[str, str], sets: list[SentSet], damage: list[Change]
) -> None:
    with log_folder(overrides) as folder:
        model = fill(folder, sets[:-1])
        data = sets[-1].encoded()
        for change in damage:
            data = change.apply(data)
        before = everything_of(folder)
        end = folder.log.log_end_offset
        try:
            appended = folder.log.appender.append(data)
        except HorologError:
            assert everything_of(folder) == before
            assert read_from(folder.log, 0) == model.messages
        else:
            assert folder.log.log_end_offset == end + appended.count
            read = read_from(folder.log, 0)
            assert read[: len(model.messages)] == model.messages
            assert [m.offset for m in read] == list(range(folder.log.log_end_offset))


short_sets = st.builds(SentSet, st.tuples(parts(max_records=2)))
events = st.one_of(
    st.tuples(st.just("produce"), short_sets),
    st.tuples(st.just("produce"), short_sets),
    st.tuples(st.just("step the clock"), st.sampled_from([-1000, -5, -1, 1, 5, 1000])),
    st.tuples(st.just("cut"), st.floats(0, 1)),
    st.tuples(st.just("roll"), st.none()),
    st.tuples(st.just("restart"), st.sampled_from(sorted(RESTARTS))),
)


@examples(120)
@given(st.lists(events, min_size=4, max_size=20))
def test_append_times_never_fall(events: list[tuple[str, Any]]) -> None:
    """Whatever the clock does; `produce` compares each append time with the model's (V-13)."""
    settings = {"message.timestamp.type": LOG_APPEND_TIME, "segment.bytes": "400"}
    with log_folder(settings) as folder:
        model = Model()
        for what, how in events:
            match what:
                case "produce":
                    produce(folder, model, how)
                case "step the clock":
                    folder.clock.step(how)
                case "cut":
                    truncate(folder, model, int(folder.log.log_end_offset * how))
                case "roll":
                    folder.log.appender.roll()
                case "restart":
                    RESTARTS[how](folder)
        read = read_from(folder.log, 0)
        assert read == model.messages
        assert [m.timestamp_ms for m in read] == sorted(m.timestamp_ms for m in read)
