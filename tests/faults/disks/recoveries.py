"""Directories that an earlier crash left, and their recovery."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from horolog.testing.power_cuts import CutState

from .enumeration import Enumeration, explained, made
from .life import DATA, Life
from .promises import Promise
from .workloads import unsynced

TORN_COMMIT = b"\0\0\0\x30torn"


def crashed(
    enumeration: Enumeration, folder: Path, count: int, *, torn: int = -2, missing_bytes: int = 3
) -> Iterator[tuple[Path, Promise]]:
    """Folders that a power cut may leave of `unsynced`, with what had been promised.

    A record of the metadata log is torn in each. The first folder has it all, but `missing_bytes`
    at the end of the segment numbered `torn`. `folder` is for them.
    """
    before = Life(folder / "before")
    unsynced(before)
    for number, state in enumerate(enumeration.crashed(before, count)):
        tear = (torn, missing_bytes) if number == 0 else None
        with _torn_apart(before, state, folder / str(number), tear) as path:
            promise = before.promises.at(state.operations_done)
            promise.kept = _values(path) | {TORN_COMMIT}
            yield path, promise


@contextmanager
def _torn_apart(
    life: Life, state: CutState, path: Path, tear: tuple[int, int] | None
) -> Iterator[Path]:
    with explained(life, state), made(state, path):
        metadata = path / DATA / "metadata-log" / "__metadata-0" / f"{0:020d}.log"
        metadata.write_bytes(metadata.read_bytes() + TORN_COMMIT)
        if tear is not None:
            segment, missing_bytes = tear
            torn = sorted((path / DATA / "t-0").glob("*.log"))[segment]
            torn.write_bytes(torn.read_bytes()[:-missing_bytes])
        yield path


def _values(path: Path) -> set[bytes]:
    """What tells the messages in the files of a directory apart, of those cut short as well."""
    contents = b"".join(file.read_bytes() for file in path.rglob("*.log"))
    return set(re.findall(rb"t [0-9]+ ", contents))


def recover(path: Path, promise: Promise, *timestamps_ms: int, without: str | None = None) -> Life:
    """The life of a crashed directory from its start on, with one set that is appended."""
    life = Life(path, promise=promise, without=without)
    life.open()
    life.append("t", *timestamps_ms)
    life.flush("t")
    life.checkpoint()
    return life
