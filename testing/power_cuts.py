"""The states in which a power cut can leave a recorded directory.

Each change that was not synced when the power was cut may have landed on the disk or not,
independently of the others:

- a write lands in pieces, one for each 512-byte sector that it touches, in any combination; the
  file's new length may land without the bytes, which then are zeros;
- a truncation lands or not;
- an added, changed or removed name lands or not. A rename is one step: the file has either the old
  name or the new one. A file whose new name did not land is gone, synced or not.

Real file systems keep more order than that; code that survives these states survives them.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from .recording import (
    FileSync,
    FileWrite,
    Image,
    Link,
    Operation,
    RecordingFiles,
    Rename,
    SyncDirectory,
    Truncate,
    Unlink,
)

SECTOR_BYTES: Final = 512
"""Bytes that a disk writes at once."""

_PIECES_MAX = 8
"""A longer write is split into at most this many pieces, at random places."""

Part = tuple[int, int]
"""Number of an operation, and number of a piece of it that can land by itself."""


@dataclass(frozen=True, slots=True)
class CutState:
    """One state of a directory that a power cut may leave."""

    operations_done: int
    """Number of operations that had been requested when the power was cut."""
    tree: dict[str, bytes | None]
    """Content by path; `None` for a directory."""
    lost: tuple[str, ...]
    """Descriptions of the pieces that did not land."""

    def make(self, path: Path) -> None:
        """Create the directory at `path`, which must not exist."""
        path.mkdir()
        for name, content in self.tree.items():
            if content is None:
                (path / name).mkdir()
            else:
                (path / name).write_bytes(content)


class PowerCuts:
    """The states that power cuts during one recording may leave."""

    def __init__(
        self, recording: RecordingFiles, random: Random, *, exhaustive_max: int, samples: int
    ) -> None:
        """If the operations up to some point allow at most `exhaustive_max` states, all are tried.

        If there are more, these are tried: nothing landed, everything landed, and `samples` random
        ones of four kinds: all but one piece, one piece alone, everything up to one piece, and any
        pieces.
        """
        self._recording = recording
        self._operations = recording.operations
        self._random = random
        self._exhaustive_max = exhaustive_max
        self._samples = samples
        self._pieces = self._tear()
        self._safe_from = self._sync_places()
        self.exhaustive = 0
        """Number of points at which every state was tried."""
        self.sampled = 0
        """Number of points at which only some states were tried."""

    def _tear(self) -> list[list[tuple[int, int]]]:
        """Return, for each operation, the pieces that can land by themselves.

        A piece is a range `(start, end)` of a write's bytes; a last, empty one is the file's new
        length. Other operations have one piece.
        """
        sizes = {node: len(content) for node, content in self._recording.start.contents.items()}
        pieces: list[list[tuple[int, int]]] = []
        for operation in self._operations:
            parts = [(0, 0)]
            if isinstance(operation, FileWrite):
                parts = self._sectors(operation)
                end = operation.position + len(operation.data)
                if end > sizes.get(operation.node, 0):
                    parts.append((len(operation.data), len(operation.data)))
                    sizes[operation.node] = end
            elif isinstance(operation, Truncate):
                sizes[operation.node] = operation.size
            pieces.append(parts)
        return pieces

    def _sectors(self, write: FileWrite) -> list[tuple[int, int]]:
        length = len(write.data)
        first = SECTOR_BYTES - write.position % SECTOR_BYTES
        cuts = list(range(first, length, SECTOR_BYTES))
        if len(cuts) >= _PIECES_MAX:
            cuts = sorted(self._random.sample(cuts, _PIECES_MAX - 1))
        return list(zip([0, *cuts], [*cuts, length], strict=True))

    def _sync_places(self) -> list[int]:
        """Return, for each operation, the number of operations after which it is safe; a number
        past the end means never."""
        never = len(self._operations) + 1
        safe_from = [never] * len(self._operations)
        contents: dict[int, int] = {}
        names: dict[int, int] = {}
        for number in reversed(range(len(self._operations))):
            operation = self._operations[number]
            match operation:
                case FileSync():
                    contents[operation.node] = number + 1
                case SyncDirectory():
                    names[operation.node] = number + 1
                case FileWrite() | Truncate():
                    safe_from[number] = contents.get(operation.node, never)
                case Link() | Unlink():
                    safe_from[number] = names.get(operation.directory, never)
                case Rename():
                    safe_from[number] = max(
                        names.get(operation.directory, never),
                        names.get(operation.target_directory, never),
                    )
        return safe_from

    def states(self, again_at: Collection[int] = (), start: int = 0) -> Iterator[CutState]:
        """Yield the states after each number of operations from `start` on; each state only once.

        States that an earlier cut could have left too are skipped, except after as many operations
        as are in `again_at`: the code promises more from there on.
        """
        seen: set[int] = set()
        for count in range(start, len(self._operations) + 1):
            again = count == start or count in again_at
            if again:
                seen.clear()
            yield from self._states_after(count, seen, again)

    def states_after(self, count: int) -> Iterator[CutState]:
        """Yield the states after exactly `count` operations."""
        return self._states_after(count, set(), True)

    def _states_after(self, count: int, seen: set[int], again: bool) -> Iterator[CutState]:
        parts = [
            (number, part)
            for number in range(count)
            if self._safe_from[number] > count and not self._is_sync(number)
            for part in range(len(self._pieces[number]))
        ]
        fresh = [part for part in parts if part[0] == count - 1]
        if not again and not fresh:
            return
        settled = self._build(parts[0][0] if parts else count, count, frozenset())
        first = parts[0][0] if parts else count
        for chosen in self._choices(parts, () if again else tuple(fresh)):
            image = self._build(count, count, chosen, (first, settled))
            tree = image.tree()
            key = hash(tuple(tree.items()))
            if key not in seen:
                seen.add(key)
                lost = tuple(self._in_words(part) for part in parts if part not in chosen)
                yield CutState(count, tree, lost)

    def _is_sync(self, number: int) -> bool:
        return isinstance(self._operations[number], FileSync | SyncDirectory)

    def _choices(self, parts: list[Part], fresh: Sequence[Part]) -> Iterator[frozenset[Part]]:
        """Yield the sets of pieces that land: every subset, or a sample if there are too many.

        If `fresh` is not empty, each set contains one of its pieces.
        """
        if 1 << len(parts) <= self._exhaustive_max:
            self.exhaustive += 1
            for mask in range(1 << len(parts)):
                chosen = frozenset(part for bit, part in enumerate(parts) if mask >> bit & 1)
                if not fresh or not chosen.isdisjoint(fresh):
                    yield chosen
            return
        self.sampled += 1
        if not fresh:
            yield frozenset()
        yield frozenset(parts)
        for _ in range(self._samples):
            chosen = self._sample(parts)
            if fresh and chosen.isdisjoint(fresh):
                chosen |= {self._random.choice(fresh)}
            yield chosen

    def _sample(self, parts: list[Part]) -> frozenset[Part]:
        number = self._random.randrange(len(parts))
        match self._random.randrange(4):
            case 0:
                return frozenset(parts) - {parts[number]}
            case 1:
                return frozenset({parts[number]})
            case 2:
                return frozenset(parts[:number])
        share = self._random.choice((0.2, 0.5, 0.8))
        return frozenset(part for part in parts if self._random.random() < share)

    def _build(
        self,
        end: int,
        count: int,
        chosen: frozenset[Part],
        before: tuple[int, Image] | None = None,
    ) -> Image:
        """Return the image after the first `end` of `count` operations, of which the `chosen`
        pieces landed.

        `before` is the number of operations already applied, and the image after them.
        """
        start, image = before or (0, self._recording.start)
        image = image.copy()
        for number in range(start, end):
            safe = self._safe_from[number] <= count
            parts = [
                piece
                for part, piece in enumerate(self._pieces[number])
                if safe or (number, part) in chosen
            ]
            self._apply(image, self._operations[number], parts)
        return image

    def _apply(self, image: Image, operation: Operation, pieces: list[tuple[int, int]]) -> None:  # noqa: C901 - a case an operation
        match operation:
            case FileWrite(node, position, data):
                content = image.contents[node]
                for start, end in pieces:
                    if len(content) < position + end:
                        content.extend(bytes(position + end - len(content)))
                    content[position + start : position + end] = data[start:end]
            case Truncate(node, size) if pieces:
                content = image.contents[node]
                content.extend(bytes(max(0, size - len(content))))
                del content[size:]
            case Link(directory, name, node):
                if node in self._recording.directories:
                    image.directories[node] = {}
                else:
                    image.contents[node] = bytearray()
                if pieces:
                    image.directories[directory][name] = node
            case Rename(directory, name, target_directory, target_name, node) if pieces:
                if image.directories[directory].get(name) == node:
                    del image.directories[directory][name]
                image.directories[target_directory][target_name] = node
            case Unlink(directory, name, node) if pieces:
                if image.directories[directory].get(name) == node:
                    del image.directories[directory][name]

    def _in_words(self, part: Part) -> str:
        number, piece = part
        operation = self._operations[number]
        if not isinstance(operation, FileWrite):
            return f"{number}: {operation}"
        start, end = self._pieces[number][piece]
        what = f"bytes {start}-{end}" if start < end else "the new length"
        path = self._recording.paths[operation.node]
        return f"{number}: {what} of {len(operation.data)} at {operation.position} in {path}"
