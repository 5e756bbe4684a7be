"""Whether the append times of a segment can be true."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from ..entries.log_reader import CHUNK_BYTES
from ..files import Files
from ..index.append_time_blocks import ENTRY
from .findings import Finding
from .index_rules import append_time_rule

_DELETE: Final = "stop the broker and delete this file; the append times in it are unknown then"
_UNKNOWN: Final = "nothing: the next start keeps the entries before it"


def check_append_times(
    files: Files, path: Path, base_offset: int, end_offset: int, *, settled: bool
) -> Iterator[Finding]:
    """What is wrong with the append times of the segment from `base_offset` up to `end_offset`.

    `settled` says that the segment was closed; else the last write may have been torn. Raises
    `OSError`.
    """
    with closing(files.open(path, read_only=True)) as file:
        size_bytes = file.size()
        torn = size_bytes % ENTRY.size
        step = CHUNK_BYTES - CHUNK_BYTES % ENTRY.size
        last = -1
        for start in range(0, size_bytes - torn, step):
            data = file.pread(min(step, size_bytes - torn - start), start)
            for number, (relative, timestamp_ms) in enumerate(
                ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY.size])
            ):
                rule = _rule(relative, timestamp_ms, last, base_offset, end_offset)
                if rule is not None:
                    advice = _DELETE if settled else _UNKNOWN
                    position = start + number * ENTRY.size
                    yield Finding(path, position, rule, advice, error=settled)
                    return
                last = relative
    if torn:
        rule = f"the file ends inside an entry: {size_bytes} bytes are no multiple of {ENTRY.size}"
        advice = _DELETE if settled else _UNKNOWN
        yield Finding(path, size_bytes - torn, rule, advice, error=settled)


def _rule(
    relative: int, timestamp_ms: int, last: int, base_offset: int, end_offset: int
) -> str | None:
    """The rule that an entry breaks, in words."""
    rule = append_time_rule(relative, timestamp_ms, last, base_offset)
    if rule is None and base_offset + relative >= end_offset:
        return f"offset {base_offset + relative} is past the segment's end, {end_offset}"
    return rule
