"""Searches by time that come to a set which opens to much: that is left to whoever has a thread."""

from typing import Any

import pytest

from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import NewRecord, build_set
from horolog.storage.read import reader
from horolog.storage.read.search import Search
from horolog.testing.logs import LogFolder, timed_set

HEAVY_TIMES = (100, 200, 300)


def heavy(magic: int) -> bytearray:
    new = [NewRecord(bytes(200_000), timestamp_ms=time_ms) for time_ms in HEAVY_TIMES]
    return build_set(new, magic=magic, codec=Codec.GZIP)


def steps(search: Search[Any]) -> tuple[Any, int]:
    """What is found, and how many sets were left to be opened elsewhere."""
    opened = 0
    while not search.step():
        if search.opens:
            search.open()
            opened += 1
            assert not search.opens
    return search.result, opened


@pytest.mark.parametrize("magic", [1, 2])
def test_large_sets_are_opened_between_the_steps(folder: LogFolder, magic: int) -> None:
    log = folder.open()
    log.appender.append(timed_set(50, magic=magic, codec=Codec.GZIP))
    log.appender.append(heavy(magic))
    log.appender.append(timed_set(400, magic=magic, codec=Codec.GZIP))
    for target_ms, offset, opened in ((10, 0, 0), (150, 2, 1), (300, 3, 1), (301, 4, 0)):
        found, times = steps(reader.find_time(log, target_ms))
        assert (found.offset, times) == (offset, opened)
        assert folder.found(target_ms) == [(found.timestamp_ms, offset)]


def test_one_look_opens_nothing_large(folder: LogFolder) -> None:
    log = folder.open()
    log.appender.append(heavy(2))
    log.prepare()
    search = reader.find_time(log, 150)
    assert not search.step()
    assert search.opens
    assert folder.found(150) == [(200, 1)]


def test_the_largest_time_from_the_log_start_on(folder: LogFolder) -> None:
    log = folder.open()
    log.appender.append(heavy(1))
    log.expiry.trim(1)
    found, opened = steps(reader.find_largest(log))
    assert (found.offset, found.timestamp_ms) == (2, 300)
    assert opened >= 1
