"""Offsets far from every index entry: found in bounded steps, and not looked for again."""

from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from horolog.protocol.errors import StorageError
from horolog.protocol.records.layout import Codec
from horolog.storage.index.offset_index import KnownPositions
from horolog.storage.log.log import Log
from horolog.storage.read import reader
from horolog.testing.logs import LogFolder, timed_set

STEP_BYTES = 256 << 10
HEAD_BYTES = 12
COUNT = 3000
ENTRY_BYTES = 1034


def fill(folder: LogFolder) -> Log:
    """About 3 MiB in one segment, without index entries; message `n` has time `n + 1`."""
    folder.open(index_interval_bytes=10**9, retention_ms=-1)
    for first in range(0, COUNT, 500):
        times = range(first + 1, first + 501)
        folder.log.appender.append(timed_set(*times, value=b"x" * (ENTRY_BYTES - 34)))
    return folder.log


def most_in_a_step(folder: LogFolder, step: Callable[[], bool]) -> tuple[int, int]:
    """The most bytes that a step reads, and how many steps there are until `True`."""
    most = steps = 0
    while True:
        before = folder.files.bytes_read
        done = step()
        most = max(most, folder.files.bytes_read - before)
        steps += 1
        if done:
            return most, steps
        assert steps < 100


@pytest.mark.parametrize("offset", [700, 2999])
def test_a_far_offset_is_found_in_bounded_steps(folder: LogFolder, offset: int) -> None:
    log = fill(folder)
    most, steps = most_in_a_step(folder, lambda: reader.located(log, offset))
    assert most <= STEP_BYTES + HEAD_BYTES
    assert steps >= offset * ENTRY_BYTES // STEP_BYTES
    before = folder.files.bytes_read
    found = reader.read(log, offset, 100)
    assert found.position == offset * ENTRY_BYTES
    assert folder.files.bytes_read - before <= 2 * STEP_BYTES


def test_nobody_goes_the_same_way_again(folder: LogFolder) -> None:
    log = fill(folder)
    most_in_a_step(folder, lambda: reader.located(log, 2999))
    for offset in (2999, 2900, 1500, 300, 0):
        assert reader.located(log, offset)
        before = folder.files.bytes_read
        assert reader.read(log, offset, 100).position == offset * ENTRY_BYTES
        assert folder.files.bytes_read - before <= 2 * STEP_BYTES + 10 * HEAD_BYTES


def test_reading_without_looking_before_remembers_places_too(folder: LogFolder) -> None:
    log = fill(folder)
    assert reader.read(log, 2999, 100).position == 2999 * ENTRY_BYTES
    assert reader.located(log, 2999)


def test_an_indexed_log_needs_no_look(folder: LogFolder) -> None:
    folder.open(retention_ms=-1)
    for _ in range(20):
        folder.log.appender.append(timed_set(*range(1, 1001)))
    before = folder.files.bytes_read
    assert all(reader.located(folder.log, offset) for offset in range(0, 20_000, 7))
    assert folder.files.bytes_read == before


def test_two_who_look_at_once_both_arrive(folder: LogFolder) -> None:
    log = fill(folder)
    waiting = {500, 1400, 2800, 2999}
    for _ in range(40):
        for offset in sorted(waiting, reverse=True):
            if reader.located(log, offset):
                waiting.remove(offset)
    assert not waiting


def test_a_high_watermark_far_behind_is_looked_for_too(folder: LogFolder) -> None:
    log = fill(folder)
    log.hold_high_watermark(2900)
    most, steps = most_in_a_step(folder, lambda: reader.located(log, 0))
    assert most <= 2 * STEP_BYTES + HEAD_BYTES
    assert steps > 10
    before = folder.files.bytes_read
    assert reader.readable_bytes(log, 0) == 2900 * ENTRY_BYTES
    assert folder.files.bytes_read - before <= 2 * STEP_BYTES


def test_entries_larger_than_a_step(folder: LogFolder) -> None:
    folder.open(index_interval_bytes=10**9, max_message_bytes=10**8, retention_ms=-1)
    for time_ms in range(1, 5):
        folder.log.appender.append(timed_set(time_ms, value=b"x" * 600_000))
        folder.append(time_ms)
    for offset in (7, 3, 5, 0, 6):
        most, _ = most_in_a_step(folder, partial(reader.located, folder.log, offset))
        assert most <= STEP_BYTES + HEAD_BYTES
        assert (
            reader.read(folder.log, offset, 100).position
            == offset // 2 * 600_073 + offset % 2 * 600_034
        )


def test_a_cut_forgets_what_was_behind_it(folder: LogFolder) -> None:
    log = fill(folder)
    most_in_a_step(folder, lambda: reader.located(log, 2999))
    log.truncate(1000)
    for first in range(0, 2000, 500):
        log.appender.append(timed_set(*range(first + 1, first + 501), value=b"y" * 777))
    most_in_a_step(folder, lambda: reader.located(log, 2900))
    assert reader.read(log, 2900, 100).position == 1000 * ENTRY_BYTES + 1900 * (777 + 34)


def test_a_search_reads_bounded_steps_up_to_its_start(folder: LogFolder) -> None:
    log = fill(folder)
    log.close()
    folder.open(recovery_point=COUNT, log_start_offset=2500)
    folder.log.prepare()
    most, steps = most_in_a_step(folder, reader.find_time(folder.log, 2600).step)
    # The last one also reads what is in front of the message found, to check it.
    assert most <= 4 * STEP_BYTES
    assert steps > 5


def test_a_wrong_offset_is_not_remembered(folder: LogFolder) -> None:
    """It is as large as the next ones', so that no offset above it would be found."""
    log = fill(folder)
    log.flusher.flush()
    path = log.segments[0].log_path
    at = 253 * ENTRY_BYTES  # the entry behind the first 256 KiB
    assert at - ENTRY_BYTES < STEP_BYTES <= at + ENTRY_BYTES
    for number in (252, 253, 254):
        data = bytearray(path.read_bytes())
        start = number * ENTRY_BYTES
        data[start : start + 8] = (5).to_bytes(8, "big")
        path.write_bytes(bytes(data))
    most_in_a_step(folder, lambda: reader.located(log, 2000))
    with pytest.raises(StorageError):
        reader.read(log, 2000, 100)


@pytest.mark.parametrize("seed", range(6))
def test_places_change_no_answer(folder: LogFolder, seed: int) -> None:
    chance = Random(seed)
    folder.open(index_interval_bytes=10**9, retention_ms=-1)
    for _ in range(60):
        times = range(1, chance.randrange(2, 60))
        value = chance.randbytes(chance.choice([10, 3000, 9000]))
        codec = chance.choice([Codec.NONE, Codec.NONE, Codec.SNAPPY])
        folder.log.appender.append(timed_set(*times, codec=codec, value=value))
    end = folder.log.log_end_offset
    for offset in [chance.randrange(end + 1) for _ in range(20)]:
        remembering = folder.log.segments[0]
        steps = 0
        while not remembering.located(offset):
            steps += 1
            assert steps < 100
        position = remembering.locate(offset)
        remembering._known_positions = None
        assert remembering.locate(offset) == position


def test_places_around_an_offset() -> None:
    places = KnownPositions()
    assert places.around(5) == (0, None)
    for offset, position in ((30, 300), (10, 100), (20, 200), (20, 200)):
        places.add(offset, position)
    assert places.around(9) == (0, 100)
    assert places.around(10) == (100, 200)
    assert places.around(29) == (200, 300)
    assert places.around(30) == (300, None)
