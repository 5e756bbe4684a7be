"""Short lives of a data directory, each about one thing that has to survive a power cut."""

import errno
from contextlib import suppress
from functools import partial
from random import Random

from horolog.protocol.errors import StorageError

from .life import Life

SMALL_SEGMENTS = {"segment_bytes": 130, "index_interval_bytes": 50}
"""Two of the messages that `Life.append` makes fill a segment, with an index entry in it."""


def rolls(life: Life) -> None:
    """Appends over several segments, synced now and then; positions of what is safe on disk."""
    life.open()
    life.create("t", **SMALL_SEGMENTS)
    life.append("t", 10)
    life.flush("t")
    life.append("t", 30)
    life.append("t", 20)
    life.flush("t")
    life.checkpoint()
    life.append("t", 40, 50)
    life.append("t", 35)
    life.flush("t")
    life.append("t", 60)
    life.checkpoint()


def torn_sets(life: Life) -> None:
    """Sets larger than a sector, so that a write lands in pieces."""
    life.open()
    life.create("t", segment_bytes=4000)
    life.append("t", 10, 11, value_bytes=300)
    life.flush("t")
    life.append("t", 12, value_bytes=1200)
    life.append("t", 13, value_bytes=30)
    life.flush("t")


def retention(life: Life) -> None:
    """Segments that go: renamed, then removed, while others are appended to."""
    life.open()
    life.create("t", **SMALL_SEGMENTS, retention_ms=1000)
    for timestamp_ms in (10, 20, 30, 40):
        life.append("t", timestamp_ms)
    life.flush("t")
    life.checkpoint()
    life.append("t", 5000)
    life.flush("t")
    life.maintain("t", now_ms=5000)
    life.append("t", 5001)
    life.remove_deleted()
    life.flush("t")
    life.checkpoint()
    life.maintain("t", now_ms=9000)
    life.append("t", 9000)
    life.remove_deleted()
    life.flush("t")


def retention_of_all(life: Life) -> None:
    """All there is goes, the newest messages before they were ever synced."""
    life.open()
    life.create("t", **SMALL_SEGMENTS, retention_ms=1000)
    life.append("t", 10)
    life.flush("t")
    life.checkpoint()
    life.append("t", 20)
    life.maintain("t", now_ms=5000)
    life.append("t", 5000)


def trimming(life: Life) -> None:
    """The oldest messages are dropped: in the middle of a segment, and all there are."""
    life.open()
    life.create("t", **SMALL_SEGMENTS)
    for timestamp_ms in (10, 20, 30, 40, 50):
        life.append("t", timestamp_ms)
    life.trim("t", 3)
    life.append("t", 60)
    life.remove_deleted()
    life.trim("t", 6)
    life.append("t", 70)
    life.flush("t")
    life.remove_deleted()
    life.checkpoint()


def topics(life: Life) -> None:
    """Topics made, altered, deleted and made again under the same name."""
    life.open()
    life.create("a", retention_ms=1)
    life.append("a", 10)
    life.flush("a")
    life.create("b", 2, retention_ms=2)
    life.commit("job", "b", 3, 4)
    life.alter("b", {"retention.ms": "3"})
    life.append("b", 10, 11)
    life.trim("b", 1)
    life.checkpoint()
    life.delete("b")
    life.create("b", 1, retention_ms=4)
    life.append("b", 20)
    life.create_partitions("b", 3)
    life.delete("a")
    life.flush("b")
    life.remove_deleted()


def positions(life: Life) -> None:
    """Commits, one after another, of several names."""
    life.open()
    life.create("t", 3, retention_ms=1)
    life.commit("one", "t", 1)
    life.commit("two", "t", 5, 6, 7)
    life.commit("one", "t", 2, metadata="m" * 700)
    life.commit("one", "t", 3)
    life.commit("two", "t", 8)


def stops(life: Life) -> None:
    """Clean stops and starts between appends."""
    life.open()
    life.create("t", **SMALL_SEGMENTS)
    life.append("t", 10)
    life.append("t", 20)
    life.append("t", 30)
    life.close()
    life.open()
    life.append("t", 40)
    life.append("t", 15)
    life.close()
    life.open()
    life.close()


def truncation(life: Life) -> None:
    """The end of a log is cut off, in the last segment and in an earlier one, and goes on."""
    life.open()
    life.create("t", **SMALL_SEGMENTS)
    for timestamp_ms in (10, 20, 30, 40, 50):
        life.append("t", timestamp_ms)
    life.flush("t")
    life.checkpoint()
    life.truncate("t", 4)
    life.append("t", 55)
    life.flush("t")
    life.truncate("t", 1)
    life.append("t", 60)
    life.append("t", 70)
    life.flush("t")
    life.checkpoint()


def overlapping(life: Life) -> None:
    """Appends, rolls and retention between the beginning of a sync and its end."""
    life.open()
    life.create("t", **SMALL_SEGMENTS, retention_ms=1000)
    life.append("t", 10)
    life.append("t", 20)
    work = life.begin_flush("t")
    life.append("t", 30)
    life.append("t", 4000)
    life.end_flush("t", work)
    life.checkpoint()
    work = life.begin_flush("t")
    life.append("t", 4010)
    life.append("t", 4020)
    life.maintain("t", now_ms=4030)
    life.end_flush("t", work)
    life.checkpoint()
    life.flush("t")


def unclean_stop(life: Life) -> None:
    """A stop that one log of two takes no part in."""
    life.open()
    life.create("a", **SMALL_SEGMENTS)
    life.create("b", **SMALL_SEGMENTS)
    life.append("a", 10)
    life.append("b", 10)
    life.flush("a")
    life.append("a", 20)
    life.append("b", 20)
    life.close_without("a")
    life.open()
    life.append("a", 30)
    life.close()


def compaction(life: Life) -> None:
    """The state of the metadata log is rewritten when most of its records are of no use."""
    life.open()
    life.create("t", retention_ms=1)
    for offset in range(1, 6):
        life.commit("job", "t", offset, metadata="m" * 300_000)
    life.write_state()
    life.commit("other", "t", 7)
    life.write_state()
    life.commit("other", "t", 8)


def gaps(life: Life) -> None:
    """Bytes of another log with offsets that jump."""
    life.open()
    life.create("t", **SMALL_SEGMENTS)
    life.append("t", 10)
    life.flush("t")
    life.append_stored("t", 5, 20, 30)
    life.append("t", 40)
    life.flush("t")
    life.append_stored("t", 20, 50)
    life.checkpoint()


def unsynced(life: Life) -> None:
    """Segment after segment, and no sync but of the first message."""
    life.open()
    life.create("t", **SMALL_SEGMENTS)
    life.append("t", 10)
    life.flush("t")
    life.checkpoint()
    life.commit("job", "t", 1)
    for timestamp_ms in (20, 30, 25, 40):
        life.append("t", timestamp_ms)
    life.append("t", 50, value_bytes=60)


def fill(life: Life) -> None:
    """Messages in several segments and a position, and a clean stop."""
    life.open()
    life.create("t", **SMALL_SEGMENTS, retention_ms=1000)
    for timestamp_ms in (10, 20, 30, 40, 50):
        life.append("t", timestamp_ms)
    life.commit("job", "t", 1)
    life.close()


def half_deleted(life: Life) -> None:
    """Killed with a deletion begun, sets that are not synced, and a torn one at the end."""
    fill(life)
    life.open()
    life.create("gone", retention_ms=5)
    life.append("gone", 10)
    life.commit("job", "gone", 1)
    life.append("t", 55)
    life.append("t", 56)
    life.files.fail("rename", errno.EIO, name="gone-0")
    with suppress(StorageError):
        life.delete("gone")
    *_, last = life.log("t").segments
    last.log_path.write_bytes(last.log_path.read_bytes() + b"torn")


def truncation_and_rolls(life: Life) -> None:
    """A cut that takes whole segments, and new ones in their place before anything is synced."""
    life.open()
    life.create("t", **SMALL_SEGMENTS)
    life.append("t", 10)
    for timestamp_ms in (20, 30, 40):
        life.append("t", timestamp_ms, timestamp_ms)
    life.flush("t")
    life.checkpoint()
    life.truncate("t", 1)
    for timestamp_ms in range(100, 160, 10):
        life.append("t", timestamp_ms)
    life.flush("t")


def producers(life: Life) -> None:
    """Idempotent producers over several segments, a cut, and clean stops."""
    life.open()
    life.create("t", segment_bytes=260, index_interval_bytes=50)
    for timestamp_ms in (10, 20, 30):
        life.append_numbered("t", timestamp_ms)
        life.append_numbered("t", timestamp_ms, timestamp_ms, producer_id=2)
    life.flush("t")
    life.checkpoint()
    life.append_numbered("t", 40)
    life.truncate("t", 4)
    life.append_numbered("t", 41, 42, producer_id=3)
    life.flush("t")
    life.append_numbered("t", 50)
    life.append_numbered("t", 51)
    life.append("t", 52)
    life.flush("t")
    life.append_numbered("t", 60)
    life.append_numbered("t", 61)
    life.close()
    life.open()
    life.append_numbered("t", 70, producer_id=2)
    life.flush("t")
    life.close()
    life.open()
    life.truncate("t", life.log("t").log_end_offset - 1)
    life.append_numbered("t", 80, 81, producer_id=3)
    life.flush("t")


def dropped_producers(life: Life) -> None:
    """Idempotent producers whose batches are trimmed, or go with retention, by and by."""
    life.open()
    life.create("t", segment_bytes=260, retention_ms=1000)
    life.append_numbered("t", 10)
    life.append_numbered("t", 20, producer_id=2)
    life.flush("t")
    life.trim("t", 2)
    life.append_numbered("t", 30)
    life.maintain("t", now_ms=5000)


def cut_and_roll(life: Life) -> None:
    """A segment that ends where it was cut, nothing more in it, and the next one begun there."""
    life.open()
    life.create("t", **SMALL_SEGMENTS)
    life.append("t", 10)
    life.append("t", 20)
    life.flush("t")
    life.checkpoint()
    life.truncate("t", 1)
    life.append("t", 30, 40)
    life.flush("t")
    life.truncate("t", 0)
    life.append("t", 50)
    life.flush("t")


def cut_twice(life: Life) -> None:
    """A cut into a batch, and one above it before anything was synced."""
    life.open()
    life.create("t")
    life.append_numbered("t", 10, 20, 30, producer_id=1)
    life.flush("t")
    life.checkpoint()
    life.truncate("t", 1)
    life.append("t", 40, 50)
    life.append("t", 60)
    life.truncate("t", 2)


def cut_of_unsynced(life: Life) -> None:
    """A cut into a batch that is not synced: a sync makes the end that it leaves the recovery
    point, and what comes then is not synced."""
    life.open()
    life.create("t")
    life.append_numbered("t", 10, 20, producer_id=1)
    life.truncate("t", 1)
    life.flush("t")
    life.append("t", 30)
    life.checkpoint()
    life.append_numbered("t", 40, 50, producer_id=1)
    life.truncate("t", 3)
    life.flush("t")
    life.append("t", 60)
    life.checkpoint()


def cut_of_sealed(life: Life) -> None:
    """A cut in a segment whose indexes' checksums are safe, and the next one begun there."""
    life.open()
    life.create("t", **SMALL_SEGMENTS)
    for timestamp_ms in (10, 20, 30):
        life.append("t", timestamp_ms)
    life.flush("t")
    life.checkpoint()
    life.truncate("t", 1)
    life.append("t", 40, 50)


def cut_of_segments(life: Life) -> None:
    """A cut takes a whole segment, and another one grows into its place."""
    life.open()
    life.create("t", **SMALL_SEGMENTS)
    life.append("t", 10)
    life.append("t", 20, 20)
    life.flush("t")
    life.checkpoint()
    life.truncate("t", 0)
    life.append("t", 30)
    life.append("t", 40)


def at_random(life: Life, random: Random) -> None:
    """Anything in any order: appends with rolls, syncs, cuts, trims, checkpoints, restarts."""
    life.open()
    life.create("t", segment_bytes=260, index_interval_bytes=50)
    now_ms = 10

    def append() -> None:
        nonlocal now_ms
        now_ms += 10
        times = [now_ms - random.randrange(15) for _ in range(random.choice((1, 1, 2, 3)))]
        if random.random() < 0.3:
            life.append_numbered("t", *times, producer_id=random.choice((1, 2)))
        else:
            life.append("t", *times)

    def cut() -> None:
        log = life.log("t")
        life.truncate("t", random.randint(log.log_start_offset, log.log_end_offset))

    def trim() -> None:
        # Not into a batch: a cut there would take it from under the log start.
        life.trim("t", random.choice([life.log("t").log_start_offset, *life.batch_starts("t")]))

    def restart() -> None:
        life.close()
        life.open()

    steps = (append, cut, trim, partial(life.flush, "t"), life.checkpoint, restart)
    for step in random.choices(steps, weights=(12, 3, 1, 3, 2, 1), k=18):
        step()


WORKLOADS = (
    rolls,
    torn_sets,
    retention,
    retention_of_all,
    trimming,
    topics,
    positions,
    stops,
    truncation,
    truncation_and_rolls,
    cut_and_roll,
    cut_twice,
    cut_of_unsynced,
    cut_of_sealed,
    cut_of_segments,
    overlapping,
    unclean_stop,
    compaction,
    gaps,
    producers,
    dropped_producers,
)
