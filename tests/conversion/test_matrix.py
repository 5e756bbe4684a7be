"""Every way of sending, on every kind of topic: what is produced is what is read."""

from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.records.layout import MESSAGE_CODECS, Codec
from horolog.protocol.records.messages.downconversion import downconversion, run
from horolog.protocol.records.messages.sets import (
    NewRecord,
    Record,
    build_set,
    entries,
    open_wrapper,
    records,
)
from horolog.storage.read import reader
from horolog.testing.logs import LogFolder
from horolog.tests.properties.examples import examples

NOW = 1_479_144_272_509
PLENTY = 1 << 24
FORMATS = {"0.9.0": 0, "0.10.0": 1, "producer": None}
KINDS = ["CreateTime", "LogAppendTime"]
COMPRESSION = ["producer", "uncompressed", "gzip", "snappy", "lz4"]

contents = st.one_of(st.none(), st.just(b""), st.binary(max_size=12), st.just(b"v" * 100))
new_records = st.builds(
    NewRecord, contents, contents, st.one_of(st.just(-1), st.integers(NOW - 9, NOW + 9))
)


@dataclass(frozen=True)
class Sent:
    """A producer's set, and the settings of the topic at that moment."""

    records: list[NewRecord]
    magic: int
    codec: Codec
    version: str
    kind: str
    compression: str

    def encoded(self) -> bytearray:
        untimed = [NewRecord(record.value, record.key) for record in self.records]
        chosen = self.records if self.magic else untimed
        return build_set(chosen, magic=self.magic, codec=self.codec)

    @property
    def stored_codec(self) -> Codec:
        if self.compression == "producer":
            return self.codec
        if self.compression == "uncompressed":
            return Codec.NONE
        return Codec[self.compression.upper()]

    @property
    def stored_magic(self) -> int:
        """Decision 25."""
        wanted = FORMATS[self.version]
        if wanted is not None:
            return wanted
        needs_v1 = self.kind == "LogAppendTime" or self.stored_codec is Codec.LZ4
        return 1 if needs_v1 else self.magic

    def time_of(self, record: NewRecord) -> int:
        if self.stored_magic == 0:
            return -1
        if self.kind == "LogAppendTime":
            return NOW
        return record.timestamp_ms if self.magic else -1


@dataclass
class Told:
    """What a consumer should be told of one message."""

    offset: int
    timestamp_ms: int
    kind: str | None
    key: bytes | None
    value: bytes | None


@dataclass
class Oracle:
    """The log as a list."""

    messages: list[Told] = field(default_factory=list)

    def add(self, sent: Sent) -> None:
        kind = sent.kind if sent.stored_magic else None
        for record in sent.records:
            time = sent.time_of(record)
            self.messages.append(Told(len(self.messages), time, kind, record.key, record.value))


def told(record: Record) -> Told:
    kind = record.timestamp_type and str(record.timestamp_type)
    return Told(record.offset, record.timestamp_ms, kind, record.key, record.value)


def assert_well_formed(data: bytes, magic: int | None, codec: Codec | None) -> None:
    """Both levels of CRC are right, offsets rise without a hole; inside as the format has them."""
    ends = [-1]
    for entry in entries(data):
        assert magic is None or entry.magic == magic
        assert codec is None or entry.codec is codec
        if entry.codec is Codec.NONE:
            ends += [entry.offset]
            continue
        inner = open_wrapper(entry, max_decompressed_bytes=PLENTY)
        assert {one.magic for one in inner} == {entry.magic}
        offsets = [one.offset for one in inner]
        first = 0 if entry.magic else entry.offset - len(inner) + 1
        assert offsets == list(range(first, first + len(inner)))
        ends += range(entry.offset - len(inner) + 1, entry.offset + 1)
    start = ends[1] if len(ends) > 1 else 0
    assert ends[1:] == list(range(start, start + len(ends) - 1))


def append(folder: LogFolder, oracle: Oracle, sent: Sent) -> None:
    folder.set(
        message_format_version=sent.version,
        message_timestamp_type=sent.kind,
        compression_type=sent.compression,
    )
    first = len(oracle.messages)
    appended = folder.log.appender.append(sent.encoded())
    oracle.add(sent)
    assert (appended.first_offset, appended.count) == (first, len(sent.records))
    stamped = sent.kind == "LogAppendTime" and sent.stored_magic == 1
    assert appended.append_time_ms == (NOW if stamped else -1)
    changed = sent.magic != sent.stored_magic
    assert (appended.conversion is not None) is changed


def slices(folder: LogFolder, limit: int, *, old: bool) -> list[bytes]:
    """Everything as an old or a new reader gets it, slice after slice."""
    found: list[bytes] = []
    offset = 0
    while offset < folder.log.high_watermark:
        stored = reader.read(folder.log, offset, limit, whole_first=True)
        data = stored.read()
        assert {entry.magic for entry in entries(data)} == {stored.magic}, "decision 26"
        if old and stored.magic:
            steps = downconversion(data, max_bytes=limit, max_content_bytes=PLENTY)
            data = bytes(run(steps).data)
        found.append(data)
        offset = max(entry.offset for entry in entries(data)) + 1
    return found


def assert_all_told(folder: LogFolder, oracle: Oracle, limit: int) -> None:
    """Both generations of readers see every message; each what its format can say."""
    new = slices(folder, limit, old=False)
    old = slices(folder, limit, old=True)
    assert told_all(new) == oracle.messages
    assert told_all(old) == [
        Told(one.offset, -1, None, one.key, one.value) for one in oracle.messages
    ]
    for data in old:
        assert_well_formed(data, 0, None)


def told_all(found: list[bytes]) -> list[Told]:
    return [told(one) for data in found for one in records(data, max_decompressed_bytes=PLENTY)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", list(FORMATS))
@pytest.mark.parametrize("magic", [0, 1], ids=["sent-v0", "sent-v1"])
def test_what_is_produced_is_fetched_v10(magic: int, version: str, kind: str) -> None:
    """Every pair of sent and stored codec, each with sets of its own."""

    @examples(4)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        for codec, compression in product(MESSAGE_CODECS, COMPRESSION):
            sets = data.draw(
                st.lists(st.lists(new_records, min_size=1, max_size=4), min_size=1, max_size=2)
            )
            with TemporaryDirectory() as path:
                folder, oracle = LogFolder(Path(path) / "t-0"), Oracle()
                folder.open()
                try:
                    for set_ in sets:
                        sent = Sent(set_, magic, codec, version, kind, compression)
                        append(folder, oracle, sent)
                    assert_well_formed(folder.stored(), sent.stored_magic, sent.stored_codec)
                    assert_all_told(folder, oracle, 1 << 20)
                finally:
                    folder.let_go()

    check()


sent_sets = st.builds(
    Sent,
    st.lists(new_records, min_size=1, max_size=5),
    st.sampled_from([0, 1]),
    st.sampled_from(MESSAGE_CODECS),
    st.sampled_from(list(FORMATS)),
    st.sampled_from(KINDS),
    st.sampled_from(COMPRESSION),
)


@examples(60)
@given(
    st.lists(sent_sets, min_size=1, max_size=10),
    st.sampled_from([60, 200, 1000, 1 << 20]),
    st.sampled_from([1300, 3000, 1 << 20]),
    st.booleans(),
)
def test_formats_that_change_on_the_way_v10_v11(
    sets: list[Sent], limit: int, segment_bytes: int, restart: bool
) -> None:
    """MG-4: each set by the settings of its moment, all of them readable ever after."""
    with TemporaryDirectory() as path:
        folder, oracle = LogFolder(Path(path) / "t-0"), Oracle()
        folder.open(segment_bytes=segment_bytes, index_interval_bytes=50)
        try:
            for sent in sets:
                append(folder, oracle, sent)
            assert_all_told(folder, oracle, limit)
            if restart:
                folder.restart().prepare()
                assert_all_told(folder, oracle, limit)
                folder.kill_and_restart(checkpointed=False).prepare()
                assert_all_told(folder, oracle, limit)
            assert_searches_right(folder, oracle)
        finally:
            folder.let_go()


def assert_searches_right(folder: LogFolder, oracle: Oracle) -> None:
    """V-1: the first message, in offset order, that is late enough; v0 data has no time."""
    times = {one.timestamp_ms for one in oracle.messages}
    for target in sorted({time + delta for time in times for delta in (0, 1)} - {-1}):
        first = next((one for one in oracle.messages if one.timestamp_ms >= target), None)
        expected = None if first is None else (first.timestamp_ms, first.offset)
        assert folder.found(target) == [expected]


@examples(60)
@given(
    st.lists(
        st.tuples(st.sampled_from(MESSAGE_CODECS), st.lists(new_records, min_size=1, max_size=5)),
        min_size=1,
        max_size=6,
    ),
    st.data(),
)
def test_a_slice_cut_anywhere_v11(
    stretches: list[tuple[Codec, list[NewRecord]]], data: st.DataObject
) -> None:
    """Complete messages come as v0, an incomplete one is left out; only if nothing is complete
    the bytes come as they are."""
    stored = bytearray()
    ends: list[tuple[int, int]] = []
    offset = 0
    for codec, set_ in stretches:
        for group in [set_] if codec else [[record] for record in set_]:
            stored += build_set(group, codec=codec, base_offset=offset)
            offset += len(group)
            ends.append((len(stored), offset))
    cut = data.draw(st.integers(0, len(stored)))
    slice_ = bytes(stored[:cut])
    converted = run(downconversion(slice_, max_bytes=PLENTY, max_content_bytes=PLENTY))
    whole = max((end for end in ends if end[0] <= cut), default=(0, 0))
    if not whole[0]:
        assert converted.data == slice_
        assert converted.messages == 0
        return
    assert (converted.used_bytes, converted.messages) == whole
    assert_well_formed(bytes(converted.data), 0, None)
    before = records(stored[: whole[0]], max_decompressed_bytes=PLENTY)
    after = records(converted.data, max_decompressed_bytes=PLENTY)
    expected = [(record.offset, record.key, record.value) for record in before]
    assert [(record.offset, record.key, record.value) for record in after] == expected
