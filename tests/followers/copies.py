"""A leader's log and a follower's: what goes between them, and what must be equal then."""

from array import array
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from random import Random

import pytest
from _pytest.mark import ParameterSet

from horolog.protocol.errors import OffsetOutOfRange
from horolog.protocol.records.batch import finish_batch
from horolog.protocol.records.kernel import RecordEncoder
from horolog.protocol.records.layout import MESSAGE_CODECS, Codec
from horolog.protocol.records.messages.sets import NewRecord, build_set, records
from horolog.storage.log.epoch_history import EpochEnd
from horolog.storage.log.log import Log
from horolog.storage.log.retention import RetentionPlan
from horolog.storage.log.trimmed import largest_of, read_at_once
from horolog.storage.read import reader, windows
from horolog.storage.read.windows import ReadWindow
from horolog.storage.replica.copy_facts import CopyFacts
from horolog.storage.replica.copying import Copied
from horolog.storage.replica.replica_log import ReplicaLog
from horolog.storage.segment.segment import Segment
from horolog.testing.logs import LogFolder

MAX_BYTES = 1 << 24
SAMPLED_MAX = 150
"""Times that a long log is asked for: for each it opens compressed sets."""
DAY_MS = 86_400_000
COMPARED = (
    *("base_offset", "next_offset", "size_bytes", "largest_timestamp_ms", "first_timestamp_ms"),
    *("active", "offset_entries", "time_entries", "verdict", "reason", "expires_ms", "damage"),
)
"""Of the description of a segment; other times of files are each broker's own."""
EMPTY = "it is the empty active segment"
CLOCK_AHEAD_MS = 3_600_000_000
"""How far the follower's clock is ahead of the leader's: what goes by it shows."""


@lru_cache(maxsize=4)
def replica_of(log: Log) -> ReplicaLog:
    """The one `Replica` of a log, which remembers where the last copy ended."""
    return ReplicaLog(log)


def seeds(tried: int, *, of: int) -> list[ParameterSet]:
    """Parameters of a test with random logs: the first `tried` seeds always, all in the soak."""
    return [
        pytest.param(seed, marks=[pytest.mark.soak] if seed >= tried else []) for seed in range(of)
    ]


def follower_in(path: Path, leader: LogFolder) -> LogFolder:
    """A folder for the copy of what `leader` has, of a broker whose clock is wrong."""
    folder = LogFolder(path)
    folder.clock.step(leader.clock.now_ms() + CLOCK_AHEAD_MS - folder.clock.now_ms())
    return folder


def copied(leader: LogFolder, offset: int, max_bytes: int, **how: bool) -> tuple[bytes, CopyFacts]:
    """What a follower gets for a request: bytes, and facts that were bytes on the way."""
    stretch: Copied = replica_of(leader.log).read(offset, max_bytes, **how)
    return stretch.found.read(), CopyFacts.decode(stretch.facts.encode())


def copy_once(leader: LogFolder, follower: LogFolder, max_bytes: int, **how: bool) -> None:
    """One request of a follower, or two where its log has to begin anew."""
    log = follower.log
    try:
        stretch = replica_of(leader.log).read(log.log_end_offset, max_bytes, **how)
    except OffsetOutOfRange:
        ReplicaLog(log).begin_anew(leader.log.segments[0].base_offset)
        stretch = replica_of(leader.log).read(log.log_end_offset, max_bytes, **how)
    data, facts = stretch.found.read(), CopyFacts.decode(stretch.facts.encode())
    ReplicaLog(log).append(data, facts)
    if stretch.next_offset >= 0:
        # What a leader goes by that sends more before this is confirmed.
        assert log.log_end_offset == stretch.next_offset
    follow_log_start(follower, facts)


def follow_log_start(follower: LogFolder, facts: CopyFacts) -> None:
    log = follower.log
    if facts.log_start_offset > log.log_start_offset:
        log.flusher.flush()
        ReplicaLog(log).begin_at(facts.log_start_offset)
    log.expiry.drop_expired()


def copy_all(leader: LogFolder, follower: LogFolder, max_bytes: int = 1000) -> None:
    """Everything, and once more: what the leader says of its end."""
    while follower.log.log_end_offset < leader.log.log_end_offset:
        before = follower.log.log_end_offset
        copy_once(leader, follower, max_bytes)
        assert follower.log.log_end_offset > before
    copy_once(leader, follower, max_bytes)


def copy_from_log_start(leader: LogFolder, follower: LogFolder, max_bytes: int) -> None:
    """As a broker with an empty disk copies: from the entry on in which the leader's log begins."""
    log = leader.log
    log.prepare()
    begin = log.log_start_offset
    if log.segments[0].base_offset < begin < log.log_end_offset:
        begin = log.segment_list.end_before(begin)
    ReplicaLog(follower.log).begin_anew(begin)
    copy_all(leader, follower, max_bytes)
    follow_log_start(follower, copied(leader, log.log_end_offset, 1)[1])


def retained(log: Log, at_ms: int) -> tuple[int, tuple[int | None, ...]]:
    """Where the log would begin after a pass of retention, and when each segment is past it."""
    verdicts = log.expiry.plan_retention(at_ms).verdicts
    count = sum(each.delete for each in verdicts)
    begins = [segment.base_offset for segment in log.segments[count : count + 1]]
    expires_ms = (None if each.reason == EMPTY else each.expires_ms for each in verdicts)
    return max([log.log_start_offset, *begins]), tuple(expires_ms)


def assert_outlook_equal(leading: LogFolder, following: LogFolder) -> None:
    """What two logs say, at one moment, of the times of the same messages, however much below the
    log start one of them has in its files still."""
    leader, follower, now_ms = leading.log, following.log, leading.clock.now_ms()
    following.clock.step(now_ms - following.clock.now_ms())
    follower.hold_high_watermark(leader.high_watermark)
    follower.set_settings(leader.settings)
    assert follower.log_start_offset == leader.log_start_offset
    for log in (leader, follower):
        log.prepare()
        log.expiry.drop_expired()
        read_at_once(log)
    assert_answers_equal(leader, follower)
    assert_append_times_equal(leader, follower, lost=False)
    assert_windows_equal(leader, follower, now_ms)
    for at_ms in (now_ms - 4000 * DAY_MS, now_ms - DAY_MS, now_ms, now_ms + 8 * DAY_MS):
        assert retained(follower, at_ms) == retained(leader, at_ms), f"at {at_ms}"
        assert follower.expiry.pinned_segments(at_ms) == leader.expiry.pinned_segments(at_ms)
    for log in (leader, follower):
        for shown in log.expiry.describe(now_ms).segments:
            segment = log.segment_list.holding(shown.base_offset)
            assert shown.largest_timestamp_ms == largest_of(log, segment)[0]


class Filling:
    """What happens to a leader's log at random."""

    def __init__(self, folder: LogFolder, random: Random, *, epoch: int = 0) -> None:
        """The leader's first epoch is the one above `epoch`."""
        self.folder = folder
        self.random = random
        self.epoch = epoch
        self._producers = 10 * epoch
        self._sequences: dict[tuple[int, int], int] = {}
        self.last_sent: list[bytes] = []

    def step(self) -> None:
        kinds = [self.produce] * 12 + [self.number] * 4 + [self.retry, self.roll, self.tick]
        kinds += [self.trim, self.retain, self.lead, self.change, self.idle, self.restart]
        self.random.choice(kinds)()

    def time(self) -> int:
        now = self.folder.clock.now_ms()
        return self.random.choice(
            [
                now + self.random.randint(-3, 3),
                now + self.random.randint(-3, 3),
                now,
                now - self.random.randint(0, 3650) * DAY_MS,
                -1,
                now + DAY_MS,
            ]
        )

    def produce(self) -> None:
        random = self.random
        magic = random.choice([0, 1, 1, 2, 2])
        codecs = list(Codec) if magic == 2 else MESSAGE_CODECS
        codec = random.choice([Codec.NONE, Codec.NONE, *codecs])
        untimed = random.random() < 0.15
        new = [
            NewRecord(
                random.choice([None, b"", b"v" * 20, b"w" * 130]),
                random.choice([None, b"k"]),
                -1 if untimed or not magic else self.time(),
            )
            for _ in range(random.randint(1, 5))
        ]
        if magic == 2:
            encoder = RecordEncoder()
            for one in new:
                encoder.add(one.value, one.key, one.timestamp_ms, ())
            self.folder.log.appender.append(finish_batch(encoder, codec=codec))
        else:
            self.folder.log.appender.append(build_set(new, magic=magic, codec=codec))

    def number(self) -> None:
        """What an idempotent producer sends."""
        random = self.random
        producer = self._producers + random.randint(1, 3), random.randint(0, 1)
        known = max((epoch for pid, epoch in self._sequences if pid == producer[0]), default=0)
        producer = producer[0], max(producer[1], known)
        sequence = self._sequences.get(producer, 0)
        encoder = RecordEncoder()
        count = random.randint(1, 3)
        for _ in range(count):
            encoder.add(b"n" * 20, None, self.time(), ())
        sent = finish_batch(
            encoder,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
        )
        self._sequences[producer] = sequence + count
        self.last_sent.append(bytes(sent))
        self.folder.log.appender.append(sent)

    def retry(self) -> None:
        if self.last_sent:
            assert self.folder.log.appender.append(bytearray(self.last_sent[-1])).repeated

    def roll(self) -> None:
        self.folder.log.appender.roll()

    def idle(self) -> None:
        # Producers are forgotten after three weeks, and this one's would be.
        self.folder.clock.advance(min(self.folder.log.settings.segment_ms, DAY_MS) + 1)
        self.folder.log.expiry.roll_if_idle(self.folder.clock.now_ms())

    def tick(self) -> None:
        self.folder.clock.step(self.random.choice([1, 5, 1000, DAY_MS, -1, -50, -DAY_MS]))

    def trim(self) -> None:
        log = self.folder.log
        offset = self.random.randint(log.log_start_offset, log.log_end_offset)
        log.flusher.flush()
        log.expiry.roll_before(offset)
        log.expiry.trim(offset)
        log.expiry.drop_expired()

    def retain(self) -> None:
        # Not at the end of a whole life: most of the log is to stay.
        self.folder.set(retention_bytes=self.random.choice([-1, -1, 2000, 4000]))
        self.folder.log.expiry.maintain(self.folder.clock.now_ms())

    def lead(self) -> None:
        self.epoch += self.random.randint(1, 3)
        ReplicaLog(self.folder.log).begin_to_lead(self.epoch)

    def restart(self) -> None:
        self.folder.restart()
        self.lead()

    def change(self) -> None:
        self.folder.set(message_timestamp_type=self.random.choice(["CreateTime", "LogAppendTime"]))


def entries_of(segment: Segment) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    offsets, times = segment.offset_index, segment.time_index
    return (
        [offsets.entry(number) for number in range(len(offsets))],
        [times.entry(number) for number in range(len(times))],
    )


def assert_files_hold_the_entries(log: Log) -> None:
    """What is in memory of the time indexes of closed segments is in their files, as all of it is
    when the log is closed."""
    for segment in log.segments[:-1]:
        assert segment.time_index.path.read_bytes() == segment.time_index.encoded()
        assert segment.offset_index.path.read_bytes() == segment.offset_index.encoded()


def assert_segments_equal(leader: Log, follower: Log) -> None:
    assert [s.base_offset for s in follower.segments] == [s.base_offset for s in leader.segments]
    for ours, theirs in zip(follower.segments, leader.segments, strict=True):
        place = f"segment {theirs.base_offset} of {[s.base_offset for s in leader.segments]}"
        assert ours.log_path.read_bytes() == theirs.log_path.read_bytes(), place
        assert ours.next_offset == theirs.next_offset, place
        assert entries_of(ours) == entries_of(theirs), place
        assert ours.largest_timestamp_ms == theirs.largest_timestamp_ms, place
        assert ours.first_timestamp_ms == theirs.first_timestamp_ms, place
        assert ours.magic_changes == theirs.magic_changes, place
        if theirs.first_timestamp_ms < 0:
            assert ours.created_ms == theirs.created_ms, place
        if theirs.size_bytes and theirs.largest_timestamp_ms < 0:
            assert ours.modified_ms == theirs.modified_ms, place


def places(log: Log) -> list[int]:
    """The offsets of all messages, and those behind them."""
    found = set()
    for segment in log.segments:
        for record in records(segment.log_path.read_bytes(), max_decompressed_bytes=MAX_BYTES):
            found |= {record.offset, record.offset + 1}
    return sorted(one for one in found if log.log_start_offset <= one < log.log_end_offset)


def assert_append_times_equal(leader: Log, follower: Log, *, lost: bool) -> None:
    targets = {0, 2**62}
    for offset in places(leader):
        ms, ours = reader.append_time_ms(leader, offset), reader.append_time_ms(follower, offset)
        assert ours == ms or (lost and -1 in (ours, ms)), f"append time of {offset}"
        targets |= {ms, ms + 1}
    for target_ms in () if lost else targets:
        found = reader.find_append_time(follower, target_ms).run()
        assert found == reader.find_append_time(leader, target_ms).run(), f"appended {target_ms}"


def assert_answers_equal(leader: Log, follower: Log, sampled: Random | None = None) -> None:
    """They answer alike for the time of every message, and those beside it; with `sampled`, for
    some of them."""
    times = {0, 1, 2**62}
    for segment in leader.segments:
        for record in records(segment.log_path.read_bytes(), max_decompressed_bytes=MAX_BYTES):
            times |= {record.timestamp_ms - 1, record.timestamp_ms, record.timestamp_ms + 1}
    if sampled is not None and len(times) > SAMPLED_MAX:
        times = {min(times), max(times), *sampled.sample(sorted(times), SAMPLED_MAX)}
    for target_ms in times:
        found = reader.find_time(follower, target_ms).run()
        assert found == reader.find_time(leader, target_ms).run(), f"time {target_ms}"
        before = reader.offsets_before(follower, max(target_ms, 0), 10).run()
        assert before == reader.offsets_before(leader, max(target_ms, 0), 10).run()
    assert reader.find_largest(follower).run() == reader.find_largest(leader).run()


def counted(log: Log, window: ReadWindow, every_ms: int) -> tuple[list[int], int]:
    """How many messages are in each of eight intervals, and how many have no time."""
    counts, untimed = array("q", bytes(8 * 8)), 0
    offset = log.log_start_offset
    while offset < log.high_watermark:
        segment = log.segment_list.holding(offset)
        mapping, cuts = windows.mapping(log, segment), segment.cuts
        mapping.run()
        windows.apply_mapping(log, segment, mapping, cuts)
        counting = windows.counting(log, offset, log.high_watermark, window, every_ms, counts)
        counting.run()
        untimed += counting.untimed
        assert counting.next_offset > offset
        offset = counting.next_offset
    return counts.tolist(), untimed


def assert_windows_equal(leader: Log, follower: Log, now_ms: int) -> None:
    for from_ms, every_ms in ((now_ms - 3, 1), (now_ms - DAY_MS, DAY_MS), (0, 2**59)):
        window = ReadWindow.between(from_ms, from_ms + 8 * every_ms)
        assert counted(follower, window, every_ms) == counted(leader, window, every_ms)


def _plan(log: Log, at_ms: int) -> RetentionPlan:
    """What retention would do. From when on an empty segment is past it goes by when its file was
    made, which is each broker's own."""
    plan = log.expiry.plan_retention(at_ms)
    verdicts = tuple(
        replace(each, expires_ms=None) if each.reason == EMPTY else each for each in plan.verdicts
    )
    return replace(plan, verdicts=verdicts)


def assert_verdicts_equal(leader: Log, follower: Log, now_ms: int) -> None:
    for settings in (leader.settings, follower.settings):
        assert settings.retention_bytes == leader.settings.retention_bytes
    for at_ms in (now_ms - 4000 * DAY_MS, now_ms - DAY_MS, now_ms, now_ms + 8 * DAY_MS, 2**62):
        assert _plan(follower, at_ms) == _plan(leader, at_ms), f"at {at_ms}"
        for mine, other in zip(
            follower.expiry.describe(at_ms).segments,
            leader.expiry.describe(at_ms).segments,
            strict=True,
        ):
            for name in COMPARED:
                if name == "expires_ms" and mine.reason == EMPTY:
                    continue
                assert getattr(mine, name) == getattr(other, name), name


def known_producers(log: Log, from_offset: int) -> dict[int, tuple[int, list[object], int]]:
    """What is known by the messages that are there."""
    return {
        producer_id: (
            producer.epoch,
            [batch for batch in producer.batches if batch.first_offset >= from_offset],
            producer.open_offset,
        )
        for producer_id, producer in log.producers.states.items()
        if producer.batches[-1].first_offset >= from_offset
    }


def assert_equal(leader: LogFolder, follower: LogFolder, *, lost: bool = False) -> None:
    """Bytes, indexes, answers and verdicts of a follower that has everything are its leader's.

    `lost` says that append times may be unknown where the follower was killed.
    """
    theirs, ours = leader.log, follower.log
    ours.hold_high_watermark(theirs.high_watermark)
    ours.set_settings(theirs.settings)
    for log in (theirs, ours):
        log.prepare()
        log.expiry.drop_expired()  # As the next maintenance pass does.
    assert (ours.log_start_offset, ours.log_end_offset) == (
        theirs.log_start_offset,
        theirs.log_end_offset,
    )
    for log in (theirs, ours):
        assert_files_hold_the_entries(log)
    assert_segments_equal(theirs, ours)
    assert_answers_equal(theirs, ours)
    assert_append_times_equal(theirs, ours, lost=lost)
    assert_windows_equal(theirs, ours, leader.clock.now_ms())
    assert_verdicts_equal(theirs, ours, leader.clock.now_ms())
    first_offset = theirs.segments[0].base_offset
    assert known_producers(ours, first_offset) == known_producers(theirs, first_offset)
    assert ours.producers.states.open_count == theirs.producers.states.open_count
    if theirs.size_bytes:
        assert ours.last_stamp_ms == theirs.last_stamp_ms
    assert_epochs_equal(theirs, ours)


def epoch_end(log: Log, epoch: int) -> EpochEnd:
    """What a leader answers that is asked for its epochs' ends by a follower."""
    return log.epochs.history.end_of(epoch, log.log_start_offset, log.log_end_offset)


def agree(leader: LogFolder, follower: LogFolder) -> None:
    """Cut the follower's log until its end is on the leader's history (KIP-279)."""
    ours = ReplicaLog(follower.log)
    first_offset = leader.log.segments[0].base_offset
    while True:
        end_offset, epoch = follower.log.log_end_offset, ours.last_epoch
        if end_offset < first_offset or end_offset <= follower.log.segments[0].base_offset:
            ours.begin_anew(first_offset)
            return
        answer = epoch_end(leader.log, epoch)
        if answer.epoch == epoch and end_offset <= answer.end_offset:
            return
        before = end_offset
        ours.cut(min(answer.end_offset, epoch_end(follower.log, answer.epoch).end_offset))
        assert follower.log.log_end_offset < before or answer.epoch < epoch
        if follower.log.log_end_offset == before:
            return


def assert_epochs_equal(leader: Log, follower: Log) -> None:
    epochs = leader.epochs.history.starts
    for epoch in {-1, *(one.epoch + more for one in epochs for more in (-1, 0, 1))}:
        if epoch > ReplicaLog(leader).last_epoch:
            continue  # The follower hears of it with its first message.
        ours, theirs = epoch_end(follower, epoch), epoch_end(leader, epoch)
        if theirs.end_offset > leader.segments[0].base_offset:
            assert ours == theirs, f"epoch {epoch}"
    for offset in places(leader):
        ours_at = follower.epochs.history.epoch_at(offset)
        assert ours_at == leader.epochs.history.epoch_at(offset), f"epoch at {offset}"
