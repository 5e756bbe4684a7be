"""What is done to a data directory while operations on its files fail."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .failing_life import FailingLife
from .life import Life
from .workloads import fill, half_deleted

Step = Callable[[FailingLife], None]


@dataclass(frozen=True)
class Scenario:
    """Steps, each of which may be refused."""

    prepare: Callable[[Life], None]
    """What happened to the directory before, well."""
    steps: Sequence[Step]
    opened: bool = True
    """Whether the directory is opened, well, before the steps."""


def start(life: FailingLife) -> None:
    life.open()


def stop(life: FailingLife) -> None:
    life.close()


def append(topic: str, *timestamps_ms: int, partition: int = 0) -> Step:
    return lambda life: life.append(topic, *timestamps_ms, partition=partition)


def flush(life: FailingLife) -> None:
    life.flush("t")


def checkpoint(life: FailingLife) -> None:
    life.checkpoint()


def maintain(topic: str, now_ms: int) -> Step:
    return lambda life: life.maintain(topic, now_ms=now_ms)


def remove_deleted(life: FailingLife) -> None:
    life.remove_deleted()


def truncate(topic: str, offset: int) -> Step:
    return lambda life: life.truncate(topic, offset)


def create(topic: str, partitions: int, retention_ms: int) -> Step:
    return lambda life: life.create(topic, partitions, retention_ms=retention_ms)


def alter(topic: str, retention_ms: int) -> Step:
    return lambda life: life.alter(topic, {"retention.ms": str(retention_ms)})


def delete(topic: str) -> Step:
    return lambda life: life.delete(topic)


def commit(name: str, offset: int, metadata_bytes: int = 0) -> Step:
    return lambda life: life.commit(name, "t", offset, metadata="m" * metadata_bytes)


def write_state(life: Life) -> None:
    life.write_state()


def many_commits(life: Life) -> None:
    """Large commits, whose records go when the state of the metadata log is rewritten."""
    life.open()
    life.create("t", retention_ms=1)
    for offset in range(1, 4):
        life.commit("job", "t", offset, metadata="m" * 300_000)
    life.close()


SCENARIOS = {
    "appends": Scenario(
        fill, [append("t", 60, 61), append("t", 70), append("t", 80, 81), append("t", 90)]
    ),
    "syncs": Scenario(
        fill,
        [
            append("t", 60),
            append("t", 70),
            append("t", 80),
            flush,
            checkpoint,
            append("t", 90),
            flush,
        ],
    ),
    "retention": Scenario(
        fill,
        [
            maintain("t", 1040),
            append("t", 60),
            remove_deleted,
            maintain("t", 9000),
            append("t", 9000),
            flush,
        ],
    ),
    "truncation": Scenario(
        fill,
        [truncate("t", 4), append("t", 60), truncate("t", 1), append("t", 70), flush],
    ),
    "topics": Scenario(
        fill,
        [
            create("n", 2, 7),
            append("n", 10, partition=1),
            alter("n", 8),
            delete("t"),
            create("t", 1, 9),
            append("t", 20),
        ],
    ),
    "positions": Scenario(fill, [commit("job", 2), commit("other", 3), commit("job", 4)]),
    "compaction": Scenario(
        many_commits, [commit("job", 5, 300_000), write_state, commit("job", 6)]
    ),
    "stop": Scenario(fill, [append("t", 60), append("t", 70), stop]),
    "start": Scenario(fill, [start, append("t", 60), stop], opened=False),
    "recovery": Scenario(half_deleted, [start, append("t", 60), flush], opened=False),
}
