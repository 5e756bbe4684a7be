"""Stored format x reader's format x codec, batches too, as a decoder of its own sees them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pytest

from horolog.protocol.records.batch import NewRecord, build_batch
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.downconversion import downconversion, run
from horolog.protocol.records.messages.sets import build_set
from horolog.storage.log.admitted import Appended
from horolog.storage.read import reader
from horolog.testing.logs import LogFolder

from .slow_reader import CODECS, Seen, slow_read

NOW = 1_479_144_272_509
PLENTY = 1 << 24
FORMATS = {"0.9.0": 0, "0.10.0": 1, "0.11.0": 2, "producer": None}
KINDS = ["CreateTime", "LogAppendTime"]
COMPRESSION = ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]
READERS = [0, 1, 2]
HEADERS = (("trace", b"\x01\x02"), ("trace", None), ("", b""), ("naïve", b"x" * 130))
SETS = [
    [
        NewRecord(b"first", None, NOW + 5, HEADERS[:1]),
        NewRecord(None, b"key", NOW - 70_000),
        NewRecord(b"", b"", -1, HEADERS),
        NewRecord(b"long" * 50, b"key", NOW + 5),
    ],
    [NewRecord(b"alone", b"key", NOW - 1, HEADERS[2:])],
    [NewRecord(b"untimed")],
]


@dataclass(frozen=True)
class Case:
    """How sets are sent, and the settings of the topic."""

    magic: int
    codec: str
    version: str
    kind: str
    compression: str

    @property
    def stored_magic(self) -> int:
        """Decision 25."""
        wanted = FORMATS[self.version]
        if wanted is not None:
            return wanted
        if self.compression == "zstd":
            return 2
        needs_v1 = self.kind == "LogAppendTime" or self.wanted_codec == "lz4"
        return max(self.magic, 1) if needs_v1 else self.magic

    @property
    def wanted_codec(self) -> str:
        return {"producer": self.codec, "uncompressed": "none"}.get(
            self.compression, self.compression
        )

    @property
    def stored_codec(self) -> str:
        return codec_in(self.wanted_codec, self.stored_magic)

    def sent(self, records: list[NewRecord]) -> bytearray:
        codec = Codec[self.codec.upper()]
        if self.magic == 2:
            return build_batch(records, codec=codec)
        records = [replace(record, headers=()) for record in records]
        if self.magic == 0:
            records = [replace(record, timestamp_ms=-1) for record in records]
        return build_set(records, magic=self.magic, codec=codec)

    def stored(self, record: NewRecord, offset: int) -> Seen:
        """What is stored of a message of `sent`."""
        magic = self.stored_magic
        timestamp_ms = record.timestamp_ms if self.magic and magic else -1
        stamped = self.kind == "LogAppendTime" and magic > 0
        return Seen(
            offset,
            NOW if stamped else timestamp_ms,
            stamped,
            record.key,
            record.value,
            record.headers if self.magic == magic == 2 else (),
            magic,
            self.stored_codec,
        )


def codec_in(codec: str, magic: int) -> str:
    """Messages have no zstd."""
    return "gzip" if codec == "zstd" and magic < 2 else codec


def as_read(stored: Seen, magic: int) -> Seen:
    """What a reader gets of it that knows formats up to `magic`."""
    if stored.magic <= magic:
        return stored
    read = replace(stored, magic=magic, headers=(), codec=codec_in(stored.codec, magic))
    return read if magic else replace(read, timestamp_ms=-1, append_time=False)


@contextmanager
def opened(path: Path, case: Case) -> Iterator[LogFolder]:
    folder = LogFolder(path)
    folder.open(
        message_format_version=case.version,
        message_timestamp_type=case.kind,
        compression_type=case.compression,
    )
    try:
        yield folder
    finally:
        folder.let_go()


def assert_append_is_told(case: Case, records: list[NewRecord], appended: Appended) -> None:
    """Headers are lost, and counted, only where batches become messages."""
    changed = case.magic != case.stored_magic
    assert (appended.conversion is not None) is changed
    if appended.conversion is not None:
        lost = sum(len(record.headers) for record in records) if case.magic == 2 else 0
        told = appended.conversion
        assert (told.magic, told.messages) == (case.stored_magic, len(records))
        assert (told.headers, told.up) == (lost, case.stored_magic > case.magic)
    stamped = case.kind == "LogAppendTime" and case.stored_magic > 0
    assert appended.append_time_ms == (NOW if stamped else -1)


def assert_read(folder: LogFolder, magic: int, expected: list[Seen]) -> None:
    """Slice after slice, and of each how many headers it has lost."""
    offset = lost = 0
    seen: list[Seen] = []
    while offset < folder.log.high_watermark:
        data = reader.read(folder.log, offset, 400, whole_first=True)
        slice_ = data.read()
        if data.magic > magic:
            steps = downconversion(slice_, max_bytes=400, max_content_bytes=PLENTY, magic=magic)
            made = run(steps)
            lost += made.headers
            slice_ = bytes(made.data)
        else:
            slice_ = whole_entries(slice_)
        seen += slow_read(slice_)
        offset = seen[-1].offset + 1
    assert seen == [as_read(one, magic) for one in expected]
    assert lost == (sum(len(one.headers) for one in expected) if magic < 2 else 0)


def whole_entries(slice_: bytes) -> bytes:
    """Without the beginning of an entry at its end, which a reader leaves."""
    end = 0
    while len(slice_) - end >= 12:
        size = int.from_bytes(slice_[end + 8 : end + 12], "big")
        if end + 12 + size > len(slice_):
            break
        end += 12 + size
    return slice_[:end]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", list(FORMATS))
@pytest.mark.parametrize("magic", [0, 1, 2], ids=["sent-v0", "sent-v1", "sent-v2"])
def test_every_reader_gets_what_its_format_can_say_v10(
    magic: int, version: str, kind: str, tmp_path: Path
) -> None:
    codecs = CODECS if magic == 2 else CODECS[:-1]
    for codec, compression in product(codecs, COMPRESSION):
        case = Case(magic, codec, version, kind, compression)
        with opened(tmp_path / f"{codec}-{compression}-0", case) as folder:
            expected: list[Seen] = []
            for records in SETS:
                appended = folder.log.appender.append(case.sent(records))
                assert_append_is_told(case, records, appended)
                for record in records:
                    expected.append(case.stored(record, len(expected)))
            assert slow_read(folder.stored()) == expected, case
            for reader in READERS:
                assert_read(folder, reader, expected)
            folder.restart().prepare()
            assert_read(folder, 2, expected)
