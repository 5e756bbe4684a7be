"""The state in memory: a stored state, and the later records that were read and applied to it."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from ...protocol.api.pieces import Pieces
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
    POSITIONS_IN_PIECE,
    MetadataRecord,
    PositionsCommitted,
    decode_in_pieces,
    encode_in_pieces,
)
from .snapshot import Snapshot

_READ_BYTES: Final = 1 << 20
_MESSAGE_BYTES: Final = 90
"""Estimated size of a message beside its value."""

ReadRecord = tuple[int, int, MetadataRecord]
"""The offset after a record, the size of its message, and the record."""


class CurrentState:
    """The state that results from the records of a metadata log below `offset`."""

    def __init__(self, log: Log) -> None:
        self.state = MetadataState()
        self.offset = 0
        """Offset of the first record that is not in the state."""
        self.log_bytes = 0
        """Bytes of the records after the stored state."""
        self._log = log
        self.paused = False
        """Whether `take` returned in the middle of its work, so that others get their turn."""
        self.in_record = False
        """Whether the record at `offset` is applied in part."""
        self._folding: Iterator[tuple[int, int, str | None] | None] | None = None

    @property
    def limit(self) -> int:
        """The offset below which records are committed, and synced on this broker."""
        return min(self._log.high_watermark, self._log.flusher.synced_offset)

    def begin(self, snapshot: Snapshot, limit: int) -> None:
        """Use a stored state, and apply the records between it and `limit`.

        Raises `StorageError` at a record that cannot be read; the records before it were applied.
        """
        self.forget_reading()
        failure = None
        state, offset, log_bytes = snapshot.state, snapshot.offset, 0
        try:
            for found in read_records(self._log, offset, limit):
                if found is not None:
                    next_offset, size, record = found
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
        another that can be applied in this turn; if not, `paused` tells whether the next call goes
        on.

        `changed` is called with the name of the topic that the record changes. Raises
        `StorageError` for a record that cannot be read.
        """
        self.paused = False
        if self._folding is None:
            limit = self.limit
            if limit <= self.offset:
                return False
            self._folding = self._fold(limit)
        try:
            found = next(self._folding)
        except StopIteration:
            self._folding = None
            return self.limit > self.offset
        if found is None:
            self.paused = True
            return False
        self.offset, size, name = found
        self.log_bytes += size
        if name is not None:
            changed(name)
        return True

    def _fold(self, limit: int) -> Iterator[tuple[int, int, str | None] | None]:
        """Apply the records below `limit`. Yields for each the offset after it, its size, and the
        name of the topic that it changes; and `None` in between, so that others get their turn."""
        for found in read_records(self._log, self.offset, limit):
            if found is None:
                yield None
            else:
                offset, size, record = found
                self.in_record = True
                name = yield from self.state.apply_in_pieces(record)
                self.in_record = False
                yield offset, size, name

    def forget_reading(self) -> None:
        """Forget records that were read ahead, because the log was truncated and
        they may be gone. With `in_record` the state is of no use: `begin` is called next."""
        self._folding = None
        self.paused = self.in_record = False


def read_records(log: Log, start: int, limit: int) -> Iterator[ReadRecord | None]:
    """Yield the records from `start` up to `limit`, and `None` after each
    `POSITIONS_IN_PIECE` positions, or other records: the caller may give way then.

    Raises `StorageError`, also for a message that is not a valid record.
    """
    offset, weight = start, 0
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
                record = yield from decode_in_pieces(value)
                offset += 1
                yield offset, len(value or b"") + _MESSAGE_BYTES, record
                weight += len(record.positions) if isinstance(record, PositionsCommitted) else 1
                if weight >= POSITIONS_IN_PIECE:
                    yield None
                    weight = 0
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


def encode_checked(record: MetadataRecord) -> Pieces[bytes]:
    """Return the bytes of a record. Raises `InvalidRequest` if it could not be decoded again."""
    data = yield from encode_in_pieces(record)
    try:
        yield from decode_in_pieces(data)
    except MalformedRecord as error:
        raise InvalidRequest(f"this cannot be kept in the metadata log: {error}") from error
    return data


def append_record(log: Log, data: bytes) -> int:
    """Append a record, as `encode_checked` returns it, and return its offset. Raises
    `StorageError`."""
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
