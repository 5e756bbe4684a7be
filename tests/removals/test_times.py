"""Times of what a trim removes, in all formats, also where it ends within a set."""

from pathlib import Path

import pytest

from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import NewRecord, build_set
from horolog.storage.log.removed import removed_by_trim
from horolog.testing.logs import LogFolder

T0_MS = 1_700_000_000_000
TIMES = [T0_MS + each for each in (5, 9, 1, 7, 3, 8)]
"""Of each set; the largest is neither first nor last."""


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("end", range(1, 13))
def test_times_of_a_trim(tmp_path: Path, magic: int, codec: Codec, end: int) -> None:
    folder = LogFolder(tmp_path / "t-0")
    folder.set(retention_ms=-1)
    folder.open()
    for begin in (0, 100):
        records = [NewRecord(b"v", timestamp_ms=time_ms + begin) for time_ms in TIMES]
        folder.log.appender.append(build_set(records, magic=magic, codec=codec))
    steps = removed_by_trim(folder.log, end)
    try:
        while True:
            next(steps)()
    except StopIteration as stop:
        removed = stop.value
    gone = [*TIMES, *(each + 100 for each in TIMES)][:end]
    assert removed.largest_timestamp_ms == max(gone)
    assert removed.messages == end
    if magic == 1 and codec is not Codec.NONE:  # It has to be decompressed for the first one.
        assert removed.first_timestamp_ms in (TIMES[0], -1)
    else:
        assert removed.first_timestamp_ms == TIMES[0]
    folder.let_go()
