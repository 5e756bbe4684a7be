"""A build that leaves out one sync is caught: the enumeration of power cuts finds a bad state.

Each line of code that syncs is left out in turn. A sync that is not in these tables fails the
first test, so that a new one has to be shown to matter, or why it does not.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random

import pytest

from . import workloads
from .enumeration import BadState, Enumeration
from .life import Life
from .recoveries import crashed, recover
from .workloads import WORKLOADS

RECOVERY = "recovery"
RECOVERY_AND_ROLL = "recovery_and_roll"
RECOVERY_OF_LESS = "recovery_of_less"
RECOVERIES = {
    RECOVERY: (-2, 3, (60,)),
    RECOVERY_AND_ROLL: (0, 3, (60, 61)),
    RECOVERY_OF_LESS: (0, 54, (60, 61)),
}
"""Which segment lacks how many bytes (a whole message has 54), and what is appended then."""
EVERYTHING = (*(workload.__name__ for workload in WORKLOADS), *RECOVERIES)

DROPPED = "dropped_producers"
CHECKPOINT = "checkpoints.write_checkpoint > files.replace_file"

CAUGHT_BY = {
    "append_times.AppendTimes.sync: sync *.appendtime": "rolls",
    "producer_snapshots.PendingSnapshot.write > files.replace_file: sync *.tmp": DROPPED,
    "quarantine._copy > files.replacing: sync *.tmp": RECOVERY,
    "quarantine._copy > files.replacing: sync_directory": RECOVERY,
    f"{CHECKPOINT}: sync log-start-offset-checkpoint.tmp": "rolls",
    f"{CHECKPOINT}: sync recovery-point-offset-checkpoint.tmp": "rolls",
    f"{CHECKPOINT}: sync_directory": "truncation",
    "clean_shutdown.leave_marker > files.replace_file: sync_directory": "stops",
    "directory_opening.open_directory > files.make_directory_safely: sync_directory": "torn_sets",
    "flush.sync_indexes > files.replace_file: sync index-checksums.tmp": "rolls",
    "flush.sync_indexes > files.replace_file: sync_directory": "rolls",
    "flush.FlushWork._sync_index: sync *.appendtime": RECOVERY_OF_LESS,
    "flush.FlushWork._sync_index: sync *.index": "rolls",
    "flush.FlushWork._sync_index: sync *.timeindex": "rolls",
    "flush.FlushWork.sync_messages: sync *.log": "torn_sets",
    "flush.FlushWork.sync_messages: sync_directory": "torn_sets",
    "folder.MetadataFolder._write > files.replacing: sync state.tmp": "compaction",
    "log_directory.LogDirectory.secure_log_starts: sync_directory": "retention_of_all",
    "log_producers.LogProducers._drop_beyond: sync_directory": "producers",
    "recovery.Recovery._end_at: sync *.log": RECOVERY_AND_ROLL,
    "recovery.Recovery._set_aside: sync_directory": RECOVERY_OF_LESS,
    "segment.Segment.truncate: sync *.log": "cut_and_roll",
    "segment_list.SegmentList._sync_names: sync_directory": "cut_of_segments",
    "topic_changes.TopicChanges._make_folders: sync_directory": "positions",
    "topics.write_topics > files.replace_file: sync topics.json.tmp": "positions",
    "topics.write_topics > files.replace_file: sync_directory": "cut_twice",
}
"""By sync, the workload in which leaving it out loses what was promised."""

HARMLESS = {
    "clean_shutdown.leave_marker > files.replace_file: sync .kafka_cleanshutdown.tmp": (
        "a log that does not end where its checkpoint says is recovered all the same"
    ),
    "clean_shutdown.take_marker: sync_directory": (
        "a log that does not end where its checkpoint says is recovered all the same"
    ),
    f"{CHECKPOINT}: sync replication-offset-checkpoint.tmp": ("a single broker does not read it"),
    "folder.MetadataFolder._rename: sync_directory": (
        "what these lives promise begins with a topic, whose file is written next and syncs the "
        "same directory; the first user of a directory needs it"
    ),
    "folder.MetadataFolder.make: sync_directory": (
        "the first checkpoint that is written there syncs the same directory"
    ),
    "flush.FlushWork._sync_index: sync *.timemap": "it is made again from the log",
    "folder.MetadataFolder._write > files.replacing: sync_directory": (
        "the checkpoints are written next, before anything goes, and sync the same directory"
    ),
    "producer_snapshots.PendingSnapshot.write > files.replace_file: sync_directory": (
        "without it the one before it counts, and the log from there on; before segments go, the "
        "directory is synced again"
    ),
    "truncations.Truncations.add: sync truncations": (
        "it tells why messages are gone, and no log depends on it; directory/test_truncations.py "
        "cuts the power"
    ),
    "truncations.Truncations.add: sync_directory": (
        "it tells why messages are gone, and no log depends on it; directory/test_truncations.py "
        "cuts the power"
    ),
    "startup.rename_deleted: sync_directory": (
        "the checkpoint and the topics file are written next, and sync the same directory"
    ),
}
"""Syncs that may be missing, and why."""


def lives(folder: Path, names: Iterable[str], without: str | None = None) -> Iterator[Life]:
    """The recorded lives of workloads, or of a recovery."""
    for name in names:
        if name in RECOVERIES:
            torn, missing_bytes, timestamps_ms = RECOVERIES[name]
            (folder / name).mkdir()
            trying = Enumeration(Random(name), exhaustive_max=0, samples=1)
            for path, promise in crashed(
                trying, folder / name, 1, torn=torn, missing_bytes=missing_bytes
            ):
                yield recover(path, promise, *timestamps_ms, without=without)
        else:
            life = Life(folder / name, without=without)
            workload: Callable[[Life], None] = getattr(workloads, name)
            workload(life)
            yield life


def test_26_every_sync_is_in_the_tables(folder: Path) -> None:
    sites: set[str] = set()
    for life in lives(folder, EVERYTHING):
        sites |= life.recording.sites
    assert sites == CAUGHT_BY.keys() | HARMLESS.keys()


LATEST = (
    "folder.MetadataFolder._write > files.replacing: sync state.tmp",
    "log_producers.LogProducers._drop_beyond: sync_directory",
)
"""Take longer to be caught than all others together. `metadata/test_power_cuts.py` catches the
first one sooner."""

LATE = (
    "clean_shutdown.leave_marker > files.replace_file: sync_directory",
    "flush.FlushWork._sync_index: sync *.appendtime",
    "flush.FlushWork._sync_index: sync *.timeindex",
    "producer_snapshots.PendingSnapshot.write > files.replace_file: sync *.tmp",
    "recovery.Recovery._set_aside: sync_directory",
    "segment_list.SegmentList._sync_names: sync_directory",
)
"""Take a second or more to be caught: a run tries one of them, the soak all."""


@pytest.mark.parametrize(
    "site",
    [
        pytest.param(one, marks=[pytest.mark.soak] if one in (*LATEST, *LATE) else [])
        for one in CAUGHT_BY
    ],
)
def test_26_a_build_without_a_sync_is_caught(site: str, folder: Path) -> None:
    check_caught(site, folder)


def test_26_a_build_without_a_sync_is_caught_late(folder: Path, random: Random) -> None:
    check_caught(random.choice(LATE), folder)


def check_caught(site: str, folder: Path) -> None:
    """Fail unless a power cut shows that the sync is missing."""
    enumeration = Enumeration(Random(site), exhaustive_max=256, samples=30)
    [life] = lives(folder, [CAUGHT_BY[site]], without=site)
    with pytest.raises(BadState):
        enumeration.survives(life, folder)


@pytest.mark.soak
@pytest.mark.parametrize("site", HARMLESS)
def test_26_a_build_without_a_harmless_sync_survives(
    site: str, folder: Path, enumeration: Enumeration
) -> None:
    for life in lives(folder, EVERYTHING, without=site):
        if life.recording.left_out_at is not None:
            enumeration.survives(life, folder)
