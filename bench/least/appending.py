"""What no broker can leave out that stores what it understands: produce requests are decoded, their
sets checked and numbered with the broker's kernel and written, each with its append time, and
answers are encoded. There is one topic with one partition; nothing is looked up, refused, indexed
or timed."""

import os
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from struct import Struct
from typing import Final

from ...protocol.api.encodings import Encoding
from ...protocol.api.framing import Frame
from ...protocol.api.log.produce import (
    PRODUCE,
    ProducePartitionResult,
    ProduceResponse,
    ProduceTopicResult,
)
from ...protocol.api.native import frames as native
from ...protocol.api.writing import in_memory
from ...storage.files import Buffer
from ..raw_client import newest
from .numbering import numbered

_APPEND_TIME: Final = Struct(">iq")


class Appending:
    """A log of two files, `log` and `times`, in a folder."""

    def __init__(
        self, folder: Path, encoding: Encoding = native, file_bytes: int = 0, kept_bytes: int = 0
    ) -> None:
        """With `file_bytes` other two files are begun when the log has so many: as segments are,
        those before are synced, and removed when there are `kept_bytes` behind them, in a thread.
        """
        self._folder = folder
        self._file_bytes = file_bytes
        self._kept_files = kept_bytes // file_bytes if file_bytes else 0
        self._thread = ThreadPoolExecutor(1)
        self._closing: list[Future[None]] = []
        self._files = 0
        self.next_offset = 0
        """Of the message that comes next."""
        self._begin()
        version = newest(PRODUCE, encoding)
        self._request = encoding.reader(PRODUCE, version)
        self._encoded = encoding.answers_encoder(PRODUCE, version)

    def _paths(self, number: int) -> list[Path]:
        return [self._folder / (f"{name}{number}" if number else name) for name in ("log", "times")]

    def _begin(self) -> None:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        self.log, self._times = (os.open(path, flags) for path in self._paths(self._files))
        self._size_bytes = self._sets = 0

    def _roll(self) -> None:
        closed = (self.log, self._times)
        removed = self._files - self._kept_files
        self._files += 1
        self._begin()
        paths = self._paths(removed) if removed >= 0 else ()
        self._closing = [one for one in self._closing if not one.done() or one.result()]
        self._closing.append(self._thread.submit(_close, closed, paths))

    def close(self) -> None:
        """Wait for the thread, which has to have done what it was to do."""
        for one in self._closing:
            one.result()
        self._thread.shutdown()
        os.close(self.log)
        os.close(self._times)

    def write(self, data: Buffer, offsets: Sequence[int], now_ms: int) -> None:
        """Write sets that begin at these offsets, and their append times."""
        if 0 < self._file_bytes <= self._size_bytes:
            self._roll()
        if os.pwrite(self.log, data, self._size_bytes) != len(data):
            raise OSError("the disk is full")
        self._size_bytes += len(data)
        times = b"".join(map(_APPEND_TIME.pack, offsets, repeat(now_ms)))
        os.pwrite(self._times, times, self._sets * _APPEND_TIME.size)
        self._sets += len(offsets)

    def append(self, frames: Sequence[Frame]) -> bytes:
        """Append what produce requests bring; their answers, one behind the other. Raises
        `ValueError` for others."""
        requests = [one for one in map(self._request, frames) if one is not None]
        if len(requests) != len(frames):
            raise ValueError("not a produce request")
        sets = [one.body.topics[0].partitions[0].records for one in requests]
        now_ms = time.time_ns() // 1_000_000
        found = numbered(sets, self.next_offset, now_ms)
        self.write(found.data, found.first_offsets, now_ms)
        self.next_offset = found.last_offset + 1
        responses: list[ProduceResponse] = []
        for request, offset in zip(requests, found.first_offsets, strict=True):
            topic = request.body.topics[0]
            result = ProducePartitionResult(
                partition=topic.partitions[0].partition, base_offset=offset
            )
            responses.append(
                ProduceResponse(topics=[ProduceTopicResult(name=topic.name, partitions=[result])])
            )
        ids = [one.correlation_id for one in requests]
        return b"".join(map(in_memory, self._encoded(ids, responses)))


def _close(synced: Sequence[int], removed: Sequence[Path]) -> None:
    for file in synced:
        os.fdatasync(file)
        os.close(file)
    for path in removed:
        path.unlink()
