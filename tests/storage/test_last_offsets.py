"""Logs whose offsets are close to the largest there is, or far from their segment's first."""

import pytest

from horolog.protocol.errors import InvalidRequest
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import NewRecord, build_set, set_offset
from horolog.storage.names import MAX_OFFSET
from horolog.testing.logs import LogFolder, timed_set

NOW = 1_479_144_272_509
RELATIVE_MAX = 2**31 - 1


def empty_at(folder: LogFolder, offset: int, **settings: str) -> None:
    """Open a log that begins and ends at `offset`."""
    (folder.path / f"{offset:020d}.log").touch()
    folder.set(**settings)
    folder.open(retention_ms=-1)


@pytest.mark.parametrize("left", [0, 1, 3, RELATIVE_MAX - 1])
@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("version", ["producer", "0.9.0", "0.11.0"])
def test_a_log_at_the_end_of_offsets_takes_no_more(
    folder: LogFolder, left: int, magic: int, codec: Codec, kind: str, version: str
) -> None:
    empty_at(folder, MAX_OFFSET - left, message_timestamp_type=kind, message_format_version=version)
    records = [NewRecord(b"v", timestamp_ms=NOW if magic else -1)] * 3
    with pytest.raises(InvalidRequest, match="offsets end at 2\\*\\*63"):
        folder.log.appender.append(bytes(build_set(records, magic=magic, codec=codec)))
    assert folder.log.log_end_offset == MAX_OFFSET - left
    folder.log.close()


def test_the_last_first_offset_is_taken(folder: LogFolder) -> None:
    empty_at(folder, MAX_OFFSET - RELATIVE_MAX)
    assert (
        folder.log.appender.append(timed_set(NOW, NOW)).last_offset == MAX_OFFSET - RELATIVE_MAX + 1
    )
    # Many at a time, and one by one: neither takes the next.
    assert folder.usual([timed_set(NOW)]) == 0
    with pytest.raises(InvalidRequest, match="go on with another topic"):
        folder.log.appender.append(timed_set(NOW))


def with_offsets(*offsets: int) -> bytearray:
    """Entries with these offsets, each a millisecond later than the one before."""
    data = bytearray()
    for number, offset in enumerate(offsets, 1):
        entry = timed_set(NOW + number)
        set_offset(entry, 0, offset)
        data += entry
    return data


@pytest.mark.parametrize("distance", [RELATIVE_MAX, 2**31, 2**33])
def test_an_entry_too_far_for_an_index_is_served_in_a_log_with_gaps_alone(
    folder: LogFolder, distance: int
) -> None:
    """I-30: no CRC covers the offset; in a log without gaps it is damaged."""
    (folder.path / f"{0:020d}.log").write_bytes(with_offsets(0, 1, distance))
    log = folder.open(gaps=True, clean=False, retention_ms=-1)
    assert [offset for offset, _ in folder.times()] == [0, 1, distance]
    log.close()
    log = folder.open(gaps=True, recovery_point=distance + 1, end_offset=distance + 1)
    assert [offset for offset, _ in folder.times()] == [0, 1, distance]
    log.close()
    log = folder.open(gaps=False, clean=False, retention_ms=-1)
    assert log.log_end_offset == 2
    assert folder.names(".broken")
    assert log.appender.append(timed_set(NOW + 4)).first_offset == 2
    log.close()


def test_an_entry_whose_offset_none_follows_is_set_aside(folder: LogFolder) -> None:
    (folder.path / f"{0:020d}.log").write_bytes(with_offsets(0, 5, MAX_OFFSET))
    log = folder.open(gaps=True, clean=False, retention_ms=-1)
    assert log.log_end_offset == 6
    (cut,) = folder.events.named("torn_tail_cut")
    assert cut["rule"] == f"offset {MAX_OFFSET} comes here, but offsets end at {MAX_OFFSET - 1}"
    log.close()


@pytest.mark.parametrize("distance", [RELATIVE_MAX - 1])
def test_the_last_offset_of_a_segment_is_closed(folder: LogFolder, distance: int) -> None:
    """I-25: the closing entry is for an offset that it cannot say."""
    data = with_offsets(0, 5, distance)
    (folder.path / f"{0:020d}.log").write_bytes(data)
    for interval in (0, 4096):
        folder.open(gaps=True, clean=False, retention_ms=-1, index_interval_bytes=interval)
        assert folder.log.log_end_offset == distance + 1
        folder.log.close()
        log = folder.open(gaps=True, retention_ms=-1)
        assert log.segments[0].largest_timestamp_ms == NOW + 3
        assert folder.found(NOW + 3) == [(NOW + 3, distance)]
        assert log.appender.append(timed_set(NOW + 4)).first_offset == distance + 1
        log.close()
        (folder.path / f"{0:020d}.log").write_bytes(data)
        for path in folder.path.glob("*"):
            if path.name != f"{0:020d}.log":
                path.unlink()


def test_an_entry_too_far_for_an_index_behind_the_end_of_a_clean_stop(folder: LogFolder) -> None:
    (folder.path / f"{0:020d}.log").write_bytes(with_offsets(0, 5, 2**40))
    log = folder.open(gaps=True, recovery_point=7, end_offset=7, retention_ms=-1)
    assert log.log_end_offset == 6
    (cut,) = folder.events.named("torn_tail_cut")
    assert cut["rule"].startswith(f"offset {2**40} comes here, but this segment ends before ")
    log.close()
