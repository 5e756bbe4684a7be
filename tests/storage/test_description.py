"""What a log tells about itself."""

import os

from horolog.storage.log.expiry import SegmentDescription
from horolog.testing.logs import LogFolder, untimed_set

NOW = 1_479_144_272_509


def test_a_log_of_three_segments(folder: LogFolder) -> None:
    log = folder.open(segment_bytes=78, index_interval_bytes=0, retention_ms=1000)
    folder.append(NOW - 3000, NOW - 5000)
    folder.clock.advance(10)
    folder.append(NOW, NOW - 1)
    log.flusher.flush()
    log.appender.append(untimed_set())
    log.hold_high_watermark(4)
    for number, segment in enumerate(log.segments):
        at_ns = (NOW + number) * 1_000_000
        os.utime(segment.log_path, ns=(at_ns, at_ns))
    told = log.expiry.describe(NOW)
    assert (told.log_start_offset, told.log_end_offset) == (0, 5)
    assert (told.high_watermark, told.recovery_point, told.size_bytes) == (4, 4, 4 * 39 + 31)
    assert told.segments[0] == SegmentDescription(
        base_offset=0,
        next_offset=2,
        size_bytes=78,
        largest_timestamp_ms=NOW - 3000,
        largest_offset=0,
        first_timestamp_ms=NOW - 3000,
        created_ms=NOW,
        modified_ms=NOW,
        active=False,
        offset_entries=1,
        time_entries=1,
        verdict="expired",
        reason=(
            "its newest message (2016-11-14T17:24:29.509Z) is more than retention.ms=1000 before "
            "2016-11-14T17:24:32.509Z"
        ),
        expires_ms=NOW - 1999,
    )
    assert [
        (one.base_offset, one.largest_timestamp_ms, one.largest_offset, one.active, one.verdict)
        for one in told.segments[1:]
    ] == [(2, NOW, 2, False, "kept"), (4, -1, -1, True, "kept")]
    assert (told.segments[2].created_ms, told.segments[2].modified_ms) == (NOW + 10, NOW + 2)
    assert told.segments[2].expires_ms == NOW + 2 + 1001


def test_some_of_the_segments_are_told_as_all_are(folder: LogFolder) -> None:
    log = folder.open(segment_bytes=39, index_interval_bytes=0, retention_ms=1000)
    for number in range(6):
        folder.append(NOW - 1500 + 300 * number)
    log.flusher.flush()
    told = list(log.expiry.describe(NOW).segments)
    assert [one.verdict for one in told] == ["expired"] * 2 + ["kept"] * 4
    for start in range(7):
        for stop in range(start, 9):
            assert log.expiry.describe_some(NOW, range(start, stop)) == told[start:stop]


def test_what_was_not_read_is_not_told(folder: LogFolder) -> None:
    folder.open(segment_bytes=78, index_interval_bytes=0)
    folder.append(NOW - 3000, NOW - 5000, NOW)
    log = folder.restart()
    log.prepare()
    first = log.expiry.describe(NOW).segments[0]
    assert (first.largest_timestamp_ms, first.largest_offset) == (NOW - 3000, -1)
    assert (first.first_timestamp_ms, first.offset_entries, first.time_entries) == (
        NOW - 3000,
        1,
        1,
    )


def test_an_empty_log(folder: LogFolder) -> None:
    told = folder.open().expiry.describe(NOW)
    assert (told.log_end_offset, told.size_bytes) == (0, 0)
    (only,) = told.segments
    assert (only.active, only.first_timestamp_ms, only.verdict) == (True, -1, "kept")
    assert only.reason == "it is the empty active segment"
