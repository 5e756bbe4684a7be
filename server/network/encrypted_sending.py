"""Sending answers whose record sets are in files, encrypted: read and written in bounded pieces."""

from typing import Final

from ...protocol.api.writing import InMemory
from ...storage.read.file_range import FileRange
from .file_sending import FileChanged, FileSender

PIECE_BYTES: Final = 64 << 10
"""Bytes that are read, encrypted and given to the transport at a time."""


class EncryptedFileSender(FileSender):
    """As `FileSender`; the transport takes every byte."""

    def _send_bytes(self, data: InMemory) -> None:
        self._transport.write(data)

    def _send_stretch(self, stretch: FileRange) -> int:
        if not stretch.intact:
            raise FileChanged("the end of a log was cut off while it was being sent")
        position = stretch.position + self._sent
        size = min(self._in_memory - self._sent, PIECE_BYTES)
        piece = stretch.file.pread(size, position)
        if not piece:
            raise FileChanged("a log file is shorter than it was")
        self._transport.write(piece)
        self._advance(len(piece), stretch)
        return len(piece)
