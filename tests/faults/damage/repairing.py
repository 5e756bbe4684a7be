"""Data directories to repair, and what must hold after it."""

from dataclasses import dataclass
from pathlib import Path

from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import entries, records
from horolog.storage.check.repair import Repair
from horolog.storage.check.repair_plan import RepairStep
from horolog.storage.check.verify import verify
from horolog.storage.directory.position_records import StoredPosition
from horolog.storage.events import ignore_events
from horolog.storage.files import Files, SystemFiles
from horolog.storage.read import reader
from horolog.testing.clock import ManualClock
from horolog.testing.directories import DataDirectory, read_messages
from horolog.testing.files import QuickFiles
from horolog.testing.logs import timed_set, untimed_set

Message = tuple[int, int, bytes | None]
"""Offset, timestamp and value."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one entry is stored, and what is in it."""

    path: Path
    start: int
    end: int
    messages: tuple[Message, ...]


def fill(data: DataDirectory, *, clean: bool, **settings: object) -> None:
    """Topic `t` with plain and compressed entries, topic `u` beside it; everything is synced."""
    directory = data.open()
    overrides = {"segment.bytes": "210", "index.interval.bytes": "40"}
    overrides |= {name.replace("_", "."): str(value) for name, value in settings.items()}
    directory.create_topic("t", 1, overrides)
    directory.create_topic("u", 1, {})
    log = directory.log("t", 0)
    for number in range(8):
        log.appender.append(timed_set(1000 + 10 * number, value=b"a%d" % number))
        log.appender.append(timed_set(1005 + 10 * number, 990 + 10 * number, codec=Codec.GZIP))
        if number % 2:
            log.appender.append(untimed_set(1))
    data.append("u", 1, 2, 3)
    data.commit("job", StoredPosition("t", 0, 5, -1, 5, ""))
    for topic in ("t", "u"):
        directory.log(topic, 0).flusher.flush()
    directory.write_checkpoints()
    if clean:
        data.close()


def places(folder: Path) -> list[Place]:
    """The entries of every log file in a partition's folder, before they are damaged."""
    found = []
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        for entry in entries(data):
            stored = records(data[entry.position : entry.end], max_decompressed_bytes=1 << 20)
            messages = tuple((one.offset, one.timestamp_ms, one.value) for one in stored)
            found.append(Place(path, entry.position, entry.end, messages))
    return found


def repair(path: Path, files: Files | None = None) -> list[RepairStep]:
    """Repair a data directory or a partition; the steps that were planned."""
    repairing = Repair(files or QuickFiles(), path, clock=ManualClock(), observe=ignore_events)
    try:
        plan = repairing.plan()
        steps = list(plan.steps)
        if plan.possible:
            repairing.carry_out(plan)
    finally:
        repairing.release()
    return steps


def errors(path: Path) -> list[tuple[str, int | None, str]]:
    """What `verify` finds to be wrong."""
    found = verify(SystemFiles(), path)
    return [(one.path.name, one.position, one.rule) for one in found if one.error]


UNEXPECTED = (
    "checkpoint_ignored",
    "log_open_failed",
    "segment_damaged",
    "segment_set_aside",
    "torn_tail_cut",
)
"""Events of a start that a repair should have made needless."""


def check_served(data: DataDirectory, expected: list[Message], end_offset: int) -> None:
    """A broker serves `expected` of topic `t`, and goes on at or behind `end_offset`."""
    data.files = QuickFiles()
    directory = data.open()
    log = directory.log("t", 0)
    found = [(offset, ms, value) for offset, ms, _, value in read_messages(log)]
    assert found == expected
    assert log.log_end_offset >= end_offset
    assert [event for event, _ in data.events.seen if event in UNEXPECTED] == []
    for target_ms in range(985, 1090, 7):
        first = next(((ms, offset) for offset, ms, _ in found if ms >= target_ms), None)
        searched = reader.find_time(log, target_ms).run()
        assert (searched and (searched.timestamp_ms, searched.offset)) == first
    data.append("t", 7)
    data.restart()
    assert data.times("t") == [*(ms for _, ms, _ in found), 7]
    assert data.times("u") == [1, 2, 3]
    assert directory.committed.get("job", "t", 0) is not None
    data.close()
