"""Whether a directory that went through a power cut is what was promised."""

from pathlib import Path

from horolog.storage.check.verify import verify
from horolog.storage.directory.log_directory import LogDirectory
from horolog.storage.files import SystemFiles
from horolog.storage.log.log import Log
from horolog.storage.names import METADATA_TOPIC, folder_name, parse_folder_name
from horolog.storage.producers.log_producers import numbered_batches, take_batch
from horolog.storage.producers.producer_states import ProducerStates
from horolog.storage.read import reader
from horolog.storage.segment.index_loading import apply_scan, scan_segment
from horolog.storage.segment.segment import Segment
from horolog.testing.directories import DataDirectory, read_messages
from horolog.testing.files import QuickFiles
from horolog.testing.logs import RecordedEvents

from .life import DATA, START_MS
from .promises import LogPromise, Message, Partition, Promise, TopicState

NEVER_TOLD = {
    "checkpoint_failed",
    "journal_not_written",
    "checkpoint_ignored",
    "deletion_failed",
    "folder_adopted",
    "log_open_failed",
    "partition_folder_missing",
    "metadata_log_missing",
    "metadata_log_set_aside",
    "metadata_unreadable",
    "segment_damaged",
    "topics_file_broken",
}
"""Events that tell of files which no power cut can leave, if every sync is where it belongs."""


def check_survivor(path: Path, promise: Promise, *, use: bool = True) -> None:
    """Start on what is left in the folder `path` and compare.

    With `use`, append to it, stop and start once more.
    """
    data = DataDirectory(path / DATA)
    data.files = QuickFiles()
    data.clock.step(START_MS - data.clock.now_ms())
    directory = data.open()
    folders = {path.name for path in data.path.iterdir() if parse_folder_name(path.name)}
    assert folders == {folder_name(*key) for key in directory.partitions()}
    _check_topics(directory, promise)
    _check_positions(directory, promise)
    messages = {}
    for key in directory.partitions():
        log = directory.log(*key)
        messages[key] = _check_log(log, promise.logs[key])
        if promise.clean and not promise.recovered:
            assert all(reader.append_time_ms(log, offset) > 0 for offset in messages[key])
        _check_producers(log, promise.logs[key])
        _check_indexes(log, messages[key], promise.logs[key], promise.stopped)
        _check_searches(log, messages[key])
    _check_events(data.events, promise)
    _check_kept(path, promise)
    assert not any(log.expiry.has_expired for log in directory.open_logs())
    if use:
        _use(data, messages, promise)
    data.close()
    assert [finding for finding in verify(SystemFiles(), data.path) if finding.error] == []


def _use(
    data: DataDirectory, messages: dict[Partition, dict[int, Message]], promise: Promise
) -> None:
    """Append to each log, stop and start again."""
    for key, found in messages.items():
        data.append(key[0], START_MS, partition=key[1])
        found[data.directory.log(*key).log_end_offset - 1] = (START_MS, b"hello")
    directory = data.restart()
    for key, found in messages.items():
        assert messages_of(directory.log(*key)) == found
    assert data.events.named("log_recovered") == []
    _check_events(data.events, promise)


def _check_topics(directory: LogDirectory, promise: Promise) -> None:
    topics = directory.topics()
    assert topics.keys() <= promise.topics.keys()
    for name, allowed in promise.topics.items():
        if name not in topics:
            assert None in allowed, f"topic {name} is gone"
            continue
        found = topics[name]
        assert TopicState(found.partitions, dict(found.overrides), found.gaps) in allowed


def _check_positions(directory: LogDirectory, promise: Promise) -> None:
    for (name, topic, partition), allowed in promise.positions.items():
        position = directory.committed.get(name, topic, partition)
        if position is None and topic in directory.topics():
            # It goes with its topic, not before it.
            assert None in allowed[:1]
        assert (None if position is None else position.offset) in allowed


def messages_of(log: Log) -> dict[int, Message]:
    return {offset: (ms, value) for offset, ms, _, value in read_messages(log)}


def _check_log(log: Log, promise: LogPromise) -> dict[int, Message]:
    """What was promised of one log; returns the messages."""
    found = messages_of(log)
    assert list(found) == sorted(found)
    if not log.gaps:
        assert list(found) == list(range(log.log_start_offset, log.log_end_offset))
    for offset, message in found.items():
        assert message in promise.sent[offset], f"offset {offset}: this was never sent"
        told_ms = reader.append_time_ms(log, offset)
        assert told_ms in (-1, promise.append_times.get(message)), f"offset {offset}: {told_ms}"
    for offset, message in promise.safe.items():
        assert found.get(offset) == message, f"offset {offset}: synced, and lost"
    assert log.log_start_offset >= promise.start_offset
    assert log.log_end_offset >= promise.end_offset
    assert log.high_watermark == log.log_end_offset
    return found


def _check_producers(log: Log, promise: LogPromise) -> None:
    """What is known of producers is what the stored batches say, whatever snapshots there are, and
    what the batches said that were dropped."""
    from_log = ProducerStates()
    for segment in log.segments:
        data = segment.log_path.read_bytes()

        def read(size: int, at: int, data: bytes = data) -> bytes:
            return data[at : at + size]

        for found in numbered_batches(read, 0, len(data)):
            if found is not None:
                take_batch(from_log, found[0], read, found[1], 0)
    known = dict(log.producers.states.items())
    for producer_id, producer in from_log.items():
        assert known[producer_id].epoch == producer.epoch
        kept = known[producer_id].batches[-len(producer.batches) :]
        assert kept == producer.batches
    for producer_id, end in promise.producers.items():
        assert known[producer_id].batches[-1].last_offset >= end, f"producer {producer_id}: {end}"
    dropped_below = log.segments[0].base_offset
    for producer_id in known.keys() - dict(from_log.items()).keys():
        assert known[producer_id].batches[-1].last_offset < dropped_below


def _check_indexes(
    log: Log, messages: dict[int, Message], promise: LogPromise, stopped: bool
) -> None:
    """The indexes, in memory and in their files, are what rebuilding them from the log gives.

    A clean stop leaves one more time entry in the segment that takes appends, a cut may take one
    too many: what is there has to be true.
    """
    for segment in log.segments:
        on_disk = [path.read_bytes() for path in segment.paths[:3]]
        offset_index, time_index = segment.offset_index.encoded(), segment.time_index.encoded()
        assert on_disk[1:] == [offset_index, time_index]
        rebuilt = Segment.existing(log.path, segment.base_offset, log.settings, log.seams)
        rebuilt.next_offset = segment.next_offset
        closed = segment is not log.segments[-1]
        apply_scan(rebuilt, scan_segment(rebuilt, gaps=log.gaps), closed=closed)
        assert [path.read_bytes() for path in segment.paths[:2]] == on_disk[:2]
        segment.paths[2].write_bytes(on_disk[2])
        assert rebuilt.largest[0] == segment.largest_timestamp_ms
        assert rebuilt.next_offset == segment.next_offset
        if not stopped and not promise.was_cut:
            assert rebuilt.time_index.encoded() == time_index
        if segment.base_offset < log.log_start_offset:
            continue  # messages that cannot be read any more have entries in it
        within = range(segment.base_offset, segment.next_offset)
        times = [(offset, messages[offset][0]) for offset in within if offset in messages]
        for number in range(len(segment.time_index)):
            largest_ms, known = segment.time_index.entry(number)
            assert largest_ms == max(ms for offset, ms in times if offset < known)


def _check_searches(log: Log, messages: dict[int, Message]) -> None:
    times = {ms for ms, _ in messages.values()}
    for target_ms in {at for ms in times for at in (ms - 1, ms, ms + 1)}:
        first = next((o for o, (ms, _) in messages.items() if ms >= target_ms), None)
        found = reader.find_time(log, target_ms).run()
        assert (None if found is None else found.offset) == first


def _check_events(events: RecordedEvents, promise: Promise) -> None:
    told = [(name, fields) for name, fields in events.seen if name in NEVER_TOLD]
    if any(log.cut_into_batch for log in promise.logs.values()):
        told = [(name, fields) for name, fields in told if name != "checkpoint_ignored"]
    assert told == [], told
    for fields in events.named("index_rebuilt"):
        segment = Path(fields["path"])
        topic, _, partition = segment.parent.name.rpartition("-")
        if topic == METADATA_TOPIC:
            continue  # Nothing is promised of its indexes.
        log = promise.logs[topic, int(partition)]
        assert not log.doomed_below <= int(segment.name[:20]) < log.sealed_below, fields
    if promise.clean:
        assert events.named("log_recovered") == []


def _check_kept(path: Path, promise: Promise) -> None:
    """What was in a log is in it still, or in a file beside it."""
    if not promise.kept:
        return
    everything = [file.read_bytes() for file in path.rglob("*") if file.is_file()]
    for wanted in promise.kept:
        assert any(wanted in content for content in everything)
