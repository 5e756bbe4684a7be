"""Data directories in the states that docs/operations.md speaks of.

Each function makes `data` in a folder, with a topic `clicks` of three segments.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from horolog.protocol.records.messages.sets import NewRecord, build_set
from horolog.storage.directory.log_directory import LogDirectory
from horolog.storage.directory.position_records import StoredPosition
from horolog.testing.directories import DataDirectory

FIRST_MS: Final = 1479144272509
LOG: Final = "{:020d}.log"


def _filled(folder: Path) -> tuple[DataDirectory, LogDirectory]:
    """An open data directory: nine messages, a second apart, three to a segment."""
    data = DataDirectory(folder / "data")
    directory = data.open()
    directory.create_topic("clicks", 1, {"segment.bytes": "130", "retention.ms": "-1"})
    log = directory.log("clicks", 0)
    for number in range(9):
        value = b"click %d" % number
        log.appender.append(build_set([NewRecord(value, timestamp_ms=FIRST_MS + 1000 * number)]))
    data.commit("counter", StoredPosition("clicks", 0, 4, -1, FIRST_MS, ""))
    return data, directory


def stopped(folder: Path) -> Path:
    """Cleanly stopped; the folder of the partition."""
    _, directory = _filled(folder)
    directory.close()
    return folder / "data" / "clicks-0"


def torn(folder: Path) -> None:
    """A machine lost its power in the middle of the last write."""
    aside = folder / "aside"
    aside.mkdir()
    data, directory = _filled(aside)
    data.copy(folder / "data")
    directory.close()
    shutil.rmtree(aside)
    last = folder / "data" / "clicks-0" / LOG.format(6)
    last.write_bytes(last.read_bytes()[:-10])


def damaged(folder: Path) -> None:
    """A bit of the second message changed on the disk."""
    log = stopped(folder) / LOG.format(0)
    content = bytearray(log.read_bytes())
    content[-45] ^= 1
    log.write_bytes(content)


def indexes(folder: Path) -> None:
    """An index is gone, another one has been overwritten."""
    partition = stopped(folder)
    (partition / LOG.format(0)).with_suffix(".timeindex").unlink()
    (partition / LOG.format(3)).with_suffix(".timeindex").write_bytes(b"x" * 12)


def append_times(folder: Path) -> None:
    """The file of append times is gone."""
    (stopped(folder) / LOG.format(0)).with_suffix(".appendtime").unlink()


def topics(folder: Path) -> None:
    """The file with the topics' settings is no JSON any more."""
    stopped(folder)
    (folder / "data" / "topics.json").write_text('{"topics": {"clicks"')


def metadata(folder: Path) -> None:
    """A bit of the last record of the metadata log changed on the disk."""
    stopped(folder)
    path = folder / "data" / "metadata-log" / "__metadata-0" / LOG.format(0)
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)


def missing(folder: Path) -> None:
    """A partition's folder is gone, a stray file has come."""
    shutil.rmtree(stopped(folder))
    (folder / "data" / "notes.txt").write_text("?")


def unfinished(folder: Path) -> None:
    """A broker was killed while it made a topic."""
    stopped(folder)
    (folder / "data" / "views-0").mkdir()


def gap(folder: Path) -> None:
    """A log file is gone from the middle."""
    (stopped(folder) / LOG.format(3)).unlink()


SCENARIOS: Final[dict[str, Callable[[Path], object]]] = {
    "torn": torn,
    "damaged": damaged,
    "indexes": indexes,
    "append-times": append_times,
    "topics": topics,
    "metadata": metadata,
    "missing": missing,
    "unfinished": unfinished,
    "gap": gap,
    "removed": stopped,
    "locked": stopped,
    "full": lambda folder: None,
    "failed-sync": stopped,
}
