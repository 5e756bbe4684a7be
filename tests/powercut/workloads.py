"""Short lives of a data directory, each about one thing that has to survive a power cut."""

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
    life.flush("b")
    life.checkpoint()
    life.delete("b")
    life.create("b", 1, retention_ms=4)
    life.append("b", 20)
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


WORKLOADS = (rolls, torn_sets, retention, topics, positions, stops, truncation)
