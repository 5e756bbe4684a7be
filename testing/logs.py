"""A log in a folder of its own, which tests open, stop, kill and open again."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from ..config.topic import topic_settings
from ..protocol.records.batch import BatchHeader, read_header, write_header
from ..protocol.records.layout import (
    BATCH_ATTRIBUTES_AT,
    BATCH_MAGIC,
    BATCH_OVERHEAD,
    ENTRY_OVERHEAD,
    MAGIC_AT,
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Codec,
)
from ..protocol.records.messages.sets import Entry, NewRecord, Record, build_set, entries, records
from ..storage.directory.deletion import DeletionQueue
from ..storage.files import Buffer, SystemFiles
from ..storage.log.admission import admit_fast
from ..storage.log.admitted import Appended
from ..storage.log.log import Log
from ..storage.log.log_opening import open_log
from ..storage.open_files import OpenFiles
from ..storage.read import reader
from ..storage.seams import ProducerBudget, Seams
from .clock import ManualClock
from .files import FaultyFiles

ENTRY_BYTES = {0: 31, 1: 39}
"""By magic, the bytes of one plain message of `timed_set` as an entry."""


class RecordedEvents:
    """A recorder of events; implements `horolog.storage.events.Observer`."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, event: str, /, **fields: object) -> None:
        self.seen.append((event, fields))

    def named(self, event: str) -> list[dict[str, Any]]:
        """Return the fields of every event with this name, in order."""
        return [fields for name, fields in self.seen if name == event]


def timed_set(
    *timestamps_ms: int,
    magic: int = 1,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
    value: bytes = b"hello",
) -> bytearray:
    """Return a record set as a producer sends it, with a message without key for each timestamp."""
    new = [NewRecord(value, timestamp_ms=timestamp_ms) for timestamp_ms in timestamps_ms]
    return build_set(new, magic=magic, codec=codec, base_offset=base_offset)


def untimed_set(count: int = 1, *, codec: Codec = Codec.NONE) -> bytearray:
    """Return a set of v0 messages, which have no time."""
    return timed_set(*[-1] * count, magic=0, codec=codec)


def empty_batch(
    base_offset: int,
    next_offset: int,
    *,
    max_timestamp_ms: int = NO_TIMESTAMP,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    base_sequence: int = -1,
) -> bytearray:
    """Return a batch without records that covers the offsets up to `next_offset`.

    Kafka's cleaner leaves such a batch when it has removed all records of an idempotent producer's
    last batch.
    """
    batch = bytearray(BATCH_OVERHEAD)
    header = BatchHeader(
        base_offset,
        BATCH_OVERHEAD - ENTRY_OVERHEAD,
        NO_LEADER_EPOCH,
        BATCH_MAGIC,
        0,
        attributes,
        next_offset - 1 - base_offset,
        NO_TIMESTAMP,
        max_timestamp_ms,
        producer_id,
        -1 if producer_id == NO_PRODUCER_ID else 0,
        base_sequence,
        0,
    )
    write_header(batch, header)
    return batch


def by_set(outcomes: Sequence[Appended | Exception]) -> list[Appended | Exception]:
    """Split outcomes of `Log.append_sets` into one per set, as if each set had been appended by
    itself. Facts known only of several sets together are left out."""
    alone: list[Appended | Exception] = []
    for outcome in outcomes:
        if isinstance(outcome, Exception) or len(outcome.first_offsets) == 1:
            alone.append(outcome)
            continue
        for first_offset, next_offset in pairwise(
            (*outcome.first_offsets, outcome.last_offset + 1)
        ):
            stamp_ms, count = outcome.append_time_ms, next_offset - first_offset
            alone.append(
                Appended((first_offset,), next_offset - 1, stamp_ms, count, -1, None, None)
            )
    return alone


def delete_due(queue: DeletionQueue) -> int:
    """Run the deletions that are due, step by step. Returns how many of the queued paths were
    removed."""
    waiting = len(queue)
    while queue.run_step() is not None:
        pass
    return waiting - len(queue)


class LogFolder:
    """One log with a clock that stands still and files that can be made to fail."""

    def __init__(self, path: Path, *, open_files_max: int = 8) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.clock = ManualClock()
        self.files = FaultyFiles(SystemFiles())
        self.events = RecordedEvents()
        self.deletions = DeletionQueue(self.files, self.clock, self.events)
        self.open_files = OpenFiles(self.files, open_files_max)
        self.random = Random(1)
        self.producer_room = ProducerBudget(self.clock)
        self.settings: dict[str, str] = {}
        self._log: Log | None = None
        self._follows = False

    @property
    def log(self) -> Log:
        """The log that was opened last."""
        assert self._log is not None
        return self._log

    def set(self, **settings: object) -> None:
        """Override settings (named with underscores) of the open log, and of logs opened later."""
        self.settings |= {name.replace("_", "."): str(value) for name, value in settings.items()}
        if self._log is not None:
            self._log.set_settings(topic_settings({}, self.settings))

    def open(
        self,
        *,
        clean: bool = True,
        end_offset: int | None = None,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        gaps: bool = False,
        high_watermark: int | None = None,
        follows: bool = False,
        topic: str = "t",
        **settings: object,
    ) -> Log:
        """Open the log. `settings` are as in `set`."""
        self.set(**settings)
        self._log = open_log(
            self.path,
            topic,
            0,
            topic_settings({}, self.settings),
            Seams(
                self.clock,
                self.files,
                self.events,
                self.deletions,
                self.open_files,
                self.random,
                self.producer_room,
            ),
            clean=clean,
            end_offset=end_offset,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            gaps=gaps,
            high_watermark=high_watermark,
            follows=follows,
        )
        self._follows = follows
        return self._log

    def let_go(self) -> None:
        """Release the log like `kill -9`: written data stay, and nothing else is done."""
        if self._log is not None:
            for segment in self._log.segments:
                segment.release()
        self.open_files.close()

    def restart(self) -> Log:
        """Stop the log cleanly, and open it again."""
        log = self.log
        log.close()
        return self.open(
            recovery_point=log.recovery_point,
            log_start_offset=log.log_start_offset,
            gaps=log.gaps,
            high_watermark=self._kept_watermark(log),
            follows=self._follows,
        )

    def kill_and_restart(self, *, checkpointed: bool = True) -> Log:
        """Kill the log and open it again, with the checkpoints of that moment or with none."""
        log = self.log
        self.let_go()
        return self.open(
            clean=False,
            recovery_point=log.recovery_point if checkpointed else 0,
            log_start_offset=log.log_start_offset if checkpointed else 0,
            gaps=log.gaps,
            high_watermark=self._kept_watermark(log),
            follows=self._follows,
        )

    def _kept_watermark(self, log: Log) -> int | None:
        """Return the high watermark that a cluster member has in its checkpoint."""
        return log.high_watermark if self._follows and log.watermark.held else None

    def usual(self, record_sets: Sequence[Buffer]) -> int:
        """Return how many of the first sets would be admitted together on the fast path. Changes
        nothing."""
        log = self.log
        if not record_sets:
            return 0
        copies = [bytes(record_set) for record_set in record_sets]
        states, now_ms = log.producers.states, self.clock.now_ms()
        admitted = admit_fast(copies, log.settings, log.segments[-1], states, now_ms)
        return 0 if admitted is None else len(admitted.first_offsets)

    def append(self, *timestamps_ms: int, codec: Codec = Codec.NONE) -> list[int]:
        """Append each timestamp as a set of one message, and return the offsets."""
        return [
            self.log.appender.append(timed_set(ms, codec=codec)).first_offset
            for ms in timestamps_ms
        ]

    def stored(self) -> bytes:
        """Return everything below the high watermark, as a consumer fetches it."""
        log = self.log
        parts: list[bytes] = []
        offset = log.log_start_offset
        while offset < log.high_watermark:
            data = reader.read(log, offset, 1 << 20, whole_first=True).read()
            whole = list(entries(data))
            if not whole:
                break
            parts.append(data[: whole[-1].end])
            offset = whole[-1].offset + 1
        return b"".join(parts)

    def entries(self) -> list[Entry]:
        """Return the stored entries; CRCs are verified."""
        return list(entries(self.stored()))

    def records(self) -> list[Record]:
        """Return the messages; wrappers are decompressed."""
        return list(records(self.stored(), max_decompressed_bytes=1 << 24))

    def times(self) -> list[tuple[int, int]]:
        """Return offset and timestamp of every message."""
        return [(record.offset, record.timestamp_ms) for record in self.records()]

    def bases(self) -> list[int]:
        """Return the base offsets of the segments."""
        return [segment.base_offset for segment in self.log.segments]

    def time_entries(self, number: int = -1) -> list[tuple[int, int]]:
        """Return the entries of one segment's time index: timestamp and offset."""
        index = self.log.segments[number].time_index
        return [index.entry(entry) for entry in range(len(index))]

    def offset_entries(self, number: int = -1) -> list[tuple[int, int]]:
        """Return the entries of one segment's offset index: offset and position."""
        index = self.log.segments[number].offset_index
        return [index.entry(entry) for entry in range(len(index))]

    def found(self, *targets_ms: int) -> list[tuple[int, int] | None]:
        """Search for each target, and return timestamp and offset of the message found."""
        self.log.prepare()
        results = [reader.find_time(self.log, target_ms).run() for target_ms in targets_ms]
        return [(found.timestamp_ms, found.offset) if found else None for found in results]

    def names(self, suffix: str = "") -> list[str]:
        """Return the names of files in the folder that end in `suffix`."""
        return [path.name for path in sorted(self.path.iterdir()) if path.name.endswith(suffix)]

    def content(self, suffixes: Sequence[str] = ("",)) -> dict[str, bytes]:
        """Return the content, by name, of the files whose names end in one of `suffixes`."""
        return {
            path.name: path.read_bytes()
            for path in sorted(self.path.iterdir())
            if path.name.endswith(tuple(suffixes))
        }


def later_format(stored: bytes) -> bytes:
    """Return the same record batches in a format that does not exist yet (magic 3)."""
    data, position = bytearray(stored), 0
    while position < len(data):
        header = read_header(data, position)
        data[position + MAGIC_AT] = 3
        # With a valid CRC it would pass for a batch whose magic has one flipped bit.
        data[position + BATCH_ATTRIBUTES_AT] ^= 1
        position += header.size_bytes
    return bytes(data)
