"""Copies of a broker's data directory, taken while it runs and put back while it is stopped.

Segments are only appended to, and a closed one not even that, unless a follower truncates it:
`QuickFiles` then copies it first. So the log files of closed segments are hard links, and
everything else is copied.

A copy knows no producer. A producer that outlives a restore has sent more than the copy holds, so a
broker that knew its earlier sequence numbers would refuse its next set as out of order. A broker
that does not know a producer accepts any first sequence number, and finds gaps and retries from
then on.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ..storage.directory.lock import LOCK_FILE
from ..storage.names import folder_name
from ..storage.producers.producer_snapshots import SUFFIX as PRODUCERS_SUFFIX
from ..storage.producers.producer_snapshots import (
    MalformedSnapshot,
    decode_snapshot,
    encode_snapshot,
    parse_snapshot_name,
    snapshot_path,
)
from ..storage.producers.producer_states import ProducerStates
from ..values import value_class
from .clock import ClockOffset

_LOG_SUFFIX: Final = ".log"

_STAYING: Final = frozenset(("disk-reserve", "producer-ids"))
"""Files that a restored directory has from before: the reserve holds nothing, and a producer id is
given out once, even to a client that the broker has forgotten."""

Bounds = tuple[int, int]
"""Log start and log end of a partition."""


@value_class
class StateMark:
    """Tells whether anything was written since an earlier mark."""

    metadata_end: int
    logs: Mapping[tuple[str, int], Bounds]
    """The open logs."""

    def reaches(self, other: "StateMark") -> bool:
        """Whether every log is written at least as far as in `other`."""
        ends = {key: end for key, (_, end) in self.logs.items()}
        return self.metadata_end >= other.metadata_end and all(
            ends.get(key, 0) >= end for key, (_, end) in other.logs.items()
        )


class BrokerSnapshot:
    """What a broker held at one time: topics, messages, positions, groups, settings and users; and
    how its clock differed from the machine's."""

    def __init__(self, broker: Any, folder: Path, clock: ClockOffset, mark: StateMark) -> None:
        """`broker` is the `BrokerThread`; `folder` the copy of its directory."""
        self._broker = broker
        self.folder = folder
        self.clock = clock
        self.mark = mark

    def differs(self, earlier: "BrokerSnapshot") -> bool:
        """Whether something was written since an earlier snapshot, or the clock was changed. One
        that runs at a speed of its own goes further ahead meanwhile."""
        clock, before = self.clock, earlier.clock
        if clock.speed != 1 and before.frozen_at_ms is None:
            clock = clock._replace(ahead_ms=before.ahead_ms)
        return self.mark != earlier.mark or clock != before

    def restore(self) -> None:
        """Put the broker back into this state, as `BrokerThread.restore` does."""
        self._broker.restore(self)


def copy_directory(source: Path, target: Path) -> None:
    """Copy a data directory, with the times of its files. Files that go meanwhile are left out.

    `target` exists already, and is empty except for files that stay.
    """
    for folder, names in _folders(source):
        place = target / folder.relative_to(source)
        place.mkdir(exist_ok=True)
        active = max((name for name in names if name.endswith(_LOG_SUFFIX)), default="")
        for name in names:
            try:
                if name.endswith(_LOG_SUFFIX) and name != active:
                    os.link(folder / name, place / name)
                else:
                    shutil.copy2(folder / name, place / name)
            except FileNotFoundError:
                continue


def forget_producers(folder: Path, logs: Iterable[Any]) -> None:
    """Remove the idempotent producers from a copy of a data directory; `logs` are the open ones of
    the directory that was copied. Their aborted transactions stay."""
    for path in folder.glob(f"*/*{PRODUCERS_SUFFIX}"):
        name = parse_snapshot_name(path.name)
        if name is not None:
            with suppress(MalformedSnapshot):  # The broker will not use it either.
                _write_forgotten(path, decode_snapshot(path.read_bytes(), name.offset), name.offset)
    for log in logs:
        place, end = folder / folder_name(log.topic, log.partition), log.log_end_offset
        if log.producers.in_use and place.is_dir():
            _write_forgotten(snapshot_path(place, end), log.producers.states.copy(), end)


def _write_forgotten(path: Path, states: ProducerStates, offset: int) -> None:
    states.keep(0)
    path.write_bytes(encode_snapshot(states, offset))


def replace_directory(directory: Path, snapshot: Path, now_ms: int) -> None:
    """Give a data directory that no broker uses the content of a snapshot. It counts as in use at
    `now_ms`, so that the clock does not look wrong to the broker that opens it."""
    for path in directory.iterdir():
        if path.name in _STAYING:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    copy_directory(snapshot, directory)
    lock = directory / LOCK_FILE
    if lock.exists():
        os.utime(lock, (now_ms / 1000, now_ms / 1000))


def _folders(source: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield each folder below `source`, itself first, with the names of its files."""
    for folder, _, names in os.walk(source):
        top = Path(folder) == source
        yield Path(folder), [name for name in names if not (top and name in _STAYING)]
