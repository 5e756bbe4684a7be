"""The state in memory: a stored state, and the later records that were read and applied to it."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from ...protocol.errors import CodedError, CorruptMessage, InvalidRequest, StorageError
from ...protocol.records.batch import finish_batch
from ...protocol.records.kernel import RecordEncoder, walk
from ...protocol.records.kernel.terms import Problem
from ...protocol.records.messages.sets import records
from ..log.log import Log
from ..read.slices import Slice, read_slice
from .access_records import MalformedRecord
from .metadata_state import MetadataState
from .records import (
    MAX_RECORD_BYTES,
    MetadataRecord,
    decode_record,
    encode_record,
)
from .snapshot import Snapshot

_READ_BYTES: Final = 1 << 20
_MESSAGE_BYTES: Final = 90
"""Estimated size of a message beside its value."""


class CurrentState:
    """The state that results from the records of a metadata log below `offset`."""

    def __init__(self, log: Log) -> None:
        self.state = MetadataState()
        self.offset = 0
        """Offset of the first record that is not in the state."""
        self.log_bytes = 0
        """Bytes of the records after the stored state."""
        self._log = log
        self._reading: Iterator[tuple[int, int, MetadataRecord]] | None = None

    @property
    def limit(self) -> int:
        """The offset below which records are committed, and synced on this broker."""
        return min(self._log.high_watermark, self._log.flusher.synced_offset)

    def begin(self, snapshot: Snapshot, limit: int) -> None:
        """Use a stored state, and apply the records between it and `limit`.

        Raises `StorageError` at a record that cannot be read; the records before it were applied.
        """
        self._reading = None
        failure = None
        state, offset, log_bytes = snapshot.state, snapshot.offset, 0
        try:
            for next_offset, size, record in read_records(self._log, offset, limit):
                state.apply(record)
                offset, log_bytes = next_offset, log_bytes + size
            offset = max(offset, limit)
        except StorageError as error:
            failure = error
        self.state, self.offset, self.log_bytes = state, offset, log_bytes
        if failure is not None:
            raise failure

    def take(self, changed: Callable[[str], None]) -> bool:
        """Apply the next record below the limit, if there is one. Return whether there may be
        another.

        `changed` is called with the name of the topic that the record changes. Raises
        `StorageError` for a record that cannot be read.
        """
        if self._reading is None:
            limit = self.limit
            if limit <= self.offset:
                return False
            self._reading = read_records(self._log, self.offset, limit)
        found = next(self._reading, None)
        if found is None:
            self._reading = None
            return self.limit > self.offset
        self.offset, size, record = found
        self.log_bytes += size
        name = self.state.apply(record)
        if name is not None:
            changed(name)
        return True

    def forget_reading(self) -> None:
        """Forget records that were read ahead, because the log was truncated and
        they may be gone."""
        self._reading = None


def read_records(log: Log, start: int, limit: int) -> Iterator[tuple[int, int, MetadataRecord]]:
    """Yield the records from `start` up to `limit`: the offset after each, its size, and the
    record.

    Raises `StorageError`, also for a message that is not a valid record.
    """
    offset = start
    log.prepare()
    while offset < limit:
        try:
            found = read_slice(
                log.segment_list,
                offset,
                _READ_BYTES,
                end_offset=limit,
                high_watermark=log.high_watermark,
                whole_first=True,
                far=True,
            )
        except OSError as error:
            raise _unread(log, offset, error) from error
        try:
            data = found.read()
            if not data:
                raise MalformedRecord("it is missing")
            for each in records(
                data, max_decompressed_bytes=2 * MAX_RECORD_BYTES, from_offset=offset
            ):
                if each.offset >= limit:
                    return
                offset = each.offset
                value = None if each.value is None else bytes(each.value)
                record = decode_record(value)
                offset += 1
                yield offset, len(value or b"") + _MESSAGE_BYTES, record
        except (MalformedRecord, CodedError, OSError) as error:
            if isinstance(error, CorruptMessage):
                _note_damage(found)
            raise _unread(log, offset, error) from error
        offset = walk(data, 0, len(data), check_crc=False).last_offset + 1


def _unread(log: Log, offset: int, error: Exception) -> StorageError:
    return StorageError(
        f"{log.path}: the record at offset {offset} cannot be applied: {error}; "
        "nothing from there on is"
    )


def append_record(log: Log, record: MetadataRecord) -> int:
    """Append a record, and return its offset.

    Raises `InvalidRequest` for a record that could not be decoded again, `StorageError`.
    """
    data = encode_record(record)
    try:
        decode_record(data)
    except MalformedRecord as error:
        raise InvalidRequest(f"this cannot be kept in the metadata log: {error}") from error
    encoder = RecordEncoder()
    encoder.add(data, None, log.seams.clock.now_ms(), ())
    # In a cluster the high watermark is held until the in-sync replicas have the record, and have
    # synced it if the settings ask for that.
    log.appender.append(finish_batch(encoder), wait_for_sync=not log.watermark.held)
    return log.log_end_offset - 1


def _note_damage(found: Slice) -> None:
    """Record bytes with a wrong CRC as damage of their segment, so that a follower copies them
    again."""
    with suppress(OSError):
        data = found.read()
        good = walk(data, 0, len(data))
        if found.segment is not None and good.problem not in (Problem.NONE, Problem.PARTIAL):
            found.segment.damage(found.position + good.end)
