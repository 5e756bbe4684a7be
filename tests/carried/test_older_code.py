"""Code that knows no time index wrote to the folder in between: rule MG-10.

Kafka 0.10.0 keeps message times and the offset index, and neither writes nor removes time indexes.
What it appended must be found, and must keep its segment, though the time index is older than it.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from horolog.protocol.records.layout import Codec
from horolog.testing.logs import LogFolder, timed_set

NOW = 1_479_144_272_509
DAY_MS = 86_400_000


@pytest.fixture
def folder(tmp_path: Path) -> LogFolder:
    return LogFolder(tmp_path / "t-0")


def append_as_older_code(folder: LogFolder, base_offset: int, *sets: Sequence[int]) -> None:
    """Append sets to the file of a segment and nothing to any index."""
    offset = folder.log.log_end_offset
    with (folder.path / f"{base_offset:020d}.log").open("ab") as file:
        for times in sets:
            file.write(timed_set(*times, base_offset=offset))
            offset += len(times)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP], ids=["plain", "gzip"])
@pytest.mark.parametrize("interval_bytes", [0, 4096])
def test_what_it_appended_to_the_last_segment_is_found(
    folder: LogFolder, codec: Codec, interval_bytes: int
) -> None:
    log = folder.open(index_interval_bytes=interval_bytes, segment_bytes=400)
    folder.append(*range(100, 2000, 100), codec=codec)
    log.close()
    append_as_older_code(folder, log.segments[-1].base_offset, [NOW], [5], [NOW + 1])
    log = folder.open()
    assert log.log_end_offset == 22
    assert folder.found(NOW, NOW + 1, NOW + 2) == [(NOW, 19), (NOW + 1, 21), None]
    folder.set(retention_ms=DAY_MS)
    log.expiry.maintain(NOW + DAY_MS)
    assert log.log_start_offset < 19 < log.log_end_offset


@pytest.mark.parametrize("untimed", [False, True], ids=["with-times", "no-times-before"])
def test_what_it_appended_before_it_rolled_is_found(folder: LogFolder, untimed: bool) -> None:
    log = folder.open(index_interval_bytes=4096)
    if untimed:
        log.appender.append(timed_set(-1, -1, magic=0))
    else:
        folder.append(100, 200)
    log.close()
    append_as_older_code(folder, 0, [NOW], [5])
    rolled = folder.path / f"{4:020d}.log"
    rolled.write_bytes(timed_set(7, base_offset=4))
    (folder.path / f"{4:020d}.index").touch()
    log = folder.open()
    log.prepare()
    assert (log.log_end_offset, log.segment_count) == (5, 2)
    assert folder.found(NOW - 1, NOW, NOW + 1) == [(NOW, 2), (NOW, 2), None]
    folder.set(retention_ms=DAY_MS)
    log.expiry.maintain(NOW + DAY_MS)
    assert log.log_start_offset == 0
