"""Topics and positions of two or three brokers, whatever happens to them: what each shows is what a
beginning of the committed records says, and in the end all show the same."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from horolog.storage.metadata.records import MetadataRecord
from horolog.testing.files import ending_process
from horolog.tests.properties.examples import examples

from . import copies
from .copies import Copy, Plain, commit, copy_all, copy_some, some_record, tell

MEMORY = "/dev/shm"


@contextmanager
def folder() -> Iterator[Path]:
    where = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as name, ending_process():
        yield Path(name)


class Cluster:
    """Copies, one of which leads, and what was committed."""

    def __init__(self, path: Path, count: int) -> None:
        self.path = path
        self.made = 0
        self.copies = [self.new() for _ in range(count)]
        self.in_sync = list(self.copies)
        self.leader = self.copies[0]
        self.epoch = 0
        self.appended: dict[tuple[int, int], MetadataRecord] = {}
        """By epoch and offset."""
        self.committed: list[MetadataRecord] = []
        self.agree: Callable[[Copy, Copy], None] = copies.agree
        self.agreed: set[int] = set()
        self.elect(0)

    def new(self) -> Copy:
        return Copy(self.place())

    def place(self) -> Path:
        self.made += 1
        return self.path / f"copy{self.made}"

    def step(self, kind: str, number: int) -> None:
        random = Random(number)
        getattr(self, kind)(number, random) if kind == "append" else getattr(self, kind)(number)
        self.check()

    def append(self, _: int, random: Random) -> None:
        record = some_record(random, self.leader.metadata.state.topics)
        if random.random() < 0.2:
            self.leader.log.appender.roll()  # So that what is below the log start can go.
        self.appended[self.epoch, self.leader.metadata.append(record)] = record

    def follower(self, number: int) -> Copy:
        others = [each for each in self.copies if each is not self.leader]
        return others[number % len(others)]

    def copy(self, number: int) -> None:
        follower = self.follower(number)
        before = follower.began_anew
        if id(follower) not in self.agreed:
            self.agree(self.leader, follower)
            self.agreed.add(id(follower))
        copy_some(self.leader, follower)
        if follower.began_anew > before:
            # It does not have what it said to have.
            self.in_sync = [one for one in self.in_sync if one is not follower]
        elif follower.log.log_end_offset == self.leader.log.log_end_offset:
            self._joins(follower)

    def _joins(self, follower: Copy) -> None:
        known = max(len(self.committed), follower.metadata.state_offset)
        follower.apply()
        if follower not in self.in_sync and follower.metadata.applied >= known:
            follower.metadata.in_doubt = ""
            self.in_sync.append(follower)

    def commit(self, _: int) -> None:
        if any(one is not self.leader and id(one) not in self.agreed for one in self.in_sync):
            return  # What it has may be of an older leader alone.
        commit(self.leader, self.in_sync)
        log = self.leader.log
        for offset in range(len(self.committed), log.high_watermark):
            self.committed.append(self.appended[log.epochs.history.epoch_at(offset), offset])

    def tell(self, number: int) -> None:
        follower = self.follower(number)
        if id(follower) in self.agreed:
            tell(self.leader, follower)

    def apply(self, number: int) -> None:
        self.copies[number % len(self.copies)].apply()

    def snapshot(self, number: int) -> None:
        one = self.copies[number % len(self.copies)]
        one.apply()
        one.metadata.state_wanted = True
        if one.metadata.state_due:
            one.metadata.write_state()

    def leave(self, number: int) -> None:
        follower = self.follower(number)
        if follower in self.in_sync:
            self.in_sync.remove(follower)

    def restart(self, number: int) -> None:
        one = self.copies[number % len(self.copies)]
        if number % 2:
            one.restart()
        else:
            one.kill(self.place())
        self._came_back(one)

    def new_disk(self, number: int) -> None:
        follower = self.follower(number)
        if follower not in self.in_sync:
            follower.data = self.new().data
            follower.metadata = follower.data.directory.metadata
            self._came_back(follower)

    def _came_back(self, one: Copy) -> None:
        self.agreed.discard(id(one))
        if one is self.leader:
            self.elect(self.in_sync.index(one))

    def elect(self, number: int) -> None:
        self.leader = self.in_sync[number % len(self.in_sync)]
        self.epoch += 1
        for one in self.copies:
            one.metadata.follow()
        self.agreed.clear()
        metadata = self.leader.metadata
        metadata.lead(self.epoch)
        assert self.leader.log.log_end_offset >= len(self.committed)

    def check(self) -> None:
        expected = {0: Plain()}
        for one in self.copies:
            applied = one.metadata.applied
            assert one.metadata.failure is None
            if one.metadata.in_doubt:
                assert one not in self.in_sync
                continue
            assert applied <= len(self.committed), "applied what may be taken back"
            assert one.log.log_start_offset <= one.metadata.state_offset
            if not one.metadata.to_match:
                if applied not in expected:
                    plain = Plain()
                    for record in self.committed[:applied]:
                        plain.apply(record)
                    expected[applied] = plain
                assert one.plain() == expected[applied]

    def end(self) -> None:
        for one in self.copies:
            if one is not self.leader:
                if id(one) not in self.agreed:
                    self.agree(self.leader, one)
                    self.agreed.add(id(one))
                copy_all(self.leader, one)
        self.in_sync = list(self.copies)
        self.commit(0)
        for one in self.copies:
            if one is not self.leader:
                tell(self.leader, one)
            one.apply()
            one.metadata.in_doubt = ""
            assert one.metadata.applied == len(self.committed)
        self.check()
        for one in self.copies:
            one.restart()
            one.apply()
        self.check()
        for one in self.copies:
            one.data.close()


KINDS = (
    *("append",) * 6,
    *("copy",) * 6,
    *("commit", "commit", "commit", "tell", "apply", "apply", "apply"),
    *("snapshot", "leave", "restart", "new_disk", "elect"),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 2**32 - 1)), min_size=30, max_size=100
)


def run(count: int, steps: list[tuple[str, int]], agree: Callable[[Copy, Copy], None]) -> None:
    with folder() as path:
        cluster = Cluster(path, count)
        cluster.agree = agree
        for kind, number in steps:
            cluster.step(kind, number)
        cluster.end()


AN_EARLIER_BEGIN = [
    *[("append", 0)] * 24,
    *[(kind, 0) for kind in ("copy", "commit", "snapshot")],
    ("elect", 1),
    ("copy", 0),
    ("restart", 0),
]
"""A leader whose log begins with its stored state follows one whose log begins earlier, copies it,
and is killed: its log begins where the new one does, and not where the old one did."""


@examples(150)
@given(count=st.integers(2, 3), steps=STEPS)
@example(count=2, steps=AN_EARLIER_BEGIN)
def test_all_show_what_was_committed(count: int, steps: list[tuple[str, int]]) -> None:
    run(count, steps, copies.agree)


def by_length(leader: Copy, follower: Copy) -> None:
    """The wrong rule: logs are the same as far as both go."""
    if follower.log.log_end_offset > leader.log.log_end_offset:
        follower.metadata.truncate(leader.log.log_end_offset)


def test_canary_logs_compared_by_length_part() -> None:
    """Three records that only the old leader has, and three others of the new one."""
    part = [("append", 3), ("elect", 1), ("append", 8), ("copy", 0), ("commit", 0)]
    run(2, part, copies.agree)
    with pytest.raises(Exception, match=r"."):
        run(2, part, by_length)
