"""Filling a log and its model side by side, and reading all of it back."""

from collections.abc import Callable, Iterable

from horolog.protocol.errors import RecordListTooLarge
from horolog.protocol.records.messages.sets import entries, records
from horolog.storage.log.admitted import Appended
from horolog.storage.log.log import Log
from horolog.storage.read import reader
from horolog.testing.logs import LogFolder
from horolog.tests.followers.appending import append_copy

from .logs import date_files
from .model import Message, Model, SentSet, StoredEntries, sent_as_stored

MAX_DECOMPRESSED_BYTES = 1 << 20


def produce(
    folder: LogFolder, model: Model, sent: SentSet, *, wait_for_sync: bool = False
) -> list[Message]:
    """Append `sent` to both; returns what was stored, nothing when it is larger than a segment."""
    log = folder.log
    stamp_ms = max(folder.clock.now_ms(), model.last_stamp_ms)
    expected = sent_as_stored(sent, log.settings, log.log_end_offset, stamp_ms)
    appended = _append(
        folder, lambda: log.appender.append(sent.encoded(), wait_for_sync=wait_for_sync)
    )
    if appended is None:
        return []
    assert appended.first_offset == expected[0].offset
    assert appended.last_offset == expected[-1].offset
    assert appended.count == len(expected)
    assert appended.append_time_ms == (stamp_ms if log.settings.stamps_append_time else -1)
    model.messages += expected
    model.last_stamp_ms = appended.append_time_ms
    return expected


def append_stored(folder: LogFolder, model: Model, stored: Iterable[StoredEntries]) -> None:
    """Append `stored` to both as it is, unless it is larger than a segment."""
    data = bytearray()
    expected: list[Message] = []
    following = folder.log.log_end_offset
    for one in stored:
        data += one.encoded(following)
        expected += one.messages(following)
        following = expected[-1].offset + 1
    if _append(folder, lambda: append_copy(folder.log, data)) is not None:
        model.messages += expected
        model.look_for_last_stamp()


def _append(folder: LogFolder, append: Callable[[], Appended]) -> Appended | None:
    """Call `append`; when it refuses the set for its size, nothing may have changed."""
    before = [(segment.base_offset, segment.size_bytes) for segment in folder.log.segments]
    try:
        return append()
    except RecordListTooLarge:
        after = [(segment.base_offset, segment.size_bytes) for segment in folder.log.segments]
        assert after == before
        return None


def fill(folder: LogFolder, sets: Iterable[SentSet]) -> Model:
    """Append all `sets`, a millisecond apart; returns the model of the log."""
    model = Model()
    for sent in sets:
        produce(folder, model, sent)
        date_files(folder)
        folder.clock.advance(1)
    model.high_watermark = folder.log.high_watermark
    return model


def reach_of_entries(folder: LogFolder) -> list[int]:
    """The last offset of every stored entry."""
    logs = [segment.log_path.read_bytes() for segment in folder.log.segments]
    return [entry.offset for log in logs for entry in entries(log)]


def truncate(folder: LogFolder, model: Model, offset: int) -> None:
    """Cut both; an entry that reaches `offset` goes as a whole."""
    kept_up_to = max((last for last in reach_of_entries(folder) if last < offset), default=-1)
    folder.log.truncate(offset)
    model.messages = [m for m in model.messages if m.offset <= kept_up_to]
    model.look_for_last_stamp()


RESTARTS: dict[str, Callable[[LogFolder], object]] = {
    "none": lambda folder: None,
    "clean": LogFolder.restart,
    "kill": LogFolder.kill_and_restart,
    "kill, no checkpoint": lambda folder: folder.kill_and_restart(checkpointed=False),
}


def read_from(log: Log, offset: int, max_bytes: int = 300) -> list[Message]:
    """All messages from `offset` to the high watermark, slice by slice as a consumer reads."""
    log.prepare()
    read: list[Message] = []
    while offset < log.high_watermark:
        data = reader.read(log, offset, max_bytes, whole_first=True).read()
        found = list(
            records(data, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES, from_offset=offset)
        )
        if not found:
            break
        assert len({entry.magic for entry in entries(data)}) == 1, "formats are mixed in a slice"
        assert reader.readable_bytes(log, offset) >= len(data)
        read += [
            Message(
                r.offset,
                r.timestamp_ms,
                r.timestamp_type and str(r.timestamp_type),
                r.key,
                r.value,
                r.headers,
            )
            for r in found
        ]
        offset = found[-1].offset + 1
    return read


def search(log: Log, target_ms: int) -> tuple[int, int] | None:
    """The answer of the log's own search, in the shape of `Model.find_time`."""
    found = reader.find_time(log, target_ms).run()
    return None if found is None else (found.offset, found.timestamp_ms)


def search_largest(log: Log) -> tuple[int, int] | None:
    """The same for the largest timestamp."""
    found = reader.find_largest(log).run()
    return None if found is None else (found.offset, found.timestamp_ms)
