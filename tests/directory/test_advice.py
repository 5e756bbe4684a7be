"""What `verify` advises about an entry of a log is what a start and a repair then do about it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from struct import pack_into

import pytest

from horolog.protocol.records.batch import build_batch
from horolog.protocol.records.kernel import crc32, crc32c
from horolog.protocol.records.layout import (
    BATCH_ATTRIBUTES_AT,
    BATCH_CRC_AT,
    BATCH_OVERHEAD,
    CRC_AT,
    LAST_DELTA_AT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    RECORD_COUNT_AT,
    Codec,
)
from horolog.protocol.records.messages.sets import NewRecord, build_wrapper
from horolog.storage.check.repair import Repair
from horolog.storage.check.verify import Finding, verify
from horolog.storage.events import ignore_events
from horolog.storage.files import SystemFiles
from horolog.testing.clock import ManualClock
from horolog.testing.directories import DataDirectory
from horolog.testing.files import FaultyFiles
from horolog.testing.logs import timed_set

GOOD = bytes(timed_set(1, 2))
"""Offsets 0 and 1; the entry that breaks a rule has offset 2 or should."""
AT = len(GOOD)
RECORDS = [NewRecord(b"one", timestamp_ms=5), NewRecord(b"two", timestamp_ms=9)]


def message(change: Callable[[bytearray], None], *, renew: bool = True) -> bytes:
    entry = timed_set(3, base_offset=2)
    change(entry)
    if renew:
        pack_into(">I", entry, CRC_AT, crc32(memoryview(entry)[MAGIC_AT:]))
    return bytes(entry)


def setting(at: int, value: int) -> Callable[[bytearray], None]:
    def change(entry: bytearray) -> None:
        entry[at] = value

    return change


def wrapper(inner: bytes | bytearray, offset: int, timestamp_ms: int, magic: int = 1) -> bytes:
    return bytes(
        build_wrapper(
            inner, offset=offset, timestamp_ms=timestamp_ms, magic=magic, codec=Codec.GZIP
        )
    )


def not_gzip() -> bytes:
    entry = bytearray(wrapper(timed_set(5, 9), 3, 9))
    entry[-4:] = b"oops"
    pack_into(">I", entry, CRC_AT, crc32(memoryview(entry)[MAGIC_AT:]))
    return bytes(entry)


def batch(
    *fields: tuple[int, str, int], records: list[NewRecord] = RECORDS, codec: Codec = Codec.NONE
) -> bytes:
    """A batch with offset 2, fields of it as they are given, and a CRC that is right."""
    entry = build_batch(records, base_offset=2, codec=codec)
    for at, kind, value in fields:
        pack_into(kind, entry, at, value)
    pack_into(">I", entry, BATCH_CRC_AT, crc32c(entry, BATCH_ATTRIBUTES_AT, len(entry)))
    return bytes(entry)


FIRST_BYTES = len(batch(records=RECORDS[:1])) - BATCH_OVERHEAD
SECOND_DELTA_AT = BATCH_OVERHEAD + FIRST_BYTES + 3
"""Behind a byte each for length, attributes and time."""

CUT_OFF = {"partial": GOOD[:30], "zeros": bytes(100)}
"""Nothing can come behind these."""

JUDGED = CUT_OFF | {
    "crc": message(setting(-1, 0), renew=False),
    "size": message(setting(11, 3), renew=False),
    "lengths": message(setting(26, 0)),
    "magic": message(setting(MAGIC_AT, 7)),
    "codec": message(setting(MAGIC_AT + 1, 5)),
    "offset falls": bytes(timed_set(3, base_offset=1)),
    "wrapper: not compressed": not_gzip(),
    "wrapper: inner crc": wrapper(message(setting(-1, 0), renew=False), 2, 3),
    "wrapper: offsets do not rise": wrapper(timed_set(5) + timed_set(9), 3, 9),
    "wrapper: not the last offset": wrapper(timed_set(-1, -1, magic=0), 7, -1, magic=0),
}
"""What a start and a repair go by, in any log."""

WITHOUT_GAPS = {
    "offset jumps": bytes(timed_set(3, base_offset=9)),
    "wrapper: offsets missing": wrapper(timed_set(5) + timed_set(9, base_offset=2), 4, 9),
    "batch: offsets missing": batch((LAST_DELTA_AT, ">i", 2)),
}
WITH_GAPS = {"offset jumps and falls": bytes(timed_set(3, base_offset=70))}

KEPT = {
    "wrapper: time too small": wrapper(timed_set(5, 9), 3, 8),
    "wrapper: time too large": wrapper(timed_set(5, 9), 3, 10),
    "batch: time too small": batch((MAX_TIMESTAMP_AT, ">q", 8)),
    "batch: record not good": batch((BATCH_OVERHEAD, ">b", 120)),
    "batch: fewer records": batch(
        (LAST_DELTA_AT, ">i", 1), (RECORD_COUNT_AT, ">i", 2), records=RECORDS[:1]
    ),
    "batch: offsets do not rise": batch((SECOND_DELTA_AT, ">b", 0)),
    "batch: behind its last offset": batch((SECOND_DELTA_AT, ">b", 10)),
    "batch: not compressed": batch((BATCH_OVERHEAD, ">i", 7), codec=Codec.GZIP),
}
"""What neither goes by."""

CASES = [
    pytest.param(entry, gaps, kind, id=f"{kind}-{'gaps' if gaps else 'no gaps'}")
    for gaps, kinds in ((False, JUDGED | WITHOUT_GAPS | KEPT), (True, JUDGED | WITH_GAPS | KEPT))
    for kind, entry in kinds.items()
]


def following(kind: str, entry: bytes) -> tuple[bytes, int]:
    """What comes behind the entry, and where the log ends then."""
    if kind in CUT_OFF:
        return b"", 3
    two = entry[MAGIC_AT] == 2 or kind.startswith("wrapper")
    offset = {"offset jumps": 10, "wrapper: not the last offset": 8}.get(kind, 4 if two else 3)
    if kind in {"wrapper: offsets missing", "batch: offsets missing"}:
        offset = 5
    elif kind == "wrapper: inner crc":
        offset = 3
    return bytes(timed_set(20, base_offset=offset)), offset + 1


def errors_at(path: Path, position: int) -> list[Finding]:
    return [
        found
        for found in verify(SystemFiles(), path)
        if found.error and found.path.suffix == ".log" and found.position == position
    ]


def repaired(path: Path) -> int:
    """How many steps a repair of the data directory takes."""
    repair = Repair(SystemFiles(), path, clock=ManualClock(), observe=ignore_events)
    try:
        plan = repair.plan()
        if plan.possible:
            repair.carry_out(plan)
    finally:
        repair.release()
    return len(list(plan.steps))


@pytest.mark.parametrize("synced", [False, True], ids=["not synced", "synced"])
@pytest.mark.parametrize(("entry", "gaps", "kind"), CASES)
def test_the_advice_is_what_happens(
    entry: bytes, gaps: bool, kind: str, synced: bool, tmp_path: Path
) -> None:
    behind, end_offset = following(kind, entry)
    root = tmp_path / "data"
    log = root / "a-0" / f"{0:020d}.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(GOOD + entry + behind)
    topics = {"a": {"partitions": 1, "gaps": gaps}}
    (root / "topics.json").write_text(json.dumps({"version": 1, "topics": topics}))
    point = end_offset if synced else 0
    (root / "recovery-point-offset-checkpoint").write_text(f"0\n1\na 0 {point}\n")
    before = log.read_bytes()
    advice = {found.advice for found in errors_at(root, AT)}
    assert len(advice) == 1
    (advised,) = advice

    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    steps = repaired(copy)
    left = errors_at(copy, AT)
    data = DataDirectory(root)
    data.open()
    end = data.directory.log("a", 0).log_end_offset
    happened = [event for event, _ in data.events.seen if event.startswith(("torn_", "segment_d"))]
    data.close()

    if kind in KEPT:
        assert "keep it as it is" in advised
        assert (steps, bool(left)) == (0, True)
        assert (happened, end) == ([], end_offset)
        assert log.read_bytes() == before
    elif synced:
        assert "run `horolog repair`" in advised
        assert steps
        assert not left
        assert happened == ["torn_tail_cut" if kind == "partial" else "segment_damaged"]
    else:
        assert "next start sets everything from here on aside" in advised
        assert happened == ["torn_tail_cut"]
        assert (log.read_bytes(), end) == (GOOD, 2)
        assert log.with_name(f"{log.name}.{AT}.broken").read_bytes() == before[AT:]


def test_a_log_that_is_good_is_read_once(tmp_path: Path) -> None:
    folder = tmp_path / "a-0"
    folder.mkdir()
    value = Random(1).randbytes(5000)
    sets = [
        timed_set(offset, offset, codec=Codec(offset % 3), base_offset=offset, value=value)
        for offset in range(0, 1200, 2)
    ]
    log = b"".join(sets)
    (folder / f"{0:020d}.log").write_bytes(log)
    files = FaultyFiles(SystemFiles())
    assert not [found for found in verify(files, folder) if found.error]
    pieces = len(log) // (1 << 20) + 1
    assert pieces > 2
    # An entry at the end of a piece may have to be read again with the next one.
    assert len(log) <= files.bytes_read <= len(log) + (pieces + 1) * len(max(sets, key=len))
