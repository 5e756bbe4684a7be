"""Logs as Kafka's cleaner leaves them, against a plain list: batches without records, records that
are missing anywhere in a batch, and jumps between entries that no index can span."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.records.batch import BatchHeader, write_header
from horolog.protocol.records.codecs.codec import compress
from horolog.protocol.records.kernel import walk
from horolog.protocol.records.layout import (
    BATCH_MAGIC,
    BATCH_OVERHEAD,
    ENTRY_OVERHEAD,
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    Codec,
)
from horolog.protocol.records.messages.sets import records
from horolog.storage.check.verify import verify
from horolog.storage.files import SystemFiles
from horolog.storage.log.log import Log
from horolog.storage.read import reader
from horolog.testing.logs import LogFolder, empty_batch, timed_set

from .examples import examples
from .filling import MAX_DECOMPRESSED_BYTES, RESTARTS, search, search_largest
from .logs import new_folder
from .model import Message, Model
from .strategies import NOW_MS
from .window_reading import count_window, read_window

NEAR_MS = st.integers(NOW_MS - 6, NOW_MS + 6)


@dataclass(frozen=True)
class Part:
    """One entry as it lies in a log file."""

    skipped: int
    """Offsets missing in front of it."""
    magic: int
    codec: Codec
    deltas: tuple[int, ...]
    """Of its records, from the first offset of the entry on; none for a batch without records."""
    times_ms: tuple[int, ...]
    removed: int
    """Offsets at its end whose records were removed."""

    def reach(self) -> int:
        """How many offsets it takes."""
        return max(self.deltas, default=-1) + 1 + self.removed

    def encoded(self, offset: int) -> bytes:
        if self.magic < BATCH_MAGIC:
            return bytes(
                timed_set(*self.times_ms, magic=self.magic, codec=self.codec, base_offset=offset)
            )
        if not self.deltas:
            # The time of records that are gone.
            return bytes(empty_batch(offset, offset + self.reach(), max_timestamp_ms=NOW_MS + 3))
        base_ms = self.times_ms[0]
        content = b"".join(
            _record(delta, time_ms - base_ms)
            for delta, time_ms in zip(self.deltas, self.times_ms, strict=True)
        )
        if self.codec is not Codec.NONE:
            content = bytes(compress(self.codec, content, magic=BATCH_MAGIC))
        batch = bytearray(BATCH_OVERHEAD) + content
        header = BatchHeader(
            *(offset, len(batch) - ENTRY_OVERHEAD, NO_LEADER_EPOCH, BATCH_MAGIC, 0),
            *(int(self.codec), self.reach() - 1, base_ms, max(self.times_ms)),
            *(NO_PRODUCER_ID, -1, -1, len(self.deltas)),
        )
        write_header(batch, header)
        return bytes(batch)


def _record(delta: int, time_delta_ms: int) -> bytes:
    body = b"\0" + _varint(time_delta_ms) + _varint(delta) + _varint(-1) + _varint(5) + b"hello\0"
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    left = number * 2 if number >= 0 else -number * 2 - 1
    data = b""
    while left > 0x7F:
        data += pack("B", left & 0x7F | 0x80)
        left >>= 7
    return data + pack("B", left)


skips = st.sampled_from([*[0] * 12, 1, 3, 2**31 - 4, 2**31 - 2, 2**31 - 1, 2**31, 2**33])


@st.composite
def parts(draw: st.DrawFn) -> Part:
    magic = draw(st.sampled_from([0, 1, 2, 2, 2, 2]))
    count = draw(st.integers(0 if magic == BATCH_MAGIC else 1, 4))
    codec = draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP]))
    deltas, removed = tuple(range(count)), 0
    if magic == BATCH_MAGIC:
        steps = draw(st.lists(st.sampled_from([0, 0, 1, 4]), min_size=count, max_size=count))
        deltas = tuple(number + sum(steps[: number + 1]) for number in range(count))
        removed = draw(st.sampled_from([0, 0, 1, 7]) if count else st.integers(1, 9))
    times_ms = tuple(draw(NEAR_MS) if magic else -1 for _ in range(count))
    return Part(draw(skips), magic, codec, deltas, times_ms, removed)


empty_runs = st.builds(
    lambda skipped, count: [
        Part(skipped if not number else 0, BATCH_MAGIC, Codec.NONE, (), (), 1 + number % 2)
        for number in range(count)
    ],
    skips,
    st.integers(1, 30),
)
segments = st.lists(
    st.one_of(st.lists(parts(), min_size=1, max_size=6), empty_runs), min_size=1, max_size=4
)
settings = st.fixed_dictionaries(
    {
        "index.interval.bytes": st.sampled_from(["0", "1", "100", "4096"]),
        "segment.bytes": st.sampled_from(["400", "100000"]),
    }
)


def lay(folder: LogFolder, segments: Sequence[Sequence[Part]]) -> Model:
    """Write log files and say what is in them."""
    model, offset = Model(), 0
    for segment in segments:
        base, data = offset, b""
        for part in segment:
            offset += part.skipped
            data += part.encoded(offset)
            model.messages += [
                Message(offset + delta, time_ms, None, None, b"hello")
                for delta, time_ms in zip(part.deltas, part.times_ms, strict=True)
            ]
            offset += part.reach()
        (folder.path / f"{base:020d}.log").write_bytes(data)
    model.high_watermark = offset
    return model


def read_from(log: Log, offset: int, max_bytes: int) -> list[tuple[int, int]]:
    """Offset and time of all messages, slice by slice, as a consumer goes on behind entries."""
    log.prepare()
    found: list[tuple[int, int]] = []
    while offset < log.high_watermark:
        data = reader.read(log, offset, max_bytes, whole_first=True).read()
        if not data:
            break
        found += [
            (one.offset, one.timestamp_ms)
            for one in records(
                data, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES, from_offset=offset
            )
        ]
        following = walk(data, 0, len(data)).last_offset + 1
        assert following > offset, "a reader would get the same again"
        offset = following
    return found


def assert_as_the_list(folder: LogFolder, model: Model, max_bytes: int) -> None:
    log = folder.log
    assert (log.log_start_offset, log.high_watermark) == (
        model.log_start_offset,
        model.high_watermark,
    )
    visible = [(one.offset, one.timestamp_ms) for one in model.visible]
    starts = {log.log_start_offset, *(at for at, _ in visible), *(at + 1 for at, _ in visible)}
    for start in starts:
        assert read_from(log, start, max_bytes) == [one for one in visible if one[0] >= start]
    for target_ms in model.targets():
        assert search(log, target_ms) == model.find_time(target_ms), target_ms
    assert search_largest(log) == model.find_largest()
    for from_ms, until_ms in ((NOW_MS - 3, NOW_MS + 2), (NOW_MS + 3, NOW_MS + 4), (0, 2**62)):
        inside = [at for at, ms in visible if from_ms <= ms < until_ms]
        assert read_window(log, from_ms, until_ms) == inside
        counts, _, _, _ = count_window(log, from_ms, until_ms, until_ms - from_ms, 1)
        assert counts == [len(inside)]
    assert not folder.events.named("segment_damaged")
    assert not folder.events.named("torn_tail_cut")


@examples(40)
@given(settings, segments, st.booleans(), st.sampled_from(list(RESTARTS)), st.data())
def test_a_cleaned_log_answers_as_a_list_of_its_messages(
    overrides: dict[str, str],
    segments: list[list[Part]],
    clean: bool,
    restart: str,
    data: st.DataObject,
) -> None:
    """FO-2, I-30, L-20: whole, trimmed to any offset, appended to, and after a restart."""
    with new_folder() as name:
        folder = LogFolder(Path(name) / "t-0", open_files_max=4)
        folder.settings |= overrides | {"retention.ms": "-1"}
        model = lay(folder, segments)
        folder.open(clean=clean, gaps=True)
        max_bytes = data.draw(st.sampled_from([1, 200, 1 << 20]))
        assert_as_the_list(folder, model, max_bytes)
        reached = [one.offset + by for one in model.messages for by in (0, 1, 2)]
        ends = [at for at in reached if at <= model.high_watermark]
        start = data.draw(st.sampled_from([0, model.high_watermark, *ends]), label="log start")
        folder.log.flusher.flush()
        folder.log.expiry.trim(start)
        model.log_start_offset = start
        assert_as_the_list(folder, model, max_bytes)
        folder.log.expiry.drop_expired()
        for time_ms in (NOW_MS + 1, NOW_MS + 9):
            (offset,) = folder.append(time_ms)
            assert offset == model.high_watermark
            model.messages.append(Message(offset, time_ms, None, None, b"hello"))
            model.high_watermark = offset + 1
        assert_as_the_list(folder, model, max_bytes)
        appended = [model.high_watermark - 2, model.high_watermark - 1]
        assert read_window(folder.log, 0, 2**62, by_append=True) == appended
        RESTARTS[restart](folder)
        model.log_start_offset = folder.log.log_start_offset
        assert_as_the_list(folder, model, max_bytes)
        assert read_window(folder.log, 0, 2**62, by_append=True) in (appended, [])
        folder.log.close()
        assert [found for found in verify(SystemFiles(), folder.path) if found.error] == []
        folder.let_go()
        assert folder.files.open_count == 0
