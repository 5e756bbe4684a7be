"""Append times beside a plain list, through everything that happens to a log at random."""

import os
import tempfile
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import records
from horolog.storage.directory.deletion import DeletionQueue
from horolog.storage.files import SystemFiles
from horolog.storage.index.append_time_lookup import first_since, known_times
from horolog.storage.index.append_times import BLOCK_ENTRIES, AppendTimes
from horolog.storage.open_files import OpenFiles
from horolog.storage.read import reader
from horolog.storage.seams import ProducerBudget, Seams
from horolog.testing.clock import ManualClock
from horolog.testing.logs import LogFolder, RecordedEvents, delete_due, timed_set
from horolog.tests.followers.appending import append_copy

NOW = 1_479_144_272_509
CODECS = st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4])


@contextmanager
def place() -> Iterator[Path]:
    """A folder, in memory where that is possible."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as name:
        yield Path(name)


class AppendTimesMachine(RuleBasedStateMachine):
    """`self.times` has the append time of each message, `None` where it is not known."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.times: dict[int, int | None] = {}
        self.cut_since_sync = False

    @initialize(
        segment_bytes=st.sampled_from([100, 300, 5000]),
        interval=st.sampled_from([0, 100, 4096]),
        kind=st.sampled_from(["CreateTime", "LogAppendTime"]),
    )
    def make(self, segment_bytes: int, interval: int, kind: str) -> None:
        path = self.stack.enter_context(place())
        self.folder = LogFolder(path / "t-0")
        self.stack.callback(self.folder.let_go)
        self.folder.open(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            message_timestamp_type=kind,
            retention_ms=-1,
            file_delete_delay_ms=0,
            max_message_bytes=100,
        )

    def teardown(self) -> None:
        self.stack.close()

    # Appending

    @rule(count=st.integers(1, 2), codec=CODECS)
    def produce(self, count: int, codec: Codec) -> None:
        log = self.folder.log
        end_offset = log.log_end_offset
        appended = log.appender.append(timed_set(*[5] * count, codec=codec))
        time_ms = appended.append_time_ms
        if time_ms < 0:
            time_ms = self.folder.clock.now_ms()
        self.times |= dict.fromkeys(range(end_offset, log.log_end_offset), time_ms)

    @rule(count=st.integers(2, 30))
    def produce_many(self, count: int) -> None:
        for _ in range(count):
            self.produce(1, Codec.NONE)
            self.folder.clock.step(1)

    @rule(count=st.integers(1, 2), gap=st.sampled_from([0, 0, 3]))
    def append_stored(self, count: int, gap: int) -> None:
        first = self.folder.log.log_end_offset + gap
        append_copy(self.folder.log, timed_set(*[5] * count, base_offset=first))
        self.times |= dict.fromkeys(range(first, first + count), None)

    @rule(ms=st.sampled_from([-50, -1, 1, 1, 7, 100]))
    def clock_steps(self, ms: int) -> None:
        self.folder.clock.step(ms)

    @rule(kind=st.sampled_from(["CreateTime", "LogAppendTime"]))
    def change_type(self, kind: str) -> None:
        self.folder.set(message_timestamp_type=kind)

    # What happens to a log

    @rule()
    def roll(self) -> None:
        self.folder.log.appender.roll()

    @rule()
    def flush(self) -> None:
        self.folder.log.flusher.flush()
        self.cut_since_sync = False

    @precondition(lambda self: self.times)
    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        log = self.folder.log
        start = log.log_start_offset
        log.truncate(start + int(share * (log.log_end_offset - start)))
        self.keep_what_is_stored()
        self.cut_since_sync = True

    @rule(skipped=st.integers(0, 5))
    def truncate_fully(self, skipped: int) -> None:
        self.folder.log.truncate_fully(self.folder.log.log_end_offset + skipped)
        self.times = {}
        self.cut_since_sync = True

    @rule(segments=st.integers(1, 3))
    def retain(self, segments: int) -> None:
        log = self.folder.log
        log.prepare()
        kept_bytes = sum(segment.size_bytes for segment in log.segments[-segments:])
        self.folder.set(retention_bytes=max(kept_bytes, 1))
        log.expiry.maintain(self.folder.clock.now_ms())
        self.folder.set(retention_bytes=-1)
        delete_due(self.folder.deletions)
        self.keep_what_is_stored()

    def keep_what_is_stored(self) -> None:
        stored = {record.offset for record in self.folder.records()}
        self.times = {offset: ms for offset, ms in self.times.items() if offset in stored}

    @rule()
    def restart(self) -> None:
        self.folder.restart()
        self.cut_since_sync = False

    @rule(checkpointed=st.booleans())
    def kill(self, checkpointed: bool) -> None:
        point = self.folder.log.recovery_point if checkpointed else 0
        self.folder.kill_and_restart(checkpointed=checkpointed)
        self.folder.log.prepare()
        certain = {offset for offset in self.times if offset < point}
        if self.cut_since_sync:
            # A segment that was closed before it was cut keeps nothing; what is known is right.
            known = {
                offset for offset in certain if reader.append_time_ms(self.folder.log, offset) >= 0
            }
            certain &= known
        self.times = {o: ms if o in certain else None for o, ms in self.times.items()}
        self.cut_since_sync = False

    # What must be so

    @invariant()
    def every_message_has_its_time(self) -> None:
        log = self.folder.log
        log.prepare()
        found = {offset: reader.append_time_ms(log, offset) for offset in self.times}
        assert found == {o: -1 if ms is None else ms for o, ms in self.times.items()}

    @rule(after_ms=st.integers(-60, 300))
    def search(self, after_ms: int) -> None:
        target_ms = NOW + after_ms
        late = [(o, ms) for o, ms in self.times.items() if ms is not None and ms >= target_ms]
        self.folder.log.prepare()
        found = reader.find_append_time(self.folder.log, target_ms).run()
        assert (found and (found.offset, found.timestamp_ms)) == (min(late) if late else None)

    @rule(share=st.floats(0, 1), max_bytes=st.integers(0, 500), sets=st.integers(1, 40))
    def read(self, share: float, max_bytes: int, sets: int) -> None:
        log = self.folder.log
        start = log.log_start_offset
        offset = start + int(share * (log.log_end_offset - start))
        whole = reader.read(log, offset, max_bytes, whole_first=True)
        found, told = reader.append_times(log, whole, offset, sets)
        assert whole.size == 0 or 0 < found.size <= whole.size
        offsets = [at for at, _ in told.spans]
        assert offsets == sorted(set(offsets))
        read = list(records(found.read(), max_decompressed_bytes=10**6, from_offset=offset))
        for record in read:
            time_ms = told.spans[bisect_right(offsets, record.offset) - 1][1]
            assert time_ms == (self.times[record.offset] or -1)
        if read:
            assert offsets[0] <= read[0].offset

    @invariant()
    def the_files_have_whole_entries_of_the_log(self) -> None:
        for segment in self.folder.log.segments:
            times = segment.append_times
            assert times.path.stat().st_size % 12 == 0
            assert times.end_offset <= segment.next_offset


AppendTimesMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=40)
test_append_times_beside_a_list = AppendTimesMachine.TestCase


@given(
    steps=st.lists(st.tuples(st.integers(1, 3), st.integers(-1, 50)), min_size=1, max_size=40),
    repeated=st.integers(1, 60),
    low=st.floats(0, 1),
    high=st.floats(0, 1),
    target=st.integers(-2, 52),
    adopted=st.booleans(),
)
def test_a_file_beside_a_list(
    steps: list[tuple[int, int]],
    repeated: int,
    low: float,
    high: float,
    target: int,
    adopted: bool,
) -> None:
    """With up to four blocks of entries."""
    with place() as path, ExitStack() as stack:
        clock, events, files = ManualClock(), RecordedEvents(), SystemFiles()
        open_files = OpenFiles(files, 4)
        stack.callback(open_files.close)
        queue = DeletionQueue(files, clock, events)
        room = ProducerBudget(clock)
        seams = Seams(clock, files, events, queue, open_files, Random(1), room)
        times = AppendTimes(path / "times", 100, seams)
        true: list[int] = []
        for size, time_ms in (steps * repeated)[: 3 * BLOCK_ENTRIES + 10]:
            times.add(100 + len(true), 100 + len(true) + size, time_ms)
            true += [time_ms] * size
        if adopted:
            checksums = times.checksums()
            times = AppendTimes(path / "times", 100, seams)
            times.adopt(checksums)
        first, end = sorted(int(share * len(true)) for share in (low, high))
        spans = known_times(times, 100 + first, 100 + end).spans
        offsets = [offset for offset, _ in spans]
        told = [spans[bisect_right(offsets, 100 + at) - 1][1] for at in range(first, end)]
        assert told == true[first:end]
        search = first_since(times, target, 100 + first, 100 + end)
        try:
            while True:
                next(search)
        except StopIteration as stop:
            found = stop.value
        late = [(100 + at, true[at]) for at in range(first, end) if true[at] >= max(target, 0)]
        assert found == (late[0] if late else None)
