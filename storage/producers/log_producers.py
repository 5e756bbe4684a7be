"""The producers of one log: their states in memory, and their snapshots in the folder of the log.

States follow from the stored batches, so they are never lost. But without a snapshot, the heads of
all batches in the log have to be read. A snapshot is written when a segment is closed and at a
clean stop, if the log has batches; the two newest are kept. A snapshot is written after the sync of
everything below its offset, so that it does not describe messages that a power cut has removed.
Before segments are deleted, with their batches, it is written at once; if a power cut then removes
messages below its offset, the next start removes the snapshot too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final

from ...protocol.errors import HorologError
from ...protocol.records.batch import BatchHeader, read_header
from ...protocol.records.kernel import RecordCursor
from ...protocol.records.kernel.terms import RECORD
from ...protocol.records.layout import (
    BATCH_MAGIC,
    BATCH_OVERHEAD,
    ENTRY_OVERHEAD,
    MESSAGE_OVERHEAD,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    SIZE_AT,
)
from ..files import Buffer, Files
from ..index.index_checksums import SegmentChecksums
from ..names import TRANSACTION_INDEX, parse_segment_file
from ..seams import Seams
from ..segment.segment import Segment
from .producer_snapshots import (
    KEPT,
    MalformedSnapshot,
    PendingSnapshot,
    SnapshotName,
    decode_kafka_snapshot,
    decode_snapshot,
    newest_first,
)
from .producer_states import AbortedSpan, KnownProducer, ProducerBatch, ProducerStates

_READ_BYTES: Final = 256 << 10
_HEAD: Final = Struct(">i4xB26xq")
"""Size, magic and producer id of a batch, from `SIZE_AT` on."""
_MARK: Final = Struct(">hh")
ABORT: Final = 0
COMMIT: Final = 1
"""Types of control batches."""


Read = Callable[[int, int], Buffer]
"""Reads a number of bytes from a position on, as `File.pread`."""

_BATCHES: Final = 2
"""Magic of record batches."""


class LogProducers:
    """The producers of the log in `folder`, for the event loop's thread."""

    def __init__(self, folder: Path, seams: Seams, log_name: Mapping[str, object]) -> None:
        """Nothing is known before `load`. `log_name` is added to every event."""
        self.states = ProducerStates()
        self.in_use = False
        """Whether the log holds batches, as far as known."""
        self.follows = False
        """Whether more of the log will come from its leader."""
        self._folder = folder
        self._files = seams.files
        self._clock = seams.clock
        self._observe = seams.observe
        self._log_name = log_name
        self._offsets: list[int] = []
        """Offsets of Horolog's snapshots that are on disk or about to be written, rising."""
        self._unreadable: set[int] = set()
        """Offsets of snapshots on disk that could not be read."""
        self._room = seams.producer_room
        self._pending: list[PendingSnapshot] = []
        self._handed_out: list[PendingSnapshot] = []

    def load(
        self,
        segments: Sequence[Segment],
        checksums: Mapping[int, SegmentChecksums],
        *,
        clean: bool,
    ) -> None:
        """Load the states at the end of `segments`. Raises `OSError`.

        Uses the newest valid snapshot and the batches after it. A log that was stopped cleanly
        without a snapshot has batches only if its checksums say so. Open transactions count as
        aborted from here on: only the broker on which they began could have ended them, and
        `read_committed` consumers would wait for ever. A follower waits until its copy of the
        leader's log is complete: see `abort_open`.
        """
        end_offset = segments[-1].next_offset
        snapshots = newest_first(self._files, self._folder)
        self._drop_beyond(snapshots, end_offset)
        start = 0
        for name, path in snapshots:
            states = self._read(name, path) if name.offset <= end_offset else None
            if states is not None:
                self.states, start, self.in_use = states, name.offset, True
                break
        self._know_offsets([name for name, _ in snapshots if name.offset <= end_offset], start)
        unknown = bool(snapshots) or not clean
        self._scan(
            [
                segment
                for segment in segments
                if segment.next_offset > start and _may_hold_batches(segment, checksums, unknown)
            ],
            start,
        )
        if not self.follows:
            self.abort_open(end_offset)

    def abort_open(self, end_offset: int) -> None:
        """Mark open transactions as aborted at the log end."""
        for producer_id, first_offset, _ in self.states.abort_open(end_offset - 1):
            self._observe(
                "open_transaction_aborted",
                producer_id=producer_id,
                first_offset=first_offset,
                **self._log_name,
            )

    def _know_offsets(self, names: Iterable[SnapshotName], believed_offset: int) -> None:
        """Record which snapshots exist. Those behind `believed_offset` could not be read."""
        ours = {name.offset for name in names if not name.of_kafka}
        coming = {one.offset for one in (*self._pending, *self._handed_out) if not one.settled}
        self._offsets = sorted({offset for offset in ours if offset <= believed_offset} | coming)
        self._unreadable = ours - coming - set(self._offsets)

    def _drop_beyond(self, snapshots: Sequence[tuple[SnapshotName, Path]], end_offset: int) -> bool:
        """Remove snapshots that cover messages beyond the log end. Return whether
        there were any."""
        dropped = False
        for name, path in snapshots:
            if name.offset > end_offset:
                with suppress(FileNotFoundError):  # A sync that wrote a newer snapshot removed it.
                    self._files.unlink(path)
                dropped = True
        if dropped:
            # Otherwise a power cut could bring them back when other messages are there.
            self._files.sync_directory(self._folder)
        return dropped

    def _read(self, name: SnapshotName, path: Path) -> ProducerStates | None:
        try:
            data = self._files.read_bytes(path)
        except FileNotFoundError:
            return None  # A sync that wrote a newer snapshot removed it.
        try:
            if not name.of_kafka:
                return decode_snapshot(data, name.offset)
            states = decode_kafka_snapshot(data, self._clock.now_ms())
        except MalformedSnapshot as error:
            self._observe(
                "producer_snapshot_ignored", path=str(path), reason=str(error), **self._log_name
            )
            return None
        states.aborted = aborted_below(self._files, self._folder, name.offset)
        return states

    def _scan(self, segments: Sequence[Segment], start: int) -> None:
        """Add the batches in `segments` from offset `start` on."""
        for segment in segments:
            position = segment.offset_index.lookup(start)
            self._take(segment.file.pread, position, segment.readable_bytes, start)

    def take_stored(self, data: Buffer) -> None:
        """Add the batches among entries that were stored unchanged."""
        view = memoryview(data)
        self._take(lambda size, at: view[at : at + size], 0, len(view), 0)

    def _take(self, read: Read, position: int, end: int, start_offset: int) -> None:
        now_ms = self._clock.now_ms()
        for found in numbered_batches(read, position, end):
            self.in_use = True
            if found is not None and found[0].base_offset >= start_offset:
                header, position = found
                take_batch(self.states, header, read, position, now_ms)

    def take_snapshot(self, offset: int) -> None:
        """Have the present states written by the next sync, as the snapshot at `offset`."""
        if not self.in_use or (self._offsets and offset <= self._offsets[-1]):
            return
        self._offsets.append(offset)
        superfluous = [*self._offsets[:-KEPT], *(self._unreadable - {offset})]
        del self._offsets[:-KEPT]
        self._unreadable.clear()
        states = self.states.copy()
        self._pending.append(PendingSnapshot(self._folder, offset, states, superfluous))

    def outlive(self, offset: int, end_offset: int) -> None:
        """Make sure that there is a snapshot covering the batches below `offset`, whose segments
        are about to be dropped. If there is none, one is taken at the log end. See `write_waiting`.
        """
        covered = bool(self._offsets) and self._offsets[-1] >= offset
        if len(self.states) and not covered:
            self.take_snapshot(end_offset)

    def write_waiting(self) -> None:
        """Write the snapshots that wait for a sync, durably.

        May run in any thread. Raises `OSError`; they remain waiting then.
        """
        waiting = [one for one in (*self._handed_out, *self._pending) if not one.settled]
        for snapshot in waiting[-KEPT:]:
            snapshot.write(self._files)

    @property
    def to_be_written(self) -> bool:
        """Whether a snapshot waits for a sync."""
        return bool(self._pending) and not all(one.settled for one in self._pending)

    def hand_out(self) -> list[PendingSnapshot]:
        """Return the snapshots that the sync that begins now has to write at its end."""
        handed_out, self._pending = [one for one in self._pending if not one.settled], []
        self._handed_out = [one for one in self._handed_out if not one.settled] + handed_out
        return handed_out

    def hand_back(self, handed_out: Sequence[PendingSnapshot]) -> None:
        """Leave snapshots to a later sync: this one did not get to them, or found no room.

        Snapshots made unnecessary by later ones are dropped.
        """
        self._handed_out = [one for one in self._handed_out if one not in handed_out]
        left = [one for one in handed_out if not one.settled and one.offset in self._offsets]
        self._pending = [*left, *self._pending]

    def prepare_cut(self, offset: int) -> None:
        """Remove durably the snapshots beyond `offset`, where the log is about to be truncated.
        Raises `OSError`."""
        for pending in (*self._pending, *self._handed_out):
            if pending.offset > offset:
                pending.withdraw()
        self._pending = [one for one in self._pending if one.offset <= offset]
        self._drop_beyond(newest_first(self._files, self._folder), offset)

    def load_again(self, segments: Sequence[Segment]) -> None:
        """Load the states again after a truncation. Raises `OSError`."""
        if self.in_use:
            self.states.leave()
            self.states = ProducerStates()
            self.load(segments, {}, clean=False)
            self.enter_room()

    def enter_room(self) -> None:
        """Count the states in the memory limit shared with other logs, until `close`."""
        self.states.enter(self._room)

    def close(self) -> None:
        """Stop counting the states, because the log is closed."""
        self.states.leave()

    def drop_below(self, offset: int) -> None:
        """Drop what describes only messages below `offset`, the new log start."""
        if not self.in_use:
            return
        self.states.forget_below(offset)
        for name, path in newest_first(self._files, self._folder)[1:]:
            if name.offset < offset:
                with suppress(FileNotFoundError):  # A sync that wrote a newer snapshot removed it.
                    self._files.unlink(path)

    def before(self, offset: int) -> ProducerStates:
        """Return the states from messages below `offset`, the log start, only."""
        found = ProducerStates()
        for producer_id, one in self.states.items():
            batches = tuple(each for each in one.batches if each.first_offset < offset)
            if batches:
                found.put_back(producer_id, KnownProducer(one.epoch, batches, one.seen_ms, -1))
        return found

    def begin_with(self, states: ProducerStates, offset: int) -> None:
        """Use the states of another log at `offset`, where this empty log begins."""
        self.states.leave()
        self.states, self.in_use = states, True
        self.enter_room()
        self.take_snapshot(offset)
        with suppress(OSError):  # On an error the next sync writes it, if a message follows.
            self.write_waiting()

    def expire(self, now_ms: int, after_ms: int, count_max: int) -> None:
        """Forget producers that were silent for longer than `after_ms`, or that
        exceed `count_max`."""
        self.states.expire(now_ms, after_ms)
        self.states.keep(count_max)


def _may_hold_batches(
    segment: Segment, checksums: Mapping[int, SegmentChecksums], unknown: bool
) -> bool:
    """Whether a segment has to be searched for batches. `unknown` applies if its formats are not
    known."""
    if not segment.size_bytes:
        return False
    changes: Sequence[tuple[int, int]] = segment.magic_changes
    if not changes and segment.base_offset in checksums:
        changes = checksums[segment.base_offset].magic_changes
    return any(magic == _BATCHES for _, magic in changes) if changes else unknown


_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0


def aborted_below(files: Files, folder: Path, offset: int) -> list[AbortedSpan]:
    """Return the transactions aborted below `offset`, in the order in which they ended.

    Reads Kafka's index of aborted transactions, `<base offset>.txnindex`, in folders that Kafka
    wrote. It has an entry of 34 bytes for each transaction that ended in the segment, all integers
    big-endian: version int16 (0), producer id, first offset, last offset, last stable offset, all
    int64. Horolog writes no such index: its own snapshots have the aborted transactions. Invalid
    entries are skipped. Raises `OSError`.
    """
    found: list[AbortedSpan] = []
    for name in files.names(folder):
        parsed = parse_segment_file(name)
        if parsed is not None and parsed.kind == TRANSACTION_INDEX and not parsed.suffix:
            data = files.read_bytes(folder / name)
            whole = len(data) - len(data) % _ENTRY.size
            for version, producer_id, first, last, _ in _ENTRY.iter_unpack(data[:whole]):
                if version == _VERSION and 0 <= first <= last < offset:
                    found.append(AbortedSpan(producer_id, first, last))
    return sorted(found, key=lambda transaction: transaction.last_offset)


def numbered_batches(read: Read, start: int, end: int) -> Iterator[tuple[BatchHeader, int] | None]:
    """Yield the headers of the batches with a producer id from `start` to `end` of a log file, with
    their positions. The first item is `None` if there is any batch.

    An entry begins at `start`. Other entries are skipped. Stops at bytes that are not an entry,
    without judging them. Raises `OSError`.
    """
    met = False
    position = start
    base = start
    data: Buffer = b""
    while position + BATCH_OVERHEAD <= end:
        at = position - base
        if at + BATCH_OVERHEAD > len(data):
            base, data = position, read(min(_READ_BYTES, end - position), position)
            if len(data) < BATCH_OVERHEAD:
                return
            at = 0
        size, magic, producer_id = _HEAD.unpack_from(data, at + SIZE_AT)
        if size < MESSAGE_OVERHEAD[0] or magic > BATCH_MAGIC:
            return
        if magic == BATCH_MAGIC:
            if not met:
                met = True
                yield None
            if producer_id != NO_PRODUCER_ID:
                try:
                    yield read_header(data, at), position
                except HorologError:
                    return
        position += ENTRY_OVERHEAD + size


def take_batch(
    states: ProducerStates, header: BatchHeader, read: Read, position: int, seen_ms: int
) -> None:
    """Add a batch stored at `position` to `states`. Raises `OSError`."""
    if header.is_control:
        mark = control_mark(read(header.size_bytes, position), header)
        if mark in (ABORT, COMMIT):
            states.end_transaction(
                header.producer_id,
                header.producer_epoch,
                header.base_offset,
                seen_ms,
                aborted=mark == ABORT,
            )
        return
    states.add(
        header.producer_id,
        header.producer_epoch,
        sent_batch(header),
        seen_ms,
        opens=header.is_transactional,
    )


def sent_batch(header: BatchHeader) -> ProducerBatch:
    """Return what is remembered of a stored batch."""
    return ProducerBatch(
        header.base_sequence,
        header.last_offset_delta + 1,
        header.base_offset,
        header.max_timestamp_ms if header.is_append_time else NO_TIMESTAMP,
    )


def control_mark(batch: Buffer, header: BatchHeader) -> int | None:
    """Return the type of a control batch: 0 for an aborted, 1 for a committed transaction; `None`
    if it is invalid."""
    if len(batch) < header.size_bytes:
        return None
    cursor = RecordCursor(memoryview(batch), BATCH_OVERHEAD, header.size_bytes)
    if cursor.step() != RECORD:
        return None
    key = cursor.key()
    if key is None or len(key) < _MARK.size:
        return None
    mark: int = _MARK.unpack_from(key)[1]
    return mark
