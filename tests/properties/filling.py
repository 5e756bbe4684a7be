"""Filling a log and its model side by side, and reading all of it back."""

from collections.abc import Iterable

from horolog.protocol.errors import RecordListTooLarge
from horolog.protocol.records.message import records
from horolog.storage.log import Log
from horolog.testing.logs import LogFolder

from .model import LOG_APPEND_TIME, Message, Model, SentSet, sent_as_stored

MAX_DECOMPRESSED_BYTES = 1 << 20


def next_stamp(folder: LogFolder, model: Model) -> int:
    """The append time that the next set gets on a LogAppendTime topic."""
    last = model.messages[-1] if model.messages else None
    stamped_ms = last.timestamp_ms if last is not None and last.kind == LOG_APPEND_TIME else -1
    return max(folder.clock.now_ms(), stamped_ms)


def produce(
    folder: LogFolder, model: Model, sent: SentSet, *, wait_for_sync: bool = False
) -> list[Message]:
    """Append `sent` to both; returns what was stored, nothing when it is larger than a segment."""
    log = folder.log
    first_offset = log.log_end_offset
    stamp_ms = next_stamp(folder, model)
    expected = sent_as_stored(sent, log.settings, first_offset, stamp_ms)
    before = folder.content()
    try:
        appended = log.append(sent.encoded(), wait_for_sync=wait_for_sync)
    except RecordListTooLarge:
        assert folder.content() == before
        assert log.log_end_offset == first_offset
        return []
    stamps = log.settings.stamps_append_time
    assert appended.first_offset == first_offset
    assert appended.last_offset == expected[-1].offset
    assert appended.count == len(expected)
    assert appended.append_time_ms == (stamp_ms if stamps else -1)
    assert log.log_end_offset == appended.last_offset + 1
    model.messages += expected
    return expected


def fill(folder: LogFolder, sets: Iterable[SentSet]) -> Model:
    """Append all `sets`, a millisecond apart; returns the model of the log."""
    model = Model()
    for sent in sets:
        produce(folder, model, sent)
        folder.clock.advance(1)
    model.high_watermark = folder.log.high_watermark
    return model


def read_from(log: Log, offset: int, max_bytes: int = 300) -> list[Message]:
    """All messages from `offset` to the high watermark, slice by slice as a consumer reads."""
    read: list[Message] = []
    while offset < log.high_watermark:
        data = log.read(offset, max_bytes, whole_first=True).read()
        found = list(
            records(data, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES, from_offset=offset)
        )
        if not found:
            break
        assert log.readable_bytes(offset) >= len(data)
        read += [
            Message(
                r.offset, r.timestamp_ms, r.timestamp_type and str(r.timestamp_type), r.key, r.value
            )
            for r in found
        ]
        offset = found[-1].offset + 1
    return read


def search(log: Log, target_ms: int) -> tuple[int, int] | None:
    """The answer of the log's own search, in the shape of `Model.find_time`."""
    found = log.find_time(target_ms).run()
    return None if found is None else (found.offset, found.timestamp_ms)


def search_largest(log: Log) -> tuple[int, int] | None:
    """The same for the largest timestamp."""
    found = log.find_largest().run()
    return None if found is None else (found.offset, found.timestamp_ms)
