"""Logs to damage in two places at once, all ways to damage one place, and what must be left."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from horolog.protocol.records.layout import ENTRY_OVERHEAD, MAGIC_AT, SIZE_AT, Codec
from horolog.protocol.records.messages.sets import records
from horolog.storage.log.log import Log
from horolog.storage.read import reader
from horolog.testing.directories import DataDirectory
from horolog.testing.logs import timed_set
from horolog.tests.followers.appending import append_copy

Message = tuple[int, int, bytes | None]
"""Offset, timestamp and value."""

MISLEADING: Final = ("offset + 1", "offset - 1", "offset + 7")
CRC_AT: Final = ENTRY_OVERHEAD
MAX_BYTES: Final = 1 << 20
SEGMENTS: Final = 4
ENTRIES: Final = 3
"""In each segment."""


@dataclass(frozen=True)
class Stored:
    """An entry, as it was stored."""

    segment: int
    position: int
    data: bytes
    first_offset: int
    last_offset: int
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class Damage:
    """One damage: what it does to the folder, and which entries it touches."""

    name: str
    apply: Callable[[Path], None]
    touched: frozenset[int]
    """Numbers of entries whose bytes or place are not what they were."""
    at: tuple[int, int] = (-1, -1)
    """Segment and position; of two in one segment the later one goes first."""
    misleads: bool = False
    """Whether an offset becomes another one that could be right where offsets may jump."""
    moves: bool = False
    """Whether whole entries stand where others were."""


def sets(kind: str) -> Iterator[bytearray]:
    """The sets of a log, one an entry: `ENTRIES` for each segment."""
    for number in range(SEGMENTS * ENTRIES):
        times = [1000 + 10 * number + step for step in range(1 + number % 3)]
        value = b"value %02d" % number
        form = kind if kind != "mixed" else ("plain", "wrappers", "batches")[number % 3]
        if form == "plain":
            yield timed_set(times[0], value=value)
        elif form == "wrappers":
            yield timed_set(*times, value=value, codec=Codec.GZIP)
        else:
            yield timed_set(*times, magic=2, value=value)


def fill(data: DataDirectory, kind: str, *, gaps: bool) -> list[Stored]:
    """Make topic `t` of that kind, stop it cleanly, and tell what is stored."""
    directory = data.open()
    directory.create_topic("t", 1, {"index.interval.bytes": "0", "retention.ms": "-1"})
    log = directory.log("t", 0)
    for number, one in enumerate(sets(kind)):
        if number and number % ENTRIES == 0:
            log.appender.roll()
        if gaps:
            append_with_gap(log, one, number)
        else:
            log.appender.append(one)
    log.flusher.flush()
    data.close()
    return stored(data.path / "t-0")


def append_with_gap(log: Log, one: bytearray, number: int) -> None:
    """As another log had it, where some of the messages in front of it are gone."""
    end = log.log_end_offset + (2 if number % 4 == 1 else 0)
    count = len(list(records(one, max_decompressed_bytes=MAX_BYTES)))
    last = end if one[MAGIC_AT] == 2 else end + count - 1
    one[:8] = last.to_bytes(8, "big")
    append_copy(log, one)


def stored(folder: Path) -> list[Stored]:
    """The entries in the order of the log."""
    found = []
    for segment, path in enumerate(sorted(folder.glob("*.log"))):
        data = path.read_bytes()
        position = 0
        while position < len(data):
            size = int.from_bytes(data[position + SIZE_AT : position + ENTRY_OVERHEAD], "big")
            one = data[position : position + ENTRY_OVERHEAD + size]
            inside = tuple(
                (record.offset, record.timestamp_ms, record.value)
                for record in records(one, max_decompressed_bytes=MAX_BYTES)
            )
            found.append(Stored(segment, position, one, inside[0][0], inside[-1][0], inside))
            position += len(one)
    return found


def damages(log: list[Stored], names: list[str]) -> Iterator[Damage]:
    """Every damage to one place; `names` are those of the log files."""
    for number, one in enumerate(log):
        yield from _to_entry(number, one, names[one.segment])
    for number, (one, after) in enumerate(pairwise(log)):
        if one.segment == after.segment:
            yield from _to_order(number, one, after, names[one.segment])
    for segment, name in enumerate(names):
        inside = frozenset(n for n, one in enumerate(log) if one.segment == segment)
        yield Damage(f"no {name}", _removed(name), inside, (segment, -1))
        for suffix in ("index", "timeindex", "appendtime"):
            derived = name.replace("log", suffix)
            yield Damage(f"no {derived}", _removed(derived), frozenset())
            yield Damage(f"wrong {derived}", _written(derived, b"\x7f" * 24), frozenset())
    yield Damage("no checksums", _removed("index-checksums"), frozenset())
    yield Damage("wrong checksums", _written("index-checksums", b"0\nx\n"), frozenset())


def _to_entry(number: int, one: Stored, name: str) -> Iterator[Damage]:
    start, end = one.position, one.position + len(one.data)
    offset = int.from_bytes(one.data[:8], "big")
    size = len(one.data) - ENTRY_OVERHEAD
    cuts = {
        "last byte": (end - 1, bytes([one.data[-1] ^ 8])),
        "CRC": (start + CRC_AT, bytes([one.data[CRC_AT] ^ 1])),
        "offset + 1": (start, (offset + 1).to_bytes(8, "big")),
        "offset - 1": (start, ((offset - 1) % 2**64).to_bytes(8, "big")),
        "offset + 7": (start, (offset + 7).to_bytes(8, "big")),
        "offset far": (start, (offset + (1 << 40)).to_bytes(8, "big")),
        "offset below zero": (start, b"\x80" + one.data[1:8]),
        "size + 1": (start + SIZE_AT, (size + 1).to_bytes(4, "big")),
        "size - 1": (start + SIZE_AT, (size - 1).to_bytes(4, "big")),
        "size 0": (start + SIZE_AT, bytes(4)),
        "size huge": (start + SIZE_AT, b"\x7f\xff\xff\xff"),
        "magic": (start + MAGIC_AT, bytes([one.data[MAGIC_AT] ^ 1])),
        "magic 9": (start + MAGIC_AT, b"\x09"),
        "zeros": (start, bytes(len(one.data))),
        "zeros in front": (start, bytes(20)),
        "zeros at the end": (end - 10, bytes(10)),
    }
    for what, (at, content) in cuts.items():
        yield Damage(
            f"{what} of entry {number}",
            _overwritten(name, at, content),
            frozenset([number]),
            (one.segment, at),
            what in MISLEADING,
        )
    yield Damage(
        f"cut in entry {number}",
        _cut(name, end - 5),
        frozenset(range(number, (number // ENTRIES + 1) * ENTRIES)),
        (one.segment, end - 5),
    )


def _to_order(number: int, one: Stored, after: Stored, name: str) -> Iterator[Damage]:
    start = one.position
    end = after.position + len(after.data)
    yield Damage(
        f"entry {number} twice",
        _replaced(name, start, start + len(one.data), one.data * 2),
        frozenset(),
        (one.segment, start),
        moves=True,
    )
    yield Damage(
        f"entries {number} and {number + 1} swapped",
        _replaced(name, start, end, after.data + one.data),
        frozenset([number, number + 1]),
        (one.segment, start),
        moves=True,
    )


def _removed(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink(missing_ok=True)


def _written(name: str, content: bytes) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return apply


def _overwritten(name: str, at: int, content: bytes) -> Callable[[Path], None]:
    return _replaced(name, at, at + len(content), content)


def _cut(name: str, at: int) -> Callable[[Path], None]:
    return _replaced(name, at, MAX_BYTES, b"")


def _replaced(name: str, start: int, end: int, content: bytes) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / name
        if path.exists():
            data = path.read_bytes()
            if start < len(data):
                path.write_bytes(data[:start] + content + data[end:])

    return apply


def apply(folder: Path, *pair: Damage) -> None:
    """Damage the log."""
    for one in sorted(pair, key=lambda damage: damage.at, reverse=True):
        one.apply(folder)


def certain(log: list[Stored], *pair: Damage, gaps: bool) -> Iterator[Stored]:
    """The entries that are what they were, and whose place nothing contradicts.

    Where offsets may jump, an entry whose offset changed a little is as good as its neighbours.
    """
    touched = frozenset().union(*(one.touched for one in pair))
    misled = {one.at[0] for one in pair if one.misleads and gaps}
    for number, one in enumerate(log):
        if number not in touched and one.segment not in misled:
            yield one


def read(log: Log) -> dict[int, Message]:
    """Every message that is served, by its offset, each asked for by itself."""
    log.prepare()
    found: dict[int, Message] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = reader.read(log, offset, 1, whole_first=True).read()
        inside = [
            (record.offset, record.timestamp_ms, record.value)
            for record in records(data, max_decompressed_bytes=MAX_BYTES, from_offset=offset)
        ]
        if not inside:
            break
        found |= {message[0]: message for message in inside}
        offset = inside[-1][0] + 1
    return found
