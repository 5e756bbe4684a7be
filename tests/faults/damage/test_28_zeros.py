"""Zeros where messages were, or where none were yet (fault 28; decision 20)."""

from pathlib import Path
from random import Random

import pytest

from horolog.protocol.errors import StorageError
from horolog.protocol.records.layout import Codec
from horolog.testing.logs import LogFolder, timed_set

from .damaging import check_searches, copied, fill_mixed, original, overwrite, read_all

SECTOR = 512
PREALLOCATED = 16 << 20


@pytest.mark.parametrize("synced", [False, True])
def test_28_a_tail_of_zeros(folder: LogFolder, place: Path, synced: bool) -> None:
    fill_mixed(folder)
    before = original(folder)
    folder.let_go()
    name = before.log_names[-1]
    content = (before.path / name).read_bytes()
    for zeros in [*range(1, 65), 511, 512, 513, 4095, 4096]:
        with copied(before, place) as copy:
            (copy.path / name).write_bytes(content + bytes(zeros))
            log = copy.open(clean=False, recovery_point=before.end_offset if synced else 0)
            assert read_all(copy) == (before.messages, [])
            assert copy.content([".broken"]) == {f"{name}.{len(content)}.broken": bytes(zeros)}
            (told,) = copy.events.named("torn_tail_cut")
            assert told["rule"] == "the rest of the file is zeros"
            assert (told["position"], told["offset"]) == (len(content), before.end_offset)
            assert log.appender.append(timed_set(7)).first_offset == before.end_offset


def test_28_space_that_was_made_ahead_takes_no_room_twice(folder: LogFolder) -> None:
    fill_mixed(folder)
    before = original(folder)
    path = folder.log.segments[-1].log_path
    size_bytes = path.stat().st_size
    folder.let_go()
    with path.open("r+b") as file:
        file.truncate(PREALLOCATED)
    folder.open(clean=False)
    assert read_all(folder) == (before.messages, [])
    (kept,) = folder.path.glob("*.broken")
    assert kept.stat().st_size == PREALLOCATED - size_bytes
    assert kept.stat().st_blocks * 512 < PREALLOCATED // 16
    assert folder.log.size_bytes == sum(p.stat().st_size for p in folder.path.glob("*.log"))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("synced", [False, True])
def test_28_a_sector_of_the_last_message(
    folder: LogFolder, place: Path, codec: Codec, synced: bool
) -> None:
    value = Random(28).randbytes(4000).replace(b"\0", b"\1")
    folder.open(segment_bytes=10_000, index_interval_bytes=0)
    for ms in (10, 20, 30):
        folder.log.appender.append(timed_set(ms, value=value + str(ms).encode(), codec=codec))
    if synced:
        folder.log.flusher.flush()
    before = original(folder)
    folder.let_go()
    last = before.entries[-1]
    sectors = range(-(-last.position // SECTOR) * SECTOR, last.end - SECTOR, SECTOR)
    assert len(sectors) > 5
    for sector in sectors:
        with copied(before, place) as copy:
            overwrite(copy.path / last.name, sector, bytes(SECTOR))
            log = copy.open(clean=False, recovery_point=3 if synced else 0)
            assert read_all(copy) == (before.messages[:2], [2] if synced else [])
            if synced:
                # It was safe once, so it is damage: nothing goes on behind it.
                (told,) = copy.events.named("segment_damaged")
                assert (told["position"], told["offset"]) == (last.position, 2)
                assert log.log_end_offset == 3
                with pytest.raises(StorageError, match="horolog repair"):
                    log.appender.append(timed_set(7))
            else:
                assert copy.names(".broken") == [f"{last.name}.{last.position}.broken"]
                assert log.appender.append(timed_set(7)).first_offset == 2


def test_28_a_closed_segment_of_zeros(folder: LogFolder) -> None:
    """A file system may bring back a length without its bytes."""
    fill_mixed(folder)
    before = original(folder)
    folder.log.flusher.flush()
    folder.log.close()
    path = folder.log.segments[1].log_path
    path.write_bytes(bytes(path.stat().st_size))
    folder.open()
    found, refused = read_all(folder)
    lost = [m[0] for e in before.entries if e.name == path.name for m in e.messages]
    assert refused == lost
    assert found == [message for message in before.messages if message[0] not in lost]
    assert check_searches(folder, before, range(900, 1100, 10)) > 0
