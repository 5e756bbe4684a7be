"""Snapshots of producer states: `<offset>.producers`, beside the segments.

A snapshot has the states at a log end offset, so that a start has to read only the batches after
it. It is written at each roll and at a clean stop, for logs with record batches. All integers are
big-endian:

    crc      uint32   CRC-32 of all that follows
    version  int16    0
    offset   int64    the log end offset at which it was taken
    producers int32   then for each: id int64, epoch int16, seen (ms) int64, first offset of its
                      open transaction int64 (-1: none), batches int8, and for each of these:
                      first sequence int32, messages int32, first offset int64, append time int64
    aborted  int32    then for each: producer id, first offset, last offset, all int64

Kafka's own snapshots, `<offset>.snapshot`, are read too, in a folder copied from Kafka; they
remember one batch of each producer. Kafka ignores Horolog's snapshots, and these are newer than
Kafka's as soon as Horolog has appended.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct, error
from threading import Lock
from typing import Final
from zlib import crc32

from ...protocol.records.kernel import crc32c
from ...values import value_class
from ..files import Files, replace_file
from ..names import MAX_OFFSET, OFFSET_DIGITS
from .producer_states import (
    SEQUENCES,
    AbortedSpan,
    KnownProducer,
    ProducerBatch,
    ProducerStates,
)

SUFFIX: Final = ".producers"
UNFINISHED_SUFFIX: Final = SUFFIX + ".tmp"
"""Suffix of a snapshot file whose writing a crash interrupted."""
KAFKA_SUFFIX: Final = ".snapshot"

KEPT: Final = 2
"""Number of snapshots kept: a second one in case the newest cannot be read."""

_NAME: Final = re.compile(r"([0-9]{20})(\.producers|\.snapshot)")
_VERSION: Final = 0
_CRC: Final = Struct(">I")
_HEAD: Final = Struct(">hqi")
_PRODUCER: Final = Struct(">qhqqb")
_BATCH: Final = Struct(">iiqq")
_COUNT: Final = Struct(">i")
_ABORTED: Final = Struct(">qqq")

_KAFKA_VERSION: Final = 1
_KAFKA_HEAD: Final = Struct(">hIi")
_KAFKA_CRC_END: Final = 6
_KAFKA_PRODUCER: Final = Struct(">qhiqiqiq")


class MalformedSnapshot(ValueError):
    """A snapshot's bytes are not valid."""


@value_class
class SnapshotName:
    """The offset of a snapshot file, and whether Kafka wrote it."""

    offset: int
    of_kafka: bool


def snapshot_path(folder: Path, offset: int) -> Path:
    """Return the path of the snapshot at `offset`."""
    return folder / f"{offset:0{OFFSET_DIGITS}d}{SUFFIX}"


def parse_snapshot_name(name: str) -> SnapshotName | None:
    """Parse the name of a snapshot file; `None` for other files."""
    match = _NAME.fullmatch(name)
    if match is None or int(match[1]) > MAX_OFFSET:
        return None
    return SnapshotName(int(match[1]), match[2] == KAFKA_SUFFIX)


def encode_snapshot(states: ProducerStates, offset: int) -> bytes:
    """Return the content of the snapshot of `states` at `offset`."""
    parts = [_HEAD.pack(_VERSION, offset, len(states))]
    for producer_id, producer in states.items():
        batches = producer.batches
        parts.append(
            _PRODUCER.pack(
                producer_id, producer.epoch, producer.seen_ms, producer.open_offset, len(batches)
            )
        )
        parts += [_BATCH.pack(*batch) for batch in batches]
    parts.append(_COUNT.pack(len(states.aborted)))
    parts += [_ABORTED.pack(*transaction) for transaction in states.aborted]
    body = b"".join(parts)
    return _CRC.pack(crc32(body)) + body


def decode_snapshot(data: bytes, offset: int) -> ProducerStates:
    """Return the states in a snapshot named after `offset`. Raises `MalformedSnapshot`."""
    if len(data) < _CRC.size or _CRC.unpack_from(data)[0] != crc32(data[_CRC.size :]):
        raise MalformedSnapshot("its checksum does not fit")
    states = ProducerStates()
    try:
        version, of_offset, count = _HEAD.unpack_from(data, _CRC.size)
        if version != _VERSION or of_offset != offset:
            raise MalformedSnapshot(f"version {version}, offset {of_offset}: not what was expected")
        at = _CRC.size + _HEAD.size
        for _ in range(count):
            producer_id, epoch, seen_ms, open_offset, batch_count = _PRODUCER.unpack_from(data, at)
            at += _PRODUCER.size
            batches = []
            for _ in range(batch_count):
                batches.append(ProducerBatch(*_BATCH.unpack_from(data, at)))
                at += _BATCH.size
            states.put_back(producer_id, KnownProducer(epoch, tuple(batches), seen_ms, open_offset))
        (aborted,) = _COUNT.unpack_from(data, at)
        at += _COUNT.size
        for _ in range(aborted):
            states.aborted.append(AbortedSpan(*_ABORTED.unpack_from(data, at)))
            at += _ABORTED.size
    except error as cut:
        raise MalformedSnapshot(f"it ends early: {cut}") from cut
    if at != len(data):
        raise MalformedSnapshot(f"{len(data) - at} bytes are left over")
    return states


def decode_kafka_snapshot(data: bytes, seen_ms: int) -> ProducerStates:
    """Return the states in a snapshot that Kafka wrote. Its producers count as last seen at
    `seen_ms`.

    Raises `MalformedSnapshot`.
    """
    try:
        version, crc, count = _KAFKA_HEAD.unpack_from(data)
    except error as cut:
        raise MalformedSnapshot(f"it ends early: {cut}") from cut
    if version != _KAFKA_VERSION or crc != crc32c(data, _KAFKA_CRC_END, len(data)):
        raise MalformedSnapshot(f"version {version}, or its checksum does not fit")
    if len(data) != _KAFKA_HEAD.size + count * _KAFKA_PRODUCER.size:
        raise MalformedSnapshot(f"{len(data)} bytes do not hold {count} producers")
    states = ProducerStates()
    for number in range(count):
        at = _KAFKA_HEAD.size + number * _KAFKA_PRODUCER.size
        producer_id, epoch, last_sequence, last_offset, delta, _, _, open_offset = (
            _KAFKA_PRODUCER.unpack_from(data, at)
        )
        batches: tuple[ProducerBatch, ...] = ()
        if last_sequence >= 0 and delta >= 0:
            first_sequence = (last_sequence - delta) % SEQUENCES
            batches = (ProducerBatch(first_sequence, delta + 1, last_offset - delta, -1),)
        states.put_back(producer_id, KnownProducer(epoch, batches, seen_ms, open_offset))
    return states


def newest_first(files: Files, folder: Path) -> list[tuple[SnapshotName, Path]]:
    """Return the snapshots in a folder, newest first. At the same offset, Horolog's comes before
    Kafka's. Raises `OSError`."""
    found = [
        (parsed, folder / name)
        for name in files.names(folder)
        if (parsed := parse_snapshot_name(name)) is not None
    ]
    return sorted(found, key=lambda item: (-item[0].offset, item[0].of_kafka))


class PendingSnapshot:
    """A snapshot to be written, in any thread, once everything below it is synced or about to be
    dropped."""

    def __init__(
        self, folder: Path, offset: int, states: ProducerStates, superfluous: Sequence[int]
    ) -> None:
        """`states` are those at `offset`. Once written, the snapshots at the offsets `superfluous`
        may be removed."""
        self.offset = offset
        self._superfluous = superfluous
        self._folder = folder
        self._states = states
        self._lock = Lock()
        self.settled = False
        """Whether it was written, skipped or withdrawn."""

    def write(self, files: Files) -> None:
        """Write the snapshot durably and remove the superfluous ones, unless it is settled.

        Raises `OSError`; it can be written later then.
        """
        with self._lock:
            if self.settled:
                return
            content = encode_snapshot(self._states, self.offset)
            replace_file(files, snapshot_path(self._folder, self.offset), content)
            self.settled = True
        self._remove_superfluous(files)

    def skip(self, files: Files) -> None:
        """Do not write the snapshot, because `KEPT` later ones were written. Raises `OSError`."""
        with self._lock:
            if self.settled:
                return
            self.settled = True
        self._remove_superfluous(files)

    def _remove_superfluous(self, files: Files) -> None:
        for offset in self._superfluous:
            with suppress(FileNotFoundError):  # Truncation or retention removed it.
                files.unlink(snapshot_path(self._folder, offset))

    def withdraw(self) -> None:
        """Prevent the snapshot from being written, because the log was truncated."""
        with self._lock:
            self.settled = True
