"""A log driven at random through all that can happen to it, beside a plain list."""

from contextlib import ExitStack
from itertools import pairwise
from typing import ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from horolog.protocol.records.messages.sets import entries
from horolog.storage.index import index_file, time_map
from horolog.storage.log import admission
from horolog.storage.log.flush import FlushWork
from horolog.storage.read import reader, windows
from horolog.testing.logs import LogFolder, delete_due
from horolog.tests.properties.filling import (
    append_stored,
    produce,
    read_from,
    search,
    search_largest,
)
from horolog.tests.properties.index_rules import (
    assert_known_of_log,
    assert_offset_index_true,
    assert_time_index_true,
    offset_entries,
    time_entries,
    times_by_offset,
)
from horolog.tests.properties.logs import date_files, log_folder
from horolog.tests.properties.model import LOG_APPEND_TIME, Model, SentSet, StoredEntries
from horolog.tests.properties.retention_rules import counts_from, retained
from horolog.tests.properties.strategies import (
    sent_sets,
    stored_entries,
    times,
    topic_settings_texts,
)
from horolog.tests.properties.window_reading import (
    assert_time_map_true,
    count_window,
    read_window,
)

shares = st.floats(0, 1)
"""A place in the log, as a part of its length."""


class LogMachine(RuleBasedStateMachine):
    """The log under test is `self.folder.log`; `self.model` is what it must be."""

    ALWAYS: ClassVar[dict[str, str]] = {"retention.ms": "-1", "file.delete.delay.ms": "10"}
    """Settings that hold whatever is drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.model = Model()
        self.held_at: int | None = None
        self.waiting: list[int] = []
        """First offsets of the sets whose producers wait for a sync."""
        self.end_offset = 0
        self.synced_offset = 0
        self.sync: tuple[FlushWork, int] | None = None
        """A sync that is under way, and the offset below which it makes everything safe."""

    @initialize(overrides=topic_settings_texts, sets=st.lists(sent_sets, max_size=12))
    def make(self, overrides: dict[str, str], sets: list[SentSet]) -> None:
        self.folder: LogFolder = self.stack.enter_context(log_folder(overrides | self.ALWAYS))
        self.produce_many(sets)

    def teardown(self) -> None:
        self.drop_sync()
        self.stack.close()

    def drop_sync(self) -> None:
        """It dies with the broker."""
        if self.sync is not None:
            self.sync[0].close()
            self.sync = None

    def prepare(self) -> None:
        """What a server does before it reads or searches; appending needs no preparation."""
        if not self.folder.log.prepared:
            self.folder.log.prepare()

    # Appending

    @rule(sent=sent_sets, wait_for_sync=st.booleans())
    def produce(self, sent: SentSet, wait_for_sync: bool) -> None:
        stored = produce(self.folder, self.model, sent, wait_for_sync=wait_for_sync)
        if stored and wait_for_sync:
            self.waiting.append(stored[0].offset)
        self.appended()

    @rule(sets=st.lists(sent_sets, min_size=3, max_size=8))
    def produce_many(self, sets: list[SentSet]) -> None:
        for sent in sets:
            produce(self.folder, self.model, sent)
            self.folder.clock.advance(1)
        self.appended()

    @rule(first=stored_entries(), more=st.lists(stored_entries(st.integers(0, 2)), max_size=3))
    def append_stored(self, first: StoredEntries, more: list[StoredEntries]) -> None:
        empty = not self.model.messages
        append_stored(self.folder, self.model, [first, *more])
        if empty:
            # The first offset may be too far away for the empty segment that was there.
            base = self.folder.log.segments[0].base_offset
            self.model.log_start_offset = max(self.model.log_start_offset, base)
        self.appended()

    def appended(self) -> None:
        self.end_offset = self.folder.log.log_end_offset
        date_files(self.folder)

    # What operators and time do

    @rule(ms=st.sampled_from([-5_000, -1, 1, 1, 5, 100, 20_000]))
    def clock_moves(self, ms: int) -> None:
        if ms < 0:
            self.folder.clock.step(ms)
        else:
            self.folder.clock.advance(ms)

    @rule(overrides=topic_settings_texts)
    def change_settings(self, overrides: dict[str, str]) -> None:
        changed = overrides | self.ALWAYS
        self.folder.set(**{name.replace(".", "_"): text for name, text in changed.items()})

    @rule()
    def roll(self) -> None:
        self.folder.log.appender.roll()

    @rule(
        ms=st.sampled_from(["-1", "-1", "0", "10", "10000"]),
        size=st.sampled_from(["-1", "-1", "-1", "500", "1000", "3000"]),
    )
    def retain(self, ms: str, size: str) -> None:
        log = self.folder.log
        self.prepare()
        self.folder.set(retention_ms=ms, retention_bytes=size)
        now_ms = self.folder.clock.now_ms()
        expected = retained(log, log.settings, now_ms)
        count = log.segment_count
        log.expiry.maintain(now_ms)
        assert log.log_start_offset == expected.log_start_offset
        self.model.log_start_offset = log.log_start_offset
        first = log.segments[0].base_offset
        self.model.messages = [m for m in self.model.messages if m.offset >= first]
        assert expected.rolled or log.segment_count <= count
        delete_due(self.folder.deletions)

    @rule(share=shares)
    def move_log_start(self, share: float) -> None:
        log = self.folder.log
        start = log.log_start_offset
        log.log_start_offset = start + int(max(log.high_watermark - start, 0) * share)
        self.model.log_start_offset = log.log_start_offset

    @rule(share=shares)
    def hold_high_watermark(self, share: float) -> None:
        """At the end of a set: nobody acknowledges half of one."""
        start = self.folder.log.log_start_offset
        ends = [start, *(end for end in self.ends_of_entries() if end > start)]
        self.held_at = ends[int(share * (len(ends) - 1))]
        self.folder.log.hold_high_watermark(self.held_at)

    @rule()
    def release_high_watermark(self) -> None:
        self.held_at = None
        self.folder.log.hold_high_watermark(None)

    # Cutting

    def ends_of_entries(self) -> list[int]:
        """The offset after every stored entry."""
        data = [segment.log_path.read_bytes() for segment in self.folder.log.segments]
        return [entry.offset + 1 for one in data for entry in entries(one)]

    @rule(share=st.one_of(st.floats(0.8, 1), st.floats(0.8, 1), shares))
    def truncate(self, share: float) -> None:
        """An entry that reaches the cut goes as a whole."""
        log = self.folder.log
        first = log.segments[0].base_offset
        offset = first + int((log.log_end_offset - first) * share)
        kept_below = max((end for end in self.ends_of_entries() if end <= offset), default=0)
        log.truncate(offset)
        if offset < self.end_offset:
            self.cut_to(offset, kept_below)

    @precondition(lambda self: self.folder.log.segment_count > 4)
    @rule(ahead=st.integers(-30, 30))
    def truncate_fully(self, ahead: int) -> None:
        offset = max(self.end_offset + ahead, 0)
        self.folder.log.truncate_fully(offset)
        self.model.log_start_offset = offset
        self.cut_to(offset, 0)

    def cut_to(self, offset: int, kept_below: int) -> None:
        """The log ends at `offset` now; messages from `kept_below` on are gone."""
        self.model.messages = [m for m in self.model.messages if m.offset < kept_below]
        self.model.look_for_last_stamp()
        self.model.log_start_offset = min(self.model.log_start_offset, offset)
        self.end_offset = offset
        self.synced_offset = min(self.synced_offset, offset)
        self.waiting = [first for first in self.waiting if first < offset]
        if self.held_at is not None:
            self.held_at = min(self.held_at, offset)
        if self.sync is not None:
            self.sync = (self.sync[0], min(self.sync[1], offset))

    # Syncing, stopping, starting

    @rule()
    def flush(self) -> None:
        self.folder.log.flusher.flush()
        self.synced(self.end_offset)

    @precondition(lambda self: self.sync is None)
    @rule()
    def begin_sync(self) -> None:
        work = self.folder.log.flusher.begin_flush()
        if work is not None:
            self.sync = (work, self.end_offset)

    @precondition(lambda self: self.sync is not None)
    @rule()
    def finish_sync(self) -> None:
        assert self.sync is not None
        work, offset = self.sync
        self.sync = None
        work.run()
        self.folder.log.flusher.end_flush(work)
        self.synced(offset)

    @rule(sent=sent_sets)
    def produce_during_a_sync(self, sent: SentSet) -> None:
        """What is appended after a sync has begun waits for the next one."""
        if self.sync is None:
            self.begin_sync()
        self.produce(sent, True)
        if self.sync is not None:
            self.finish_sync()

    def synced(self, offset: int) -> None:
        self.synced_offset = max(self.synced_offset, offset)
        self.waiting = [first for first in self.waiting if first >= self.synced_offset]

    @rule()
    def restart(self) -> None:
        if self.sync is not None:
            self.finish_sync()
        self.folder.restart()
        self.started()
        self.synced_offset = self.end_offset

    @rule(checkpointed=st.booleans())
    def kill_and_restart(self, checkpointed: bool) -> None:
        self.drop_sync()
        self.folder.kill_and_restart(checkpointed=checkpointed)
        if not checkpointed:
            self.model.log_start_offset = self.folder.log.segments[0].base_offset
            self.synced_offset = 0
        else:
            # What is below the log start is no part of the log, whether it was synced or not.
            self.synced_offset = max(self.synced_offset, self.model.log_start_offset)
        self.started()

    def started(self) -> None:
        """The log end is where the messages end; what was cut inside a wrapper is forgotten."""
        self.held_at = None
        self.waiting = []
        self.model.look_for_last_stamp()
        messages = self.model.messages
        following = messages[-1].offset + 1 if messages else 0
        self.end_offset = max(following, self.folder.log.segments[-1].base_offset)
        self.synced_offset = min(self.synced_offset, self.end_offset)
        self.model.log_start_offset = min(self.model.log_start_offset, self.end_offset)

    # Looking

    @rule(share=shares, max_bytes=st.sampled_from([1, 60, 500, 100_000]))
    def read(self, share: float, max_bytes: int) -> None:
        self.prepare()
        log = self.folder.log
        offset = log.log_start_offset + int((log.log_end_offset - log.log_start_offset) * share)
        expected = [message for message in self.model.visible if message.offset >= offset]
        assert read_from(log, offset, max_bytes) == expected

    @rule(target_ms=times.filter(lambda at_ms: at_ms >= 0))
    def search(self, target_ms: int) -> None:
        self.prepare()
        assert search(self.folder.log, target_ms) == self.model.find_time(target_ms)

    @rule()
    def search_everything(self) -> None:
        self.prepare()
        for target_ms in self.model.targets():
            assert search(self.folder.log, target_ms) == self.model.find_time(target_ms)
        assert search_largest(self.folder.log) == self.model.find_largest()

    @rule(bounds=st.tuples(times, times).map(sorted), max_bytes=st.sampled_from([1, 300, 100_000]))
    def read_window(self, bounds: list[int], max_bytes: int) -> None:
        self.prepare()
        from_ms, until_ms = (max(bound, 0) for bound in bounds)
        found = read_window(self.folder.log, from_ms, until_ms, max_bytes=max_bytes)
        assert found == [
            m.offset for m in self.model.visible if from_ms <= m.timestamp_ms < until_ms
        ]

    @rule(
        share=st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted),
        max_bytes=st.sampled_from([1, 300, 100_000]),
    )
    def read_append_window(self, share: list[float], max_bytes: int) -> None:
        self.prepare()
        log = self.folder.log
        appended = {m.offset: reader.append_time_ms(log, m.offset) for m in self.model.visible}
        known = sorted({time_ms for time_ms in appended.values() if time_ms >= 0}) or [0]
        from_ms, until_ms = (known[int(part * (len(known) - 1))] for part in share)
        found = read_window(log, from_ms, until_ms + 1, by_append=True, max_bytes=max_bytes)
        assert found == [offset for offset, ms in appended.items() if from_ms <= ms <= until_ms]

    @rule(bounds=st.tuples(times, times).map(sorted), intervals=st.integers(1, 5))
    def count_by_time(self, bounds: list[int], intervals: int) -> None:
        self.prepare()
        from_ms, until_ms = (max(bound, 0) for bound in bounds)
        every_ms = max(-(-(until_ms - from_ms) // intervals), 1)
        counts, untimed, *ends = count_window(
            self.folder.log, from_ms, until_ms, every_ms, intervals
        )
        visible = [m.timestamp_ms for m in self.model.visible]
        inside = [ms for ms in visible if from_ms <= ms < until_ms]
        expected = [0] * intervals
        for ms in inside:
            expected[(ms - from_ms) // every_ms] += 1
        assert counts == expected
        assert untimed == sum(ms < 0 for ms in visible)
        assert ends == [min(inside, default=-1), max(inside, default=-1)]

    @rule()
    def describe(self) -> None:
        self.prepare()
        log = self.folder.log
        description = log.expiry.describe(self.folder.clock.now_ms())
        assert description.log_end_offset == self.end_offset
        assert sum(segment.size_bytes for segment in description.segments) == log.size_bytes
        for segment, stored in zip(description.segments, log.segments, strict=True):
            first = counts_from(log, stored)
            inside = [m for m in self.model.messages if first <= m.offset < segment.next_offset]
            timed = [m.timestamp_ms for m in inside if m.timestamp_ms >= 0]
            assert segment.largest_timestamp_ms == max(timed, default=-1)

    # What always holds

    @invariant()
    def ends_agree(self) -> None:
        log = self.folder.log
        below = [self.end_offset]
        if self.waiting:
            below.append(self.waiting[0])
        if self.held_at is not None:
            below.append(self.held_at)
        self.model.high_watermark = min(below)
        assert log.log_end_offset == self.end_offset
        assert log.high_watermark == self.model.high_watermark
        assert log.log_start_offset == self.model.log_start_offset
        assert log.recovery_point == self.synced_offset
        assert log.failure is None

    @invariant()
    def segments_follow_each_other(self) -> None:
        segments = self.folder.log.segments
        for segment, following in pairwise(segments):
            assert segment.base_offset < following.base_offset
            assert segment.next_offset <= following.base_offset
        assert segments[-1].next_offset == self.end_offset
        names = {f"{segment.base_offset:020}.log" for segment in segments}
        assert set(self.folder.names(".log")) == names

    @invariant()
    def indexes_are_true(self) -> None:
        for segment in self.folder.log.segments:
            log = segment.log_path.read_bytes()
            assert len(log) == segment.size_bytes
            if segment.indexed:
                base = segment.base_offset
                offsets, timestamps = segment.offset_index.encoded(), segment.time_index.encoded()
                assert segment.offset_index.path.read_bytes() == offsets
                assert segment.time_index.path.read_bytes() == timestamps
                assert_offset_index_true(log, offset_entries(offsets, base))
                assert_time_index_true(log, time_entries(timestamps, base))
                largest_ms = max(times_by_offset(log).values(), default=-1)
                assert segment.largest_timestamp_ms == largest_ms
                assert_known_of_log(segment, log)

    @invariant()
    def time_maps_are_true(self) -> None:
        for segment in self.folder.log.segments:
            if segment.indexed:
                assert_time_map_true(segment)

    @invariant()
    def times_are_found(self) -> None:
        log = self.folder.log
        if log.prepared:  # Else a log would never be appended to before it is prepared.
            timed = sorted(m.timestamp_ms for m in self.model.messages if m.timestamp_ms >= 0)
            for target_ms in timed[len(timed) // 2 :: max(len(timed) // 3, 1)]:
                assert search(log, target_ms) == self.model.find_time(target_ms)

    @invariant()
    def nothing_was_taken_for_damage(self) -> None:
        for event in ("torn_tail_cut", "segment_set_aside", "segment_damaged"):
            assert not self.folder.events.named(event)


class StampingMachine(LogMachine):
    """The same on a LogAppendTime topic, where what was appended last decides the next time."""

    ALWAYS = LogMachine.ALWAYS | {"message.timestamp.type": LOG_APPEND_TIME}


EVERY_MACHINE = pytest.mark.parametrize(
    "machine",
    [
        pytest.param(LogMachine, id="fault41-any-topic"),
        pytest.param(StampingMachine, id="fault41-LogAppendTime"),
    ],
)
PHASES = [phase for phase in Phase if phase is not Phase.explain]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few messages, so that short logs have some in their time maps, and indexes of
    closed segments that are not kept in memory."""
    for module in (time_map, admission):
        monkeypatch.setattr(module, "BLOCK_BYTES", 200)
    monkeypatch.setattr(time_map, "_WRITTEN_BYTES", 40)
    monkeypatch.setattr(windows, "UNMAPPED_BYTES", 250)
    monkeypatch.setattr(index_file, "_KEPT_BYTES", 16)
    monkeypatch.setattr(index_file, "CHUNK_ENTRIES", 2)


@EVERY_MACHINE
def test_the_log_behaves_like_a_list(machine: type[LogMachine]) -> None:
    few = settings(max_examples=12, stateful_step_count=30, phases=PHASES)
    run_state_machine_as_test(machine, settings=few)


@pytest.mark.soak
@EVERY_MACHINE
def test_the_log_behaves_like_a_list_for_long(machine: type[LogMachine]) -> None:
    """As many examples and steps as the profile says."""
    run_state_machine_as_test(machine, settings=settings(phases=PHASES))
