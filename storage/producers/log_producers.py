"""The producers of one log: their states in memory, and the snapshots of them in its folder.

States follow from what is stored, so that they are never lost, only slow to come by: without a
snapshot the heads of all batches of the log have to be read. One is written when a segment is
closed and at a clean stop, of logs that hold batches; the two newest are kept. A snapshot waits for
the sync of everything below its offset, so that none is there which speaks of messages that a power
cut has taken; before segments are dropped, which take the batches with them, it is written at once.
Should a power cut take messages below it all the same, the next start removes it.
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
"""What control batches say."""


Read = Callable[[int, int], Buffer]
"""Gives so many bytes from a position on, as `File.pread`."""

_BATCHES: Final = 2
"""The magic of record batches."""


class LogProducers:
    """The producers of the log in `folder`; for the loop's thread."""

    def __init__(self, folder: Path, seams: Seams, log_name: Mapping[str, object]) -> None:
        """Nothing is known yet: see `load`. `log_name` goes with every event."""
        self.states = ProducerStates()
        self.in_use = False
        """Whether the log holds batches, as far as that is known."""
        self.follows = False
        """Whether more of the log is to come from its leader."""
        self._folder = folder
        self._files = seams.files
        self._clock = seams.clock
        self._observe = seams.observe
        self._log_name = log_name
        self._offsets: list[int] = []
        """Of the snapshots of ours that are on disk or on their way there, rising."""
        self._unreadable: set[int] = set()
        """Of those on disk that could not be read."""
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
        """Learn what is known at the end of `segments`. Raises `OSError`.

        Goes by the newest snapshot that can be believed and the batches after it. A log that was
        stopped cleanly without leaving any has batches only where its seals say so. A transaction
        that has not ended counts as aborted from here on: only the broker that it was begun at
        could have ended it, and readers of what is committed would wait for that for ever. A
        follower waits for its leader's log to come to an end: see `abort_open`.
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
        """Count the transactions that have not ended as aborted at the log end."""
        for producer_id, first_offset, _ in self.states.abort_open(end_offset - 1):
            self._observe(
                "open_transaction_aborted",
                producer_id=producer_id,
                first_offset=first_offset,
                **self._log_name,
            )

    def _know_offsets(self, names: Iterable[SnapshotName], believed_offset: int) -> None:
        """Know which snapshots there are; those behind `believed_offset` could not be read."""
        ours = {name.offset for name in names if not name.of_kafka}
        coming = {one.offset for one in (*self._pending, *self._handed_out) if not one.settled}
        self._offsets = sorted({offset for offset in ours if offset <= believed_offset} | coming)
        self._unreadable = ours - coming - set(self._offsets)

    def _drop_beyond(self, snapshots: Sequence[tuple[SnapshotName, Path]], end_offset: int) -> bool:
        """Remove snapshots that speak of messages behind the end; say whether there were any."""
        dropped = False
        for name, path in snapshots:
            if name.offset > end_offset:
                with suppress(FileNotFoundError):  # A sync that wrote a newer one removed it.
                    self._files.unlink(path)
                dropped = True
        if dropped:
            # Else a power cut could bring them back when other messages are there.
            self._files.sync_directory(self._folder)
        return dropped

    def _read(self, name: SnapshotName, path: Path) -> ProducerStates | None:
        try:
            data = self._files.read_bytes(path)
        except FileNotFoundError:
            return None  # A sync that wrote a newer one removed it.
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
        """Take in the batches in `segments` from offset `start` on."""
        for segment in segments:
            position = segment.offset_index.lookup(start)
            self._take(segment.file.pread, position, segment.readable_bytes, start)

    def take_stored(self, data: Buffer) -> None:
        """Take in the batches of entries that were stored as they are."""
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
        """Have what is known now written as the snapshot at `offset`, by the next sync."""
        if not self.in_use or (self._offsets and offset <= self._offsets[-1]):
            return
        self._offsets.append(offset)
        superfluous = [*self._offsets[:-KEPT], *(self._unreadable - {offset})]
        del self._offsets[:-KEPT]
        self._unreadable.clear()
        states = self.states.copy()
        self._pending.append(PendingSnapshot(self._folder, offset, states, superfluous))

    def outlive(self, offset: int, end_offset: int) -> None:
        """Have a snapshot that tells what is known of the batches below `offset`, whose segments
        are about to be dropped; without one it is taken at the log end. See `write_waiting`."""
        covered = bool(self._offsets) and self._offsets[-1] >= offset
        if len(self.states) and not covered:
            self.take_snapshot(end_offset)

    def write_waiting(self) -> None:
        """Write, durably, the snapshots that wait for a sync.

        May run in any thread. Raises `OSError`; they go on waiting then.
        """
        waiting = [one for one in (*self._handed_out, *self._pending) if not one.settled]
        for snapshot in waiting[-KEPT:]:
            snapshot.write(self._files)

    @property
    def to_be_written(self) -> bool:
        """Whether a snapshot waits for a sync."""
        return bool(self._pending) and not all(one.settled for one in self._pending)

    def hand_out(self) -> list[PendingSnapshot]:
        """The snapshots that the sync that begins now has to write at its end."""
        handed_out, self._pending = [one for one in self._pending if not one.settled], []
        self._handed_out = [one for one in self._handed_out if not one.settled] + handed_out
        return handed_out

    def hand_back(self, handed_out: Sequence[PendingSnapshot]) -> None:
        """Leave what was handed out to another sync: that one did not come to it, or found no room.

        What later snapshots have made superfluous is left alone.
        """
        self._handed_out = [one for one in self._handed_out if one not in handed_out]
        left = [one for one in handed_out if not one.settled and one.offset in self._offsets]
        self._pending = [*left, *self._pending]

    def prepare_cut(self, offset: int) -> None:
        """Remove, durably, the snapshots behind `offset`, from where on the log is about to be cut
        off. Raises `OSError`."""
        for pending in (*self._pending, *self._handed_out):
            if pending.offset > offset:
                pending.withdraw()
        self._pending = [one for one in self._pending if one.offset <= offset]
        self._drop_beyond(newest_first(self._files, self._folder), offset)

    def load_again(self, segments: Sequence[Segment]) -> None:
        """Learn anew what is known, now that the end was cut off. Raises `OSError`."""
        if self.in_use:
            self.states.leave()
            self.states = ProducerStates()
            self.load(segments, {}, clean=False)
            self.enter_room()

    def enter_room(self) -> None:
        """Count what is known with what other logs know, until `close`."""
        self.states.enter(self._room)

    def close(self) -> None:
        """The log is not used any more."""
        self.states.leave()

    def drop_below(self, offset: int) -> None:
        """The log begins at `offset` now: forget what speaks only of what was before it."""
        if not self.in_use:
            return
        self.states.forget_below(offset)
        for name, path in newest_first(self._files, self._folder)[1:]:
            if name.offset < offset:
                with suppress(FileNotFoundError):  # A sync that wrote a newer one removed it.
                    self._files.unlink(path)

    def before(self, offset: int) -> ProducerStates:
        """What is known of messages below `offset`, where the log begins, and of nothing else."""
        found = ProducerStates()
        for producer_id, one in self.states.items():
            batches = tuple(each for each in one.batches if each.first_offset < offset)
            if batches:
                found.put_back(producer_id, KnownProducer(one.epoch, batches, one.seen_ms, -1))
        return found

    def begin_with(self, states: ProducerStates, offset: int) -> None:
        """Know what another log knew at `offset`, where this one, which is empty, begins."""
        self.states.leave()
        self.states, self.in_use = states, True
        self.enter_room()
        self.take_snapshot(offset)
        with suppress(OSError):  # No message follows that would have it synced; else the next does.
            self.write_waiting()

    def expire(self, now_ms: int, after_ms: int, count_max: int) -> None:
        """Forget producers that were silent for longer than `after_ms`, or are too many."""
        self.states.expire(now_ms, after_ms)
        self.states.keep(count_max)


def _may_hold_batches(
    segment: Segment, checksums: Mapping[int, SegmentChecksums], unknown: bool
) -> bool:
    """Whether to look for batches in a segment; `unknown` where nothing tells its formats."""
    if not segment.size_bytes:
        return False
    changes: Sequence[tuple[int, int]] = segment.magic_changes
    if not changes and segment.base_offset in checksums:
        changes = checksums[segment.base_offset].magic_changes
    return any(magic == _BATCHES for _, magic in changes) if changes else unknown


_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0


def aborted_below(files: Files, folder: Path, offset: int) -> list[AbortedSpan]:
    """The transactions that were aborted below `offset`, in the order in which they ended.

    Reads Kafka's index of aborted transactions, `<base offset>.txnindex`, in folders that Kafka
    wrote: an entry of 34 bytes for each transaction whose end is in the segment, all integers
    big-endian: version int16 (0), producer id, first offset, last offset, last stable offset, all
    int64. We write none: our own snapshots hold what is aborted. Entries that make no sense are
    left out. Raises `OSError`.
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
    """The headers of the batches with a producer id from `start` to `end` of a log file, and where
    they begin; `None` first of all, when there is any batch.

    `start` is where an entry begins. All else is passed over. Ends at bytes that are no entry: what
    they are is for others to judge. Raises `OSError`.
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
    """Take a batch that is stored at `position` into `states`. Raises `OSError`."""
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
    """What is remembered of a batch that is stored."""
    return ProducerBatch(
        header.base_sequence,
        header.last_offset_delta + 1,
        header.base_offset,
        header.max_timestamp_ms if header.is_append_time else NO_TIMESTAMP,
    )


def control_mark(batch: Buffer, header: BatchHeader) -> int | None:
    """What a control batch says: 0 a transaction was aborted, 1 it was committed; `None` when it
    does not make sense."""
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
