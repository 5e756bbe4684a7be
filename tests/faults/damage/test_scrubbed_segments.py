"""Reading segments again, to find bytes that have changed on the disk (decision 20)."""

import errno
from pathlib import Path

import pytest

from horolog.protocol.errors import StorageError
from horolog.protocol.records.batch import finish_batch
from horolog.protocol.records.kernel import RecordEncoder
from horolog.protocol.records.layout import Codec
from horolog.storage.check.scrub import SegmentScrub
from horolog.storage.entries.damage import Damage
from horolog.storage.read import reader
from horolog.storage.segment.segment import Segment
from horolog.testing.logs import LogFolder, timed_set, untimed_set

ENTRY_BYTES = 39


def batch(*timestamps_ms: int) -> bytearray:
    encoder = RecordEncoder()
    for timestamp_ms in timestamps_ms:
        encoder.add(b"hello", None, timestamp_ms, ())
    return finish_batch(encoder)


def flip(path: Path, at: int, bit: int = 1) -> None:
    stored = bytearray(path.read_bytes())
    stored[at] ^= bit
    path.write_bytes(stored)


def scrubbed(folder: LogFolder, segment: Segment) -> SegmentScrub:
    scrub = SegmentScrub(folder.log, segment)
    while scrub.read():
        pass
    scrub.close()
    return scrub


def found(folder: LogFolder, number: int) -> Damage | None:
    return scrubbed(folder, folder.log.segments[number]).damage()


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(untimed_set(), id="v0"),
        pytest.param(timed_set(50), id="v1"),
        pytest.param(timed_set(50, 60, codec=Codec.GZIP), id="v1-gzip"),
        pytest.param(batch(50, 60), id="v2"),
    ],
)
@pytest.mark.parametrize("number", [0, -1], ids=["closed", "active"])
def test_a_changed_byte_is_found_in_every_format(
    folder: LogFolder, one: bytearray, number: int
) -> None:
    log = folder.open(segment_bytes=2 * len(one))
    for _ in range(4):
        log.appender.append(bytearray(one))
    log.flusher.flush()
    segment = log.segments[number]
    assert [found(folder, each) for each in (0, -1)] == [None, None]
    flip(segment.log_path, 2 * len(one) - 1)
    damage = found(folder, number)
    assert damage is not None
    assert damage.position == len(one)
    segment.record_damage(damage)
    assert [one["position"] for one in folder.events.named("segment_damaged")] == [len(one)]
    with pytest.raises(StorageError, match=f"damaged at byte {len(one)}"):
        reader.read(log, damage.offset, 1 << 20)
    assert found(folder, number) is None  # What is known is not found again.


def test_what_is_not_synced_is_not_read(folder: LogFolder) -> None:
    """The page cache says nothing of the disk, and a start cuts such bytes off."""
    log = folder.open(index_interval_bytes=0)
    folder.append(10, 20)
    log.flusher.flush()
    folder.append(30)
    scrub = scrubbed(folder, log.segments[0])
    assert (scrub.read_bytes, scrub.damage()) == (2 * ENTRY_BYTES, None)
    flip(log.segments[0].log_path, 3 * ENTRY_BYTES - 1)
    assert found(folder, 0) is None
    log.flusher.flush()
    assert found(folder, 0) is not None


def test_a_file_that_was_cut_short_is_found(folder: LogFolder) -> None:
    log = folder.open(segment_bytes=2 * ENTRY_BYTES)
    folder.append(10, 20, 30)
    log.flusher.flush()
    with log.segments[0].log_path.open("r+b") as file:
        file.truncate(ENTRY_BYTES + 5)
    damage = found(folder, 0)
    assert damage is not None
    assert (damage.position, damage.offset) == (ENTRY_BYTES, 1)
    assert damage.rule == "the file was cut short: it ends at byte 44, and did at 78"


def test_what_the_disk_cannot_read_is_damage(folder: LogFolder) -> None:
    log = folder.open()
    folder.append(10, 20)
    log.flusher.flush()
    folder.files.fail("pread", errno.EIO, times=-1, name=".log")
    damage = found(folder, 0)
    assert damage is not None
    assert (damage.position, damage.offset) == (0, 0)
    assert damage.rule == "the disk cannot read it"


def test_a_segment_that_was_cut_meanwhile_is_not_judged(folder: LogFolder) -> None:
    log = folder.open()
    folder.append(10, 20)
    log.flusher.flush()
    flip(log.segments[0].log_path, 2 * ENTRY_BYTES - 1)
    scrub = SegmentScrub(log, log.segments[0])
    while scrub.read():
        pass
    scrub.close()
    log.truncate(1)
    assert scrub.damage() is None


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_changed_index_is_rebuilt(folder: LogFolder, suffix: str) -> None:
    """Decision 5: an index is derived data, and is never trusted over the log."""
    log = folder.open(segment_bytes=4 * ENTRY_BYTES, index_interval_bytes=0)
    folder.append(10, 20, 30, 40, 50)
    log.flusher.flush()
    log.prepare()
    right = folder.content((suffix,))
    segment = log.segments[0]
    flip(segment.log_path.with_suffix(suffix), 3)
    scrub = scrubbed(folder, segment)
    assert scrub.damage() is None
    assert scrub.indexes_differ
    log.segment_list.doubt_indexes(segment)
    assert not log.prepared
    log.prepare()
    assert folder.content((suffix,)) == right
    assert not scrubbed(folder, segment).indexes_differ
    assert len(folder.events.named("index_rebuilt")) == 1


@pytest.mark.parametrize("at", [0, 1], ids=["first-entry", "second-entry"])
@pytest.mark.parametrize("number", [0, 1, 2], ids=["first", "middle", "active"])
def test_a_cut_takes_a_damaged_segment_as_a_whole(folder: LogFolder, number: int, at: int) -> None:
    """What a follower begins to copy again: nothing in a damaged segment can be believed."""
    log = folder.open(segment_bytes=2 * ENTRY_BYTES)
    folder.append(10, 20, 30, 40, 50, 60)
    log.flusher.flush()
    flip(log.segments[number].log_path, (at + 1) * ENTRY_BYTES - 1)
    damage = found(folder, number)
    assert damage is not None
    log.segments[number].record_damage(damage)
    log.truncate(damage.offset)
    base = 2 * number
    assert (log.log_end_offset, folder.bases()) == (base, [0, 2, 4][: number + 1])
    assert [segment.damaged for segment in log.segments] == [None] * (number + 1)
    assert folder.append(30 + base) == [base]
    expected = [(offset, 10 + 10 * offset) for offset in range(base)] + [(base, 30 + base)]
    assert folder.times() == expected
    log.flusher.flush()
    folder.kill_and_restart()
    assert folder.times() == expected
